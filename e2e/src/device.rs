//! Loop devices and small file systems for a test. Dropping them gives them back, also when the test fails.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::failure::During;
use crate::{Context, Failure, Outcome, ensure, require_program, require_root};

/// How often unmounting a busy file system is tried, and the pause in between.
const UMOUNT_TRIES: u32 = 100;
const UMOUNT_PACE: Duration = Duration::from_millis(50);

/// A loop device on a file of its own.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    losetup: PathBuf,
}

/// A mounted file system on a loop device.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    umount: PathBuf,
    _device: LoopDevice,
}

impl LoopDevice {
    /// A device of `bytes` bytes, all zeros.
    pub fn new(context: &Context, name: &str, bytes: u64) -> Outcome<LoopDevice> {
        require_root("loop devices")?;
        let losetup = require_program("losetup", "apt package mount")?;
        let file = context.place().join(name);
        let made = File::create(&file).and_then(|file| file.set_len(bytes));
        made.during(|| format!("make {}", file.display()))?;
        let output = run(&losetup, &["--find", "--show"], &file)?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Failure::Skip(format!("no loop device to be had: {why}")));
        }
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(LoopDevice {
            path: path.into(),
            losetup,
        })
    }

    /// Its name in /dev.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Detaches the device. Fails if somebody holds it.
    pub fn detach(self) -> Outcome {
        let output = run(&self.losetup, &["--detach"], &self.path)?;
        ensure!(
            output.status.success(),
            "{} cannot be detached: {}",
            self.path.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // It is detached already, or the machine has a problem of its own.
        let _ = run(&self.losetup, &["--detach"], &self.path);
    }
}

impl Mounted {
    /// An ext4 of `bytes` bytes, mounted in the test's directory.
    pub fn new(context: &Context, name: &str, bytes: u64) -> Outcome<Mounted> {
        let mkfs = require_program("mkfs.ext4", "apt package e2fsprogs")?;
        let mount = require_program("mount", "apt package mount")?;
        let umount = require_program("umount", "apt package mount")?;
        let device = LoopDevice::new(context, &format!("{name}.image"), bytes)?;
        must(&mkfs, &["-q", "-m", "0"], &device.path)?;
        let at = context.place().join(name);
        std::fs::create_dir(&at).during(|| format!("make {}", at.display()))?;
        let target = device.path.display().to_string();
        must(&mount, &[&target], &at)?;
        Ok(Mounted {
            at,
            umount,
            _device: device,
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

/// The kernel releases what a process had in a ring only a moment after the process has ended.
impl Drop for Mounted {
    fn drop(&mut self) {
        for _ in 0..UMOUNT_TRIES {
            let unmounted = run(&self.umount, &["--quiet"], &self.at);
            if unmounted.is_ok_and(|output| output.status.success()) {
                return;
            }
            std::thread::sleep(UMOUNT_PACE);
        }
    }
}

/// Runs a system program on a path. It must succeed.
pub fn must(program: &Path, options: &[&str], path: &Path) -> Outcome<String> {
    let output = run(program, options, path)?;
    ensure!(
        output.status.success(),
        "{} {}: {}",
        program.display(),
        path.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(program: &Path, options: &[&str], path: &Path) -> Outcome<Output> {
    Command::new(program)
        .args(options)
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .during(|| format!("run {}", program.display()))
}
