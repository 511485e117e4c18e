//! zswap: the kernel's compressed pool in front of a swap file.
//!
//! Its parameters belong to the whole machine, and drop restores them. A thread reads its size every few milliseconds,
//! because the kernel keeps no peak.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::host::{Host, read, write};
use super::warn;

/// How often the pool's size is read.
const SAMPLE_PAUSE: Duration = Duration::from_millis(20);
/// The parameters that are set while swap is on, in this order, and whether the side can do without. The compressor may
/// be missing in the kernel, and then the present one stays.
const WANTED: [(&str, &str, bool); 3] = [
    ("compressor", "lz4", false),
    ("max_pool_percent", "50", true),
    ("enabled", "Y", true),
];

/// zswap switched on.
#[derive(Debug)]
pub(super) struct Zswap {
    _sampler: Sampler,
    peak_bytes: Arc<AtomicU64>,
    _parameters: Parameters,
}

impl Zswap {
    pub(super) fn new(host: &Host) -> Result<Self, String> {
        let parameters = Parameters::set(host)?;
        let meminfo = host.path("proc/meminfo");
        if pool_bytes(&read(&meminfo)?).is_none() {
            return Err(format!(
                "{} has no line Zswap, which tells how large the pool is",
                meminfo.display()
            ));
        }
        let peak_bytes = Arc::new(AtomicU64::new(0));
        Ok(Self {
            _sampler: Sampler::start(meminfo, Arc::clone(&peak_bytes)),
            peak_bytes,
            _parameters: parameters,
        })
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}

/// The parameters that were changed, with their old values.
#[derive(Debug, Default)]
struct Parameters(Vec<(PathBuf, String)>);

impl Parameters {
    fn set(host: &Host) -> Result<Self, String> {
        let dir = host.path("sys/module/zswap/parameters");
        if !dir.exists() {
            return Err("the kernel has no zswap (CONFIG_ZSWAP)".to_owned());
        }
        let mut changed = Self::default();
        for (name, wanted, needed) in WANTED {
            let path = dir.join(name);
            let before = read(&path)?.trim().to_owned();
            match write(&path, wanted) {
                Ok(()) => changed.0.push((path, before)),
                Err(error) if needed => return Err(error),
                Err(_) => {
                    eprintln!(
                        "vswap bench: zswap has no {wanted} here and compresses with {before}"
                    );
                }
            }
        }
        Ok(changed)
    }
}

impl Drop for Parameters {
    fn drop(&mut self) {
        for (path, before) in self.0.drain(..).rev() {
            if let Err(error) = write(&path, &before) {
                let remedy = format!("echo {before} > {}", path.display());
                warn("a parameter of zswap stays changed", &error, &remedy);
            }
        }
    }
}

/// A thread that records the peak, ended on drop.
#[derive(Debug)]
struct Sampler {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    fn start(meminfo: PathBuf, peak_bytes: Arc<AtomicU64>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                let bytes = read(&meminfo).ok().and_then(|text| pool_bytes(&text));
                peak_bytes.fetch_max(bytes.unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(SAMPLE_PAUSE);
            }
        });
        Self {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // The thread only reads, and a panic in it has been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The memory that the pool takes, according to `/proc/meminfo`.
fn pool_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("Zswap:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::Fake;
    use super::*;

    const DIR: &str = "sys/module/zswap/parameters";

    #[test]
    fn parameters_are_put_back_and_the_pool_is_watched() {
        let of = |name| format!("{DIR}/{name}");
        let (compressor, percent, enabled) =
            (of("compressor"), of("max_pool_percent"), of("enabled"));
        let fake = Fake::new(
            "zswap",
            &[
                (&compressor, "lzo\n"),
                (&percent, "20"),
                (&enabled, "N\n"),
                ("proc/meminfo", "MemTotal: 5 kB\nZswap:          12 kB\n"),
            ],
        );
        let zswap = Zswap::new(&fake.host()).unwrap();
        assert!(fake.text(&enabled).starts_with('Y'));
        while zswap.peak_bytes() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(zswap.peak_bytes(), 12 << 10);
        drop(zswap);
        assert!(fake.text(&enabled).starts_with('N'));
        assert_eq!(fake.text(&compressor), "lzo\n");
        assert_eq!(fake.text(&percent), "20");
    }

    #[test]
    fn a_kernel_without_it_is_told() {
        let none = Fake::new("zswap-none", &[("proc/meminfo", "")]);
        assert!(Zswap::new(&none.host()).unwrap_err().contains("no zswap"));
    }
}
