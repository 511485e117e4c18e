//! `vswap-victims`: programs that use memory in all the ways that a swapper is likely to get wrong.
//!
//! Each subcommand is a program of its own, limited by `--seconds` and `--megabytes`. It knows what every byte must be.
//! Exit status 0 means that all bytes were right, and 1 that something was wrong (a message names address, expected and
//! found). 3 means that the machine does not permit what the victim tests. Victims know nothing of vswap and must pass
//! without it.
//!
//! Unsafe is needed in this whole crate because victims call libc directly, and use raw memory that they map, move and
//! drop themselves. A reference to such memory could become invalid, so they use addresses.

mod content;
mod heap;
mod int80;
mod pages;
mod run;
mod scratch;
mod segment;
mod uffd;
mod victim;
mod wrong;

use clap::{Parser, Subcommand};

use crate::run::Options;
use crate::wrong::{Checked, Wrong};

#[derive(Parser)]
#[command(
    version,
    about = "Programs that use memory in every way and check every byte"
)]
struct Command {
    #[command(subcommand)]
    victim: Victim,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Debug, Subcommand)]
enum Victim {
    /// Run all victims in turn, each for the given time.
    All,
    /// Print the names of all victims.
    List,
    /// Threads on pages of their own and on shared ones.
    Threads,
    /// Pages whose age the kernel forgets all the time.
    Aging,
    /// Forks: nested, with many sharers, with children that live on, beside writing threads.
    Fork,
    /// Allocations in some threads while another forks.
    Allocate,
    /// Memory that children shared for a moment.
    Sharing,
    /// Memory that MADV_WIPEONFORK keeps from children.
    Wipe,
    /// posix_spawn, vfork, exec and system storms.
    Spawn,
    /// Pipelines and shells.
    Tree,
    /// Mappings that grow, shrink and move.
    Mremap,
    /// Mappings that come and go.
    Reuse,
    /// Protection that changes.
    Mprotect,
    /// Memory that may not be written any more.
    Frozen,
    /// The end of the heap moved up and down.
    Brk,
    /// Memory given back with MADV_DONTNEED reads as zeros.
    Dontneed,
    /// Large ranges given back with MADV_DONTNEED.
    Discard,
    /// Memory given back with MADV_FREE.
    Free,
    /// Memory as the buffer of reads and writes, including O_DIRECT.
    Buffers,
    /// io_uring on registered buffers.
    Uring,
    /// Signal handlers on alternate stacks and on the thread's own.
    Signals,
    /// A userfaultfd of the program's own.
    Userfault,
    /// Shared and file mappings.
    Shared,
    /// Huge pages.
    Huge,
    /// Deep recursion.
    Stacks,
    /// All memory locked and unlocked.
    Lock,
    /// Thousands of threads.
    Churn,
    /// Calls that fail and change nothing.
    Failing,
    /// Memory that MADV_DONTFORK keeps from children.
    Dontfork,
    /// Guard pages.
    Guard,
    /// Kinds of memory that programs rarely have.
    Kinds,
    /// Advice that changes no content, and rare ways of reading and writing memory.
    Hints,
    /// Names of memory that move (`PR_SET_MM_MAP`), with the heap elsewhere.
    Names,
    /// Memory policies, and pages that move between nodes.
    Nodes,
    /// Calls of 32-bit programs by a 64-bit one.
    Legacy,
    /// Such calls of which no event tells, from several threads.
    Compat,
    /// Futexes in any page.
    Futexes,
    /// Pages given away with vmsplice.
    Gifts,
    /// Pages that pass through pipes with splice and tee.
    Splices,
    /// Pages that the program sends to the swap of the host.
    Paged,
    /// Memory read and written from outside, by /proc and ptrace.
    Peeks,
    /// Equal pages that the kernel merges.
    Ksm,
    /// Memory that moves while what lies around it is read, in a process with an io_uring.
    Marked,
    /// Small mappings that become one with their neighbours.
    Merge,
    /// Threads that end and are joined by every means.
    Endings,
    /// Calls that require a process of one thread.
    Alone,
    /// A seccomp filter on the main thread, from the start.
    Sandboxed,
    /// A seccomp filter on all threads.
    Confined,
    /// Random changes of every kind, including forks.
    Chaos,
    /// Started by `spawn`: fills memory and replaces itself.
    #[command(hide = true)]
    Chain { generations: usize },
    /// Started by `tree`: one stage of a pipeline.
    #[command(hide = true)]
    Stage { stage: usize },
}

