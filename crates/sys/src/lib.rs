//! The only door to the kernel: userfaultfd, pagemap, seccomp, process memory, files and devices.
//!
//! Floors, lowest first: a module names only modules above it in this list (`cargo xtask tidy` checks that).

// What the agent takes as it is.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod abi;
#[cfg(test)]
mod abi_tests;
pub mod raw;
pub mod machine;
pub mod ring;
pub mod grant;
// Waking, and a descriptor in reserve.
pub mod eventfd;
pub mod futex;
pub mod kind;
pub mod random;
pub mod looks;
pub mod patience;
// How the pager hears of an agent and of its calls.
pub mod sock;
pub mod epoll;
pub mod taken;
pub mod seccomp;
// Memory of this process and of others, processes, faults.
pub mod memory;
pub mod process;
pub mod uffd;
// Memory whose faults the thread itself serves, and which children do not have.
pub mod sigbus;
mod left_out;
pub mod watched;
// Files and devices that hold pages.
#[cfg(feature = "supervisor")]
pub mod disk;
// Putting the agent into a program from outside.
#[cfg(feature = "supervisor")]
pub mod inject;
// What vswap takes away from itself.
#[cfg(feature = "supervisor")]
pub mod confinement;
// What outlives the pager, and what this machine permits.
#[cfg(feature = "supervisor")]
pub mod guardian;
pub mod doctor;
