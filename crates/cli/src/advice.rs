//! How much memory a program needs: reckoned from what sampling saw of one run.

pub mod lives;
pub mod paged;
pub mod model;
pub mod costs;
pub mod curve;
pub mod draw;
pub mod text;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;
use vswap_pager::Sampled;
use vswap_pager::samples::Packed;

use crate::advice::costs::Costs;
use crate::advice::curve::{Point, RATIO_MAX, Setup, least_bytes, whole};
use crate::advice::model::Model;
use crate::advice::paged::Paged;
use crate::output::figures::PAGE_BYTES;

/// How many times as long a program may take.
pub const RATIOS: [f64; 3] = [1.05, 1.2, 2.0];
/// What is wanted of setups that are not drawn ends here.
const RATIO_WANTED: f64 = 2.2;
/// Parts of the samples that are asked one by one, to see how much the answer depends on them.
const PARTS: u64 = 8;
/// A run that was joined is played for this part of the time before anything counts: it has been under way for long,
/// and its hand has found out what is in use.
const WARM_PERCENT: u64 = 25;
/// The answer lies within so many standard errors, 19 times of 20.
const ERRORS: f64 = 2.0;
/// What a page takes if nobody has tried: lz4 on the heaps of ten programs.
const PACKED_USUAL: f64 = 0.52;

/// What is said of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// How long the run took, or was watched.
    pub wall_seconds: f64,
    /// The limit of a run that was joined when it was under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// How long it would have taken without sampling, about.
    pub native_seconds: f64,
    /// The most memory that it had at a time.
    pub peak_bytes: u64,
    /// Pages that were watched.
    pub watched_pages: u64,
    /// One block of pages in so many was watched.
    pub one_in: u64,
    /// The least `--ram` for each loss.
    pub sizes: Vec<Size>,
    /// The curve.
    pub curve: Vec<Place>,
    /// How its pages compress, and what that does.
    pub codecs: Vec<CodecAdvice>,
    /// What an area in place of the pool would do.
    pub areas: Vec<AreaAdvice>,
    /// Why the figures may be wrong.
    pub doubts: Vec<String>,
}

/// The least `--ram` with which a program takes no more than so many times as long.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Size {
    /// How many times as long.
    pub ratio: f64,
    /// The least `--ram`.
    pub ram_bytes: u64,
    /// It is hardly less than this ...
    pub low_bytes: u64,
    /// ... or more than this, as far as the samples go.
    pub high_bytes: u64,
}

/// One point of the curve. None is more than anybody would wait for, or has no room without a disk.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Place {
    /// The limit.
    pub ram_bytes: u64,
    /// How many times as long it takes.
    pub ratio: Option<f64>,
    /// At the least.
    pub low: Option<f64>,
    /// At the most.
    pub high: Option<f64>,
    /// Pages that come in.
    pub pages_in: u64,
    /// Pages that go out.
    pub pages_out: u64,
}

/// How pages compress with a codec.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CodecAdvice {
    /// As `--codec` takes it.
    pub codec: &'static str,
    /// What is left of a page, as a share of it; pages of zeros count as nothing.
    pub packed: f64,
    /// Microseconds that it takes to compress a page.
    pub compress_us: f64,
    /// Microseconds that it takes to decompress one.
    pub decompress_us: f64,
    /// The least `--ram` for each loss.
    pub ram_bytes: [u64; RATIOS.len()],
}

/// What an area does in place of the pool.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AreaAdvice {
    /// How long one request takes.
    pub latency_us: f64,
    /// The least `--ram` for each loss.
    pub ram_bytes: [u64; RATIOS.len()],
}

/// What was measured of a run.
#[derive(Debug)]
pub struct Measured<'a> {
    /// What sampling saw.
    pub sampled: &'a Sampled,
    /// What was paged meanwhile.
    pub paged: Paged,
    /// How long the run took, or was watched.
    pub wall_seconds: f64,
    /// The limit of a run that was joined when it was under way.
    pub joined: Option<u64>,
    /// How long a request to an area takes, in microseconds: those to be tried.
    pub latencies_us: &'a [f64],
}

