//! Opening what a user names: an area that was made before, a private file that is made now, or a store.
//!
//! Everything that `swapon` refuses is refused here, before the area is used. The message says what to do. What is
//! worth knowing but no reason to refuse is said as a warning of `tracing`.

use std::path::{Path, PathBuf};

use vswap_engine::header::{self, PAGES_MAX};
use vswap_engine::{Codec, Discard};
use vswap_sys::disk::area_file::{AreaError, AreaFile};
use vswap_sys::disk::room::Room;
use vswap_sys::disk::{Disk, Options};

use crate::area_file::{medium, name, remark_on_mode};
use crate::medium::{Medium, SwapOn};
use crate::spec::{Place, SwapSpec};
use crate::units::{PAGE_BYTES, bytes};
#[cfg(feature = "far")]
use crate::{blocks, far};

/// How areas are opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Files and devices.
    pub disk: Options,
    /// On how many nodes a store keeps each page: 1 or 2.
    pub far_copies: usize,
    /// A directory for a private file in which pages of stores are written as well.
    pub far_backup: Option<PathBuf>,
}

impl Default for Opening {
    fn default() -> Opening {
        Opening {
            disk: Options::default(),
            far_copies: 1,
            far_backup: None,
        }
    }
}

/// Why an area cannot be opened. It says what was wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct OpenError {
    /// Where the area is. No password is in it.
    pub place: String,
    /// Why not.
    pub why: String,
}

/// Opens an area. `codec` is the engine's: stores and packed files keep pages packed. May block on the network.
///
/// # Errors
/// [`OpenError`].
pub fn open(spec: &SwapSpec, opening: &Opening, codec: Codec) -> Result<SwapOn, OpenError> {
    let opened = match &spec.place {
        Place::Disk(path) => on_disk(spec, path, opening, codec),
        #[cfg(feature = "far")]
        Place::Far(store) => far::open(spec, store, opening, codec),
        #[cfg(feature = "far")]
        Place::Blocks(export) => blocks::open(spec, export, opening),
    };
    opened.map_err(|why| OpenError {
        place: spec.place.to_string(),
        why,
    })
}

fn on_disk(
    spec: &SwapSpec,
    path: &Path,
    opening: &Opening,
    codec: Codec,
) -> Result<SwapOn, String> {
    let is_directory = path.is_dir();
    if is_directory || (spec.size.is_some() && !path.exists()) {
        private(spec, path, opening, codec)
    } else if spec.size.is_some() {
        Err(
            "it exists, and a size is for private files that do not: leave the size out to use the area in it, or \
             name a directory"
                .to_owned(),
        )
    } else if spec.packed {
        Err(
            "packed is for private files; what exists has a header and a place for each page, as the kernel's swapon \
             expects it: leave packed out, or name a directory and a size (/var/tmp:8G,packed)"
                .to_owned(),
        )
    } else {
        made_before(spec, path, opening)
    }
}

/// A private file. It grows up to its size, or up to the size of its file system.
fn private(
    spec: &SwapSpec,
    path: &Path,
    opening: &Opening,
    codec: Codec,
) -> Result<SwapOn, String> {
    let directory = if path.is_dir() {
        Some(path)
    } else {
        path.parent()
    };
    let room = directory.and_then(Room::of);
    let bytes = match (spec.size, &room) {
        (Some(bytes), _) => bytes,
        (None, Some(room)) => room.bytes,
        (None, None) => u64::MAX,
    };
    let pages = (bytes / PAGE_BYTES).min(PAGES_MAX);
    let disk = Disk::private(path, pages * PAGE_BYTES, opening.disk);
    let disk = disk.map_err(|error| error.to_string())?;
    let (medium, slots) = if spec.packed {
        Medium::packed(disk, codec).map_err(|error| {
            format!(
                "no memory for its tables ({error}): give it a smaller size ({}:8G,packed)",
                path.display()
            )
        })?
    } else {
        (Medium::disk(disk), pages)
    };
    if let (Some(wanted), Some(room)) = (spec.size, room) {
        remark_on_room(path, wanted, room.free_bytes);
    }
    Ok(SwapOn {
        name: name(path).map_err(|error| error.to_string())?,
        medium,
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
        tracing::warn!(
            "{}: it may grow to {}, and only {} are free there",
            path.display(),
            bytes(wanted),
            bytes(free)
        );
    }
}

/// An area with a header.
fn made_before(spec: &SwapSpec, path: &Path, opening: &Opening) -> Result<SwapOn, String> {
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
        tracing::warn!("{}: {remark}", path.display());
    }
    if header.dropped_pages > 0 {
        tracing::warn!(
            "{}: {} of its pages lie beyond what an area can have, and are not used",
            path.display(),
            header.dropped_pages
        );
    }
    let disk = Disk::of_area(file, opening.disk).map_err(|error| error.to_string())?;
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
