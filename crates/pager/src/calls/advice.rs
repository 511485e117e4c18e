//! Advice that the program gives by madvise or process_madvise. The calling thread waits.
//!
//! The agent makes the call, so the answer is the kernel's own. The layout then follows what the kernel has done. This
//! runs on the thread that answers the calls of a space.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vswap_sys::abi::advice;
use vswap_sys::machine::untagged;
use vswap_sys::ring::op;
use vswap_sys::{process, process::task};

use crate::base::page_run::pages_of;
use crate::events::regions;
use crate::fault::serving::Serving;
use crate::run::references::References;
use crate::space::agent::AgentGone;
use crate::space::process::Process;
use crate::space::{Space, State, present};

/// `UIO_MAXIOV`: the kernel refuses more vectors.
const VECTORS_MAX: u64 = 1024;
/// A descriptor that stands for the calling thread or its process (`PIDFD_SELF_*`).
const PIDFD_SELF: [i32; 2] = [-10000, -20000];

const ENOMEM: i64 = 12;

/// The system call, as the agent numbers it.
#[derive(Debug, Clone, Copy)]
enum Door {
    Madvise = 0,
    ProcessMadvise = 1,
}

/// madvise. None if the kernel shall run the program's own call.
pub fn madvise(
    serving: &Serving,
    space: &Arc<Space>,
    process: &Process,
    args: &[u64; 6],
) -> Result<Option<i64>, AgentGone> {
    let [start, bytes, advice, ..] = *args;
    advise(
        serving,
        space,
        process,
        (start, bytes),
        advice,
        Door::Madvise,
    )
}

/// process_madvise. The kernel allows no advice that changes the content of another process. So only the caller's own
/// memory matters.
pub fn process_madvise(
    serving: &Serving,
    space: &Arc<Space>,
    process: &Process,
    tid: u32,
    args: &[u64; 6],
) -> Result<Option<i64>, AgentGone> {
    let [descriptor, vectors, count, advice, flags, _] = *args;
    if flags != 0 || count > VECTORS_MAX || !is_own(process.pid, tid, descriptor) {
        return Ok(None);
    }
    let Some(ranges) = read_vectors(process, vectors, count) else {
        return Ok(None);
    };
    // Like the kernel: one range after the other, up to the first that fails.
    let mut done_bytes = None;
    for range in ranges {
        match advise(serving, space, process, range, advice, Door::ProcessMadvise)? {
            None => {}
            Some(failed) if failed < 0 => {
                return Ok(done_bytes.filter(|done| *done > 0).or(Some(failed)));
            }
            Some(_) => {
                let bytes = i64::try_from(range.1).unwrap_or(i64::MAX);
                done_bytes = Some(done_bytes.unwrap_or(0).saturating_add(bytes));
            }
        }
    }
    Ok(done_bytes)
}

fn advise(
    serving: &Serving,
    space: &Arc<Space>,
    process: &Process,
    (start, bytes): (u64, u64),
    given: u64,
    door: Door,
) -> Result<Option<i64>, AgentGone> {
    match as_int(given) {
        advice::FREE => free(process, start, bytes, door).map(Some),
        advice::GUARD_INSTALL => {
            install_guards(serving, space, process, (start, bytes), door).map(Some)
        }
        advice::GUARD_REMOVE if space.marks.load(Ordering::Acquire) => {
            remove_guards(&serving.references, space, process, (start, bytes), door).map(Some)
        }
        advice::WIPEONFORK => wipe_on_fork(serving, space, process, (start, bytes), door).map(Some),
        advice::KEEPONFORK => keep_on_fork(serving, space, process, (start, bytes), door).map(Some),
        _ => Ok(None),
    }
}

/// MADV_FREE. The kernel may drop lazily freed pages at any later moment, and no event tells when. So they are dropped
/// at once if the kernel has agreed to free all that is mapped. If it has not, nobody knows which pages it will drop.
/// The REMOVE event has marked those that were in memory, and they stay there (rule P1).
fn free(process: &Process, start: u64, bytes: u64, door: Door) -> Result<i64, AgentGone> {
    let mut slot = process.agent.slot();
    let freed = slot.call(
        op::ADVISE,
        &[start, bytes, advice::FREE.into(), door as u64],
        &[],
    )?;
    if freed == 0 || freed == -ENOMEM {
        slot.call(op::ADVISE, &[start, bytes, advice::DONTNEED.into(), 0], &[])?;
    }
    Ok(freed)
}