/// What the run tells of smaller ones. `None` if nothing of it could be watched.
pub fn advise(measured: &Measured<'_>) -> Option<Advice> {
    let sampled = measured.sampled;
    let warm = if measured.joined.is_some() {
        WARM_PERCENT
    } else {
        0
    };
    let model = Model::of(sampled).warm(warm);
    if model.pages() == 0 {
        return None;
    }
    let costs = Costs::measured(measured.paged.swap_in_us);
    let lz4 = share(sampled, sampled.packing.lz4);
    let native_seconds = native_seconds(measured, &costs);
    let setup = Setup {
        costs,
        packed: lz4,
        seconds: native_seconds * (100 - warm) as f64 / 100.0,
    };
    let forced = forced(&setup, sampled);
    let enough = setup.enough_bytes(&model);
    let likely = auto(&setup, &forced, &model, enough);
    let others: Vec<Vec<Point>> = (0..PARTS)
        .map(|part| auto(&setup, &forced, &model.part(sampled, part, PARTS), enough))
        .collect();
    Some(Advice {
        wall_seconds: measured.wall_seconds,
        limit_bytes: measured.joined,
        native_seconds,
        peak_bytes: whole(model.peak_bytes()),
        watched_pages: model.pages() as u64,
        one_in: 1 << sampled.shift,
        sizes: RATIOS.map(|ratio| size(&likely, &others, ratio)).into(),
        curve: curve(&likely, &others),
        codecs: forced.iter().map(|forced| forced.advice(&model)).collect(),
        areas: areas(&setup, &model, measured.latencies_us),
        doubts: doubts(measured, &model),
    })
}

/// What the run would have taken without faults of sampling and first touches of registered memory, and without waiting
/// for a processor: a fault costs the same on a busy machine, but the program's own work takes longer there.
fn native_seconds(measured: &Measured<'_>, costs: &Costs) -> f64 {
    let (paged, wall) = (measured.paged, measured.wall_seconds);
    let us = paged.pages_in as f64 * costs.lone_us
        + paged.pages_out as f64 * costs.out_us / 2.0
        + paged.first_touches as f64 * costs.touch_us;
    let (ran, queued) = ran_and_queued(measured);
    let threads = f64::max(1.0, (ran + queued) / wall);
    (wall - us / 1e6 - queued / threads).max(wall / 10.0)
}

/// Seconds that all threads have run and have waited for a processor. A thread that has ended is counted no more, so
/// the most that was seen of each space counts. Of a run that was joined, what was before does not.
fn ran_and_queued(measured: &Measured<'_>) -> (f64, f64) {
    let mut spaces: BTreeMap<u32, [(u64, u64); 2]> = BTreeMap::new();
    for look in &measured.sampled.looks {
        let first = match measured.joined {
            Some(_) => (look.ran_us, look.queued_us),
            None => (0, 0),
        };
        let [_, (ran, queued)] = spaces.entry(look.space).or_insert([first, first]);
        *ran = look.ran_us.max(*ran);
        *queued = look.queued_us.max(*queued);
    }
    let seconds = |last: u64, first: u64| last.saturating_sub(first) as f64 / 1e6;
    spaces
        .values()
        .fold((0.0, 0.0), |(ran, queued), [first, last]| {
            (
                ran + seconds(last.0, first.0),
                queued + seconds(last.1, first.1),
            )
        })
}

/// What is left of a page with a codec.
fn share(sampled: &Sampled, packed: Packed) -> f64 {
    let packing = &sampled.packing;
    if packing.pages == 0 {
        return PACKED_USUAL;
    }
    packed.bytes as f64 / (packing.pages * PAGE_BYTES) as f64
}

fn size(likely: &[Point], others: &[Vec<Point>], ratio: f64) -> Size {
    let all: Vec<f64> = others
        .iter()
        .map(|other| least_bytes(other, ratio))
        .collect();
    let likely = least_bytes(likely, ratio);
    let error = ERRORS * standard_error(&all);
    Size {
        ratio,
        ram_bytes: whole(likely),
        low_bytes: whole((likely - error).max(0.0)),
        high_bytes: whole(likely + error),
    }
}

