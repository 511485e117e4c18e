//! The model against programs whose every access is known.
//!
//! A program of the test touches pages by a seeded generator. Its run is watched as the pager watches one, by the
//! pager's own plan of sampling, and what the model makes of that is compared with the same memory played exactly:
//! every page, every access.

use std::collections::{BTreeMap, VecDeque};

use vswap_pager::Sampled;
use vswap_pager::samples::{Look, Packed, Packing};
use vswap_pager::sampling::{Plan, is_chosen, mix};
use vswap_pager::working_set::{Heat, Shadow, WorkingSet};

use super::costs::Costs;
use super::curve::{Setup, least_bytes, whole};
use super::model::{Model, Room};
use super::paged::Paged;
use super::{Measured, advise};

const PAGES: u64 = 8 << 10;
const SECONDS: u64 = 10;
const PAGE: f64 = 4096.0;
const SWEEP_US: u64 = 100_000;

/// What a program touches, in order: time and page.
type Trace = Vec<(u64, u64)>;

/// All pages are written once in a second. Then `percent` of the touches go to a quarter of the pages.
fn skewed(seed: u64, percent: u64, every_us: u64) -> Trace {
    let fill = (0..PAGES).map(|page| (page * 1_000_000 / PAGES, page));
    let later = (1_000_000..SECONDS * 1_000_000).step_by(usize::try_from(every_us).unwrap_or(1));
    let touched = later.map(|at| {
        let chance = mix(seed ^ at);
        let span = if chance % 100 < percent {
            PAGES / 4
        } else {
            PAGES
        };
        // Hot and cold pages lie side by side.
        (
            at,
            mix(chance) % span * 4 % PAGES + mix(chance) % span * 4 / PAGES,
        )
    });
    fill.chain(touched).collect()
}

/// Watches the run as an evictor does.
fn watched(trace: &Trace, shift: u32) -> Sampled {
    let mut plan = Plan::new(1, shift, 0);
    let mut sampled = Sampled {
        shift,
        end_us: SECONDS * 1_000_000,
        ..Sampled::default()
    };
    let (mut sweep_us, mut born) = (SWEEP_US, Vec::new());
    let mut out: BTreeMap<u64, u64> = BTreeMap::new();
    for &(at_us, page) in trace {
        while at_us >= sweep_us {
            let still = |page| out.contains_key(&page);
            let present: Vec<u64> = born.iter().copied().filter(|page| !still(*page)).collect();
            sampled
                .events
                .extend(plan.look(&present, &[], sweep_us, still));
            sampled.looks.push(Look {
                at_us: sweep_us,
                space: 1,
                present_pages: present.len() as u64,
                out_pages: out.len() as u64,
                run_resident_bytes: present.len() as u64 * 4096,
                ..Look::default()
            });
            for page in plan.due(sweep_us) {
                sampled.events.extend(plan.went_out(page, sweep_us));
                out.insert(page, sweep_us);
            }
            sweep_us += SWEEP_US;
        }
        if out.remove(&page).is_some() {
            sampled.events.extend(plan.came_back(page, at_us));
        }
        if born.last().is_none_or(|last| *last < page) {
            born.push(page);
        }
    }
    sampled
}

/// Memory of so many pages, under vswap's policy without streams.
struct Played {
    places: Vec<Option<Result<(Heat, u8), Shadow>>>,
    set: WorkingSet,
    hand: usize,
    present: usize,
    room: usize,
}

impl Played {
    fn new(room: usize) -> Played {
        let size = usize::try_from(PAGES).expect("it fits");
        Played {
            places: vec![None; size],
            set: WorkingSet::default(),
            hand: 0,
            present: 0,
            room,
        }
    }

    /// True if it comes in again.
    fn touch(&mut self, page: u64) -> bool {
        let page = usize::try_from(page).expect("it fits");
        let (heat, came) = match self.places[page] {
            Some(Ok(_)) => return false,
            Some(Err(shadow)) => (self.set.come_back(shadow, self.present as u64), true),
            None => (Heat::COLD, false),
        };
        self.places[page] = Some(Ok((heat, heat.laps())));
        self.present += 1;
        while self.present > self.room {
            match &mut self.places[self.hand] {
                Some(Ok((_, laps))) if *laps > 0 => *laps -= 1,
                Some(Ok(_)) => self.leave(self.hand),
                Some(Err(_)) | None => {}
            }
            self.hand = (self.hand + 1) % self.places.len();
        }
        came
    }

