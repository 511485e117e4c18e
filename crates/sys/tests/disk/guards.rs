//! What tests of disks set up. Each thing has a guard that takes it away again, whatever the test does.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use vswap_sys::disk::area_file::AreaFile;
use vswap_sys::disk::{Disk, Options};

/// How often to try to unmount a file system, and the pause between tries: five seconds in all.
const UMOUNT_TRIES: u32 = 50;
const UMOUNT_PACE: Duration = Duration::from_millis(100);

/// Says why a test does nothing, or not everything.
pub fn skip(reason: &str) {
    eprintln!("SKIP: {reason}");
}

/// A directory of one test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("disk{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    /// A file of `bytes`, all of them written.
    pub fn file(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, vec![0; bytes]).unwrap();
        path
    }

    /// A file of `bytes`, none of them written.
    pub fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(name);
        File::create_new(&path).unwrap().set_len(bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Keeps closing and starting programs apart. Between its fork and its exec a child has copies of everything that is
/// open here, so nothing may be closed whose end somebody waits for.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a program and waits for its end.
fn run(command: &[&str]) -> io::Result<Output> {
    let mut program = Command::new(command[0]);
    program
        .args(&command[1..])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let child = program.spawn()?;
    drop(starting);
    child.wait_with_output()
}

/// Runs a program of the system. Returns its output, or prints a reason and returns None.
pub fn told(command: &[&str]) -> Option<String> {
    let why = match run(command) {
        Ok(output) if output.status.success() => {
            return Some(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    skip(&format!("{}: {why}", command.join(" ")));
    None
}

/// A disk that is closed only while no program is being started.
#[derive(Debug)]
pub struct Open(Option<Disk>);

impl Open {
    pub fn area(path: &Path, options: Options) -> Open {
        let area = AreaFile::open(path).unwrap();
        Open(Some(Disk::of_area(area, options).unwrap()))
    }

    pub fn private(path: &Path, bytes: u64, options: Options) -> Open {
        Open(Some(Disk::private(path, bytes, options).unwrap()))
    }
}

impl Deref for Open {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        self.0 = None;
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A loop device: its path, and whether it is still ours to detach.
pub struct Loop(pub PathBuf, Cell<bool>);

impl Loop {
    pub fn new(file: &Path) -> Option<Loop> {
        Loop::with(file, &[])
    }

    pub fn with(file: &Path, options: &[&str]) -> Option<Loop> {
        let mut words = vec!["losetup", "--find", "--show"];
        words.extend(options);
        words.push(text(file));
        Some(Loop(told(&words)?.into(), Cell::new(true)))
    }

    /// Makes it as long as its file is now.
    pub fn resize(&self) -> Option<()> {
        told(&["losetup", "--set-capacity", text(&self.0)]).map(drop)
    }

    /// Detaches it while it may be in use. From now on its number may belong to another.
    pub fn detach(&self) {
        self.1.set(false);
        told(&["losetup", "--detach", text(&self.0)]);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if self.1.get() {
            let _ = run(&["losetup", "--detach", text(&self.0)]);
        }
    }
}

/// A mounted file system.
pub struct Mounted {
    pub point: PathBuf,
    /// Dropped after the unmount.
    _device: Option<Loop>,
}

impl Mounted {
    /// A file system in memory.
    pub fn memory(scratch: &Scratch, kind: &str, options: &str) -> Option<Mounted> {
        Mounted::at(scratch, &["-t", kind, "-o", options, kind], None)
    }

    /// A new ext4 of `bytes`.
    pub fn ext4(scratch: &Scratch, bytes: u64) -> Option<Mounted> {
        let device = Loop::new(&scratch.sparse("ext4", bytes))?;
        let path = device.0.clone();
        told(&[
            "mke2fs",
            "-q",
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "^has_journal",
            "-m",
            "0",
            text(&path),
        ])?;
        Mounted::at(scratch, &["-t", "ext4", text(&path)], Some(device))
    }

    fn at(scratch: &Scratch, words: &[&str], device: Option<Loop>) -> Option<Mounted> {
        let point = scratch.0.join("mount");
        fs::create_dir_all(&point).unwrap();
        told(&[&["mount"], words, &[text(&point)]].concat())?;
        Some(Mounted {
            point,
            _device: device,
        })
    }

    /// Unmounts it, which must succeed: at once, or as soon as the kernel has let go of a ring's or a loop device's
    /// hold, a moment after that was closed.
    pub fn unmount(self) {
        let unmounts = |_| {
            let output = run(&["umount", text(&self.point)]).unwrap();
            let is_gone = output.status.success();
            if !is_gone {
                std::thread::sleep(UMOUNT_PACE);
            }
            is_gone
        };
        assert!((0..UMOUNT_TRIES).any(unmounts), "it stays busy");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily, because a test that failed may have left something open.
        let _ = run(&["umount", "--lazy", text(&self.point)]);
    }
}