/// How much an estimate from all samples varies, from those of equal parts of them.
fn standard_error(parts: &[f64]) -> f64 {
    let count = parts.len() as f64;
    let mean = parts.iter().sum::<f64>() / count;
    let squares: f64 = parts.iter().map(|part| (part - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt()
}

fn curve(likely: &[Point], others: &[Vec<Point>]) -> Vec<Place> {
    let place = |(number, point): (usize, &Point)| {
        let at: Option<Vec<f64>> = others.iter().map(|other| other[number].ratio).collect();
        let error = at.map(|ratios| ERRORS * standard_error(&ratios));
        let around = point.ratio.zip(error);
        Place {
            ram_bytes: whole(point.ram_bytes),
            ratio: point.ratio,
            low: around.map(|(ratio, error)| f64::max(1.0, ratio - error)),
            high: around.map(|(ratio, error)| ratio + error),
            pages_in: whole(point.pages_in),
            pages_out: whole(point.pages_out),
        }
    };
    likely.iter().enumerate().map(place).collect()
}

fn least(setup: &Setup, model: &Model) -> [u64; RATIOS.len()] {
    let curve = setup.curve(model, setup.enough_bytes(model), RATIO_WANTED);
    RATIOS.map(|ratio| whole(least_bytes(&curve, ratio)))
}

/// A codec that `--codec` can force, as its pages were packed in this run.
struct Forced {
    codec: &'static str,
    compress_us: f64,
    decompress_us: f64,
    setup: Setup,
}

impl Forced {
    fn advice(&self, model: &Model) -> CodecAdvice {
        CodecAdvice {
            codec: self.codec,
            packed: self.setup.packed,
            compress_us: self.compress_us,
            decompress_us: self.decompress_us,
            ram_bytes: least(&self.setup, model),
        }
    }
}

/// None if no page was packed.
fn forced(setup: &Setup, sampled: &Sampled) -> Vec<Forced> {
    let packing = &sampled.packing;
    let tried = (packing.pages - packing.zero_pages) as f64;
    if tried < 1.0 {
        return Vec::new();
    }
    let us = |ns: u64| ns as f64 / tried / 1000.0;
    let lz4 = packing.lz4;
    [("lz4", lz4), ("zstd", packing.zstd)]
        .map(|(codec, packed)| {
            let more_in = us(packed.decompress_ns) - us(lz4.decompress_ns);
            // Another processor compresses, if there is one to spare.
            let more_out = (us(packed.compress_ns) - us(lz4.compress_ns)) / 2.0;
            Forced {
                codec,
                compress_us: us(packed.compress_ns),
                decompress_us: us(packed.decompress_ns),
                setup: Setup {
                    packed: share(sampled, packed),
                    costs: setup.costs.and(more_in, more_out, 0.0),
                    ..*setup
                },
            }
        })
        .into()
}

/// The curve of `--codec auto`, which takes at each size the codec that costs less time.
fn auto(setup: &Setup, forced: &[Forced], model: &Model, enough: f64) -> Vec<Point> {
    let curve = |setup: &Setup| setup.curve(model, enough, RATIO_MAX);
    forced
        .iter()
        .map(|forced| curve(&forced.setup))
        .reduce(|one, other| one.iter().zip(&other).map(Point::quicker).collect())
        .unwrap_or_else(|| curve(setup))
}

fn areas(setup: &Setup, model: &Model, latencies_us: &[f64]) -> Vec<AreaAdvice> {
    let area = |latency_us: &f64| {
        let setup = Setup {
            packed: 0.0,
            costs: setup.costs.and(0.0, 0.0, *latency_us),
            ..*setup
        };
        AreaAdvice {
            latency_us: *latency_us,
            ram_bytes: least(&setup, model),
        }
    };
    latencies_us.iter().map(area).collect()
}

/// Fewer blocks than this say little.
const BLOCKS_FEW: usize = 64;
/// A shorter run says little of what is used again and again.
const SECONDS_FEW: f64 = 5.0;

fn doubts(measured: &Measured<'_>, model: &Model) -> Vec<String> {
    let paged = measured.paged;
    let mut doubts = Vec::new();
    if measured.wall_seconds < SECONDS_FEW {
        doubts.push(format!(
            "the run {} only {:.1} s: a longer one would say more",
            if measured.joined.is_some() {
                "was watched for"
            } else {
                "took"
            },
            measured.wall_seconds
        ));
    }
    if model.blocks() < BLOCKS_FEW {
        doubts.push("little of its memory could be watched".to_owned());
    }
    let (ran, queued) = ran_and_queued(measured);
    if queued > ran / 4.0 {
        doubts.push("other programs were busy meanwhile: all times are uncertain".to_owned());
    }
    if paged.deferred > 0 && measured.joined.is_none() {
        doubts.push("memory was short during the run: give it more with --ram".to_owned());
    }
    if measured
        .joined
        .is_some_and(|limit| whole(model.peak_bytes()) > limit)
    {
        doubts.push(
            "it has less RAM than memory: how pages are used that stay out is known the less, the longer they stay"
                .to_owned(),
        );
    }
    if paged.busy > paged.pages_out / 4 {
        doubts.push(
            "much of its memory is shared after a fork or pinned, and was not watched".to_owned(),
        );
    }
    doubts
}
