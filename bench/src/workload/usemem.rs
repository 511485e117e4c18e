//! `usemem`: tasks that write their memory word by word, as kernel developers measure swap.
//!
//! Options and output lines are those of vm-scalability's program of that name, so that the figures can be compared
//! with published ones. Its accounting is kept too: a task of SIZE bytes reports SIZE and an eighth. Every word holds
//! its own index. With `--json` the parent adds two phases: the mean time to touch a page and the mean time to free
//! one.
//!
//! Unsafe is needed here because tasks are forked processes that share a page, and their threads share a `Region`.

use std::io;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::random::Random;
use crate::region::{HugePages, PAGE_BYTES, PAGE_WORDS, Region};
use crate::size::parse_bytes;

use super::phases::share;
use super::print_line;

/// How often a task at a barrier looks for the others.
const BARRIER_PAUSE: Duration = Duration::from_micros(200);
/// Words of the shared page for counting at barriers. The tasks' results follow.
const BARRIERS: usize = 2;
/// Tasks whose results fit into the shared page, with two words each.
const TASKS_MAX: usize = (PAGE_WORDS - BARRIERS) / 2;

/// Options of `usemem`.
#[derive(Args, Debug)]
pub struct Usemem {
    /// Memory of each task, such as 1G.
    #[arg(value_parser = parse_bytes)]
    size: usize,
    /// Number of tasks, each a process.
    #[arg(short = 'n', long, default_value_t = 1)]
    nproc: usize,
    /// Threads of each task, which share its memory among them.
    #[arg(short = 't', long, default_value_t = 1)]
    thread: usize,
    /// Print how long the start took, and leave it out of the figures.
    #[arg(long)]
    init_time: bool,
    /// Private anonymous memory, the only kind here.
    #[arg(short = 'O', long)]
    anonymous: bool,
    /// Wait for all tasks before touching memory.
    #[arg(short = 'y', long)]
    sync_rw: bool,
    /// Wait for all tasks before freeing memory.
    #[arg(short = 'x', long)]
    sync_free: bool,
    /// Make random accesses, as many as there are words.
    #[arg(short = 'R', long)]
    random: bool,
    /// How often to go over the memory.
    #[arg(short = 'r', long, default_value_t = 1)]
    repeat: u64,
    /// Only read.
    #[arg(short = 'o', long)]
    readonly: bool,
    /// Check every word before freeing; that time counts nowhere.
    #[arg(long)]
    verify: bool,
    /// Seed of random accesses.
    #[arg(long, default_value_t = 1)]
    random_seed: u64,
    /// Print phases as JSON after the tasks' lines.
    #[arg(long)]
    json: bool,
}

/// A page that parent and tasks share.
struct Board(*mut u64);

impl Board {
    fn new() -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(page.cast()))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < PAGE_WORDS);
        // SAFETY: the word is inside the page, which is never unmapped and is only used atomically.
        unsafe { AtomicU64::from_ptr(self.0.add(index)) }
    }

    /// Waits until all tasks have reached barrier `index`.
    fn wait(&self, index: usize, tasks: usize) {
        self.word(index).fetch_add(1, Ordering::AcqRel);
        while self.word(index).load(Ordering::Acquire) < tasks as u64 {
            std::thread::sleep(BARRIER_PAUSE);
        }
    }

    /// The place where task `task` reports how long it took to touch (0) and to free (1) its memory.
    fn result(&self, task: usize, which: usize) -> &AtomicU64 {
        self.word(BARRIERS + task * 2 + which)
    }
}

