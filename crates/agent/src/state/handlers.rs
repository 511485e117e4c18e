//! What the kernel has in place of the program's handlers, so that a signal ends no call that the filter has stopped.
//!
//! A call that stops in the filter can be interrupted until the pager has received it; from then on the kernel waits
//! for the answer. With SA_RESTART the call is made again after the handler. Without it the call returns EINTR, which
//! brk, mmap and the others never do natively, so nobody is prepared for it: malloc takes the EINTR of brk for an
//! address.
//!
//! So the kernel gets a *stand-in* for each handler without SA_RESTART. It runs on the handler's stack, looks at what
//! was interrupted, and jumps to the program's handler with everything as the kernel has left it. If a call of ours was
//! cut short, the thread will make it again when the handler returns. How the call is recognised, and which calls
//! cannot be made again, is of the machine. Handlers beyond the table have no stand-in.
//!
//! Hooks of libc's functions install the stand-ins (`hooks/signals.rs`). Where an agent was attached from outside there
//! are no hooks: there rt_sigaction stops in the filter, and the agent's thread makes the call (`commands`).
//!
//! Unsafe is needed here because the records are the kernel's and the program's, and the stand-ins are bare code.

// The stand-ins themselves, and how a call that was cut short is recognised and made again.
#[cfg_attr(target_arch = "x86_64", path = "handlers/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "handlers/aarch64.rs")]
mod machine;

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::call;
use crate::base::kernel::{self, Errno, MARK};

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Action {
    pub handler: usize,
    pub flags: usize,
    pub restorer: usize,
    pub mask: usize,
}

const SA_RESTART: usize = 0x1000_0000;
/// SIG_DFL and SIG_IGN are 0 and 1, SIG_ERR is the last address.
const SIG_IGN: usize = 1;
pub const SIG_ERR: usize = usize::MAX;
const SIGNALS: usize = 64;

/// Handlers that can have a stand-in: most programs have a handful. All others stay as they are.
const STAND_INS: usize = 128;
/// Bytes from one stand-in to the next.
const STAND_IN_BYTES: usize = 16;
/// The handler of each stand-in, 0 for none. None is ever given up: a thread may be on its way to it.
#[unsafe(link_section = ".data")]
static HANDLERS: [AtomicUsize; STAND_INS] = [const { AtomicUsize::new(0) }; STAND_INS];

unsafe extern "C" {
    /// The first stand-in.
    #[link_name = "vswap_stand_ins"]
    safe static FIRST: u8;
}

fn first() -> usize {
    (&raw const FIRST).addr()
}

/// The program's handler, if the kernel has `installed`.
pub fn handler_of(installed: usize) -> usize {
    let offset = installed.wrapping_sub(first());
    let handler = HANDLERS.get(offset / STAND_IN_BYTES);
    handler.map_or(installed, |handler| handler.load(Ordering::SeqCst))
}

/// What the kernel shall have for a handler with these flags: a stand-in if it needs one.
pub fn stand_in_for(handler: usize, flags: usize) -> usize {
    let is_one = handler.wrapping_sub(first()) < STAND_INS * STAND_IN_BYTES;
    if handler <= SIG_IGN || handler == SIG_ERR || is_one || flags & SA_RESTART != 0 {
        return handler;
    }
    let place = HANDLERS.iter().position(|place| {
        let claimed = place.compare_exchange(0, handler, Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok() || claimed == Err(handler)
    });
    place.map_or(handler, |index| {
        first().wrapping_add(index.wrapping_mul(STAND_IN_BYTES))
    })
}

/// rt_sigaction for the program: the kernel gets a stand-in if one is needed, and the program gets its own handler.
pub fn act(signal: usize, mut action: Action) -> Result<Action, Errno> {
    action.handler = stand_in_for(action.handler, action.flags);
    let mut before = exchange(signal, Some(&action))?;
    before.handler = handler_of(before.handler);
    Ok(before)
}

/// Gives all handlers that the kernel has their stand-ins.
pub fn cover_all() {
    for signal in 1..=SIGNALS {
        // The kernel refuses some.
        let Ok(mut found) = exchange(signal, None) else {
            continue;
        };
        // A thread that sets another one meanwhile has the last word.
        while stand_in_for(found.handler, found.flags) != found.handler {
            match act(signal, found) {
                Ok(before) if before != found => found = before,
                _ => break,
            }
        }
    }
}

fn exchange(signal: usize, new: Option<&Action>) -> Result<Action, Errno> {
    let mut before = Action::default();
    let new = new.map_or(0, |action| ptr::from_ref(action).addr());
    let mask_bytes = size_of::<u64>();
    let arguments = [signal, new, (&raw mut before).addr(), mask_bytes, 0, MARK];
    // SAFETY: both records have the kernel's layout and outlive the call. The program asked for this handler. Unsafe: a
    // bare call.
    unsafe { kernel::call(call::RT_SIGACTION as usize, arguments) }.map(|_| before)
}

/// Has a call of ours that was cut short made again, and returns the program's handler.
extern "C" fn mend(stand_in: usize, context: usize) -> usize {
    machine::mend(context);
    handler_of(stand_in)
}

#[cfg(test)]
#[path = "handlers/tests.rs"]
mod tests;