/// MADV_WIPEONFORK. Let go of memory that a child finds empty, but only of what the kernel has marked. If one of two
/// mappings is let go of, the two neither merge nor move together. So a call that fails must change nothing. The slot
/// keeps forks away until the memory is back.
fn wipe_on_fork(
    serving: &Serving,
    space: &Arc<Space>,
    process: &Process,
    (start, bytes): (u64, u64),
    door: Door,
) -> Result<i64, AgentGone> {
    let mut slot = process.agent.slot();
    let answer = slot.call(
        op::ADVISE,
        &[start, bytes, advice::WIPEONFORK.into(), door as u64],
        &[],
    )?;
    let range = pages_of(start, bytes);
    let wiped = if answer == 0 {
        vec![range]
    } else {
        // The call may have stopped half-way.
        regions::wiped_on_fork(process, &range)
    };
    for part in wiped {
        regions::let_go_with(serving, space, part, &slot);
    }
    Ok(answer)
}

/// MADV_KEEPONFORK. Children inherit the memory again, so vswap may manage it again. It has to: natively such memory
/// merges with its neighbours, and here it merges only if it is watched like them.
fn keep_on_fork(
    serving: &Serving,
    space: &Arc<Space>,
    process: &Process,
    (start, bytes): (u64, u64),
    door: Door,
) -> Result<i64, AgentGone> {
    let mut slot = process.agent.slot();
    let answer = slot.call(
        op::ADVISE,
        &[start, bytes, advice::KEEPONFORK.into(), door as u64],
        &[],
    )?;
    let range = pages_of(start, bytes);
    regions::take_back_kept(&serving.references, space, process, &range, &slot);
    Ok(answer)
}

/// MADV_GUARD_INSTALL. Guards replace pages without an event. The space lock is held over the call: a fault served
/// meanwhile would replace a guard by a page.
fn install_guards(
    serving: &Serving,
    space: &Space,
    process: &Process,
    (start, bytes): (u64, u64),
    door: Door,
) -> Result<i64, AgentGone> {
    let mut slot = process.agent.slot();
    let mut state = space.lock_thawed();
    let installed = slot.call(
        op::ADVISE,
        &[start, bytes, advice::GUARD_INSTALL.into(), door as u64],
        &[],
    )?;
    let range = pages_of(start, bytes);
    if installed == 0 {
        state.layout.discard(range, &mut serving.references.puts());
    } else {
        // The call may have stopped half-way.
        discard_under_guards(&serving.references, space, &mut state, range);
    }
    Ok(installed)
}

/// MADV_GUARD_REMOVE. A ring may have installed the guards without telling anybody. A page that was leaving at that
/// moment has no marker either (`marks.rs`). So before the guards go, what lies under them is dropped, while no page is
/// on its way out.
fn remove_guards(
    references: &References,
    space: &Space,
    process: &Process,
    (start, bytes): (u64, u64),
    door: Door,
) -> Result<i64, AgentGone> {
    let mut slot = process.agent.slot();
    let mut state = space.lock_thawed();
    let range = pages_of(start, bytes);
    discard_under_guards(references, space, &mut state, range);
    slot.call(
        op::ADVISE,
        &[start, bytes, advice::GUARD_REMOVE.into(), door as u64],
        &[],
    )
}

/// Drop the words of those pages of a range that are guards.
fn discard_under_guards(
    references: &References,
    space: &Space,
    state: &mut State,
    range: Range<u64>,
) {
    let known: Vec<Range<u64>> = state.layout.registered.overlaps(range).collect();
    for part in known {
        for page in present::guard_pages(space, part).unwrap_or_default() {
            state.layout.discard(page..page + 1, &mut references.puts());
        }
    }
}

/// The half of an argument that the kernel uses where it takes an `int`.
#[allow(
    clippy::cast_possible_truncation,
    reason = "that is what the kernel does"
)]
pub fn as_int(argument: u64) -> u32 {
    argument as u32
}

/// Does a descriptor of thread `tid` name the thread's own process?
fn is_own(pid: u32, tid: u32, descriptor: u64) -> bool {
    let descriptor = as_int(descriptor);
    let named = || process::named_by_descriptor(tid, descriptor);
    PIDFD_SELF.contains(&descriptor.cast_signed())
        || named().is_some_and(|named| named == pid || task::process_of(named) == Some(pid))
}

/// Address and length of each iovec, read from the program's memory.
fn read_vectors(process: &Process, address: u64, count: u64) -> Option<Vec<(u64, u64)>> {
    let mut words = vec![0u64; usize::try_from(count).ok()? * 2];
    process.read_words(address, &mut words).then(|| {
        words
            .chunks_exact(2)
            .map(|pair| (untagged(pair[0]), pair[1]))
            .collect()
    })
}
