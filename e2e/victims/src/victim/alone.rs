//! Calls for which the kernel requires a process of one thread, while memory is in use: entering new and other user
//! namespaces, also from a child with its own stack.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::content::PAGE_BYTES;
use crate::pages::{Mapping, Pages};
use crate::run::{Child, EXIT_WRONG, Options, complain};
use crate::wrong::{Checked, Wrong, call};

/// Pages of a child's stack.
const STACK_PAGES: usize = 64;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let mut pages = Pages::filled(options.pages(), options.tag(0))?;
    let mut random = options.random(0, 53);
    permitted()?;
    loop {
        for flags in [
            libc::CLONE_THREAD,
            libc::CLONE_SIGHAND,
            libc::CLONE_VM | libc::CLONE_FS,
        ] {
            // SAFETY: does not affect memory in a process of one thread.
            call("unshare", unsafe { libc::unshare(flags) })?;
            pages.stir("page beside unshare", &mut random, 64)?;
        }
        by_syscall()?;
        Child::fork(|| in_new_namespace(options, &mut pages))?.wait()?;
        on_own_stack(&pages)?;
        in_other_namespace(&mut pages)?;
        pages.check_all("page beside unshare")?;
        if !clock.running() {
            return Ok(());
        }
    }
}

/// Machines may forbid user namespaces. Tried in a child that does nothing else and has no memory that matters.
fn permitted() -> Checked {
    // SAFETY: the child makes only system calls.
    let pid = unsafe { libc::syscall(libc::SYS_fork) };
    if pid == 0 {
        // SAFETY: does not affect memory.
        let failed = unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER) };
        let is_forbidden = failed != 0
            && matches!(
                std::io::Error::last_os_error().raw_os_error(),
                Some(libc::EPERM | libc::ENOSPC | libc::ENOSYS)
            );
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(is_forbidden)) }
    }
    let pid = call("fork", i32::try_from(pid).unwrap_or(-1))?;
    match Child(pid).wait_status()? {
        0 => Ok(()),
        _ => Err(Wrong::Unavailable {
            what: "a user namespace",
            error: std::io::Error::from_raw_os_error(libc::EPERM),
        }),
    }
}

/// The same call through the C library's `syscall`, and a call that fails for another reason.
fn by_syscall() -> Checked {
    // SAFETY: does not affect memory in a process of one thread.
    let failed = unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_THREAD) };
    call("unshare by syscall", i32::try_from(failed).unwrap_or(-1))?;
    // SAFETY: there is no such descriptor.
    let failed = unsafe { libc::setns(-1, libc::CLONE_NEWUSER) };
    let error = std::io::Error::last_os_error();
    if failed == 0 || error.raw_os_error() != Some(libc::EBADF) {
        return Err(Wrong::Call {
            what: "setns to no descriptor",
            error,
        });
    }
    Ok(())
}

fn new_user_namespace() -> Checked {
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    // SAFETY: does not affect memory in a process of one thread.
    call("unshare(CLONE_NEWUSER)", unsafe { libc::unshare(flags) }).map(drop)
}

fn in_new_namespace(options: &Options, pages: &mut Pages) -> Checked {
    let mut random = options.random(1, 59);
    new_user_namespace()?;
    pages.stir("page in a new user namespace", &mut random, 256)?;
    let fresh = Pages::filled(pages.len() / 8, options.tag(1))?;
    // Forks go on as before.
    Child::fork(|| fresh.check_all("page of a child in a new user namespace"))?.wait()?;
    fresh.check_all("fresh page in a new user namespace")?;
    pages.check_all("page in a new user namespace")
}

/// Runs in a child whose main thread has its stack in memory that may be swapped.
fn on_own_stack(pages: &Pages) -> Checked {
    extern "C" fn begin(pages: *mut libc::c_void) -> i32 {
        // SAFETY: the child has a copy of the pages and of the stack that holds their model.
        let pages = unsafe { &*pages.cast::<Pages>() };
        let checked = new_user_namespace()
            .and_then(|()| pages.check_all("page of a child on a stack of its own"));
        match checked {
            Ok(()) => 0,
            Err(wrong) => {
                complain(&wrong);
                EXIT_WRONG
            }
        }
    }
    let stack = Mapping::new(STACK_PAGES)?;
    let top = stack.page(STACK_PAGES - 1).wrapping_byte_add(PAGE_BYTES);
    let argument = std::ptr::from_ref(pages).cast_mut().cast();
    // SAFETY: the child has a copy of this memory, and nobody else uses its stack.
    let pid = unsafe { libc::clone(begin, top.cast(), libc::SIGCHLD, argument) };
    Child(call("clone", pid)?).wait()
}

/// setns into the user namespace of a child.
fn in_other_namespace(pages: &mut Pages) -> Checked {
    let mut ends = [0; 4];
    for pair in ends.chunks_mut(2) {
        // SAFETY: `pair` has room for two descriptors.
        call("pipe", unsafe { libc::pipe(pair.as_mut_ptr()) })?;
    }
    let [told, tell, left, leave] = ends;
    let close = |descriptor| {
        // SAFETY: the descriptor belongs to the pipe above and is not used any more.
        unsafe { libc::close(descriptor) };
    };
    let wait_for_end = |descriptor| {
        let mut byte = 0_u8;
        // SAFETY: `byte` has room for one byte. Nothing is ever written to the pipe.
        unsafe { libc::read(descriptor, (&raw mut byte).cast(), 1) };
    };
    let owner = Child::fork(|| {
        close(leave);
        new_user_namespace()?;
        close(tell);
        wait_for_end(left);
        pages.check_all("page of the first in a user namespace")
    })?;
    close(tell);
    wait_for_end(told);
    let guest = Child::fork(|| {
        let path = format!("/proc/{}/ns/user", owner.0);
        let namespace = File::open(path).map_err(|error| Wrong::Call {
            what: "/proc/PID/ns/user",
            error,
        })?;
        // SAFETY: does not affect memory.
        let failed = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWUSER) };
        call("setns", failed)?;
        pages.check_all("page of a guest in a user namespace")
    })?
    .wait();
    [told, left, leave].into_iter().for_each(close);
    owner.wait().and(guest)
}
