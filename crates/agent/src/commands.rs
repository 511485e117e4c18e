//! What the pager can ask for. Runs on the agent's thread, one command at a time.
//!
//! Nothing here can panic, allocate or wait, with one exception: a command that raises layout events waits until the
//! pager has read them. Every length that comes from the ring is bounded before it is used.
//!
//! Unsafe is needed here because the agent has no wrapper for these system calls, which change mappings of the program.

mod aside;
mod filter;

use core::sync::atomic::{AtomicU64, Ordering};

use crate::base::die::die;
use crate::base::kernel::{
    self, Descriptor, EAGAIN, EEXIST, EINVAL, ENOSYS, Errno, MADV_DONTNEED_LOCKED,
    MADV_POPULATE_WRITE, MARK, PAGE_BYTES, PROT_READ_WRITE, advise, call,
};
use crate::base::uffd::{self, MOVE_ALLOW_SRC_HOLES, MOVE_DONTWAKE};
use crate::raw;
use crate::ring::{
    ACK, MOVE_PAGES_MAX, MOVE_RUNS_MAX, MOVED_UNMARKED, Ring, Run, STAGING_PAGES, op,
};
use crate::session::{Session, socket};
use crate::state::handlers::{self, Action};
use crate::state::{STATE, phase};

const PROT_READ_WRITE_EXECUTE: usize = 7;
/// Tries to free a staging page on which somebody holds a reference: the pager has just read it.
const FREE_TRIES: u32 = 64;

/// Carries out the command in the ring and returns its result.
pub fn carry_out(session: &Session, ring: &Ring) -> isize {
    let result = match ring.op.load(Ordering::Relaxed) {
        op::PING => Ok(0),
        op::MOVE_OUT => move_out(session, ring),
        op::STAGING_FREE => staging_free(session, ring),
        op::POPULATE_WRITE => Ok(populate_write(ring)),
        op::MREMAP => mremap(ring),
        op::ADVISE => advise_for(ring),
        op::INSTALL_FILTER => install_filter(session),
        op::MMAP => mmap(ring),
        op::BRK => Ok(brk(ring)),
        op::ACT => act(ring),
        op::FOLLOW => Ok(follow(ring)),
        op::STAGING_PROTECT => staging_protect(session, ring),
        op::TAKE_ASIDE => aside::take(session, argument(ring, 0), argument(ring, 1)),
        op::ASIDE_TO_STAGING => aside::to_staging(session, ring, argument(ring, 0)),
        op::ASIDE_END => aside::end(session),
        // Rule P7 is kept: everybody who could read this memory has ended.
        op::LEAVE => {
            let [signal, status, ..] = argument(ring, 0).to_le_bytes();
            kernel::end_like([signal, status])
        }
        _ => Err(ENOSYS),
    };
    match result {
        Ok(value) => value.cast_signed(),
        Err(errno) => 0_isize.wrapping_sub(errno as isize),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "words are addresses and counts of this process"
)]
fn load(word: &AtomicU64) -> usize {
    word.load(Ordering::Relaxed) as usize
}

fn argument(ring: &Ring, index: usize) -> usize {
    ring.args.get(index).map_or(0, load)
}

fn runs(ring: &Ring) -> impl Iterator<Item = (usize, usize)> {
    let count = ring.run_count.load(Ordering::Relaxed) as usize;
    let values = |run: &Run| (load(&run.address), load(&run.pages));
    ring.runs.iter().take(count.min(MOVE_RUNS_MAX)).map(values)
}

/// Moves runs of pages into staging, as many as are there.
fn move_out(session: &Session, ring: &Ring) -> Result<usize, Errno> {
    let first = argument(ring, 0);
    let pages = runs(ring).fold(0_usize, |sum, (_, pages)| sum.saturating_add(pages));
    if pages > MOVE_PAGES_MAX || first.saturating_add(pages) > STAGING_PAGES {
        return Err(EINVAL);
    }
    // Pages that are not reached keep this.
    for errno in ring.page_errno.iter().take(pages) {
        errno.store(EAGAIN, Ordering::Relaxed);
    }
    let mut window = Window {
        ring,
        main: session.main,
        marks: argument(ring, 1) != 0,
        target: session
            .reservation
            .staging()
            .wrapping_add(first.wrapping_mul(PAGE_BYTES)),
        index: 0,
        end: pages,
        moved: 0,
    };
    for (address, pages) in runs(ring) {
        if !window.move_run(address, pages) {
            break;
        }
    }
    Ok(window.moved)
}

/// The pages of one MOVE_OUT, in order.
struct Window<'a> {
    ring: &'a Ring,
    main: Descriptor,
    /// Leave a marker in the place of each page.
    marks: bool,
    /// Where page `index` goes to.
    target: usize,
    index: usize,
    end: usize,
    moved: usize,
}

