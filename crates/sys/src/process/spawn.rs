//! Starts a program as if its caller had started it: same process group, session, descriptors, working directory,
//! environment in the same order, signal mask and dispositions.
//!
//! The standard library resets the mask and SIGPIPE and sorts the environment, so this module has its own fork and
//! exec. Other threads may exist, so between the two it makes only async-signal-safe calls and allocates nothing.
//!
//! Unsafe is needed here because fork and exec have no safe form, and because inherited descriptors belong to no
//! object.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::stdio::{dup2_stdin, dup2_stdout};

use crate::process::procfs;
use crate::process::signals::Inherited;

/// Runs a file that is executable but has no format that the kernel knows, as execvp does.
const SHELL: &CStr = c"/bin/sh";
/// Exit status of a child that could not become the program. Its parent learns the reason through a pipe.
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

/// A program ready to be started: everything that exec needs.
#[derive(Debug)]
pub struct Program {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    is_traced: bool,
}

impl Program {
    /// `arguments` begins with the name that the program sees as its own. `environment` has the form NAME=value.
    #[must_use]
    pub fn new(path: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Program {
        Program {
            path,
            arguments,
            environment,
            is_traced: false,
        }
    }

    /// Has the program stop at its first instruction, traced by the thread that starts it.
    #[must_use]
    pub fn traced(self, is_traced: bool) -> Program {
        Program { is_traced, ..self }
    }

    /// Starts the program with the signals of `inherited`. Returns its pid when it runs.
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

        // SAFETY: until it execs or exits, the child calls only async-signal-safe functions, allocates nothing and
        // drops nothing (`_exit` does not return).
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(SpawnError::Fork(io::Error::last_os_error()));
        }
        if pid == 0 {
            inherited.restore();
            if self.is_traced {
                // SAFETY: takes no arguments. If it is refused the program does not stop, which its parent sees.
                unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            }
            // SAFETY: all three arrays end with a null pointer and point to strings that live in `self` or above. The
            // child has its own copy of that memory, and nobody changes it.
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
            // The pipe closed without a byte: exec has happened.
            Err(_) => Ok(pid.unsigned_abs()),
            Ok(()) => {
                // Nobody else knows the child made above.
                let _ = waitpid(Pid::from_raw(pid), WaitOptions::empty());
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
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((File::from(reader), writer))
}

/// Descriptors above standard error that the process was given at its start. They are meant for the program. If this
/// process kept them, it would hold pipes and locks open after the program has closed them.
#[derive(Debug)]
pub struct InheritedDescriptors {
    descriptors: Vec<RawFd>,
}

impl InheritedDescriptors {
    /// Finds them. Call it before anything is opened without close-on-exec. What survived an exec has no such flag, and
    /// what the standard library and this crate open always has it.
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

    /// Closes them, and replaces standard input and output by /dev/null. Standard error stays.
    pub fn release(self) {
        for descriptor in self.descriptors {
            if survives_exec(descriptor) {
                // SAFETY: the process that executed this one left the descriptor open. It has been open without
                // close-on-exec ever since, so no object in this process owns it.
                unsafe { libc::close(descriptor) };
            }
        }
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            // There is nothing to do about a failure: the streams then stay open as long as this process.
            let _ = dup2_stdin(&null);
            let _ = dup2_stdout(&null);
        }
    }
}

/// Makes sure that this process never prints a backtrace. Without backtraces the standard library answers a failed
/// allocation with a message and an abort. With one (RUST_BACKTRACE), printing it allocates. That fails too, and the
/// second answer waits for ever for the lock of the first (Rust 1.95). A pager that hangs holds all its programs. Call
/// this at the start: it does nothing once there is another thread.
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
    // SAFETY: the call only reads flags. An unused number gives -1.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// Can code be mapped from `file`? False on file systems mounted noexec, and if a security policy forbids it.
#[must_use]
pub fn can_map_executable(file: &File) -> bool {
    const PROBE_BYTES: usize = 4096;
    // SAFETY: makes a new private mapping at an address that the kernel chooses. It is never read, and unmapped at
    // once.
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
