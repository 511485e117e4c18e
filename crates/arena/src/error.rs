//! Why the arena did not do what it was asked to do.

use std::io;

use vswap_areas::{OpenError, SpecError, TierNameError};
use vswap_engine::{ConfigError, GroupError, GroupNameError, SwapOnError, TIERS_MAX};
use vswap_sys::machine::OtherPages;
use vswap_sys::memory::MemoryError;
use vswap_sys::watched::WatchError;

use crate::size::SizeError;

/// Why an arena could not be made, or could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// A text that is no size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The kernel has other pages.
    #[error(transparent)]
    Pages(#[from] OtherPages),
    /// Less RAM than an arena works with.
    #[error("an arena needs at least {least_bytes} bytes of RAM, {bytes} were given: give more")]
    TooLittleRam {
        /// What was given.
        bytes: u64,
        /// What is needed.
        least_bytes: u64,
    },
    /// Memory cannot be watched here.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// No memory for the arena's own tables.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] ConfigError),
    /// A text that names no area.
    #[error("this names no swap area: {0}")]
    AreaName(#[from] SpecError),
    /// An area that cannot be opened.
    #[error(transparent)]
    Area(#[from] OpenError),
    /// The engine cannot use it as an area.
    #[error("{place}: {error}")]
    SwapOn {
        /// Where it is.
        place: String,
        /// Why not.
        error: SwapOnError,
    },
    /// As many tiers as there can be.
    #[error("areas name more than {TIERS_MAX} tiers, the most there can be: use fewer names")]
    TooManyTiers,
    /// A limit of a tier that no area is in.
    #[error(
        "there is no tier {tier} here, only {known}: name one of these, or an area with tier={tier}"
    )]
    UnknownTier {
        /// What was given.
        tier: String,
        /// Those that there are.
        known: String,
    },
    /// A text that names no group.
    #[error(transparent)]
    GroupName(#[from] GroupNameError),
    /// A text that names no tier.
    #[error(transparent)]
    TierName(#[from] TierNameError),
    /// The engine has no such group to give.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// As many groups as an arena can have.
    #[error("the arena has {most} groups, the most there can be: use one of them")]
    TooManyGroups {
        /// How many.
        most: usize,
    },
    /// A text that is no limit of a group.
    #[error(
        "'{text}' is no limit of a group: write swap-max=SIZE, pool-max=SIZE, tier-max=NAME=SIZE or no-writeback, \
         with commas between"
    )]
    Limit {
        /// What was given.
        text: String,
    },
    /// As many arenas as a process can have.
    #[error("this process has {most} arenas, the most there can be: drop one")]
    TooManyArenas {
        /// How many.
        most: usize,
    },
    /// The system gives no thread or signal handler.
    #[error("the system refuses {what}: {error}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// The addresses that the arena has reserved are used up.
    #[error(
        "{bytes} bytes in one piece are not free in the arena: free some, or build it with more capacity"
    )]
    NoAddresses {
        /// What was asked for.
        bytes: usize,
    },
    /// A length of zero.
    #[error("0 bytes were asked for: ask for 1 or more")]
    Empty,
    /// RAM, pool and areas are full.
    #[error(
        "RAM, pool and areas of the arena are full: free memory, or build it with more RAM or a larger swap area"
    )]
    Full,
    /// So much cannot be kept in RAM at the same time.
    #[error(
        "{pages} more pages cannot be kept in RAM: at most {most} can be pinned now, with those that are"
    )]
    TooMuchPinned {
        /// What was asked for.
        pages: u64,
        /// What can be pinned in all.
        most: u64,
    },
    /// Memory that is not the arena's.
    #[error("the memory is not the arena's: pass what was allocated from it")]
    NotOurs,
    /// No allocation that is in use begins there.
    #[error(
        "no allocation begins at this address: it was freed before, or the address lies inside of one; \
         pass what was allocated, and once"
    )]
    NotAllocated,
    /// Memory that nobody has pinned.
    #[error("some of the memory is not pinned: unpin what was pinned, and as often")]
    NotPinned,
    /// Memory that is pinned cannot be dropped.
    #[error("the memory is pinned: drop the pin first")]
    Pinned,
    /// Damaged in memory, or its area cannot be read.
    #[error(
        "the content of a page is lost: it was damaged in memory, or its swap area cannot be read"
    )]
    Lost,
    /// The kernel gives no page.
    #[error(
        "the kernel gives no page to the arena's memory: see the memory limit of the control group"
    )]
    KernelRefuses,
    /// The child of a fork does not have its parent's arenas.
    #[error(
        "this is the child of a fork: the memory of an arena stays with the parent; make an arena here"
    )]
    Forked,
}