impl Window<'_> {
    /// Moves one run. False if everything has to stop because a layout event is unread.
    ///
    /// Each turn of the loop settles a page or more, or changes over to single pages, which happens once. So there is
    /// at most one call per page and one more.
    fn move_run(&mut self, mut address: usize, pages: usize) -> bool {
        // The ring may have changed since the pages were counted.
        let mut left = pages.min(self.end.wrapping_sub(self.index));
        let mut at_once = usize::MAX;
        while left > 0 {
            let now = left.min(at_once);
            // SAFETY: the target is staging, as `move_out` has checked, and the pager wants these pages there.
            let (bytes, errno) = unsafe {
                uffd::move_pages(
                    self.main,
                    self.target,
                    address,
                    now.wrapping_mul(PAGE_BYTES),
                    MOVE_DONTWAKE,
                )
            };
            let done = (bytes / PAGE_BYTES).min(now);
            let settled = match errno {
                None => self.settle(now, self.mark(address, now)),
                // Stopped part-way; the next turn learns why.
                Some(_) if done > 0 => self.settle(done, self.mark(address, done)),
                Some(EAGAIN) => return false,
                // The mapping changes inside the run.
                Some(EINVAL) if now > 1 => {
                    at_once = 1;
                    0
                }
                Some(errno) => self.settle(1, errno),
            };
            address = address.wrapping_add(settled.wrapping_mul(PAGE_BYTES));
            left = left.wrapping_sub(settled);
        }
        true
    }

    /// Leaves markers where pages have just been. Returns the outcome for these pages.
    fn mark(&self, address: usize, pages: usize) -> Errno {
        let bytes = pages.wrapping_mul(PAGE_BYTES);
        if self.marks && uffd::write_protect(self.main, address, bytes).is_err() {
            return MOVED_UNMARKED;
        }
        0
    }

    /// Notes the outcome of the next pages and goes past them.
    fn settle(&mut self, pages: usize, errno: Errno) -> usize {
        for word in self.ring.page_errno.iter().skip(self.index).take(pages) {
            word.store(errno, Ordering::Relaxed);
        }
        self.index = self.index.wrapping_add(pages);
        self.target = self.target.wrapping_add(pages.wrapping_mul(PAGE_BYTES));
        if matches!(errno, 0 | MOVED_UNMARKED) {
            self.moved = self.moved.wrapping_add(pages);
        }
        pages
    }
}

/// Frees staging pages without an event: moves them to staging B, whose userfaultfd has no events, and discards them
/// there.
fn staging_free(session: &Session, ring: &Ring) -> Result<usize, Errno> {
    let (first, pages) = (argument(ring, 0), argument(ring, 1));
    if pages == 0 {
        return Ok(0);
    }
    if first.saturating_add(pages) > STAGING_PAGES {
        return Err(EINVAL);
    }
    let offset = first.wrapping_mul(PAGE_BYTES);
    let source = session.reservation.staging().wrapping_add(offset);
    let target = session.reservation.freeing().wrapping_add(offset);
    let bytes = pages.wrapping_mul(PAGE_BYTES);
    let mode = MOVE_DONTWAKE | MOVE_ALLOW_SRC_HOLES;
    let (mut done, mut tries) = (0, 0_u32);
    while done < bytes {
        let left = bytes.wrapping_sub(done);
        let (source, target) = (source.wrapping_add(done), target.wrapping_add(done));
        // SAFETY: both ranges are staging, and the pager has no more use for these pages.
        let (moved, errno) =
            unsafe { uffd::move_pages(session.staging, target, source, left, mode) };
        done = done.wrapping_add(moved);
        tries = if moved > 0 { 0 } else { tries.wrapping_add(1) };
        if let Some(errno) = errno
            && tries >= FREE_TRIES
        {
            return Err(errno);
        }
        if matches!(errno, Some(EEXIST | EINVAL)) {
            // The program has locked all its memory. Pages of zeros came into both ranges, and locked ranges take no
            // others. If one of the ranges was unlocked since then (`aside.rs`), nothing moves between the two.
            session.reservation.unlock_staging();
        }
        // SAFETY: staging B holds only pages that are to be freed.
        unsafe { advise(target, left, MADV_DONTNEED_LOCKED) }?;
    }
    Ok(0)
}

/// Changes the protection of staging. UFFDIO_MOVE takes pages only from memory of the same protection as staging:
/// readable, writable, and perhaps executable.
fn staging_protect(session: &Session, ring: &Ring) -> Result<usize, Errno> {
    match argument(ring, 0) {
        protection @ (PROT_READ_WRITE | PROT_READ_WRITE_EXECUTE) => {
            session.reservation.protect_staging(protection).map(|()| 0)
        }
        _ => Err(EINVAL),
    }
}

