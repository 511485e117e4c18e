//! A swap file with reserved blocks, because the kernel does not swap to a file with holes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use super::{own_name, warn};

/// A file, removed on drop.
#[derive(Debug)]
pub(super) struct SwapFile {
    path: PathBuf,
}

impl SwapFile {
    pub(super) fn new(dir: &Path, bytes: u64) -> Result<Self, String> {
        let path = own_name(dir, ".swap");
        let file = create(&path)
            .map_err(|error| format!("cannot make the swap file {}: {error}", path.display()))?;
        let swap_file = Self { path };
        fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(|error| {
            let path = swap_file.path.display();
            format!("cannot reserve {bytes} bytes for the swap file {path}: {error}")
        })?;
        Ok(swap_file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            let remedy = format!("rm {}", self.path.display());
            warn("a swap file is left", &error, &remedy);
        }
    }
}

/// Only root may read swapped-out pages.
fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_there_with_its_blocks_until_it_is_dropped() {
        let dir = std::env::temp_dir();
        let file = SwapFile::new(&dir, 1 << 20).unwrap();
        let path = file.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
        drop(file);
        assert!(!path.exists());
        let said = SwapFile::new(Path::new("/no/such/dir"), 4096).unwrap_err();
        assert!(said.contains("/no/such/dir"), "{said}");
    }
}
