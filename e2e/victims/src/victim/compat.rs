//! Calls by `int 0x80` that no event tells of, or whose events come too early: guards, memory that is wiped in
//! children, freed memory, forks, and moves by several threads at once.
//!
//! Such a call may be refused with ENOSYS, as on a kernel without 32-bit calls. Then nothing has changed, and content
//! is as before.

use crate::content::{PAGE_BYTES, Random};
use crate::int80::{self, CLONE, EXIT, FORK, MADVISE, MREMAP, PROCESS_MADVISE, may_call32};
use crate::pages::Mapping;
use crate::run::{Child, Options, complain};
use crate::segment::Segment;
use crate::wrong::{Checked, Wrong};

const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;
/// Most pages of one advice.
const ADVICE_PAGES_MAX: usize = 24;
/// Regions of a thread that move.
const MOVERS: usize = 3;
/// Rounds between two checks of everything.
const ROUNDS: usize = 16;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    int80::permitted()?;
    options.parallel(|thread| {
        let mut random = options.random(thread, 97);
        let pages = (options.pages_per_thread() / 4).max(2 * ADVICE_PAGES_MAX);
        let mut memory = low(pages, &mut random)?;
        let movers_max = (pages / MOVERS).max(16);
        let mut movers = Vec::new();
        for _ in 0..MOVERS {
            movers.push(low(1 + random.index(movers_max), &mut random)?);
        }
        loop {
            for _ in 0..ROUNDS {
                let first = random.index(memory.pages.len());
                let most = ADVICE_PAGES_MAX.min(memory.pages.len() - first);
                let count = 1 + random.index(most);
                match random.index(4) {
                    0 => guard(&mut memory, first, count, &mut random)?,
                    1 => free(&mut memory, first, count, &mut random)?,
                    2 => fork(&mut memory, &mut random)?,
                    _ => {}
                }
                let mover = random.index(MOVERS);
                resize(&mut movers[mover], movers_max, &mut random)?;
                movers[mover].rewrite_some(&mut random)?;
                memory.rewrite_some(&mut random)?;
            }
            wipe(&mut memory, &mut random)?;
            memory.check_all("page beside calls by int 0x80")?;
            (movers.iter()).try_for_each(|mover| mover.check_all("page that int 0x80 moves"))?;
            if !clock.running() {
                movers.into_iter().try_for_each(Segment::unmap)?;
                return memory.unmap();
            }
        }
    })
}

/// Memory that a 32-bit address can name.
fn low(pages: usize, random: &mut Random) -> Checked<Segment> {
    Segment::with(pages, libc::MAP_PRIVATE | libc::MAP_32BIT, random)
}

/// Gives advice by one of the two calls for it. False: refused.
fn advise(
    memory: &Segment,
    first: usize,
    count: usize,
    advice: i32,
    random: &mut Random,
) -> Checked<bool> {
    let (start, bytes) = (memory.page(first).addr(), count * PAGE_BYTES);
    let advice = advice.cast_unsigned() as usize;
    if random.index(2) == 0 {
        // SAFETY: the range belongs to the caller, who knows what the advice does.
        let given = unsafe { may_call32(MADVISE, [start, bytes, advice, 0, 0, 0])? };
        return Ok(given.is_some());
    }
    // Address and length in 32 bits each, where a 32-bit address can name them.
    let vector = Mapping::with(1, libc::MAP_PRIVATE | libc::MAP_32BIT)?;
    // SAFETY: the vector is this function's own, and so is the descriptor. The range is as above.
    unsafe {
        vector
            .page(0)
            .write_volatile((bytes as u64) << 32 | start as u64);
        let own = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        let own = usize::try_from(own).map_err(|_| Wrong::last("pidfd_open"))?;
        let arguments = [own, vector.page(0).addr(), 1, advice, 0, 0];
        let given = may_call32(PROCESS_MADVISE, arguments);
        libc::close(i32::try_from(own).unwrap_or(-1));
        Ok(given?.is_some())
    }
}

