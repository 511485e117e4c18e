//! The engine against older designs, under identical loads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine_bench::Failure;
use crate::engine_bench::cell::{BATCH, Cell, Meter, cpu, cpus};
use crate::engine_bench::plan::{Plan, THREADS, in_order};
use crate::engine_bench::record::{ABLATION, Sample};
use crate::engine_bench::variants::{CountMap, GlobalTree, Real, SlotCache, SwapTable, Variant};
use crate::random::Random;

/// Slots that all threads hold together: 64 MiB of pages, 32 clusters. The same for any number of threads, so that more
/// threads do not mean more cache misses.
const HELD: usize = 1 << 14;
/// Lookups of a mixed step. Readahead and several sharers bring pages back, and each time they are looked up.
const LOOKUPS: usize = 4;

/// The variants.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Engine,
    SwapTable,
    GlobalTree,
    CountMap,
    SlotCache,
}

const ALL: [Who; 5] = [
    Who::Engine,
    Who::SwapTable,
    Who::GlobalTree,
    Who::CountMap,
    Who::SlotCache,
];

impl Who {
    const fn name(self) -> &'static str {
        match self {
            Who::Engine => "engine",
            Who::SwapTable => "its design",
            Who::GlobalTree => "global tree",
            Who::CountMap => "count map",
            Who::SlotCache => "slot cache",
        }
    }

    fn make(self) -> Result<Box<dyn Variant>, Failure> {
        let cpus = cpus();
        Ok(match self {
            Who::Engine => Box::new(Real::new(cpus)?),
            Who::SwapTable => Box::new(SwapTable::new(cpus)),
            Who::GlobalTree => Box::new(GlobalTree::new(cpus)),
            Who::CountMap => Box::new(CountMap::new(cpus)),
            Who::SlotCache => Box::new(SlotCache::new(cpus)),
        })
    }
}

/// What every variant does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Looks up slots that all threads hold.
    Lookup,
    /// Frees a slot picked at random and allocates another.
    AllocFree,
    /// Adds a reference and takes it away.
    DupPut,
    /// All of these: one slot changed, one shared, four looked up.
    Mixed,
}

const LOADS: [Load; 4] = [Load::Lookup, Load::AllocFree, Load::DupPut, Load::Mixed];

impl Load {
    const fn name(self) -> &'static str {
        match self {
            Load::Lookup => "lookup",
            Load::AllocFree => "alloc+free",
            Load::DupPut => "dup+put",
            Load::Mixed => "mixed",
        }
    }
}

/// Measures every variant under every load with every number of threads.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Sample>, Failure> {
    let meter = Meter::new(plan.cell);
    let mut samples = Vec::new();
    for backwards in plan.backwards_by_round() {
        for load in LOADS {
            for threads in THREADS {
                for who in in_order(&ALL, backwards) {
                    let name = format!("{ABLATION}{}", load.name());
                    if !plan.wants(&name, who.name()) {
                        continue;
                    }
                    let variant = who.make()?;
                    let cell = measure(&meter, &*variant, load, threads)?;
                    samples.push(Sample {
                        table_bytes: variant.table_bytes(),
                        ..Sample::new(&name, who.name(), threads, &cell)
                    });
                }
            }
        }
    }
    Ok(samples)
}

fn measure(
    meter: &Meter,
    variant: &dyn Variant,
    load: Load,
    threads: usize,
) -> Result<Cell, Failure> {
    let held: Box<[AtomicU64]> = (0..HELD).map(|_| AtomicU64::new(0)).collect();
    // One thread after the other fills its places, so that a thread's slots lie together, as with pages evicted
    // together.
    for place in &held {
        place.store(alloc(variant)?, Ordering::Relaxed);
    }
    let each = HELD / threads;
    meter.run(threads, |thread| {
        let mut worker = Worker {
            variant,
            all: &held,
            own: &held[thread * each..(thread + 1) * each],
            random: Random::new(thread as u64),
            cpu: cpu(),
        };
        Ok(move || worker.batch(load))
    })
}

fn alloc(variant: &dyn Variant) -> Result<u64, Failure> {
    variant
        .alloc(cpu())
        .ok_or_else(|| Failure::new("slots or frames ran out: a load holds more than there are"))
}

/// One thread's part of a load.
struct Worker<'a> {
    variant: &'a dyn Variant,
    /// The slots that all threads hold. Another thread's slot may be free when it is looked up.
    all: &'a [AtomicU64],
    own: &'a [AtomicU64],
    random: Random,
    cpu: usize,
}

impl Worker<'_> {
    fn batch(&mut self, load: Load) -> Result<(), Failure> {
        self.cpu = cpu();
        for _ in 0..BATCH {
            match load {
                Load::Lookup => self.lookup(),
                Load::AllocFree => self.replace()?,
                Load::DupPut => self.share(),
                Load::Mixed => {
                    self.replace()?;
                    self.share();
                    (0..LOOKUPS).for_each(|_| self.lookup());
                }
            }
        }
        Ok(())
    }

    fn pick(&mut self, own: bool) -> &AtomicU64 {
        let from = if own { self.own } else { self.all };
        &from[self.random.below(from.len())]
    }

    fn lookup(&mut self) {
        let slot = self.pick(false).load(Ordering::Relaxed);
        std::hint::black_box(self.variant.lookup(slot));
    }

    fn share(&mut self) {
        let slot = self.pick(true).load(Ordering::Relaxed);
        self.variant.dup(slot);
        self.variant.put(slot);
    }

    fn replace(&mut self) -> Result<(), Failure> {
        let (variant, cpu) = (self.variant, self.cpu);
        let place = self.pick(true);
        variant.put(place.load(Ordering::Relaxed));
        let fresh = variant.alloc(cpu);
        let fresh = fresh.ok_or_else(|| Failure::new("slots or frames ran out"))?;
        place.store(fresh, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_variant_bears_every_load() {
        let meter = Meter::new(Duration::from_millis(1));
        for who in ALL {
            for load in LOADS {
                let variant = who.make().unwrap();
                let cell = measure(&meter, &*variant, load, 3).unwrap();
                assert!(cell.ops > 0, "{} {}", who.name(), load.name());
                assert_eq!(
                    variant.used(),
                    (HELD, HELD),
                    "{} {}",
                    who.name(),
                    load.name()
                );
            }
        }
    }
}
