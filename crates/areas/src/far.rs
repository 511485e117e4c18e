//! Areas in a store on other machines: asking the store, and making the area's storage.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use vswap_engine::header::PAGES_MAX;
use vswap_engine::{Codec, Discard, Storage};
use vswap_far::{
    AreaId, Demand, FarOptions, FarSpec, FarStorage, FarWatch, Patience, Probe, RunId, probe,
};
use vswap_sys::disk::Disk;

use crate::ask_far::AskFar;
use crate::medium::{Medium, SwapOn};
use crate::on_disk::OnDisk;
use crate::open::Opening;
use crate::spec::SwapSpec;
use crate::units::PAGE_BYTES;

/// Numbers of the areas in stores that this process has.
static AREAS: AtomicU32 = AtomicU32::new(0);

/// Opens an area in a store. `codec` is the engine's.
pub fn open(
    spec: &SwapSpec,
    store: &FarSpec,
    opening: &Opening,
    codec: Codec,
) -> Result<SwapOn, String> {
    let slots = slots(spec, store, opening)?;
    let backup = opening.far_backup.as_deref();
    let backup = backup
        .map(|directory| backup_in(directory, slots, opening))
        .transpose()?;
    let options = FarOptions {
        copies: opening.far_copies,
        backup,
        ..FarOptions::new(new_id()?, slots, codec)
    };
    let storage = FarStorage::open(store, options).map_err(|error| error.to_string())?;
    for remark in &storage.probe().warnings {
        tracing::warn!("{store}: {remark}");
    }
    let (kind, ask) = (storage.probe().kind, ask(storage.watch()));
    Ok(SwapOn {
        name: store.to_string(),
        medium: Medium::far(Box::new(storage), kind, ask),
        slots,
        bad: Vec::new(),
        priority: spec.priority,
        tier: spec.tier.clone().unwrap_or_default(),
        discard: spec.discard.unwrap_or(Discard::Pages),
    })
}

/// The name of an area that no other of any run has.
pub fn new_id() -> Result<AreaId, String> {
    let run = RunId::random().ok_or("the system has no random numbers for its name")?;
    let area = AREAS.fetch_add(1, Ordering::Relaxed);
    Ok(AreaId { run, area })
}

/// How many pages the area has: as the user says, or as the store has room for.
fn slots(spec: &SwapSpec, store: &FarSpec, opening: &Opening) -> Result<u64, String> {
    let bytes = match spec.size {
        Some(bytes) => bytes,
        None => {
            let demand = Demand {
                slots: 0,
                copies: opening.far_copies,
            };
            let found = probe(store, demand, &Patience::default());
            let found = found.map_err(|error| error.to_string())?;
            free_bytes(&found).ok_or_else(|| {
                format!("it has no maxmemory, so say how much may be used of it: --swap {store}:8G")
            })? / opening.far_copies as u64
        }
    };
    Ok((bytes / PAGE_BYTES).min(PAGES_MAX))
}

/// What a store has room for. None if it has no limit.
#[must_use]
pub fn free_bytes(found: &Probe) -> Option<u64> {
    let free =
        |node: &vswap_far::ProbedNode| Some(node.memory_max?.saturating_sub(node.memory_used));
    found.nodes.iter().map(free).sum()
}

/// How status asks an area.
pub fn ask(watch: FarWatch) -> AskFar {
    AskFar::new(move || serde_json::to_value(watch.figures()?).ok())
}

/// The private file behind a store.
fn backup_in(directory: &Path, slots: u64, opening: &Opening) -> Result<Box<dyn Storage>, String> {
    let disk = Disk::private(directory, slots * PAGE_BYTES, opening.disk);
    let disk = disk.map_err(|error| format!("--far-backup {}: {error}", directory.display()))?;
    Ok(Box::new(OnDisk::new(disk)))
}
