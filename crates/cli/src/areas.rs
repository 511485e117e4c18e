//! Opens what the user names as a swap area: one that was made before, or a private file that is made now.
//!
//! Everything that `swapon` refuses is refused here, before the area is used. The message says what to do. A run or
//! daemon opens all its areas in the same way, those that come later too.

pub mod area_file;
mod spill;

use std::sync::Arc;

use rustix::fs::statvfs;
use serde_json::Value;
use vswap_engine::Discard;
use vswap_engine::header::{self, PAGES_MAX};
use vswap_pager::{Medium, Store, SwapOn};
use vswap_sys::disk::area_file::{AreaError, AreaFile};
use vswap_sys::disk::{Disk, Options};

use crate::areas::area_file::{medium, name, remark_on_mode};
use crate::args::swap_spec::{SwapOption, SwapSpec, Swaps};
use crate::control::{Asker, Request};
use crate::failure::Failure;
use crate::output::figures::{PAGE_BYTES, bytes};
use crate::output::warning;

/// How a run or daemon opens its areas.
pub fn opening(no_encrypt: bool) -> Options {
    Options {
        encrypt: !no_encrypt,
        ..Options::default()
    }
}

/// Does what `vswap swapon` and `vswap swapoff` ask of a run or of the daemon.
pub fn change(
    store: &Store,
    opening: Options,
    request: &Request,
    asker: &Asker<'_>,
) -> Result<Value, String> {
    match request {
        Request::SwapOn(spec) => {
            let done = swap_on(store, opening, &spec.parse()?);
            done.map_err(|failure| failure.to_string())?;
        }
        Request::SwapOff(name) => {
            let done = store.swap_off(name, &|| asker.has_gone());
            done.map_err(|error| format!("{name}: {error}"))?;
        }
        _ => return Err("this is no request for an area".to_owned()),
    }
    Ok(Value::Null)
}

/// Has the store use what `--swap` says. Where that was not given a file on disk comes when it is needed; that there
/// will be none, or one smaller than `expected_bytes`, is said at once.
pub fn begin(
    store: &Arc<Store>,
    opening: Options,
    options: &[SwapOption],
    expected_bytes: u64,
    quiet: bool,
) -> Result<(), Failure> {
    match Swaps::of(options).map_err(Failure::own)? {
        Swaps::Found => spill::stand_by(store, opening, expected_bytes, quiet),
        Swaps::Named(specs) => specs
            .into_iter()
            .try_for_each(|spec| swap_on(store, opening, spec)),
    }
}

/// Opens an area and has the store use it.
fn swap_on(store: &Store, opening: Options, spec: &SwapSpec) -> Result<(), Failure> {
    let refused = |why: String| Failure::own(format!("{}: {why}", spec.path.display()));
    let area = open(spec, opening).map_err(refused)?;
    store
        .swap_on(area)
        .map_err(|error| refused(error.to_string()))
}

fn open(spec: &SwapSpec, opening: Options) -> Result<SwapOn, String> {
    let is_directory = spec.path.is_dir();
    if is_directory || (spec.size.is_some() && !spec.path.exists()) {
        private(spec, opening)
    } else if spec.size.is_some() {
        Err(
            "it exists, and a size is for private files that do not: leave the size out to use the area in it, or \
             name a directory"
                .to_owned(),
        )
    } else {
        made_before(spec, opening)
    }
}

/// A private file. It grows up to its size, or up to the size of its file system.
fn private(spec: &SwapSpec, opening: Options) -> Result<SwapOn, String> {
    let directory = if spec.path.is_dir() {
        Some(spec.path.as_path())
    } else {
        spec.path.parent()
    };
    let found = directory.and_then(|directory| statvfs(directory).ok());
    let bytes = match (spec.size, &found) {
        (Some(bytes), _) => bytes,
        (None, Some(found)) => found.f_blocks.saturating_mul(found.f_frsize),
        (None, None) => u64::MAX,
    };
    let slots = (bytes / PAGE_BYTES).min(PAGES_MAX);
    let disk = Disk::private(&spec.path, slots * PAGE_BYTES, opening)
        .map_err(|error| error.to_string())?;
    if let (Some(wanted), Some(found)) = (spec.size, found) {
        remark_on_room(spec, wanted, found.f_bavail.saturating_mul(found.f_frsize));
    }
    Ok(SwapOn {
        name: name(&spec.path).map_err(|error| error.to_string())?,
        medium: Medium::disk(disk),
        slots,
        bad: Vec::new(),
        priority: spec.priority,
        tier: spec.tier.clone().unwrap_or_default(),
        // Freed slots are given back to the file system.
        discard: spec.discard.unwrap_or(Discard::Pages),
    })
}

/// The file grows as it is needed, so too little room is no error yet. But a user who asked for more than there is
/// should know.
fn remark_on_room(spec: &SwapSpec, wanted: u64, free: u64) {
    if wanted > free {
        warning(&format!(
            "{}: it may grow to {}, and only {} are free there",
            spec.path.display(),
            bytes(wanted),
            bytes(free)
        ));
    }
}

/// An area with a header.
fn made_before(spec: &SwapSpec, opening: Options) -> Result<SwapOn, String> {
    let file = AreaFile::open(&spec.path).map_err(|error| match error {
        AreaError::Missing => format!(
            "{error}: make an area with vswap mkswap, name a directory, or give a size for a private file ({}:8G)",
            spec.path.display()
        ),
        error => error.to_string(),
    })?;
    let ends = file.ends().map_err(|error| error.to_string())?;
    let header = header::decode(&ends.head, medium(&file)).map_err(|error| match file.bytes() {
        0 => format!(
            "it is empty, and no swap area yet; do: vswap mkswap {} --size 2G",
            spec.path.display()
        ),
        _ => error.to_string(),
    })?;
    // A warning about the file's mode would only distract from a file that is no area.
    if let Some(remark) = remark_on_mode(&file) {
        warning(&format!("{}: {remark}", spec.path.display()));
    }
    if header.dropped_pages > 0 {
        warning(&format!(
            "{}: {} of its pages lie beyond what an area can have, and are not used",
            spec.path.display(),
            header.dropped_pages
        ));
    }
    let disk = Disk::of_area(file, opening).map_err(|error| error.to_string())?;
    Ok(SwapOn {
        name: name(&spec.path).map_err(|error| error.to_string())?,
        medium: Medium::disk(disk),
        slots: header.pages,
        // The header lies in the first page.
        bad: std::iter::once(0)
            .chain(header.bad_pages.iter().copied().map(u64::from))
            .collect(),
        priority: spec.priority,
        tier: spec.tier.clone().unwrap_or_default(),
        discard: spec.discard.unwrap_or(Discard::None),
    })
}
