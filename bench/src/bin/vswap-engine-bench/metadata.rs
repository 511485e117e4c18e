//! What the tables of an area of 1 TiB cost: idle and full, measured, beside the arithmetic for the kernel.

use std::sync::Arc;
use std::time::Instant;

use vswap_engine::{
    Codec, Config, Discard, Engine, Entry, NewArea, PRIORITY_DEFAULT, Page, Shadow, Storage,
    StorageError, Written,
};

use crate::Failure;
use crate::cell::cpus;
use crate::pages::{MappedPages, resident_bytes};
use crate::plan::Plan;
use crate::record::Weight;

/// Slots of 1 TiB.
pub(crate) const TIB_SLOTS: u64 = 1 << 28;
/// Frames of the measured engine: enough to write out in windows as the pager does.
const FRAMES: usize = 64;

/// Storage that keeps nothing: the area's tables are weighed, not its content.
#[derive(Debug)]
struct Nowhere;

impl Storage for Nowhere {
    fn read(&self, _slot: u64, _pages: &mut [&mut Page]) -> Result<(), StorageError> {
        Err(StorageError::Short)
    }

    fn write(&self, _slot: u64, _pages: &[&Page]) -> Result<(), StorageError> {
        Ok(())
    }
}

/// Bytes of the engine, by three accounts.
#[derive(Clone, Copy)]
struct Scales {
    table: u64,
    source: u64,
    resident: u64,
}

/// Weighs an engine without an area, with an idle one of 1 TiB, and with one of `plan.filled_slots` that is full.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Weight>, Failure> {
    let before = resident_bytes()?;
    let (engine, pages) = engine()?;
    let bare = weigh(&engine, &pages, before)?;
    swap_on(&engine, TIB_SLOTS)?;
    let idle = weigh(&engine, &pages, before)?;
    let mut weights = vec![row(
        "an engine with 64 frames and no area",
        0,
        0,
        bare,
        None,
    )];
    weights.push(row(
        "an idle physical area beside it",
        TIB_SLOTS,
        0,
        idle,
        Some(bare),
    ));
    drop(engine);
    weights.push(full_virtual(plan.filled_slots)?);
    weights.extend(full_physical(plan.filled_slots)?);
    Ok(weights)
}

/// Zero pages: nothing but the virtual area.
fn full_virtual(slots: u64) -> Result<Weight, Failure> {
    let (engine, pages) = engine()?;
    let filled = fill(&engine, &pages, slots, false)?;
    Ok(filled.named("virtual slots in use (zero pages)"))
}

/// Pages in a physical area, each behind a virtual slot.
fn full_physical(slots: u64) -> Result<Vec<Weight>, Failure> {
    let (engine, pages) = engine()?;
    swap_on(&engine, slots)?;
    let both = fill(&engine, &pages, slots, true)?;
    let area_bytes: u64 = engine.areas().iter().map(|area| area.table_bytes).sum();
    let area_alone = Weight {
        table_bytes: area_bytes,
        source_bytes: 0,
        resident_bytes: 0,
        ..both.named("of these, the physical area alone")
    };
    let both = both.named("a full physical area, and the virtual slots before it");
    Ok(vec![both, area_alone])
}

impl Weight {
    fn named(&self, what: &str) -> Weight {
        Weight {
            what: what.to_owned(),
            ..self.clone()
        }
    }
}

fn engine() -> Result<(Engine, Arc<MappedPages>), Failure> {
    let pages = Arc::new(MappedPages::new()?);
    let config = Config {
        frames: FRAMES,
        cpus: cpus(),
        codec: Codec::None,
        pool_limit_bytes: 0,
        checksums: false,
    };
    let engine = Engine::new(&config, Arc::clone(&pages) as _);
    Ok((engine.map_err(Failure::of("cannot make an engine"))?, pages))
}

fn swap_on(engine: &Engine, slots: u64) -> Result<(), Failure> {
    let area = engine.swap_on(NewArea {
        slots,
        bad: Vec::new(),
        priority: PRIORITY_DEFAULT,
        discard: Discard::None,
        rotating: false,
        storage: Box::new(Nowhere),
    });
    area.map(|_| ()).map_err(Failure::of("cannot use an area"))
}

fn weigh(engine: &Engine, pages: &MappedPages, resident_before: u64) -> Result<Scales, Failure> {
    Ok(Scales {
        table: engine.stats().table_bytes,
        source: pages.used_bytes(),
        resident: resident_bytes()?.saturating_sub(resident_before),
    })
}

