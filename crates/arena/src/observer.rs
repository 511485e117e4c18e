//! Finding system calls that are given memory which is out: `VSWAP_ARENA_DEBUG=calls`.
//!
//! Usually such a call fails with EFAULT, and nobody hears where it was made. Arenas that are observed have it wait
//! instead. This thread serves all faults then, says once of each call site what it found, and the program goes on. So
//! it is slower, finds all such calls in one run, and needs the privilege for faults of the kernel (CAP_SYS_PTRACE,
//! or /dev/userfaultfd).
//!
//! It touches no memory of the arena. What it says is put together with the allocator of the program, which is why it
//! looks first whether the fault is that of a call.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vswap_sys::process::task::{self, CallUnderWay};
use vswap_sys::sigbus;
use vswap_sys::uffd::Messages;
use vswap_sys::watched::Touch;

use crate::callers;
use crate::state::Core;

/// The variable that asks for it, and what it has to be.
const VARIABLE: &str = "VSWAP_ARENA_DEBUG";
const CALLS: &str = "calls";
/// How often it is looked whether the arena ends.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Call sites that are told of.
const SITES_MOST: usize = 256;

/// Is it asked for?
pub fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == CALLS)
}

/// Says that it cannot be had.
pub fn say_not_to_be_had(why: &dyn std::fmt::Display) {
    eprintln!(
        "vswap-arena: {VARIABLE}={CALLS} needs the privilege for faults of the kernel (run it as root): {why}; the \
         arena is not observed"
    );
}

/// Serves the faults of an arena that is observed, until it ends.
pub fn observe(core: &Core) {
    let mut messages = Messages::new();
    let mut known = HashSet::new();
    while !core.is_over.load(Ordering::SeqCst) {
        let heard = core
            .memory
            .hear_touches(&mut messages, LOOK_EVERY, |touch| {
                if let Some(call) = task::call_under_way(touch.tid)
                    && known.len() < SITES_MOST
                    && known.insert((call.number, call.code, callers::first(&call)))
                {
                    tell(core, touch, &call);
                }
                serve(core, touch);
            });
        if let Err(error) = heard {
            // Whoever touches a page would wait for ever.
            eprintln!("vswap-arena: the faults of an arena cannot be read: {error}; stopping");
            std::process::abort();
        }
    }
}

/// As the handler of SIGBUS would, but where it gives up the process ends, whatever handler the program has.
fn serve(core: &Core, touch: Touch) {
    if let Err(why) = core.serve_touch(touch.page, touch.is_write) {
        sigbus::say(why.text());
        std::process::abort();
    }
}

fn tell(core: &Core, touch: Touch, call: &CallUnderWay) {
    let address = core.memory.pointer().addr().get() + touch.page * crate::state::PAGE_BYTES;
    let to = if touch.is_write { "write to" } else { "read" };
    let mut text = format!(
        "vswap-arena: {} is to {to} memory of an arena that is out, at {address:#x}: without {VARIABLE} it fails with \
         EFAULT. Pin the memory, or copy it. Called from about\n",
        call.name()
    );
    for caller in callers::of(call) {
        text.push_str("    ");
        text.push_str(&caller);
        text.push('\n');
    }
    eprint!("{text}");
}
