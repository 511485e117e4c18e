//! Makes the kernel swap to a device or file: writes the header, calls `swapon`, and calls `swapoff` at the end.
//!
//! Unsafe is needed here because rustix has neither `swapon` nor `swapoff`.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vswap_engine::header;

use super::warn;

/// Priority of the only area there is. An explicit one makes it look like the benchmarks of kernel developers.
const PRIORITY: libc::c_int = 100;
/// The bit of `swapon` that says that a priority is given (`linux/swap.h`).
const SWAP_FLAG_PREFER: libc::c_int = 0x8000;

/// An area in use, swapped off on drop.
#[derive(Debug)]
pub(super) struct SwapArea {
    path: PathBuf,
    name: CString,
}

impl SwapArea {
    /// Writes a swap header to `path`, which has `bytes` bytes and holds nothing, and swaps on.
    pub(super) fn new(path: PathBuf, bytes: u64) -> Result<Self, String> {
        write_header(&path, bytes).map_err(|error| {
            format!("cannot write a swap header to {}: {error}", path.display())
        })?;
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("a zero byte in the name {}", path.display()))?;
        let flags = SWAP_FLAG_PREFER | PRIORITY;
        // SAFETY: the name ends in a zero byte and lives through the call.
        if unsafe { libc::swapon(name.as_ptr(), flags) } != 0 {
            let error = io::Error::last_os_error();
            return Err(format!("cannot swap on {}: {error}", path.display()));
        }
        Ok(Self { path, name })
    }
}

impl Drop for SwapArea {
    fn drop(&mut self) {
        // SAFETY: the name ends in a zero byte and lives through the call.
        if unsafe { libc::swapoff(self.name.as_ptr()) } != 0 {
            let remedy = format!("swapoff {}", self.path.display());
            warn("swap stays on", &io::Error::last_os_error(), &remedy);
        }
    }
}

fn write_header(path: &Path, bytes: u64) -> io::Result<()> {
    let encoded = header::encode(bytes, None, [0; 16])
        .map_err(|too_small| io::Error::other(too_small.to_string()))?;
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(&encoded.page)?;
    file.sync_all()
}