/// The victims that `all` runs, the quickest to fail first. Not `ksm`, which changes settings of the machine and needs
/// time in which pages stay where they are.
const NAMES: [&str; 46] = [
    "threads",
    "aging",
    "fork",
    "allocate",
    "sharing",
    "wipe",
    "failing",
    "dontfork",
    "guard",
    "kinds",
    "hints",
    "names",
    "nodes",
    "legacy",
    "compat",
    "futexes",
    "gifts",
    "splices",
    "paged",
    "peeks",
    "merge",
    "marked",
    "mremap",
    "dontneed",
    "discard",
    "free",
    "reuse",
    "mprotect",
    "frozen",
    "brk",
    "buffers",
    "uring",
    "signals",
    "lock",
    "userfault",
    "shared",
    "huge",
    "stacks",
    "churn",
    "endings",
    "alone",
    "sandboxed",
    "confined",
    "spawn",
    "tree",
    "chaos",
];

fn run(victim: &Victim, options: &Options) -> Checked {
    match *victim {
        Victim::All => victim::all::run(options, &NAMES),
        Victim::List => {
            NAMES.iter().for_each(|name| println!("{name}"));
            Ok(())
        }
        Victim::Threads => victim::threads::run(options),
        Victim::Aging => victim::aging::run(options),
        Victim::Fork => victim::fork::run(options),
        Victim::Allocate => victim::allocate::run(options),
        Victim::Sharing => victim::sharing::run(options),
        Victim::Wipe => victim::wipe::run(options),
        Victim::Spawn => victim::spawn::run(options),
        Victim::Tree => victim::tree::run(options),
        Victim::Mremap => victim::mremap::run(options),
        Victim::Reuse => victim::reuse::run(options),
        Victim::Frozen => victim::frozen::run(options),
        Victim::Mprotect => victim::mprotect::run(options),
        Victim::Brk => victim::brk::run(options),
        Victim::Dontneed => victim::dontneed::run(options),
        Victim::Discard => victim::discard::run(options),
        Victim::Free => victim::free::run(options),
        Victim::Buffers => victim::buffers::run(options),
        Victim::Uring => victim::uring::run(options),
        Victim::Lock => victim::lock::run(options),
        Victim::Signals => victim::signals::run(options),
        Victim::Userfault => victim::userfault::run(options),
        Victim::Shared => victim::shared::run(options),
        Victim::Huge => victim::huge::run(options),
        Victim::Stacks => victim::stacks::run(options),
        Victim::Churn => victim::churn::run(options),
        Victim::Failing => victim::failing::run(options),
        Victim::Dontfork => victim::dontfork::run(options),
        Victim::Guard => victim::guard::run(options),
        Victim::Kinds => victim::kinds::run(options),
        Victim::Hints => victim::hints::run(options),
        Victim::Names => victim::names::run(options),
        Victim::Nodes => victim::nodes::run(options),
        Victim::Legacy => victim::legacy::run(options),
        Victim::Compat => victim::compat::run(options),
        Victim::Futexes => victim::futexes::run(options),
        Victim::Gifts => victim::gifts::run(options),
        Victim::Splices => victim::splices::run(options),
        Victim::Paged => victim::paged::run(options),
        Victim::Peeks => victim::peeks::run(options),
        Victim::Ksm => victim::ksm::run(options),
        Victim::Marked => victim::marked::run(options),
        Victim::Merge => victim::merge::run(options),
        Victim::Endings => victim::endings::run(options),
        Victim::Alone => victim::alone::run(options),
        Victim::Sandboxed => victim::sandboxed::run(options),
        Victim::Confined => victim::confined::run(options),
        Victim::Chaos => victim::chaos::run(options),
        Victim::Chain { generations } => victim::spawn::run_chain(generations, options.seed),
        Victim::Stage { stage } => victim::tree::run_stage(stage),
    }
}

fn main() {
    let Command { victim, options } = Command::parse();
    // Each victim that `all` starts has its own watchdog.
    if !matches!(victim, Victim::All) {
        run::watchdog(&options);
        if options.sabotage {
            content::arm_sabotage();
        }
    }
    let status = match run(&victim, &options) {
        Ok(()) => 0,
        Err(wrong) => {
            run::complain(&wrong);
            match wrong {
                Wrong::Unavailable { .. } => run::EXIT_UNAVAILABLE,
                _ => run::EXIT_WRONG,
            }
        }
    };
    std::process::exit(status);
}
