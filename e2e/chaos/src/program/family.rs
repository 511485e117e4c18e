//! Children: all ways to make one, what it does, how it ends, and waiting for it.
//!
//! The C library is not prepared for a child of a bare `clone`, so nothing that a child runs may allocate. Unsafe is
//! needed for making children and ending processes past the C library's handlers.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::plan::Plan;
use crate::program::actor::{Actor, CHILDREN_MAX, LEFT_OUT};
use crate::program::calls::{self, Answer};
use crate::program::log::Wrong;
use crate::step::{Birth, End, Step};

unsafe extern "C" {
    /// fork(2) without the handlers that `pthread_atfork` has registered.
    fn _Fork() -> libc::pid_t;
    static environ: *const *mut c_char;
}

/// The status of a process that its signal to itself has not ended.
const IMMORTAL: i32 = 99;

/// A child that nobody has waited for yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    pid: i32,
    /// The line that made it. The line's record takes the child's status.
    line: usize,
    /// The number of the layout at that time.
    layout: u64,
}

impl Child {
    pub(crate) const NONE: Self = Self {
        pid: 0,
        line: 0,
        layout: 0,
    };
}

/// Arguments in the form that `posix_spawn` requires.
#[derive(Debug)]
pub(crate) struct Words(Vec<CString>);

/// For each actor that a step starts as a program: the arguments of this program.
///
/// # Errors
/// A path contains a zero byte.
pub(crate) fn spawns(
    plan: &Plan,
    path: &Path,
    log: &Path,
    fast: bool,
) -> Result<Vec<Option<Words>>, String> {
    let mut spawns: Vec<Option<Words>> = Vec::new();
    for line in &plan.lines {
        let Step::Fork {
            how: Birth::Spawn,
            child,
            ..
        } = line.step
        else {
            continue;
        };
        let number = child.to_string();
        let mut words = vec![&b"vswap-chaos"[..], b"program", path.as_os_str().as_bytes()];
        words.extend([
            b"--log",
            log.as_os_str().as_bytes(),
            b"--only",
            number.as_bytes(),
        ]);
        if fast {
            words.push(b"--fast");
        }
        let words: Result<Vec<CString>, _> = words.into_iter().map(CString::new).collect();
        let words = words.map_err(|_| "a path has a zero in it".to_owned())?;
        spawns.resize_with(spawns.len().max(child as usize + 1), || None);
        spawns[child as usize] = Some(Words(words));
    }
    Ok(spawns)
}

impl Actor<'_> {
    pub(crate) fn fork(&mut self, how: Birth, child: u32, end: End, wait: bool) -> Answer {
        let free = self.children.iter().position(|child| child.pid == 0);
        let Some(slot) = free.filter(|_| self.births_left > 0) else {
            return (LEFT_OUT, 0);
        };
        self.births_left -= 1;
        let (pid, errno) = match how {
            Birth::Spawn if self.limited => return (LEFT_OUT, 0),
            Birth::Spawn => self.spawn(child),
            _ => calls::answer(born(how)),
        };
        if errno != 0 {
            return (-1, errno);
        }
        if pid == 0 {
            self.live_as_child(child, end, wait);
        }
        let made = Child {
            pid: pid as i32,
            line: self.line,
            layout: self.model.layout(),
        };
        if wait {
            return (self.wait_for(made), 0);
        }
        self.children[slot] = made;
        (0, 0)
    }

    fn spawn(&self, child: u32) -> Answer {
        let Some(Some(words)) = self.shared.spawns.get(child as usize) else {
            return (-1, libc::ENOENT);
        };
        // Enough for all arguments of this program and the null that ends them.
        let mut pointers = [std::ptr::null_mut::<c_char>(); 12];
        for (pointer, word) in pointers.iter_mut().zip(&words.0) {
            *pointer = word.as_ptr().cast_mut();
        }
        let mut pid = 0;
        let path = c"/proc/self/exe".as_ptr();
        let none = std::ptr::null();
        // SAFETY: the words and the environment live during the call and end with null.
        let errno = unsafe {
            let environment = environ;
            libc::posix_spawn(
                &raw mut pid,
                path,
                none,
                none.cast(),
                pointers.as_ptr(),
                environment,
            )
        };
        if errno == 0 {
            (pid.into(), 0)
        } else {
            (-1, errno)
        }
    }

    /// What the child does until its end.
    fn live_as_child(&mut self, number: u32, end: End, wait: bool) -> ! {
        self.number = number;
        self.alone = true;
        self.divided = false;
        self.births_left = u32::MAX;
        self.had_ring = false;
        self.children = [Child::NONE; CHILDREN_MAX];
        self.model.become_child(wait);
        self.leave_library();
        if self.channels.own(number).is_err() {
            self.fail(Wrong::Call, 0, (0, calls::errno() as u64));
        }
        // A child that begins with a pause must have touched nothing yet if vswap is killed during the pause.
        let lines = &self.shared.by_actor[number as usize];
        let first = lines.first().map(|line| self.shared.plan.lines[*line].step);
        if !matches!(first, Some(Step::Pause { .. })) {
            self.check_all();
        }
        self.run();
        self.finish();
        end_as(match end {
            End::RawExit(status) if self.had_ring => End::Exit(status),
            end => end,
        })
    }

    pub(crate) fn wait_for_all(&mut self) {
        for slot in 0..CHILDREN_MAX {
            let child = std::mem::replace(&mut self.children[slot], Child::NONE);
            if child.pid != 0 {
                let status = self.wait_for(child);
                self.shared.log.done(child.line, (status, 0), child.layout);
            }
        }
    }

    /// Waits for a child and returns its wait status.
    fn wait_for(&self, child: Child) -> i64 {
        let mut status = 0;
        loop {
            // SAFETY: waits for a child and writes its status to a local variable.
            let pid = unsafe { libc::waitpid(child.pid, &raw mut status, 0) };
            if pid == child.pid {
                return status.into();
            }
            if calls::errno() != libc::EINTR {
                self.fail(Wrong::Call, 0, (child.pid as u64, calls::errno() as u64));
            }
        }
    }
}

/// Makes a child. Returns 0 in the child.
fn born(how: Birth) -> i64 {
    // SAFETY: the child goes on in `live_as_child`, which neither allocates nor takes a lock.
    unsafe {
        match how {
            Birth::Fork | Birth::Spawn => libc::fork().into(),
            Birth::BareFork => _Fork().into(),
            Birth::Clone => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0),
            Birth::Clone3 => {
                // Flags, pidfd, two thread ids, the signal at its end. Stack, stack size and TLS are the parent's.
                let words: [u64; 8] = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
                libc::syscall(libc::SYS_clone3, words.as_ptr(), size_of_val(&words))
            }
        }
    }
}

fn end_as(end: End) -> ! {
    // SAFETY: ends the process, in which nothing is left to do.
    unsafe {
        match end {
            End::Exit(status) => libc::_exit(status.into()),
            End::RawExit(status) => {
                libc::syscall(libc::SYS_exit, i32::from(status));
            }
            End::Signal(signal) => {
                libc::kill(libc::getpid(), signal.into());
            }
        }
        // The init of a pid namespace does not die of its own signal.
        libc::_exit(IMMORTAL)
    }
}