    fn leave(&mut self, page: usize) {
        if let Some(Ok((heat, _))) = self.places[page] {
            self.places[page] = Some(Err(self.set.leave(heat)));
            self.present -= 1;
        }
    }

    /// Pages that are in memory, or out.
    fn pages(&self, is_out: bool) -> Vec<u64> {
        let is_so = |place: &Option<Result<_, _>>| {
            place.as_ref().is_some_and(|place| place.is_err() == is_out)
        };
        let pages = (0..PAGES).zip(&self.places);
        let pages = pages.filter(|(_, place)| is_so(place));
        pages.map(|(page, _)| page).collect()
    }
}

/// Pages that come in from a moment on if only so many are in memory.
fn exactly_since(trace: &Trace, room: usize, since_us: u64) -> u64 {
    let mut played = Played::new(room);
    let came = trace
        .iter()
        .filter(|(at_us, page)| played.touch(*page) && *at_us >= since_us);
    came.count() as u64
}

/// The same from the start on.
fn exactly(trace: &Trace, room: usize) -> u64 {
    exactly_since(trace, room, 0)
}

/// Joins a run with so many pages of memory at `from_us`, and watches it to its end.
fn joined(trace: &Trace, shift: u32, room: usize, from_us: u64) -> Sampled {
    let mut plan = Plan::new(1, shift, 0);
    let mut sampled = Sampled {
        shift,
        end_us: SECONDS * 1_000_000 - from_us,
        ..Sampled::default()
    };
    let mut played = Played::new(room);
    let (mut sweep_us, mut fresh) = (from_us, Vec::new());
    for &(at_us, page) in trace {
        while at_us >= sweep_us {
            let now_us = sweep_us - from_us;
            for (page, at_us) in fresh.drain(..) {
                sampled.events.extend(plan.came_back(page, at_us));
            }
            let (present, mut out) = (played.pages(false), played.pages(true));
            let (present_pages, out_pages) = (present.len() as u64, out.len() as u64);
            out.retain(|page| is_chosen(1, *page, shift));
            let still = |page| out.binary_search(&page).is_ok();
            sampled
                .events
                .extend(plan.look(&present, &out, now_us, still));
            sampled.looks.push(Look {
                at_us: now_us,
                space: 1,
                present_pages,
                out_pages,
                run_resident_bytes: present_pages * 4096,
                ..Look::default()
            });
            for page in plan.due(now_us) {
                sampled.events.extend(plan.went_out(page, now_us));
                played.leave(usize::try_from(page).expect("it fits"));
            }
            sweep_us += SWEEP_US;
        }
        if played.touch(page) && at_us >= from_us {
            fresh.push((page, at_us - from_us));
        }
    }
    sampled
}

/// Pages that come in if those leave that were longest without a touch.
fn by_age(trace: &Trace, room: usize) -> u64 {
    let mut newest: BTreeMap<u64, usize> = BTreeMap::new();
    let mut order: VecDeque<(usize, u64)> = VecDeque::new();
    let (mut present, mut came) = (std::collections::BTreeSet::new(), 0);
    for (number, &(_, page)) in trace.iter().enumerate() {
        let is_known = newest.insert(page, number).is_some();
        order.push_back((number, page));
        if present.insert(page) && is_known {
            came += 1;
        }
        while present.len() > room {
            let (number, page) = order.pop_front().expect("what is present was touched");
            if newest.get(&page) == Some(&number) {
                present.remove(&page);
            }
        }
    }
    came
}

fn room_for(pages: f64) -> usize {
    usize::try_from(whole(pages)).expect("it fits")
}

fn room(pages: f64) -> Room {
    Room {
        ram_bytes: pages * PAGE,
        own_bytes: 0.0,
        out_page_bytes: 0.0,
    }
}

#[test]
fn the_model_finds_what_the_policy_does_with_every_page() {
    for (seed, percent) in [(1, 98), (2, 90)] {
        let trace = skewed(seed, percent, 100);
        let model = Model::of(&watched(&trace, 2));
        for part in [0.9, 0.6] {
            let pages = part * PAGES as f64;
            let found = model.play(&room(pages), |_| false);
            let found = found.lone + found.streamed;
            let truly = exactly(&trace, room_for(pages)) as f64;
            let least = by_age(&trace, room_for(pages)) as f64;
            let times = found / truly;
            assert!(
                (0.75..1.33).contains(&times),
                "{percent} % at {part}: {found} of {truly}, by age {least}"
            );
            assert!(found > least / 2.0, "nothing is so much better than age");
        }
    }
}

