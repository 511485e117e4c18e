//! What the tables of an area of 1 TiB cost, idle and full: measured, and beside it the arithmetic for the kernel.

use std::time::Instant;

use vswap_engine::{
    Engine, Entry, GroupId, GroupLimits, PRIORITY_DEFAULT, Page, Storage, StorageError, Written,
};

use crate::engine_bench::Failure;
use crate::engine_bench::pages::{MappedPages, resident_bytes};
use crate::engine_bench::plan::Plan;
use crate::engine_bench::record::Weight;
use crate::engine_bench::setup::{engine, swap_on, swap_out_of, without_pool, write_out};

/// Slots of 1 TiB.
pub(crate) const TIB_SLOTS: u64 = 1 << 28;
/// Frames of the measured engine: enough to write out in windows, as the pager does.
const FRAMES: usize = 64;
/// Names of the rows from which the tables of one page are computed.
const BOTH: &str = "a full physical area, and the virtual slots before it";
const AREA_ALONE: &str = "of these, the physical area alone";

/// Storage that keeps nothing, because only the area's tables are weighed, not its content.
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

/// Bytes of the engine, by three ways of counting.
#[derive(Clone, Copy)]
struct Scales {
    table: u64,
    source: u64,
    resident: u64,
}

/// Weighs an engine without an area, with an idle area of 1 TiB, and with a full one of `plan.filled_slots`.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Weight>, Failure> {
    let before = resident_bytes()?;
    let (engine, pages) = engine(&without_pool(FRAMES))?;
    let bare = weigh(&engine, &pages, before)?;
    swap_on_nowhere(&engine, TIB_SLOTS)?;
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
    weights.push(full_virtual_of_a_group(plan.filled_slots)?);
    weights.extend(full_physical(plan.filled_slots)?);
    Ok(weights)
}

/// Zero pages, which take nothing but slots of the virtual area.
fn full_virtual(slots: u64) -> Result<Weight, Failure> {
    let (engine, pages) = engine(&without_pool(FRAMES))?;
    let filled = fill(&engine, &pages, slots, false, GroupId::ROOT)?;
    Ok(filled.named("virtual slots in use (zero pages)"))
}

/// The same with a group, so that each slot has to say whose it is.
fn full_virtual_of_a_group(slots: u64) -> Result<Weight, Failure> {
    let (engine, pages) = engine(&without_pool(FRAMES))?;
    let name = "bench".parse().map_err(Failure::of("no name"))?;
    let group = engine.add_group(&name, GroupLimits::default());
    let group = group.map_err(Failure::of("cannot make a group"))?;
    let filled = fill(&engine, &pages, slots, false, group)?;
    Ok(filled.named("the same, of a group"))
}

