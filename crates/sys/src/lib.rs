//! The only door to the kernel: userfaultfd, pagemap, seccomp, process memory, files and devices.

#[cfg(feature = "supervisor")]
pub mod area_file;
pub mod cgroup;
pub mod cpu;
pub mod doctor;
pub mod elf;
pub mod eventfd;
pub mod futex;
pub mod maps;
pub mod memory;
#[cfg(feature = "supervisor")]
pub mod new_area;
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
