//! Children and threads of the hooks, and what the functions do with their registers.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::io::{Error, Write};
use std::os::fd::AsRawFd;

use super::*;
use crate::base::kernel::{self, process_id};
use crate::registers_tests::{call_and_check, int, thread_pointer, word};

const CLONE_PARENT_SETTID: usize = 0x10_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
const CLONE_CHILD_SETTID: usize = 0x100_0000;
/// VM, FS, FILES, SIGHAND, THREAD and SYSVSEM.
const THREAD: usize = 0x5_0f00;
const STACK_WORDS: usize = 8192;

/// What a child finds.
#[derive(Default)]
struct Found {
    stack: AtomicUsize,
    thread_pointer: AtomicUsize,
    own_tid: AtomicI32,
}

/// Body of a thread that libc does not know: it may not use what lies at its thread pointer.
extern "C" fn look_around(found: &Found) -> c_int {
    let local = 0_usize;
    found
        .stack
        .store((&raw const local).addr(), Ordering::SeqCst);
    found
        .thread_pointer
        .store(thread_pointer(), Ordering::SeqCst);
    0
}

#[test]
fn a_thread_has_the_stack_and_the_thread_pointer_that_it_is_given() {
    let (found, ended) = (Found::default(), AtomicU32::new(1));
    let mut stack = vec![0_usize; STACK_WORDS];
    let range = stack.as_mut_ptr_range();
    let block = [const { AtomicUsize::new(0) }; 256];
    let own = block[128].as_ptr().expose_provenance();
    // What some machines want to find there.
    block[128].store(own, Ordering::SeqCst);
    let flags = THREAD | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    let mut tid = 0_i32;
    let arguments = [
        look_around as *const () as usize,
        range.end.addr() & !15,
        flags,
        (&raw const found).expose_provenance(),
        (&raw mut tid).expose_provenance(),
        own,
        ended.as_ptr().expose_provenance(),
        0,
    ];
    let returned = call_and_check(machine::clone as *const (), arguments);
    assert_eq!(int(returned), tid, "{}", Error::last_os_error());
    while ended.load(Ordering::SeqCst) != 0 {
        kernel::futex_wait(&ended, 1);
    }
    assert_eq!(found.thread_pointer.load(Ordering::SeqCst), own);
    let place = found.stack.load(Ordering::SeqCst);
    assert!((range.start.addr()..range.end.addr()).contains(&place));
}

/// Body of a child process. Its status says that it has found its own id where the kernel was to write it. It does not
/// return: qemu-user takes a lock of its own when a thread ends, and the child may have copied it while it was held.
extern "C" fn compare_ids(found: &Found) -> c_int {
    let is_own = found.own_tid.load(Ordering::SeqCst) == process_id();
    // SAFETY: this ends the child.
    unsafe { raw::syscall1(call::EXIT_GROUP, if is_own { 7 } else { 8 }) };
    9
}

fn status_of(child: usize) -> i32 {
    let mut status = 0;
    // SAFETY: the status is written to this stack.
    let waited = unsafe { ::libc::waitpid(int(child), &raw mut status, 0) };
    assert_eq!(waited, int(child), "{}", Error::last_os_error());
    assert!(::libc::WIFEXITED(status), "{status:#x}");
    ::libc::WEXITSTATUS(status)
}

#[test]
fn a_child_process_runs_what_it_was_given() {
    let found = Found::default();
    for vfork in [0, CLONE_VM | CLONE_VFORK] {
        let mut stack = vec![0_usize; STACK_WORDS];
        let arguments = [
            compare_ids as *const () as usize,
            stack.as_mut_ptr_range().end.addr() & !15,
            SIGCHLD | CLONE_CHILD_SETTID | vfork,
            (&raw const found).expose_provenance(),
            0,
            0,
            found.own_tid.as_ptr().expose_provenance(),
            0,
        ];
        for clone in [machine::clone, machine::__clone] {
            let child = call_and_check(clone as *const (), arguments);
            assert_eq!(status_of(child), 7);
        }
    }
}

#[test]
fn impossible_children_are_refused_with_an_errno() {
    let mut stack = vec![0_usize; STACK_WORDS];
    let place = stack.as_mut_ptr_range().end.addr() & !15;
    // CLONE_THREAD without CLONE_VM, which the kernel refuses. Neither function nor stack, which libc refuses.
    for [routine, stack, flags] in [
        [compare_ids as *const () as usize, place, 0x1_0000],
        [0, place, SIGCHLD],
        [compare_ids as *const () as usize, 0, SIGCHLD],
    ] {
        let arguments = [routine, stack, flags, 0, 0, 0, 0, 0];
        let returned = call_and_check(machine::clone as *const (), arguments);
        assert_eq!(int(returned), -1);
        assert_eq!(Error::last_os_error().raw_os_error(), Some(::libc::EINVAL));
    }
}

#[test]
fn all_arguments_of_a_system_call_arrive() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[1; 4096]).unwrap();
    file.write_all(&[2; 4096]).unwrap();
    for syscall in [
        machine::syscall as *const (),
        machine::plain_syscall as *const (),
    ] {
        // MAP_PRIVATE, and the second page.
        let descriptor = word(file.as_raw_fd());
        let arguments = [call::MMAP, 0, 4096, 1, 2, descriptor, 4096, 0];
        let mapped = call_and_check(syscall, arguments);
        assert!(mapped.is_multiple_of(4096), "{}", Error::last_os_error());
        // SAFETY: the page was mapped just now.
        let first = unsafe { core::ptr::with_exposed_provenance::<u8>(mapped).read() };
        assert_eq!(first, 2);
        assert_eq!(
            call_and_check(syscall, [call::MUNMAP, mapped, 4096, 0, 0, 0, 0, 0]),
            0
        );
        let failed = call_and_check(syscall, [call::CLOSE, usize::MAX, 0, 0, 0, 0, 0, 0]);
        assert_eq!(failed, usize::MAX);
        assert_eq!(Error::last_os_error().raw_os_error(), Some(::libc::EBADF));
    }
}

#[test]
fn calls_that_are_looked_at_do_what_they_do() {
    let syscall = machine::syscall as *const ();
    let child = call_and_check(syscall, [call::CLONE, SIGCHLD, 0, 0, 0, 0, 0, 0]);
    if child == 0 {
        // SAFETY: this ends the child, which is a copy of a process with several threads.
        unsafe { raw::syscall1(call::EXIT_GROUP, 9) };
    }
    assert_eq!(status_of(child), 9);
    // A flag that the call does not have, a descriptor that is none, an operation that there is not.
    for (arguments, errno) in [
        ([call::UNSHARE, CLONE_VFORK, 0], ::libc::EINVAL),
        ([call::SETNS, usize::MAX, 0], ::libc::EBADF),
        ([call::CLONE, 0x1_0000, 0], ::libc::EINVAL),
    ] {
        let [number, a, b] = arguments;
        let returned = call_and_check(syscall, [number, a, b, 0, 0, 0, 0, 0]);
        assert_eq!(returned, usize::MAX);
        assert_eq!(
            Error::last_os_error().raw_os_error(),
            Some(errno),
            "{number}"
        );
    }
}
