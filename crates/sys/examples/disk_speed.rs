//! What a disk gives: sequential and random throughput with io_uring and without, beside fio where it is installed.
//!
//! `cargo run --release -p vswap-sys --features supervisor --example disk_speed -- DIRECTORY [MIB]`
//! `... -- --overwrite DEVICE`
//!
//! Everything is done to a private file of `MIB` (1024) in `DIRECTORY`, or to a device whose content nobody needs, with
//! direct I/O. fio does the same to a file of its own. Beside the throughput stands the processor time that a request
//! costs this process. Each figure is one run of some seconds. On a machine that others use, compare only figures of
//! one run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use vswap_sys::disk::area_file::AreaFile;
use vswap_sys::disk::{Disk, LANE_PAGES, Options, PageBytes, PrivateError};

const PAGE: u64 = 4096;
const RUN: u64 = LANE_PAGES as u64;
const THREADS: [u64; 3] = [1, 8, 32];
const RANDOM_TIME: Duration = Duration::from_secs(3);
const DEFAULT_MIB: u64 = 1024;
const ENGINES: [Options; 2] = [
    Options {
        io_uring: true,
        direct: true,
        encrypt: true,
        keep_free_bytes: 0,
    },
    Options {
        io_uring: false,
        direct: true,
        encrypt: true,
        keep_free_bytes: 0,
    },
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--overwrite", device] => {
            for options in ENGINES {
                measure(&Disk::of_area(AreaFile::open(Path::new(device))?, options)?);
            }
        }
        [directory] => measure_files(Path::new(directory), DEFAULT_MIB)?,
        [directory, mib] => measure_files(Path::new(directory), mib.parse()?)?,
        _ => return Err("usage: disk_speed DIRECTORY [MIB] | --overwrite DEVICE".into()),
    }
    Ok(())
}

fn measure_files(directory: &Path, mib: u64) -> Result<(), PrivateError> {
    for options in ENGINES {
        measure(&Disk::private(directory, mib << 20, options)?);
    }
    for engine in ["io_uring", "psync"] {
        fio(directory, mib, engine);
    }
    Ok(())
}

fn measure(disk: &Disk) {
    println!("{}, direct: {}", disk.engine(), disk.is_direct());
    let content = page();
    let pages = vec![&content; LANE_PAGES];
    let write = |at| disk.write(at, &pages).unwrap();
    sequential(disk, "write 256 KiB, new", write);
    sequential(disk, "write 256 KiB, again", write);
    let mut read = vec![[0; 4096]; LANE_PAGES];
    sequential(disk, "read 256 KiB", |at| {
        disk.read(at, &mut read.iter_mut().collect::<Vec<_>>())
            .unwrap();
    });
    for threads in THREADS {
        random(disk, "read", threads, |at, page| {
            disk.read(at, &mut [page]).unwrap();
        });
    }
    for threads in THREADS {
        random(disk, "write", threads, |at, page| {
            disk.write(at, &[page]).unwrap();
        });
    }
}

/// A page that no disk compresses or leaves out.
fn page() -> PageBytes {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
}

/// One thread, from the start to the end.
fn sequential(disk: &Disk, what: &str, mut request: impl FnMut(u64)) {
    let (start, cpu) = (Instant::now(), Cpu::now());
    for at in (0..disk.bytes()).step_by(LANE_PAGES * 4096) {
        request(at);
    }
    let seconds = start.elapsed().as_secs_f64();
    let cost = cpu.us_each(disk.bytes() / (RUN * PAGE));
    tell(what, mib(disk.bytes()) / seconds, "MiB/s", Some(cost));
}

