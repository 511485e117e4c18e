//! Starts a program as if its caller had started it: same process group, session, descriptors, working directory,
//! environment in the same order, signal mask and dispositions.
//!
//! The standard library's way resets the mask and SIGPIPE and sorts the environment, so this has its own fork and
//! exec. Between the two only async-signal-safe calls are made and nothing is allocated: other threads may exist.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::process::procfs;
use crate::process::signals::Inherited;

/// What runs a file that is executable but has no format the kernel knows, as execvp does.
const SHELL: &CStr = c"/bin/sh";
/// Exit status of a child that could not become the program; its parent learns the reason through a pipe.
const EXEC_FAILED_STATUS: i32 = 127;

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No new process could be made.
    #[error("cannot make a process: {0}")]
    Fork(#[source] io::Error),
    /// The process could not become the program.
    #[error("cannot execute the program: {0}")]
    Exec(#[source] io::Error),
}

/// A program ready to be started: all that exec is given.
#[derive(Debug)]
pub struct Program {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    /// `arguments` begins with the name that the program shall see as its own; `environment` is of the form NAME=value.
    #[must_use]
    pub fn new(path: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Program {
        Program {
            path,
            arguments,
            environment,
        }
    }

    /// Starts the program with the signals of `inherited` and returns its pid when it runs.
    ///
    /// # Errors
    /// `SpawnError::Exec` when the process was made but the kernel refused the program; that process is reaped.
    pub fn spawn(&self, inherited: &Inherited) -> Result<u32, SpawnError> {
        let arguments = pointers(self.arguments.iter());
        let environment = pointers(self.environment.iter());
        let shell_name = SHELL.to_owned();
        let for_shell = pointers(
            [&shell_name, &self.path]
                .into_iter()
                .chain(self.arguments.iter().skip(1)),
        );
        let (mut reader, writer) = pipe().map_err(SpawnError::Fork)?;

        // SAFETY: the child calls only async-signal-safe functions until it execs or exits; it allocates nothing and
        // drops nothing (`_exit` does not return).
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(SpawnError::Fork(io::Error::last_os_error()));
        }
        if pid == 0 {
            inherited.restore();
            // SAFETY: all three arrays end with a null pointer and point to strings that live in `self` or above;
            // the child has its own copy of that memory and nobody changes it.
            unsafe {
                libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                if *libc::__errno_location() == libc::ENOEXEC {
                    libc::execve(SHELL.as_ptr(), for_shell.as_ptr(), environment.as_ptr());
                }
                let errno = (*libc::__errno_location()).to_ne_bytes();
                libc::write(writer.as_raw_fd(), errno.as_ptr().cast(), errno.len());
                libc::_exit(EXEC_FAILED_STATUS);
            }
        }
        drop(writer);
        let mut errno = [0; size_of::<i32>()];
        match reader.read_exact(&mut errno) {
            // The pipe closed without a word: exec has happened.
            Err(_) => Ok(pid.unsigned_abs()),
            Ok(()) => {
                // SAFETY: waits for the child made above, which nobody else knows; a null status is allowed.
                unsafe { libc::waitpid(pid, core::ptr::null_mut(), 0) };
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(SpawnError::Exec(source))
            }
        }
    }
}

/// A null-terminated array of pointers into `strings`.
fn pointers<'a>(strings: impl Iterator<Item = &'a CString>) -> Vec<*const libc::c_char> {
    strings
        .map(|string| string.as_ptr())
        .chain([core::ptr::null()])
        .collect()
}

/// A pipe whose ends close on exec.
fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: the kernel writes two descriptors to the array.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh descriptors that nothing else owns.
    Ok(unsafe { (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Descriptors that the process was given at its start, above standard error. They are meant for the program; a
/// process that kept them would hold pipes and locks open after the program has closed them.
#[derive(Debug)]
pub struct InheritedDescriptors {
    descriptors: Vec<RawFd>,
}

impl InheritedDescriptors {
    /// Finds them. To be called before anything is opened without close-on-exec: what survived an exec has no such
    /// flag, and what the standard library and this crate open always has it.
    #[must_use]
    pub fn at_start() -> InheritedDescriptors {
        let entries = std::fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten();
        let descriptors = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|descriptor| *descriptor > libc::STDERR_FILENO && survives_exec(*descriptor))
            .collect();
        InheritedDescriptors { descriptors }
    }

    /// Lets go of them, and of standard input and output, which become /dev/null. Standard error stays.
    pub fn release(self) {
        for descriptor in self.descriptors {
            if survives_exec(descriptor) {
                // SAFETY: the descriptor came from the process that executed this one and has been open without
                // close-on-exec ever since, so no object in this process owns it.
                unsafe { libc::close(descriptor) };
            }
        }
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
                // SAFETY: replaces a standard stream by another open file; the number stays valid throughout.
                unsafe { libc::dup2(null.as_raw_fd(), standard) };
            }
        }
    }
}

/// Has this process never print a backtrace. Where none is asked for, the standard library answers a failed allocation
/// with a message and an abort. Where one is (RUST_BACKTRACE), printing it allocates, that fails too, and the second
/// answer waits for ever for the lock of the first (Rust 1.95): a pager that hangs holds all its programs. To be called
/// at the start; once there is another thread nothing happens.
pub fn without_backtraces() {
    if !matches!(procfs::threads(std::process::id()).as_deref(), Ok([_])) {
        return;
    }
    for name in ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"] {
        // SAFETY: the environment may be written while nobody else reads it, and this is the only thread.
        unsafe { std::env::remove_var(name) };
    }
}

fn survives_exec(descriptor: RawFd) -> bool {
    // SAFETY: reads flags; an unused number gives -1.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// Says whether code can be mapped from `file`: false on file systems mounted noexec and where a security policy
/// forbids it.
#[must_use]
pub fn can_map_executable(file: &File) -> bool {
    const PROBE_BYTES: usize = 4096;
    // SAFETY: a fresh private mapping at an address of the kernel's choice, never read and unmapped at once.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        let fd = file.as_raw_fd();
        let at = libc::mmap(
            core::ptr::null_mut(),
            PROBE_BYTES,
            protection,
            libc::MAP_PRIVATE,
            fd,
            0,
        );
        at != libc::MAP_FAILED && libc::munmap(at, PROBE_BYTES) == 0
    }
}