fn row(what: &str, slots: u64, slots_used: u64, now: Scales, before: Option<Scales>) -> Weight {
    let of =
        |figure: fn(&Scales) -> u64| figure(&now).saturating_sub(before.as_ref().map_or(0, figure));
    Weight {
        what: what.to_owned(),
        slots,
        slots_used,
        table_bytes: of(|scales| scales.table),
        source_bytes: of(|scales| scales.source),
        resident_bytes: of(|scales| scales.resident),
        fill_s: 0.0,
    }
}

/// Swaps out `slots` pages: to the area, or as zeros.
fn fill(
    engine: &Engine,
    pages: &MappedPages,
    slots: u64,
    to_area: bool,
) -> Result<Weight, Failure> {
    let resident_before = resident_bytes()?;
    let before = weigh(engine, pages, resident_before)?;
    let begun = Instant::now();
    let mut scratch = engine.scratch();
    let mut window: Vec<Entry> = Vec::with_capacity(FRAMES);
    let mut left = slots;
    while left > 0 {
        window.clear();
        while left > 0
            && let Some(mut frame) = engine.frame()
        {
            frame.0[0] = u8::from(to_area);
            let entry = engine.swap_out(0, frame, Shadow::ABSENT);
            window.push(entry.map_err(|(_, error)| Failure::new(error.to_string()))?);
            left -= 1;
        }
        let expected = if to_area {
            Written::Physical
        } else {
            Written::Zero
        };
        let mut failed = None;
        engine.write_out_all(0, &window, &mut scratch, |_, outcome| {
            if outcome != Ok(expected) {
                failed = Some(Failure::new(format!("a page was not taken: {outcome:?}")));
            }
        });
        failed.map_or(Ok(()), Err)?;
    }
    let now = weigh(engine, pages, resident_before)?;
    Ok(Weight {
        fill_s: begun.elapsed().as_secs_f64(),
        ..row("", slots, slots, now, Some(before))
    })
}

/// What one of the kernel's designs costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// Bytes for each slot that the area has, from the moment it is used as swap.
    pub(crate) idle_per_slot: f64,
    /// Bytes for each slot in use, on top.
    pub(crate) used_per_slot: f64,
}

/// A record of a cluster is spread over its slots.
const KERNEL_SLOTS_PER_CLUSTER: f64 = 512.0;

/// Count byte, group id, zero bit and cluster record (32, 32, 40, 48 bytes) stand for every slot; tables of words, and
/// since phase IV of group ids, for those of clusters in use. Virtual swap adds a table and a record of 80 bytes for
/// each cluster of the virtual area, and puts a physical slot without group id behind it.
pub(crate) const KERNEL: [Phase; 5] = [
    Phase {
        name: "kernel, phase I",
        idle_per_slot: 1.0 + 2.0 + 0.125 + 32.0 / KERNEL_SLOTS_PER_CLUSTER,
        used_per_slot: 8.0,
    },
    Phase {
        name: "kernel, phase II",
        idle_per_slot: 1.0 + 2.0 + 0.125 + 32.0 / KERNEL_SLOTS_PER_CLUSTER,
        used_per_slot: 8.0,
    },
    Phase {
        name: "kernel, phase III",
        idle_per_slot: 2.0 + 0.125 + 40.0 / KERNEL_SLOTS_PER_CLUSTER,
        used_per_slot: 8.0,
    },
    Phase {
        name: "kernel, phase IV",
        idle_per_slot: 48.0 / KERNEL_SLOTS_PER_CLUSTER,
        used_per_slot: 8.0 + 2.0,
    },
    Phase {
        name: "kernel, virtual swap in front of phase IV",
        idle_per_slot: 48.0 / KERNEL_SLOTS_PER_CLUSTER,
        used_per_slot: 8.0 + 8.0 + 8.0 + 2.0 + 80.0 / KERNEL_SLOTS_PER_CLUSTER,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_tebibyte_costs_next_to_nothing_and_a_full_area_what_its_slots_do() {
        let plan = Plan {
            filled_slots: 1 << 16,
            ..Plan::QUICK
        };
        let weights = run(&plan).unwrap();
        let named = |what: &str| weights.iter().find(|w| w.what.contains(what)).unwrap();
        assert!(named("idle").table_bytes <= 1 << 20, "{weights:?}");
        let both = named("virtual slots before it");
        assert_eq!(both.slots_used, 1 << 16);
        assert!(both.table_bytes / both.slots_used <= 26, "{weights:?}");
    }

    #[test]
    fn the_kernels_phases_are_what_its_texts_say() {
        let mib = |phase: &Phase| phase.idle_per_slot * TIB_SLOTS as f64 / f64::from(1 << 20);
        let idle: Vec<f64> = KERNEL[..4].iter().map(mib).collect();
        assert_eq!(idle, [816.0, 816.0, 564.0, 24.0]);
    }
}
