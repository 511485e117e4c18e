//! Opens what the user names as a swap area: one that was made before, or a private file that is made now.
//!
//! Everything that `swapon` refuses is refused here, before the area is used. The message says what to do. A run or
//! daemon opens all its areas in the same way, those that come later too.

pub mod area_file;
mod blocks;
pub mod far;
mod spill;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::statvfs;
use serde_json::Value;
use vswap_engine::Discard;
use vswap_engine::header::{self, PAGES_MAX};
use vswap_pager::{Medium, Store, SwapOn};
use vswap_sys::confinement::Reach;
use vswap_sys::disk::area_file::{AreaError, AreaFile};
use vswap_sys::disk::{Disk, Options};

use crate::areas::area_file::{medium, name, remark_on_mode};
use crate::args::far::FarArgs;
use crate::args::swap_spec::{Place, SwapOption, SwapSpec, Swaps};
use crate::control::{Asker, Request};
use crate::failure::Failure;
use crate::output::figures::{PAGE_BYTES, bytes};
use crate::output::warning;

/// How a run or daemon opens its areas.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Files and devices.
    disk: Options,
    /// Whether stores on other machines can be reached.
    pub reach: Reach,
    /// On how many nodes a store keeps each page.
    far_copies: usize,
    /// Where pages of stores are written as well.
    far_backup: Option<PathBuf>,
}

impl Opening {
    /// What the options say. `swap` are the areas to begin with.
    pub fn new(no_encrypt: bool, far: &FarArgs, swap: &[SwapOption]) -> Opening {
        let is_far = |option: &SwapOption| match option {
            SwapOption::None => false,
            SwapOption::Area(spec) => spec.is_remote(),
        };
        Opening {
            disk: Options {
                encrypt: !no_encrypt,
                ..Options::default()
            },
            reach: match far.allow_far || swap.iter().any(is_far) {
                true => Reach::Network,
                false => Reach::Machine,
            },
            far_copies: far.far_copies.unwrap_or(1).into(),
            far_backup: far.far_backup.clone(),
        }
    }
}

/// Does what `vswap swapon` and `vswap swapoff` ask of a run or of the daemon.
pub fn change(
    store: &Store,
    opening: &Opening,
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
    opening: &Opening,
    options: &[SwapOption],
    expected_bytes: u64,
    quiet: bool,
) -> Result<(), Failure> {
    match Swaps::of(options).map_err(Failure::own)? {
        Swaps::Found => spill::stand_by(store, opening.disk, expected_bytes, quiet),
        Swaps::Named(specs) => specs
            .into_iter()
            .try_for_each(|spec| swap_on(store, opening, spec)),
    }
}

/// Opens an area and has the store use it.
fn swap_on(store: &Store, opening: &Opening, spec: &SwapSpec) -> Result<(), Failure> {
    let refused = |why: String| Failure::own(format!("{}: {why}", spec.place));
    let area = match &spec.place {
        Place::Disk(path) => open(spec, path, opening.disk),
        Place::Far(named) => far::open(spec, named, opening, store.codec()),
        Place::Blocks(named) => blocks::open(spec, named, opening),
    };
    let area = area.map_err(refused)?;
    store
        .swap_on(area)
        .map_err(|error| refused(error.to_string()))
}

fn open(spec: &SwapSpec, path: &Path, opening: Options) -> Result<SwapOn, String> {
    let is_directory = path.is_dir();
    if is_directory || (spec.size.is_some() && !path.exists()) {
        private(spec, path, opening)
    } else if spec.size.is_some() {
        Err(
            "it exists, and a size is for private files that do not: leave the size out to use the area in it, or \
             name a directory"
                .to_owned(),
        )
    } else {
        made_before(spec, path, opening)
    }
}

/// A private file. It grows up to its size, or up to the size of its file system.
fn private(spec: &SwapSpec, path: &Path, opening: Options) -> Result<SwapOn, String> {
    let directory = if path.is_dir() {
        Some(path)
    } else {
        path.parent()
    };
    let found = directory.and_then(|directory| statvfs(directory).ok());
    let bytes = match (spec.size, &found) {
        (Some(bytes), _) => bytes,
        (None, Some(found)) => found.f_blocks.saturating_mul(found.f_frsize),
        (None, None) => u64::MAX,
    };
    let slots = (bytes / PAGE_BYTES).min(PAGES_MAX);
    let disk =
        Disk::private(path, slots * PAGE_BYTES, opening).map_err(|error| error.to_string())?;
    if let (Some(wanted), Some(found)) = (spec.size, found) {
        remark_on_room(path, wanted, found.f_bavail.saturating_mul(found.f_frsize));
    }
    Ok(SwapOn {
        name: name(path).map_err(|error| error.to_string())?,
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
fn remark_on_room(path: &Path, wanted: u64, free: u64) {
    if wanted > free {
        warning(&format!(
            "{}: it may grow to {}, and only {} are free there",
            path.display(),
            bytes(wanted),
            bytes(free)
        ));
    }
}

/// An area with a header.
fn made_before(spec: &SwapSpec, path: &Path, opening: Options) -> Result<SwapOn, String> {
    let file = AreaFile::open(path).map_err(|error| match error {
        AreaError::Missing => format!(
            "{error}: make an area with vswap mkswap, name a directory, or give a size for a private file ({}:8G)",
            path.display()
        ),
        error => error.to_string(),
    })?;
    let ends = file.ends().map_err(|error| error.to_string())?;
    let header = header::decode(&ends.head, medium(&file)).map_err(|error| match file.bytes() {
        0 => format!(
            "it is empty, and no swap area yet; do: vswap mkswap {} --size 2G",
            path.display()
        ),
        _ => error.to_string(),
    })?;
    // A warning about the file's mode would only distract from a file that is no area.
    if let Some(remark) = remark_on_mode(&file) {
        warning(&format!("{}: {remark}", path.display()));
    }
    if header.dropped_pages > 0 {
        warning(&format!(
            "{}: {} of its pages lie beyond what an area can have, and are not used",
            path.display(),
            header.dropped_pages
        ));
    }
    let disk = Disk::of_area(file, opening).map_err(|error| error.to_string())?;
    // The header lies in the first page, and in a file no page may lie in the last one.
    let bad = std::iter::once(0)
        .chain(header.bad_pages.iter().copied().map(u64::from))
        .chain(disk.bytes() / PAGE_BYTES..header.pages)
        .collect();
    Ok(SwapOn {
        name: name(path).map_err(|error| error.to_string())?,
        medium: Medium::disk(disk),
        slots: header.pages,
        bad,
        priority: spec.priority,
        tier: spec.tier.clone().unwrap_or_default(),
        discard: spec.discard.unwrap_or(Discard::None),
    })
}
