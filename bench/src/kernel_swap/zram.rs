//! A zram device that compresses with lz4: one that nobody uses, or a new one.

use std::path::{Path, PathBuf};

use super::host::{Host, read, write};
use super::warn;

/// The algorithm of the kernel's side: its fastest.
const ALGORITHM: &str = "lz4";
/// The field of `mm_stat` with the most memory that the device has taken since it was reset. The device updates it at
/// each write, so no peak is missed.
const MEM_USED_MAX: usize = 4;

/// A device with a size, reset on drop.
#[derive(Debug)]
pub(super) struct Zram {
    device: PathBuf,
    sysfs: PathBuf,
    /// The number of a device that this program has added, and the file that removes it.
    added: Option<(String, PathBuf)>,
}

impl Zram {
    pub(super) fn new(host: &Host, bytes: u64) -> Result<Self, String> {
        let zram = match unused(host) {
            Some(name) => Self::named(host, &name, None),
            None => add(host)?,
        };
        let algorithm = zram.sysfs.join("comp_algorithm");
        let known = read(&algorithm)?;
        let mut names = known.split([' ', '[', ']', '\n']);
        if !names.any(|name| name == ALGORITHM) {
            return Err(format!(
                "zram cannot compress with {ALGORITHM} here, only with {}",
                known.trim()
            ));
        }
        write(&algorithm, ALGORITHM)?;
        write(&zram.sysfs.join("disksize"), &bytes.to_string())?;
        Ok(zram)
    }

    fn named(host: &Host, name: &str, added: Option<(String, PathBuf)>) -> Self {
        Self {
            device: host.path(&format!("dev/{name}")),
            sysfs: host.path(&format!("sys/block/{name}")),
            added,
        }
    }

    pub(super) fn device(&self) -> &Path {
        &self.device
    }

    pub(super) fn peak_bytes(&self) -> Result<u64, String> {
        let path = self.sysfs.join("mm_stat");
        let stat = read(&path)?;
        let field = stat.split_whitespace().nth(MEM_USED_MAX);
        field.and_then(|text| text.parse().ok()).ok_or_else(|| {
            format!(
                "{} has no figure of the memory used at most",
                path.display()
            )
        })
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let reset = self.sysfs.join("reset");
        if let Err(error) = write(&reset, "1") {
            let remedy = format!("echo 1 > {}", reset.display());
            warn("a zram device keeps its memory", &error, &remedy);
            return;
        }
        if let Some((number, hot_remove)) = &self.added
            && let Err(error) = write(hot_remove, number)
        {
            let remedy = format!("echo {number} > {}", hot_remove.display());
            warn("a zram device is left", &error, &remedy);
        }
    }
}

/// The first device without a size: nobody uses it.
fn unused(host: &Host) -> Option<String> {
    let entries = std::fs::read_dir(host.path("sys/block")).ok()?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("zram"))
        .collect();
    names.sort();
    names.into_iter().find(|name| {
        let size = read(&host.path(&format!("sys/block/{name}/disksize")));
        size.is_ok_and(|size| size.trim() == "0")
    })
}

/// Adds a new device.
fn add(host: &Host) -> Result<Zram, String> {
    let control = host.path("sys/class/zram-control");
    if !control.exists() {
        return Err("the kernel has no zram: load it with modprobe zram".to_owned());
    }
    // Reading is what adds a device.
    let number = read(&control.join("hot_add"))?.trim().to_owned();
    let added = Some((number.clone(), control.join("hot_remove")));
    Ok(Zram::named(host, &format!("zram{number}"), added))
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::Fake;
    use super::*;

    const STAT: &str = "100 200 300 0 4096 0 0 0 0\n";

    #[test]
    fn an_unused_device_is_taken_and_reset() {
        let fake = Fake::new(
            "zram",
            &[
                ("sys/block/zram0/disksize", "4096\n"),
                ("sys/block/zram1/disksize", "0\n"),
                ("sys/block/zram1/comp_algorithm", "[lzo-rle] lzo lz4\n"),
                ("sys/block/zram1/mm_stat", STAT),
                ("sys/block/zram1/reset", ""),
            ],
        );
        let zram = Zram::new(&fake.host(), 1 << 30).unwrap();
        assert!(zram.device().ends_with("dev/zram1"));
        assert_eq!(zram.peak_bytes(), Ok(4096));
        assert!(
            fake.text("sys/block/zram1/disksize")
                .starts_with("1073741824")
        );
        drop(zram);
        assert_eq!(fake.text("sys/block/zram1/reset"), "1");
    }

    #[test]
    fn a_device_that_was_added_is_removed() {
        let fake = Fake::new(
            "zram-add",
            &[
                ("sys/block/zram0/disksize", "4096\n"),
                ("sys/block/zram7/disksize", "1\n"),
                ("sys/block/zram7/comp_algorithm", "lz4"),
                ("sys/block/zram7/reset", ""),
                ("sys/class/zram-control/hot_add", "7\n"),
                ("sys/class/zram-control/hot_remove", ""),
            ],
        );
        drop(Zram::new(&fake.host(), 4096).unwrap());
        assert_eq!(fake.text("sys/class/zram-control/hot_remove"), "7");
    }

    #[test]
    fn what_is_missing_is_said() {
        let none = Fake::new("zram-none", &[("sys/block/vda/size", "1")]);
        let said = Zram::new(&none.host(), 4096).unwrap_err();
        assert!(said.contains("modprobe zram"), "{said}");
        let without = Fake::new(
            "zram-lzo",
            &[
                ("sys/block/zram0/disksize", "0"),
                ("sys/block/zram0/comp_algorithm", "[lzo-rle] lzo"),
                ("sys/block/zram0/reset", ""),
            ],
        );
        let said = Zram::new(&without.host(), 4096).unwrap_err();
        assert!(said.contains("cannot compress with lz4"), "{said}");
    }
}
