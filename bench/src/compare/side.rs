//! The sides that run a workload.

use std::fmt;

use crate::kernel_swap::Backing;

/// A column of the table. vswap beside a side of the kernel has storage of the same kind: only memory beside zram, a
/// pool and an area beside zswap, an area without a pool beside a file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Side {
    Native,
    Kernel(Backing),
    Vswap(Backing),
    /// vswap, as another program or with other options.
    Other(Backing),
    /// The workload without `vswap run`, with its memory in an arena of the library. The arena has no area, so it is
    /// compared with zram.
    Arena,
    /// The workload with its memory in a shared mapping of a file, under a limit and without swap: what programs do
    /// that have no arena. It gets the total of zram too.
    Mapped,
}

impl Side {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Kernel(Backing::Zram) => "zram",
            Self::Kernel(Backing::Zswap) => "zswap",
            Self::Kernel(Backing::File) => "file",
            Self::Vswap(Backing::Zram) => "vswap",
            Self::Vswap(Backing::Zswap) => "vswap pool+area",
            Self::Vswap(Backing::File) => "vswap area",
            Self::Other(_) => "other",
            Self::Arena => "arena",
            Self::Mapped => "mmap",
        }
    }

    /// The side of the kernel whose total vswap gets and that it is compared with.
    pub(super) const fn backing(self) -> Option<Backing> {
        match self {
            Self::Native => None,
            Self::Arena | Self::Mapped => Some(Backing::Zram),
            Self::Kernel(backing) | Self::Vswap(backing) | Self::Other(backing) => Some(backing),
        }
    }

    /// Is this side compared with `rival`? Only vswap is. A disk is not compared with no swap at all, which would show
    /// nothing new.
    pub(super) fn is_measured_against(self, rival: Side) -> bool {
        let backing = match self {
            Self::Vswap(backing) => backing,
            Self::Arena => return matches!(rival, Self::Kernel(Backing::Zram) | Self::Mapped),
            _ => return false,
        };
        match rival {
            Self::Native => backing == Backing::Zram,
            Self::Vswap(_) | Self::Arena | Self::Mapped => false,
            Self::Kernel(_) | Self::Other(_) => rival.backing() == Some(backing),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for Side {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
