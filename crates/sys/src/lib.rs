//! The only door to the kernel: userfaultfd, pagemap, seccomp, process memory.

#[cfg(feature = "supervisor")]
pub mod area;
pub mod cgroup;
pub mod cpu;
pub mod doctor;
pub mod elf;
pub mod eventfd;
pub mod futex;
pub mod maps;
pub mod memory;
pub mod pagemap;
pub mod process;
pub mod procfs;
pub mod raw;
pub mod ring;
pub mod seccomp;
#[cfg(feature = "supervisor")]
pub mod signals;
pub mod sock;
#[cfg(feature = "supervisor")]
pub mod spawn;
pub mod task;
pub mod uffd;
