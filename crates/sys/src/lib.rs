//! The only door to the kernel: userfaultfd, pagemap, seccomp, process memory, files and devices.

#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod abi;
#[cfg(test)]
mod abi_tests;
#[cfg(feature = "supervisor")]
pub mod area_file;
pub mod cgroup;
pub mod cpu;
#[cfg(feature = "supervisor")]
pub mod disk;
pub mod doctor;
pub mod elf;
pub mod eventfd;
pub mod futex;
#[cfg(feature = "supervisor")]
pub mod guardian;
pub mod maps;
pub mod memory;
pub mod mremap;
#[cfg(feature = "supervisor")]
pub mod new_area;
pub mod pagemap;
pub mod process;
pub mod procfs;
pub mod procmap;
pub mod raw;
pub mod ring;
pub mod seccomp;
#[cfg(feature = "supervisor")]
pub mod signals;
pub mod sock;
pub mod spare;
#[cfg(feature = "supervisor")]
pub mod spawn;
pub mod task;
pub mod uffd;