/// Single pages all over the disk.
fn random(disk: &Disk, what: &str, threads: u64, request: impl Fn(u64, &mut PageBytes) + Sync) {
    let (done, start, cpu) = (AtomicU64::new(0), Instant::now(), Cpu::now());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (done, request) = (&done, &request);
            scope.spawn(move || {
                let (mut place, mut page) = (thread, page());
                let mut count = 0;
                while start.elapsed() < RANDOM_TIME {
                    place = place
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    request((place >> 20) % (disk.bytes() / PAGE) * PAGE, &mut page);
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    let pages = done.into_inner();
    let rate = pages as f64 / start.elapsed().as_secs_f64();
    tell(
        &random_name(what, threads),
        rate,
        "pages/s",
        Some(cpu.us_each(pages)),
    );
}

fn random_name(what: &str, threads: u64) -> String {
    format!("random {what}, {threads} threads")
}

fn tell(what: &str, rate: f64, unit: &str, cpu_us: Option<f64>) {
    let cost = cpu_us.map_or(String::new(), |us| format!("{us:8.1} us CPU"));
    println!("  {what:28} {rate:8.0} {unit:8}{cost}");
}

/// Processor time of this process, including that in the kernel.
struct Cpu(f64);

impl Cpu {
    fn now() -> Cpu {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Cpu(time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3)
    }

    fn us_each(&self, count: u64) -> f64 {
        (Cpu::now().0 - self.0) / count as f64
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// The same by fio, on a file that is removed again.
fn fio(directory: &Path, mib: u64, engine: &str) {
    let file = Removed(directory.join(format!("fio-{}", std::process::id())));
    let job = Job {
        file: &file.0,
        mib,
        engine,
    };
    let Some(first) = job.run("write", RUN * PAGE, 1, None) else {
        println!("fio is not installed, or {engine} not to be had");
        return;
    };
    println!("fio {engine}");
    let sequential =
        |what: &str, pages: f64| tell(what, pages * 4096.0 / 1_048_576.0, "MiB/s", None);
    sequential("write 256 KiB, new", first);
    for (what, mode) in [("write 256 KiB, again", "write"), ("read 256 KiB", "read")] {
        sequential(what, job.run(mode, RUN * PAGE, 1, None).unwrap_or_default());
    }
    for (what, mode) in [("read", "randread"), ("write", "randwrite")] {
        for threads in THREADS {
            let pages = job.run(mode, PAGE, threads, Some(RANDOM_TIME));
            tell(
                &random_name(what, threads),
                pages.unwrap_or_default(),
                "pages/s",
                None,
            );
        }
    }
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Job<'a> {
    file: &'a Path,
    mib: u64,
    engine: &'a str,
}

impl Job<'_> {
    /// Pages a second.
    fn run(&self, mode: &str, block: u64, threads: u64, time: Option<Duration>) -> Option<f64> {
        /// Fields of fio's terse output, version 3: KiB a second read and written.
        const READ_FIELD: usize = 6;
        const WRITE_FIELD: usize = 47;
        let mut command = Command::new("fio");
        command.args([
            "--name=disk",
            "--direct=1",
            "--group_reporting",
            "--minimal",
            "--thread",
        ]);
        command.args([
            "--iodepth=1",
            "--fallocate=none",
            "--overwrite=0",
            "--randrepeat=0",
        ]);
        command.arg(format!("--filename={}", self.file.display()));
        command.arg(format!("--size={}M", self.mib));
        command
            .arg(format!("--rw={mode}"))
            .arg(format!("--bs={block}"));
        command
            .arg(format!("--numjobs={threads}"))
            .arg(format!("--ioengine={}", self.engine));
        if let Some(time) = time {
            command
                .arg("--time_based")
                .arg(format!("--runtime={}", time.as_secs()));
        }
        let output = command.output().ok()?;
        let line = String::from_utf8(output.stdout).ok()?;
        let field = if mode.ends_with("read") {
            READ_FIELD
        } else {
            WRITE_FIELD
        };
        let kib: f64 = line
            .lines()
            .find(|line| line.starts_with("3;"))?
            .split(';')
            .nth(field)?
            .parse()
            .ok()?;
        Some(kib / 4.0)
    }
}
