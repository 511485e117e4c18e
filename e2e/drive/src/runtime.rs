//! The directory in which the runs of a driver have their sockets.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

/// An empty directory for XDG_RUNTIME_DIR. Dropping it removes it.
///
/// Its path is short wherever the driver itself works: a socket's path has at most 107 bytes, and vswap goes to a place
/// that all drivers share where this one is too deep. Other users can pass through it, so that root's runs take it.
///
/// # Errors
/// It cannot be made.
pub fn directory() -> Result<TempDir, String> {
    tempfile::Builder::new()
        .prefix("vd")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/tmp")
        .map_err(|error| format!("cannot make a directory in /tmp: {error}"))
}