/// Runs all tasks. Status 0 means that every word was right, 1 that one was not, 2 that tasks could not be run.
pub(super) fn run_all(options: &Usemem) -> ExitCode {
    match run(options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} tasks failed");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("cannot run the tasks: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs all tasks and returns the number that failed.
fn run(options: &Usemem) -> io::Result<usize> {
    if options.nproc == 0 || options.nproc > TASKS_MAX {
        let text = format!("{} tasks: expected 1 to {TASKS_MAX}", options.nproc);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut start = Instant::now();
    let board = Board::new()?;
    if options.init_time {
        let init = start.elapsed();
        let (secs, usecs) = (init.as_secs(), init.subsec_micros());
        print_line(&format!(
            "the initialization time is {secs} secs {usecs} usecs"
        ));
        start = Instant::now();
    }
    let mut children = Vec::new();
    for number in 0..options.nproc {
        // SAFETY: this process has one thread, so its child may do anything.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                let right = task(options, &board, number, start);
                std::process::exit(i32::from(!matches!(right, Ok(true))));
            }
            pid => children.push(pid),
        }
    }
    let mut failed = 0;
    for pid in children {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        failed += usize::from(status != 0);
    }
    if options.json {
        for (which, phase) in ["touch", "free"].into_iter().enumerate() {
            print_line(&json_line(options, &board, which, phase));
        }
    }
    Ok(failed)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds and pages are far below 2^53"
)]
fn json_line(options: &Usemem, board: &Board, which: usize, phase: &str) -> String {
    let took: Vec<u64> = (0..options.nproc)
        .map(|task| board.result(task, which).load(Ordering::Acquire))
        .collect();
    let mean_us = took.iter().sum::<u64>() as f64 / options.nproc as f64;
    let pages = (options.size / PAGE_BYTES).max(1);
    let us_per_op = mean_us / pages as f64;
    // Counted until the last task was done. The sum of the tasks' own lines would be too high if one has finished
    // before another began in earnest.
    let slowest = took.iter().copied().max().unwrap_or(0).max(1);
    let kb_per_s = kb_per_s(options, slowest) * options.nproc as u64;
    format!(
        r#"{{"phase":"{phase}","pages":{pages},"us_per_op":{us_per_op:.4},"kb_per_s":{kb_per_s}}}"#
    )
}

/// The throughput that a task reports for its time, with the accounting described above.
fn kb_per_s(options: &Usemem, usecs: u64) -> u64 {
    u64::try_from(u128::from(counted_bytes(options)) * 1_000_000 / 1024 / u128::from(usecs))
        .unwrap_or(u64::MAX)
}

const fn counted_bytes(options: &Usemem) -> u64 {
    (options.size + options.size / 8) as u64
}

/// One task. False if a word was wrong.
fn task(options: &Usemem, board: &Board, number: usize, start: Instant) -> io::Result<bool> {
    let words = options.size / 8;
    let region = Region::new(words.div_ceil(PAGE_WORDS).max(1), HugePages::Never)?;
    if options.sync_rw {
        board.wait(0, options.nproc);
    }
    for turn in 0..options.repeat {
        touch(
            options,
            &region,
            options.random_seed ^ turn << 32 ^ number as u64,
        );
    }
    let usecs = micros(start.elapsed()).max(1);
    let (bytes, rate) = (counted_bytes(options), kb_per_s(options, usecs));
    print_line(&format!("{bytes} bytes / {usecs} usecs = {rate} KB/s"));
    board.result(number, 0).store(usecs, Ordering::Release);
    let right = !options.verify || verify(options, &region);
    if options.sync_free {
        board.wait(1, options.nproc);
    }
    let begun = Instant::now();
    drop(region);
    let usecs = micros(begun.elapsed());
    print_line(&format!("{usecs} usecs to free memory"));
    board.result(number, 1).store(usecs, Ordering::Release);
    Ok(right)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Goes over all words once, each thread over its share.
fn touch(options: &Usemem, region: &Region, seed: u64) {
    let (words, threads) = (options.size / 8, options.thread.max(1));
    let of_thread = |thread: usize| {
        let share = share(words, thread, threads);
        touch_words(
            options,
            region,
            share,
            Random::new(seed ^ (thread as u64) << 48),
        );
    };
    if threads == 1 {
        return of_thread(0);
    }
    let of_thread = &of_thread;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || of_thread(thread));
        }
    });
}

fn touch_words(options: &Usemem, region: &Region, words: Range<usize>, mut random: Random) {
    let start = region.page(0);
    let mut sum = 0u64;
    for turn in words.clone() {
        let index = if options.random {
            words.start + random.below(words.len())
        } else {
            turn
        };
        // SAFETY: the index is below the number of words in the region, and in this thread's share.
        unsafe {
            let word = start.add(index);
            if options.readonly {
                sum = sum.wrapping_add(word.read_volatile());
            } else {
                word.write_volatile(index as u64);
            }
        }
    }
    std::hint::black_box(sum);
}

/// Checks that each word is its own index, or zero if it may not have been written.
fn verify(options: &Usemem, region: &Region) -> bool {
    let sure = !options.random && !options.readonly;
    for index in 0..options.size / 8 {
        // SAFETY: the index is below the number of words in the region, which only this task uses.
        let found = unsafe { region.page(0).add(index).read_volatile() };
        if found != index as u64 && (sure || found != 0) {
            let address = region.page(0).addr() + index * 8;
            eprintln!("wrong word at {address:#x}: expected {index:#x}, found {found:#x}");
            return false;
        }
    }
    true
}
