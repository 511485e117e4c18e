//! `vswap mkswap` where the kernel has a say: devices, mounts, its own swap, full disks.
//!
//! All of it needs root. A guard undoes what a test sets up, however the test ends.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::{MIB, decoded, made, refused, skip, told, tool, zeros};
use crate::{Scratch, output, text};

/// Is this root? Prints a reason if not.
fn root(scratch: &Scratch) -> bool {
    let root = fs::metadata(scratch.path()).expect("metadata").uid() == 0;
    if !root {
        skip("only root can");
    }
    root
}

/// A loop device and what was put on it.
struct Loop(PathBuf);

impl Loop {
    /// Makes a loop device of `file`. `None`, and a printed reason, if the machine gives none.
    fn new(file: &Path) -> Option<Loop> {
        let output = output(tool("losetup")?.args(["--find", "--show"]).arg(file));
        if !output.status.success() {
            skip(&format!("no loop device: {}", text(&output.stderr)));
            return None;
        }
        Some(Loop(text(&output.stdout).trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = tool("losetup").map(|mut losetup| losetup.arg("--detach").arg(&self.0).status());
    }
}

/// The kernel's own swap on a file or device.
struct Swapping(PathBuf);

impl Swapping {
    /// Switches it on. `None`, and a printed reason, if the kernel refuses.
    fn to(path: &Path) -> Option<Swapping> {
        let output = output(tool("swapon")?.args(["--priority", "0"]).arg(path));
        if !output.status.success() {
            skip(&format!("no kernel swap: {}", text(&output.stderr)));
            return None;
        }
        Some(Swapping(path.into()))
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        let _ = tool("swapoff").map(|mut swapoff| swapoff.arg(&self.0).status());
    }
}

/// A mounted file system.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts at `point` with these words. `None`, and a printed reason, if that is not possible.
    fn at(point: &Path, words: &[&str]) -> Option<Mounted> {
        fs::create_dir_all(point).expect("mount point");
        let output = output(tool("mount")?.args(words).arg(point));
        if !output.status.success() {
            skip(&format!("mount {words:?}: {}", text(&output.stderr)));
            return None;
        }
        Some(Mounted(point.into()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = tool("umount").map(|mut umount| umount.arg(&self.0).status());
    }
}

#[test]
fn a_device_becomes_an_area_that_the_kernel_takes() {
    let scratch = Scratch::new();
    if !root(&scratch) {
        return;
    }
    let backing = zeros(&scratch, "backing", MIB);
    let Some(device) = Loop::new(&backing) else {
        return;
    };
    refused(
        &scratch,
        &device.0,
        &["--size", "2M"],
        "--size is for files",
    );
    let (line, remarks) = made(&scratch, &device.0, &["--label", "spare"]);
    assert!(
        line.contains("255 pages") && line.contains("LABEL=spare"),
        "{line}"
    );
    assert_eq!(remarks, "");
    let before = fs::read(&backing).expect("content");
    assert!(before[4096..].iter().all(|byte| *byte == 0));
    let Some(_swapping) = Swapping::to(&device.0) else {
        return;
    };
    let alias = scratch.path().join("alias");
    symlink(&device.0, &alias).expect("link");
    for path in [&device.0, &alias] {
        refused(&scratch, path, &[], "the kernel is swapping to it");
        refused(&scratch, path, &["--force"], "the kernel is swapping to it");
    }
    assert_eq!(fs::read(&backing).expect("content"), before);
}

#[test]
fn a_mounted_device_is_refused() {
    let scratch = Scratch::new();
    if !root(&scratch) {
        return;
    }
    let backing = zeros(&scratch, "backing", 2 * MIB);
    let (Some(device), Some(mut mke2fs)) = (Loop::new(&backing), tool("mke2fs")) else {
        return;
    };
    told(mke2fs.args(["-q", "-t", "ext2"]).arg(&device.0));
    refused(&scratch, &device.0, &[], "it holds data");
    let name = device.0.to_str().expect("name");
    let Some(mounted) = Mounted::at(&scratch.path().join("mount"), &["-t", "ext2", name]) else {
        return;
    };
    refused(&scratch, &device.0, &[], "it is in use, mounted");
    refused(&scratch, &device.0, &["--force"], "it is in use, mounted");
    drop(mounted);
    made(&scratch, &device.0, &["--force"]);
}

#[test]
fn the_kernel_takes_a_file_and_then_it_is_refused() {
    let scratch = Scratch::new();
    if !root(&scratch) {
        return;
    }
    let path = scratch.path().join("a name with blanks");
    made(&scratch, &path, &["--size", "64K"]);
    let Some(_swapping) = Swapping::to(&path) else {
        return;
    };
    let link = scratch.path().join("link");
    fs::hard_link(&path, &link).expect("link");
    for path in [&path, &link] {
        for options in [&[][..], &["--force"], &["--force", "--size", "1M"]] {
            refused(&scratch, path, options, "the kernel is swapping to it");
        }
    }
    assert_eq!(fs::metadata(&link).expect("metadata").len(), 64 << 10);
}

#[test]
fn the_kernel_defends_its_swap_where_it_cannot_be_recognised() {
    let scratch = Scratch::new();
    if !root(&scratch) {
        return;
    }
    let original = scratch.path().join("original");
    fs::create_dir(&original).expect("directory");
    let path = original.join("swap");
    made(&scratch, &path, &["--size", "64K"]);
    let before = fs::read(&path).expect("content");
    let Some(_swapping) = Swapping::to(&path) else {
        return;
    };
    let (from, elsewhere) = (
        original.to_str().expect("name"),
        scratch.path().join("elsewhere"),
    );
    let Some(_bound) = Mounted::at(&elsewhere, &["--bind", from]) else {
        return;
    };
    // The path in /proc/swaps is hidden now, but the file can be reached by another path.
    let Some(_hiding) = Mounted::at(&original, &["-t", "tmpfs", "tmpfs"]) else {
        return;
    };
    let path = elsewhere.join("swap");
    for options in [&["--force"][..], &["--force", "--size", "1M"]] {
        refused(&scratch, &path, options, "the kernel is swapping to it");
    }
    assert_eq!(fs::read(&path).expect("content"), before);
}

#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    let scratch = Scratch::new();
    if !root(&scratch) {
        return;
    }
    let Some(mounted) = Mounted::at(
        &scratch.path().join("mount"),
        &["-t", "tmpfs", "-o", "size=1M", "tmpfs"],
    ) else {
        return;
    };
    let path = mounted.0.join("swap");
    refused(
        &scratch,
        &path,
        &["--size", "8M"],
        "8388608 bytes do not fit",
    );
    assert!(!path.exists());
    made(&scratch, &path, &["--size", "512K", "--label", "small"]);
    let before = fs::read(&path).expect("content");
    refused(
        &scratch,
        &path,
        &["--size", "8M"],
        "8388608 bytes do not fit",
    );
    assert_eq!(fs::read(&path).expect("content"), before);
}

#[test]
fn where_blocks_cannot_be_reserved_zeros_are_written() {
    let scratch = Scratch::new();
    if !root(&scratch) {
        return;
    }
    let Some(mounted) = Mounted::at(&scratch.path().join("mount"), &["-t", "ramfs", "ramfs"])
    else {
        return;
    };
    let path = mounted.0.join("swap");
    let (line, remarks) = made(&scratch, &path, &["--size", "3M"]);
    assert!(line.contains("767 pages"), "{line}");
    assert!(
        remarks.contains("cannot reserve blocks, so zeros were written"),
        "{remarks}"
    );
    assert_eq!(decoded(&path).expect("an area").pages, 768);
}