/// A guard discards content, and it has gone when the guard is removed again.
fn guard(memory: &mut Segment, first: usize, count: usize, random: &mut Random) -> Checked {
    let is_guarded = advise(memory, first, count, MADV_GUARD_INSTALL, random)?;
    if is_guarded && !advise(memory, first, count, MADV_GUARD_REMOVE, random)? {
        let (start, bytes) = (memory.page(first).cast(), count * PAGE_BYTES);
        // SAFETY: the guards are this function's own.
        let done = unsafe { libc::madvise(start, bytes, MADV_GUARD_REMOVE) };
        crate::wrong::call("madvise(GUARD_REMOVE)", done)?;
    }
    for index in first..first + count {
        if is_guarded {
            memory.pages[index] = (0, 0);
        }
        memory.check("page that int 0x80 guarded", index)?;
        memory.rewrite(index, random);
    }
    Ok(())
}

/// What was freed may be anything between the old content and zeros, until it is written again.
fn free(memory: &mut Segment, first: usize, count: usize, random: &mut Random) -> Checked {
    let is_free = advise(memory, first, count, libc::MADV_FREE, random)?;
    for index in first..first + count {
        if !is_free {
            memory.check("page that int 0x80 did not free", index)?;
        }
        memory.rewrite(index, random);
    }
    (first..first + count).try_for_each(|index| memory.check("page written after FREE", index))
}

/// A child of the bare call has all content, and what it writes its parent does not see.
fn fork(memory: &mut Segment, random: &mut Random) -> Checked {
    let (number, flags) = [(FORK, 0), (CLONE, libc::SIGCHLD)][random.index(2)];
    let arguments = [flags.cast_unsigned() as usize, 0, 0, 0, 0, 0];
    // SAFETY: the child uses memory of this thread alone, takes no lock, and ends by a bare call.
    let Some(pid) = (unsafe { may_call32(number, arguments)? }) else {
        return Ok(());
    };
    if pid == 0 {
        let checked = memory
            .check_all("page in a child of int 0x80")
            .and_then(|()| memory.rewrite_some(random));
        let status = match &checked {
            Ok(()) => 0,
            Err(wrong) => {
                complain(wrong);
                1
            }
        };
        loop {
            // SAFETY: ends the child, which has one thread.
            let _ = unsafe { may_call32(EXIT, [status, 0, 0, 0, 0, 0]) };
        }
    }
    memory.rewrite_some(random)?;
    Child(i32::try_from(pid).unwrap_or(-1)).wait()
}

/// A child finds zeros where the advice was given, and its parent keeps everything.
fn wipe(memory: &mut Segment, random: &mut Random) -> Checked {
    let all = memory.pages.len();
    let is_wiped = advise(memory, 0, all, libc::MADV_WIPEONFORK, random)?;
    let child = Child::fork(|| {
        if is_wiped {
            memory.pages.fill((0, 0));
        }
        memory.check_all("page in a child of one that called int 0x80")
    })?;
    let checked = memory.rewrite_some(random);
    child.wait()?;
    checked?;
    if is_wiped && !advise(memory, 0, all, libc::MADV_KEEPONFORK, random)? {
        // SAFETY: the range is the segment's own, and its content stays.
        let done =
            unsafe { libc::madvise(memory.start.cast(), all * PAGE_BYTES, libc::MADV_KEEPONFORK) };
        crate::wrong::call("madvise(KEEPONFORK)", done)?;
    }
    Ok(())
}

/// Grows or shrinks, and moves where there is no room: perhaps to where another thread has just left.
fn resize(mover: &mut Segment, pages_max: usize, random: &mut Random) -> Checked {
    let (old, new) = (mover.pages.len(), 1 + random.index(pages_max));
    let flags = libc::MREMAP_MAYMOVE.cast_unsigned() as usize;
    let arguments = [
        mover.start.addr(),
        old * PAGE_BYTES,
        new * PAGE_BYTES,
        flags,
        0,
        0,
    ];
    // SAFETY: the segment is this thread's own, and its model follows.
    let Some(start) = (unsafe { may_call32(MREMAP, arguments)? }) else {
        return mover.check_some("page that int 0x80 did not move", random);
    };
    mover.start = std::ptr::with_exposed_provenance_mut(start);
    mover.pages.resize(new, (0, 0));
    mover.check_some("page that int 0x80 moved", random)?;
    mover.fill_from(old.min(new), random)
}
