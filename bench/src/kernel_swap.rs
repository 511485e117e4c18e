//! The kernel's own swap under a memory limit: the yardstick for vswap.
//!
//! A side is made for one run and undone after it in reverse order, whatever happens meanwhile. Each part is a value
//! whose drop undoes what its constructor did. The processes of the run must have ended before.
//!
//! It must not touch what others have made. If swap is on already, there is no side of the kernel. Parameters get their
//! old values back.

use std::path::{Path, PathBuf};
use std::process::Command;

mod cgroup;
mod host;
mod swap_area;
mod swap_file;
mod zram;
mod zswap;

use cgroup::MemoryGroup;
pub use host::Host;
use swap_area::SwapArea;
use swap_file::SwapFile;
use zram::Zram;
use zswap::Zswap;

/// The storage behind the kernel's swap.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Backing {
    /// A zram device that compresses with lz4.
    Zram,
    /// zswap in front of a file.
    Zswap,
    /// Only a file.
    File,
}

/// The parameters of the kernel's side.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// How much memory the processes of the group may have.
    pub group_bytes: usize,
    /// Size of the swap device or file.
    pub area_bytes: u64,
    /// The directory for a swap file.
    pub dir: &'a Path,
}

/// The kernel's swap, ready for one run.
///
/// Fields are dropped in this order: the group, then swapping, then what swapping needed.
#[derive(Debug)]
pub struct KernelSwap {
    group: MemoryGroup,
    _area: SwapArea,
    store: Store,
}

#[derive(Debug)]
enum Store {
    Zram(Zram),
    Zswap(
        Zswap,
        #[expect(dead_code, reason = "removed on drop")] SwapFile,
    ),
    File(#[expect(dead_code, reason = "removed on drop")] SwapFile),
}

/// A limit on memory, and no swap: for what keeps its data in files.
#[derive(Debug)]
pub struct WithoutSwap {
    group: MemoryGroup,
}

impl WithoutSwap {
    /// Makes a group.
    ///
    /// # Errors
    /// What is missing or in the way, worded for people. Nothing is left behind then.
    pub fn new(host: &Host, group_bytes: usize) -> Result<Self, String> {
        host.require_root()?;
        host.require_swap_off()?;
        Ok(Self {
            group: MemoryGroup::new(host, group_bytes)?,
        })
    }

    /// Makes `command` start inside the group.
    ///
    /// # Errors
    /// The group cannot be joined.
    pub fn contain(&self, command: &mut Command) -> Result<(), String> {
        self.group.contain(command)
    }

    /// How much memory was taken, files included. To be called once, when the run has ended.
    ///
    /// # Errors
    /// The figure of the kernel is not where it should be.
    pub fn peak_bytes(&self) -> Result<u64, String> {
        self.group.peak_bytes()
    }
}

/// Memory that a run took at its peak.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    /// By the group's own count.
    pub group_bytes: u64,
    /// Compressed pages that no group is charged for: those of zram, and those of zswap under version 1 of control
    /// groups.
    pub beside_bytes: u64,
}

impl Peak {
    /// Both together: what vswap gets.
    #[must_use]
    pub const fn total_bytes(self) -> u64 {
        self.group_bytes + self.beside_bytes
    }
}

impl KernelSwap {
    /// Switches swap on and makes a group.
    ///
    /// # Errors
    /// What is missing or in the way, worded for people. Nothing is left behind then.
    pub fn new(host: &Host, backing: Backing, limits: Limits) -> Result<Self, String> {
        host.require_root()?;
        host.require_swap_off()?;
        let (store, path) = match backing {
            Backing::Zram => {
                let zram = Zram::new(host, limits.area_bytes)?;
                let path = zram.device().to_owned();
                (Store::Zram(zram), path)
            }
            Backing::Zswap => {
                let file = SwapFile::new(limits.dir, limits.area_bytes)?;
                let path = file.path().to_owned();
                (Store::Zswap(Zswap::new(host)?, file), path)
            }
            Backing::File => {
                let file = SwapFile::new(limits.dir, limits.area_bytes)?;
                let path = file.path().to_owned();
                (Store::File(file), path)
            }
        };
        let area = SwapArea::new(path, limits.area_bytes)?;
        let group = MemoryGroup::new(host, limits.group_bytes)?;
        Ok(Self {
            group,
            _area: area,
            store,
        })
    }

    /// Makes `command` start inside the group.
    ///
    /// # Errors
    /// The group cannot be joined.
    pub fn contain(&self, command: &mut Command) -> Result<(), String> {
        self.group.contain(command)
    }

    /// How much memory was taken. To be called once, when the run has ended.
    ///
    /// # Errors
    /// A figure of the kernel is not where it should be.
    pub fn peak(&self) -> Result<Peak, String> {
        let beside_bytes = match &self.store {
            Store::Zram(zram) => zram.peak_bytes()?,
            // Version 2 charges zswap's pool to the group.
            Store::Zswap(zswap, _) if !self.group.charges_zswap() => zswap.peak_bytes(),
            Store::Zswap(..) | Store::File(_) => 0,
        };
        Ok(Peak {
            group_bytes: self.group.peak_bytes()?,
            beside_bytes,
        })
    }
}

/// Prints on standard error what could not be undone, and how to undo it by hand.
fn warn(what: &str, error: &dyn std::fmt::Display, remedy: &str) {
    eprintln!("vswap bench: {what}: {error}; by hand: {remedy}");
}

/// A name in `dir` that only this process uses.
fn own_name(dir: &Path, suffix: &str) -> PathBuf {
    dir.join(format!("vswap-bench-{}{suffix}", std::process::id()))
}