/// Pages in a physical area, each behind a virtual slot.
fn full_physical(slots: u64) -> Result<Vec<Weight>, Failure> {
    let (engine, pages) = engine(&without_pool(FRAMES))?;
    swap_on_nowhere(&engine, slots)?;
    let both = fill(&engine, &pages, slots, true, GroupId::ROOT)?;
    let area_bytes: u64 = engine.areas().iter().map(|area| area.table_bytes).sum();
    let area_alone = Weight {
        table_bytes: area_bytes,
        source_bytes: 0,
        resident_bytes: 0,
        ..both.named(AREA_ALONE)
    };
    let both = both.named(BOTH);
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

fn swap_on_nowhere(engine: &Engine, slots: u64) -> Result<(), Failure> {
    swap_on(engine, slots, PRIORITY_DEFAULT, Box::new(Nowhere))
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
    group: GroupId,
) -> Result<Weight, Failure> {
    let resident_before = resident_bytes()?;
    let before = weigh(engine, pages, resident_before)?;
    let begun = Instant::now();
    let mut scratch = engine.scratch();
    let mut window: Vec<Entry> = Vec::with_capacity(FRAMES);
    let expected = if to_area {
        Written::Physical
    } else {
        Written::Zero
    };
    let mut left = slots;
    while left > 0 {
        window.clear();
        for _ in 0..left.min(FRAMES as u64) {
            let entry = swap_out_of(engine, 0, group, |page| page.0[0] = u8::from(to_area))?;
            window.push(entry);
        }
        left -= window.len() as u64;
        write_out(engine, 0, &window, &mut scratch, expected)?;
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
    /// Bytes for each slot of the area, from the moment it is used as swap.
    pub(crate) idle_per_slot: f64,
    /// Additional bytes for each slot in use.
    pub(crate) used_per_slot: f64,
}

/// The record of a cluster is spread over this many slots.
const KERNEL_SLOTS_PER_CLUSTER: f64 = 512.0;
/// A virtual slot: its word, the virtual table's word, a group id, and its part of a record of 80 bytes.
const KERNEL_VIRTUAL_SLOT: f64 = 8.0 + 8.0 + 2.0 + 80.0 / KERNEL_SLOTS_PER_CLUSTER;
/// A slot's part of the records of a physical area, whether it is used or not.
const KERNEL_PHASE_IV_IDLE: f64 = 48.0 / KERNEL_SLOTS_PER_CLUSTER;
/// The word of a physical slot behind a virtual one. It needs no group id.
const KERNEL_SLOT_BEHIND: f64 = 8.0;

/// Count byte, group id, zero bit and cluster record (32, 32, 40, 48 bytes) exist for every slot. Tables of words exist
/// only for clusters in use, and since phase IV so do group ids. Virtual swap adds a table and a record of 80 bytes for
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
        idle_per_slot: KERNEL_PHASE_IV_IDLE,
        used_per_slot: 8.0 + 2.0,
    },
    Phase {
        name: "kernel, virtual swap in front of phase IV",
        idle_per_slot: KERNEL_PHASE_IV_IDLE,
        used_per_slot: KERNEL_VIRTUAL_SLOT + KERNEL_SLOT_BEHIND,
    },
];

/// Bytes of tables for one page that lies in a physical slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfPage {
    pub(crate) what: &'static str,
    /// The engine's, as measured.
    pub(crate) engine: f64,
    /// The kernel's with virtual swap, by arithmetic.
    pub(crate) kernel: f64,
}

/// The parts of a page's cost, and their sum. `None` if no full area was weighed.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
pub(crate) fn of_page(weights: &[Weight]) -> Option<[OfPage; 3]> {
    let per_slot = |what| {
        let weight = weights.iter().find(|weight| weight.what == what)?;
        Some(weight.table_bytes as f64 / weight.slots_used as f64)
    };
    let (both, behind) = (per_slot(BOTH)?, per_slot(AREA_ALONE)?);
    let kernel_behind = KERNEL_SLOT_BEHIND + KERNEL_PHASE_IV_IDLE;
    let of = |what, engine, kernel| OfPage {
        what,
        engine,
        kernel,
    };
    Some([
        of("its virtual slot", both - behind, KERNEL_VIRTUAL_SLOT),
        of("the physical slot behind that", behind, kernel_behind),
        of("together", both, KERNEL_VIRTUAL_SLOT + kernel_behind),
    ])
}

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
        let [front, behind, sum] = of_page(&weights).unwrap();
        assert!((front.engine + behind.engine - sum.engine).abs() < 1e-9);
        assert!(
            front.engine > 16.0 && behind.engine > 8.0,
            "{front:?} {behind:?}"
        );
        let kernel = [front, behind, sum].map(|part| format!("{:.2}", part.kernel));
        assert_eq!(kernel, ["18.16", "8.09", "26.25"]);
        assert!(of_page(&weights[..2]).is_none());
    }

    #[test]
    fn the_kernels_phases_are_what_its_texts_say() {
        let mib = |phase: &Phase| phase.idle_per_slot * TIB_SLOTS as f64 / f64::from(1 << 20);
        let idle: Vec<f64> = KERNEL[..4].iter().map(mib).collect();
        assert_eq!(idle, [816.0, 816.0, 564.0, 24.0]);
    }
}
