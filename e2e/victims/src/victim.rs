//! The victims, one a file. Each has `run`, which returns when its time is over.

pub(crate) mod aging;
pub(crate) mod all;
pub(crate) mod allocate;
pub(crate) mod brk;
pub(crate) mod buffers;
pub(crate) mod chaos;
pub(crate) mod churn;
pub(crate) mod discard;
pub(crate) mod dontneed;
pub(crate) mod fork;
pub(crate) mod free;
pub(crate) mod huge;
pub(crate) mod lock;
pub(crate) mod mprotect;
pub(crate) mod mremap;
pub(crate) mod reuse;
pub(crate) mod shared;
pub(crate) mod sharing;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod stacks;
pub(crate) mod threads;
pub(crate) mod tree;
pub(crate) mod uring;
pub(crate) mod userfault;
pub(crate) mod wipe;
