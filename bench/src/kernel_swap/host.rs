//! Where the kernel's files are: below `/`, or in tests below a directory.

use std::path::{Path, PathBuf};

/// The root of `/proc` and `/sys`.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self { root: "/".into() }
    }
}

impl Host {
    /// A host whose files lie below `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The place of `path`, which is given without its first slash.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Refuses users other than root, because only root can switch swap on.
    pub(super) fn require_root(&self) -> Result<(), String> {
        if self.root != Path::new("/") || rustix::process::geteuid().is_root() {
            return Ok(());
        }
        Err("the kernel's swap is switched on by root alone: run this as root".to_owned())
    }

    /// Refuses if others have switched swap on. That swap would take pages of the run and be measured in place of ours.
    pub(super) fn require_swap_off(&self) -> Result<(), String> {
        let path = self.path("proc/swaps");
        let swaps = read(&path)?;
        let on: Vec<&str> = swaps
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        if on.is_empty() {
            return Ok(());
        }
        let on = on.join(" ");
        Err(format!(
            "swap is already on ({on}): switch it off for the time of the measurement, with swapoff {on}"
        ))
    }
}

/// The text of a file of the kernel.
pub(super) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// A number that is the whole text of a file.
pub(super) fn read_number(path: &Path) -> Result<u64, String> {
    let text = read(path)?;
    text.trim()
        .parse()
        .map_err(|_| format!("{} holds no number but '{}'", path.display(), text.trim()))
}

/// Writes to a file of the kernel, which must exist.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    let open = std::fs::OpenOptions::new().write(true).open(path);
    open.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(|error| format!("cannot write '{text}' to {}: {error}", path.display()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A directory with files that stand in for the kernel's, removed on drop.
    pub(in crate::kernel_swap) struct Fake(PathBuf);

    impl Fake {
        pub(in crate::kernel_swap) fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("vswap-bench-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(root)
        }

        pub(in crate::kernel_swap) fn host(&self) -> Host {
            Host::at(&self.0)
        }

        pub(in crate::kernel_swap) fn text(&self, path: &str) -> String {
            std::fs::read_to_string(self.0.join(path)).unwrap()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn swap_that_is_on_already_is_named() {
        let header = "Filename Type Size Used Priority\n";
        let off = Fake::new("swap-off", &[("proc/swaps", header)]);
        assert_eq!(off.host().require_swap_off(), Ok(()));
        let on = format!("{header}/dev/vda5 partition 1024 0 -2\n");
        let on = Fake::new("swap-on", &[("proc/swaps", &on)]);
        let said = on.host().require_swap_off().unwrap_err();
        assert!(said.contains("swapoff /dev/vda5"), "{said}");
    }
}
