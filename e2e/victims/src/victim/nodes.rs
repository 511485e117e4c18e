//! Memory policies and pages that are moved between nodes: set_mempolicy, mbind, set_mempolicy_home_node,
//! migrate_pages and move_pages.
//!
//! All of it names node 0, which every machine has. So no page has to go anywhere, and every call must succeed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::content::{PAGE_BYTES, Random};
use crate::run::Options;
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong};

const DEFAULT: usize = 0;
const PREFERRED: usize = 1;
const BIND: usize = 2;
const INTERLEAVE: usize = 3;
const MODES: [usize; 4] = [DEFAULT, PREFERRED, BIND, INTERLEAVE];
/// MPOL_MF_STRICT and MPOL_MF_MOVE.
const STRICT: usize = 1;
const MOVE: usize = 2;
/// Bits in a mask of nodes.
const NODES: usize = 64;
/// Node 0.
const MASK: u64 = 1;
const SYS_SET_MEMPOLICY_HOME_NODE: i64 = 450;
/// Pages of one call of move_pages.
const BATCH: usize = 16;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let found = AtomicU64::new(0);
    permitted()?;
    options.parallel(|thread| {
        let mut random = options.random(thread, 73);
        let pages = options.pages_per_thread().max(4 * BATCH);
        let mut memory = Segment::new(pages, &mut random)?;
        loop {
            for _ in 0..16 {
                policy(&mut random)?;
                bind(&memory, &mut random)?;
                move_pages(&memory, &mut random, &found)?;
                migrate()?;
                memory.rewrite_some(&mut random)?;
            }
            memory.check_all("page under a memory policy")?;
            if !clock.running() {
                return memory.unmap();
            }
        }
    })?;
    match found.into_inner() {
        0 => Err(Wrong::Result {
            what: "pages that move_pages found on node 0",
            expected: 1,
            found: 0,
        }),
        _ => Ok(()),
    }
}

/// Fails unless the call returned `expected`.
fn must(what: &'static str, done: i64) -> Checked {
    match done {
        0 => Ok(()),
        1.. => Err(Wrong::Result {
            what,
            expected: 0,
            found: done,
        }),
        _ => Err(Wrong::last(what)),
    }
}

fn set_policy(mode: usize) -> Checked {
    let mask = if mode == DEFAULT { 0 } else { MASK };
    // SAFETY: reads the mask alone.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, &raw const mask, NODES) };
    must("set_mempolicy", done)
}

/// Kernels without nodes do not have the calls, and sandboxes forbid them.
fn permitted() -> Checked {
    set_policy(BIND).map_err(|wrong| match wrong {
        Wrong::Call { error, .. }
            if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) =>
        {
            Wrong::Unavailable {
                what: "set_mempolicy",
                error,
            }
        }
        other => other,
    })
}

fn policy(random: &mut Random) -> Checked {
    set_policy(MODES[random.index(MODES.len())])
}

/// A policy for a part of the memory, which splits its mapping, and for some a home node.
fn bind(memory: &Segment, random: &mut Random) -> Checked {
    let first = random.index(memory.pages.len());
    let bytes = (1 + random.index(memory.pages.len() - first)) * PAGE_BYTES;
    let start = memory.page(first);
    let mode = MODES[random.index(MODES.len())];
    let flags = [0, MOVE, MOVE | STRICT][random.index(3)];
    let mask = if mode == DEFAULT { 0 } else { MASK };
    // SAFETY: a policy for a range of the segment, which changes no content. Reads the mask.
    let done = unsafe {
        let mask = &raw const mask;
        libc::syscall(libc::SYS_mbind, start, bytes, mode, mask, NODES, flags)
    };
    must("mbind", done)?;
    if mode != BIND {
        return Ok(());
    }
    // SAFETY: as above.
    let done =
        unsafe { libc::syscall(SYS_SET_MEMPOLICY_HOME_NODE, start, bytes, 0_usize, 0_usize) };
    match must("set_mempolicy_home_node", done) {
        // Before Linux 5.17.
        Err(Wrong::Call { error, .. }) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other,
    }
}

/// Asks where pages are, or moves them to node 0. A page that is not there has no node, natively only one that was
/// never written.
fn move_pages(memory: &Segment, random: &mut Random, found: &AtomicU64) -> Checked {
    let pages: [*mut u64; BATCH] =
        std::array::from_fn(|_| memory.page(random.index(memory.pages.len())));
    let nodes = [0_i32; BATCH];
    let mut states = [i32::MIN; BATCH];
    let moves = random.index(2) == 0;
    let target = if moves {
        nodes.as_ptr()
    } else {
        std::ptr::null()
    };
    // SAFETY: the arrays are valid for the call, and moving a page changes no content.
    let done = unsafe {
        let (pages, states) = (pages.as_ptr(), states.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, 0, BATCH, pages, target, states, MOVE)
    };
    must("move_pages", done)?;
    for state in states {
        match -state {
            0 => {
                found.fetch_add(1, Ordering::Relaxed);
            }
            // A hole, or the zero page.
            libc::ENOENT | libc::EFAULT => {}
            // The page is under way elsewhere.
            libc::EBUSY if moves => {}
            _ => {
                return Err(Wrong::Result {
                    what: "state of a page by move_pages",
                    expected: 0,
                    found: state.into(),
                });
            }
        }
    }
    Ok(())
}

fn migrate() -> Checked {
    let mask = MASK;
    // SAFETY: reads the masks, and moving pages changes no content.
    let done = unsafe {
        let mask = &raw const mask;
        libc::syscall(libc::SYS_migrate_pages, 0, NODES, mask, mask)
    };
    must("migrate_pages", done)
}
