//! Four areas of equal priority, which take turns, against the same four one after the other.
//!
//! One after the other was the kernel's default before its default priorities were made equal. Here each area gets a
//! priority of its own for that. Pages do not compress and go straight to the areas. There are two storages. With
//! memory, only the allocator tells the two policies apart. The other is memory that serves one request at a time, as a
//! device does.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use vswap_engine::{
    Engine, Entry, PAGE_BYTES, PRIORITY_DEFAULT, Page, RamStorage, Scratch, Storage, StorageError,
    Written,
};

use crate::engine_bench::Failure;
use crate::engine_bench::cell::{cpu, together};
use crate::engine_bench::pages::fill_words;
use crate::engine_bench::plan::{Plan, THREADS, in_order};
use crate::engine_bench::record::AreaSample;
use crate::engine_bench::setup::{self, swap_on, swap_out, without_pool, write_out};
use crate::random::Random;

/// As many as in the kernel's comparison.
const AREAS: usize = 4;
/// Slots of each: 64 MiB, 32 clusters.
const AREA_SLOTS: usize = 1 << 14;
/// The part of all slots that is filled. In the kernel's run 26 of 64 GiB were in use.
const FILLED_PERCENT: usize = 41;
/// Pages that are written out together, as in the pager.
const WINDOW: usize = 64;
/// The device's time for a request of any length, like that of a good disk.
const DEVICE_REQUEST: Duration = Duration::from_micros(50);

/// How areas are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Policy {
    TakeTurns,
    OneByOne,
}

/// The storage behind the areas.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Medium {
    Memory,
    Device,
}

const POLICIES: [Policy; 2] = [Policy::TakeTurns, Policy::OneByOne];
const MEDIA: [Medium; 2] = [Medium::Memory, Medium::Device];

impl Policy {
    const fn name(self) -> &'static str {
        match self {
            Policy::TakeTurns => "default priority (take turns)",
            Policy::OneByOne => "distinct priorities (one by one)",
        }
    }

    fn priority(self, index: usize) -> i16 {
        match self {
            Policy::TakeTurns => PRIORITY_DEFAULT,
            Policy::OneByOne => i16::try_from(AREAS - index).unwrap_or(0),
        }
    }
}

impl Medium {
    const fn name(self) -> &'static str {
        match self {
            Medium::Memory => "memory",
            Medium::Device => "device, 50 us a request",
        }
    }

    fn storage(self) -> Result<Box<dyn Storage>, Failure> {
        let ram = RamStorage::new(AREA_SLOTS);
        // Then the first write of a slot costs no page fault: the areas are compared, not the memory.
        let page = Page::zeroed();
        for slot in 0..AREA_SLOTS as u64 {
            ram.write(slot, &[&page])
                .map_err(Failure::of("no memory for an area"))?;
        }
        Ok(match self {
            Medium::Memory => Box::new(ram),
            Medium::Device => Box::new(Device {
                ram,
                queue: Mutex::new(()),
            }),
        })
    }
}

/// Memory that serves one request at a time.
#[derive(Debug)]
struct Device {
    ram: RamStorage,
    queue: Mutex<()>,
}

impl Device {
    /// Serves a request. The caller sleeps while the device works, as with a disk.
    fn request<T>(&self, serve: impl FnOnce() -> T) -> T {
        let _turn = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(DEVICE_REQUEST);
        serve()
    }
}

impl Storage for Device {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        self.request(|| self.ram.read(slot, pages))
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.request(|| self.ram.write(slot, pages))
    }
}

/// Measures both policies on both media with every number of threads.
pub(crate) fn run(plan: &Plan) -> Result<Vec<AreaSample>, Failure> {
    let mut sides = Vec::new();
    for medium in MEDIA {
        for policy in POLICIES {
            sides.push((medium, policy, engine(medium, policy)?));
        }
    }
    let mut samples = Vec::new();
    for backwards in plan.backwards_by_round() {
        let sides: Vec<_> = in_order(&sides.iter().collect::<Vec<_>>(), backwards);
        for threads in THREADS {
            for (medium, policy, engine) in &sides {
                samples.push(measure(engine, plan.area_fills, threads)?.named(*medium, *policy));
            }
        }
    }
    Ok(samples)
}

/// An engine with four empty areas.
fn engine(medium: Medium, policy: Policy) -> Result<Engine, Failure> {
    let (engine, _) = setup::engine(&without_pool(THREADS[THREADS.len() - 1] * WINDOW))?;
    for index in 0..AREAS {
        let (priority, storage) = (policy.priority(index), medium.storage()?);
        swap_on(&engine, AREA_SLOTS as u64, priority, storage)?;
    }
    Ok(engine)
}