/// Makes pages exclusive to the process again, run by run. Returns how many runs succeeded.
fn populate_write(ring: &Ring) -> usize {
    let mut done = 0_usize;
    for (address, pages) in runs(ring) {
        let bytes = pages.saturating_mul(PAGE_BYTES);
        // SAFETY: the advice changes no content. It does what a write to each page would do, without the write.
        if unsafe { advise(address, bytes, MADV_POPULATE_WRITE) }.is_ok() {
            done = done.wrapping_add(1);
        }
    }
    done
}

/// Makes the mremap of a program thread that waits in the filter.
fn mremap(ring: &Ring) -> Result<usize, Errno> {
    let a = |index| argument(ring, index);
    // SAFETY: the program asked for exactly this call, and answers for it.
    raw::result(unsafe { raw::syscall6(call::MREMAP, [a(0), a(1), a(2), a(3), a(4), MARK]) })
}

/// Makes the mmap of a program thread that waits in the filter. It is private anonymous memory, so it needs no file.
fn mmap(ring: &Ring) -> Result<usize, Errno> {
    let a = |index| argument(ring, index);
    // SAFETY: the program asked for exactly this call, and answers for it.
    raw::result(unsafe { raw::syscall6(call::MMAP, [a(0), a(1), a(2), a(3), usize::MAX, MARK]) })
}

/// Makes the brk of a program thread that waits in the filter. There is no error: the returned break tells the outcome.
fn brk(ring: &Ring) -> usize {
    let to = |address| {
        // SAFETY: either the program asked for this call, or the address is 0 and nothing changes.
        raw::result(unsafe { raw::syscall6(call::BRK, [address, 0, 0, 0, 0, MARK]) }).unwrap_or(0)
    };
    ring.before.store(to(0) as u64, Ordering::Relaxed);
    to(argument(ring, 0))
}

/// Makes the rt_sigaction of a program thread that waits in the filter.
fn act(ring: &Ring) -> Result<usize, Errno> {
    let [signal, handler, flags, restorer, mask] = [0, 1, 2, 3, 4].map(|at| argument(ring, at));
    let action = Action {
        handler,
        flags,
        restorer,
        mask,
    };
    let before = handlers::act(signal, action)?;
    let words = [before.handler, before.flags, before.restorer, before.mask];
    for (word, value) in ring.action.iter().zip(words) {
        word.store(value as u64, Ordering::Relaxed);
    }
    Ok(0)
}

/// The program goes on, and its hooks of fork know what to do.
fn follow(ring: &Ring) -> usize {
    let follows = u32::from(argument(ring, 0) != 0);
    STATE.follows.store(follows, Ordering::SeqCst);
    STATE.enter(phase::ARMED);
    0
}

/// Gives the advice of a program thread that waits in the filter.
fn advise_for(ring: &Ring) -> Result<usize, Errno> {
    let [address, bytes, advice, by_process] = [0, 1, 2, 3].map(|index| argument(ring, index));
    if by_process != 0 {
        return advise_own_process(address, bytes, advice);
    }
    let arguments = [address, bytes, advice, 0, 0, MARK];
    // SAFETY: the program asked for exactly this call, and answers for it.
    unsafe { call(call::MADVISE, arguments) }
}

/// Gives the advice by process_madvise. Returns 0 for success, like madvise.
fn advise_own_process(address: usize, bytes: usize, advice: usize) -> Result<usize, Errno> {
    let vector = [address, bytes];
    // SAFETY: the descriptor is of the agent's own table. The vector is one iovec and outlives the call. The program
    // asked for this advice.
    unsafe {
        let own = kernel::process_id().unsigned_abs() as usize;
        let process = call(call::PIDFD_OPEN, [own, 0, 0, 0, 0, 0])?;
        let vector = (&raw const vector).addr();
        let arguments = [process, vector, 1, advice, 0, MARK];
        let done = call(call::PROCESS_MADVISE, arguments);
        kernel::close(process);
        done.map(|_| 0)
    }
}

/// Installs the filter, hands its listener to the pager, and only then has all threads stop at it.
fn install_filter(session: &Session) -> Result<usize, Errno> {
    let listener = filter::install()?;
    if socket::send_descriptor(session.socket, ACK, listener).is_err() {
        die(b"vswap-agent: vswap is gone, process killed\n");
    }
    kernel::close(listener);
    filter::spread()?;
    if STATE.is_attached() {
        // From now on each handler that is set stops; these were set before.
        handlers::cover_all();
    }
    Ok(0)
}
