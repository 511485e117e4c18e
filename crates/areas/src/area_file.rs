//! What every command needs to know about the file or device of an area: its name, its medium, who else may use it.

use std::io;
use std::path::Path;

use vswap_engine::header::{self, Medium};
use vswap_sys::disk::area_file::{self, AreaFile};

/// The name of an area is its absolute path.
///
/// # Errors
/// The path is empty, or it is relative and the current directory is gone.
pub fn name(path: &Path) -> io::Result<String> {
    Ok(std::path::absolute(path)?.display().to_string())
}

/// The medium that the header must fit.
#[must_use]
pub fn medium(file: &AreaFile) -> Medium {
    Medium {
        kind: match file.kind() {
            area_file::Kind::RegularFile => header::Kind::RegularFile,
            area_file::Kind::BlockDevice => header::Kind::BlockDevice,
        },
        bytes: file.bytes(),
    }
}

/// A warning if other users may use the file.
#[must_use]
pub fn remark_on_mode(file: &AreaFile) -> Option<String> {
    let mode = file.mode_for_others()?;
    Some(format!(
        "others may use it (mode {mode:04o}), and memory will be in it; do: chmod 600"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_absolute_and_do_not_follow_links() {
        assert_eq!(
            name(Path::new("/dev/fd/../swap")).unwrap(),
            "/dev/fd/../swap"
        );
        let relative = name(Path::new("swap")).unwrap();
        assert!(
            relative.starts_with('/') && relative.ends_with("/swap"),
            "{relative}"
        );
        assert!(name(Path::new("")).is_err());
    }
}