/// Fills the areas and frees everything again, `fills` times.
fn measure(engine: &Engine, fills: usize, threads: usize) -> Result<AreaSample, Failure> {
    let windows = AREAS * AREA_SLOTS * FILLED_PERCENT / 100 / WINDOW / threads;
    let (mut out, mut slowest, mut free) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut cpu_s, mut used) = (0.0, Vec::new());
    for _ in 0..fills {
        let filled = fill(engine, windows, threads)?;
        used = used_percent(engine);
        out += filled.wall;
        slowest += filled.slowest;
        cpu_s += filled.cpu_s;
        let begun = Instant::now();
        filled.entries.iter().for_each(|&entry| engine.put(entry));
        free += begun.elapsed();
    }
    let of_thread = mb(fills * windows * WINDOW);
    Ok(AreaSample {
        storage: String::new(),
        policy: String::new(),
        threads,
        out_mb_per_s: of_thread * count_f64(threads) / out.as_secs_f64(),
        thread_mb_per_s: of_thread / slowest.as_secs_f64(),
        cpu_s,
        free_us: free.as_secs_f64() * 1e6 / count_f64(fills),
        used_percent: used,
    })
}

impl AreaSample {
    fn named(self, medium: Medium, policy: Policy) -> AreaSample {
        AreaSample {
            storage: medium.name().to_owned(),
            policy: policy.name().to_owned(),
            ..self
        }
    }
}

/// The result of filling the areas once.
struct Filled {
    entries: Vec<Entry>,
    wall: Duration,
    /// Time of the slowest thread.
    slowest: Duration,
    cpu_s: f64,
}

fn fill(engine: &Engine, windows: usize, threads: usize) -> Result<Filled, Failure> {
    let work = |thread| {
        let mut worker = Worker::new(engine, thread);
        move || {
            let begun = Instant::now();
            (0..windows).try_for_each(|_| worker.window())?;
            Ok((worker.entries, begun.elapsed()))
        }
    };
    let done = together(threads, work)?;
    let mut filled = Filled {
        entries: Vec::new(),
        wall: done.wall,
        slowest: Duration::ZERO,
        cpu_s: done.cpu_s,
    };
    for (entries, took) in done.parts {
        filled.entries.extend(entries);
        filled.slowest = filled.slowest.max(took);
    }
    Ok(filled)
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
fn used_percent(engine: &Engine) -> Vec<f64> {
    let figures = engine.areas();
    figures
        .iter()
        .map(|area| area.used_bytes as f64 * 100.0 / area.size_bytes as f64)
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
fn mb(pages: usize) -> f64 {
    (pages * PAGE_BYTES) as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "counts of threads and fillings")]
fn count_f64(count: usize) -> f64 {
    count as f64
}

/// A thread that swaps out.
struct Worker<'a> {
    engine: &'a Engine,
    content: Box<Page>,
    scratch: Scratch,
    entries: Vec<Entry>,
}

impl<'a> Worker<'a> {
    fn new(engine: &'a Engine, thread: usize) -> Worker<'a> {
        let mut random = Random::new(thread as u64);
        let mut content = Box::new(Page::zeroed());
        fill_words(&mut content, || random.next());
        Worker {
            engine,
            content,
            scratch: engine.scratch(),
            entries: Vec::new(),
        }
    }

    /// Copies a window of pages to frames and writes them out.
    fn window(&mut self) -> Result<(), Failure> {
        let first = self.entries.len();
        let cpu = cpu();
        for _ in 0..WINDOW {
            let entry = swap_out(self.engine, cpu, |frame| frame.0 = self.content.0)?;
            self.entries.push(entry);
        }
        let window = &self.entries[first..];
        write_out(
            self.engine,
            cpu,
            window,
            &mut self.scratch,
            Written::Physical,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_priorities_fill_evenly_and_distinct_ones_in_order() {
        let even = measure(&engine(Medium::Memory, Policy::TakeTurns).unwrap(), 1, 2).unwrap();
        let percent = FILLED_PERCENT as f64;
        let cluster = 512.0 * 100.0 / AREA_SLOTS as f64;
        let near = |used: &f64| (used - percent).abs() < 4.0 * cluster;
        assert!(even.used_percent.iter().all(near), "{even:?}");
        let one = measure(&engine(Medium::Memory, Policy::OneByOne).unwrap(), 1, 2).unwrap();
        assert_eq!(
            (one.used_percent[0], one.used_percent[3]),
            (100.0, 0.0),
            "{one:?}"
        );
    }
}
