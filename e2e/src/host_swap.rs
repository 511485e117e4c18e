//! Swap of the host, which the kernel uses beside vswap. Dropping it switches it off, also when the test fails.

use std::fs;
use std::path::PathBuf;

use crate::device::{LoopDevice, must};
use crate::failure::During;
use crate::{Context, Failure, Outcome, require_program};

/// A swap area of the kernel on a loop device.
#[derive(Debug)]
pub struct HostSwap {
    device: LoopDevice,
    swapoff: PathBuf,
}

impl HostSwap {
    /// Switches on `bytes` bytes of swap, or skips the test.
    pub fn on(context: &Context, bytes: u64) -> Outcome<HostSwap> {
        let mkswap = require_program("mkswap", "apt package util-linux")?;
        let swapon = require_program("swapon", "apt package mount")?;
        let swapoff = require_program("swapoff", "apt package mount")?;
        let device = LoopDevice::new(context, "host-swap", bytes)?;
        must(&mkswap, &[], device.path())?;
        // Made first, so that nothing stays switched on whatever comes.
        let this = HostSwap { device, swapoff };
        match must(&swapon, &[], this.device.path()) {
            Ok(_) => Ok(this),
            Err(error) => Err(Failure::Skip(format!("no swap of the host: {error}"))),
        }
    }

    /// Pages that the kernel has written to any swap since the machine started.
    pub fn pages_out() -> Outcome<u64> {
        let text = fs::read_to_string("/proc/vmstat").during(|| "read /proc/vmstat".to_owned())?;
        let number = text.lines().find_map(|line| line.strip_prefix("pswpout "));
        number
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| Failure::wrong("/proc/vmstat has no pswpout"))
    }
}

impl Drop for HostSwap {
    fn drop(&mut self) {
        // What lies there comes back into memory. If it was never on, this does nothing.
        let _off = must(&self.swapoff, &[], self.device.path());
    }
}
