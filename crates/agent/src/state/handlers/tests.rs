//! Handlers and their stand-ins, and a call that a signal has cut short.

use core::sync::atomic::AtomicI32;
use std::time::Duration;

use super::*;
use crate::base::kernel::{process_id, thread_id};
use crate::registers_tests::{note_entry, spin_behind_call, word};

#[test]
fn handlers_have_one_stand_in_each() {
    let handler = |number: usize| 0x10_0000 + number * 16;
    let one = stand_in_for(handler(0), 0);
    assert!(one != handler(0) && handler_of(one) == handler(0));
    assert_eq!(stand_in_for(handler(0), 0), one, "the same again");
    assert_eq!(stand_in_for(one, 0), one, "a stand-in needs none");
    let restarts = stand_in_for(handler(1), SA_RESTART);
    assert_eq!(restarts, handler(1), "the kernel makes calls again");
    for special in [0, SIG_IGN, SIG_ERR] {
        assert_eq!(stand_in_for(special, 0), special);
        assert_eq!(handler_of(special), special);
    }
}

#[test]
fn handlers_beyond_the_table_stay_as_they_are() {
    // In a child, because other tests need the table. Some handlers of the program are in it already.
    // SAFETY: the child only uses the table, and ends.
    let child = unsafe { ::libc::fork() };
    if child == 0 {
        let free = HANDLERS
            .iter()
            .filter(|place| place.load(Ordering::SeqCst) == 0)
            .count();
        let is_right = (0..=STAND_INS).all(|number| {
            let handler = 0x20_0000 + number * 16;
            (stand_in_for(handler, 0) == handler) == (number >= free)
        });
        // SAFETY: this ends the child.
        unsafe { ::libc::_exit(if is_right { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: the status is a word on this stack.
    let waited = unsafe { ::libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 7 << 8));
}

fn program_break() -> usize {
    // SAFETY: with 0 the call changes nothing.
    unsafe { kernel::call(kernel::call::BRK, [0; 6]) }.unwrap()
}

/// Sends this signal to a thread that stands behind a call as if the call had been interrupted, until the thread goes
/// on. Returns the result of the call.
pub fn cut_short(signal: usize, number: usize) -> usize {
    let action = Action {
        handler: note_entry as *const () as usize,
        ..Action::default()
    };
    act(signal, action).unwrap();
    let tid = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let spinning = scope.spawn(|| {
            tid.store(thread_id(), Ordering::SeqCst);
            // SAFETY: the code makes a call that changes nothing, or maps a page.
            unsafe { spin_behind_call(number) }
        });
        while !spinning.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            let [pid, tid] = [process_id(), tid.load(Ordering::SeqCst)].map(word);
            if tid != 0 {
                // The thread may have gone.
                // SAFETY: the signal has a handler.
                let _ = unsafe { kernel::call(kernel::call::TGKILL, [pid, tid, signal, 0, 0, 0]) };
            }
        }
        spinning.join().unwrap()
    })
}

#[test]
fn a_call_that_was_cut_short_does_not_return_eintr() {
    let signal = word(::libc::SIGURG);
    assert_eq!(cut_short(signal, kernel::call::BRK), program_break());
}
