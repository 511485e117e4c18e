//! Areas in exports of block stores.

use vswap_engine::Discard;
use vswap_far::{NbdOptions, NbdSpec, NbdStorage};

use crate::far::{ask, new_id};
use crate::medium::{Medium, SwapOn};
use crate::open::Opening;
use crate::spec::SwapSpec;

/// Opens an area in an export.
pub fn open(spec: &SwapSpec, export: &NbdSpec, opening: &Opening) -> Result<SwapOn, String> {
    if opening.far_copies > 1 || opening.far_backup.is_some() {
        tracing::warn!(
            "{export}: --far-copies and --far-backup are for areas in a Valkey or Redis, and do nothing for this one"
        );
    }
    let options = NbdOptions {
        bytes: spec.size,
        ..NbdOptions::new(new_id()?)
    };
    let storage = NbdStorage::open(export, options).map_err(|error| error.to_string())?;
    // What is free goes back to whoever lent it, where the server can do that.
    let discard = match storage.export().can_trim {
        true => Discard::Pages,
        false => Discard::None,
    };
    let ask = ask(storage.watch());
    Ok(SwapOn {
        name: export.to_string(),
        slots: storage.slots(),
        bad: storage.bad().to_vec(),
        medium: Medium::far(Box::new(storage), "nbd", ask),
        priority: spec.priority,
        tier: spec.tier.clone().unwrap_or_default(),
        discard: spec.discard.unwrap_or(discard),
    })
}