#[test]
fn a_run_that_was_joined_tells_of_more_and_of_less_memory_than_it_has() {
    let (from_us, warm) = (2_000_000, 25);
    let since_us = from_us + (SECONDS * 1_000_000 - from_us) / 4;
    let trace = skewed(3, 98, 100);
    let sampled = joined(&trace, 2, room_for(0.7 * PAGES as f64), from_us);
    let model = Model::of(&sampled).warm(warm);
    let peak = model.peak_bytes() / (PAGES as f64 * PAGE);
    assert!((peak - 1.0).abs() < 0.02, "what is out counts: {peak}");
    for part in [0.9, 0.8, 0.6] {
        let pages = part * PAGES as f64;
        let found = model.play(&room(pages), |_| false);
        let found = found.lone + found.streamed;
        let truly = exactly_since(&trace, room_for(pages), since_us) as f64;
        let times = found / truly;
        assert!(
            (0.67..1.5).contains(&times),
            "at {part}: {found} of {truly}"
        );
    }
    let all = model.play(&room(1.01 * PAGES as f64), |_| false);
    assert!(
        all.lone + all.streamed + all.out < 1.0,
        "with enough nothing moves: {all:?}"
    );
}

#[test]
fn a_size_is_found_within_a_few_hundredths() {
    let trace = skewed(5, 99, 100);
    let sampled = watched(&trace, 2);
    let setup = Setup {
        costs: Costs::measured(0.0),
        packed: 0.3,
        seconds: SECONDS as f64,
    };
    let size = |sampled: &Sampled| {
        let model = Model::of(sampled);
        let curve = setup.curve(&model, setup.enough_bytes(&model), 2.0);
        least_bytes(&curve, 1.05)
    };
    let all = size(&watched(&trace, 0));
    let some = size(&sampled);
    assert!((some / all - 1.0).abs() < 0.05, "{some} of {all}");
    let model = Model::of(&sampled);
    let peak = model.peak_bytes() / (PAGES as f64 * PAGE);
    assert!((peak - 1.0).abs() < 0.02, "{peak}");
}

#[test]
fn memory_that_nobody_touches_is_moved_out_once() {
    let fill = (0..PAGES).map(|page| (page * 1_000_000 / PAGES, page));
    let hot = (1_000_000..SECONDS * 1_000_000).step_by(1000);
    let trace: Trace = fill.chain(hot.map(|at| (at, mix(at) % 64))).collect();
    let model = Model::of(&watched(&trace, 2));
    let outcome = model.play(&room(PAGES as f64 / 2.0), |_| false);
    let out = outcome.out / (PAGES as f64 / 2.0);
    assert!((0.9..1.3).contains(&out), "{outcome:?}");
    assert!(outcome.lone + outcome.streamed < 500.0, "{outcome:?}");
}

#[test]
fn the_first_sizes_are_those_of_the_codec_that_costs_less_time() {
    let trace = skewed(5, 99, 100);
    let sizes = |zstd_us: u64| {
        let packed = |share: f64, us: u64| Packed {
            bytes: whole(PAGES as f64 * PAGE * share),
            compress_ns: PAGES * us * 1000,
            decompress_ns: PAGES * us * 1000,
        };
        let sampled = Sampled {
            packing: Packing {
                pages: PAGES,
                zero_pages: 0,
                lz4: packed(0.6, 1),
                zstd: packed(0.2, zstd_us),
            },
            ..watched(&trace, 2)
        };
        let measured = Measured {
            sampled: &sampled,
            paged: Paged::default(),
            wall_seconds: SECONDS as f64,
            joined: None,
            latencies_us: &[],
        };
        let advice = advise(&measured).unwrap();
        let first: Vec<u64> = advice.sizes.iter().map(|size| size.ram_bytes).collect();
        let [lz4, zstd] = [0, 1].map(|codec: usize| advice.codecs[codec].ram_bytes);
        (first, lz4, zstd)
    };
    let near = |one: u64, other: u64| (one as f64 / other as f64 - 1.0).abs() < 0.02;
    let all_near = |one: &[u64], other: &[u64]| one.iter().zip(other).all(|(a, b)| near(*a, *b));
    let (first, lz4, zstd) = sizes(1);
    assert!(zstd[2] < lz4[2], "{lz4:?} {zstd:?}");
    assert!(all_near(&first, &zstd), "{first:?} {zstd:?}");
    // Denser, but nobody would wait for it.
    let (first, lz4, zstd) = sizes(1000);
    assert!(zstd[0] > lz4[0], "{lz4:?} {zstd:?}");
    assert!(all_near(&first[..1], &lz4[..1]), "{first:?} {lz4:?}");
}
