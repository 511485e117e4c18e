//! The agent of a simulated process: an actor that takes commands from the ring, as the agent's thread does.
//!
//! Its logic is that of `crates/agent` (`commands.rs`, `commands/aside.rs`), written again, because only the pager is
//! simulated with its own code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vswap_sys::abi;
use vswap_sys::ring::{Ring, op};

use super::actors::{self, world, world_is};
use super::calls::{self, EAGAIN, EINVAL, Target};
use super::memory::{ASIDE, FREEING, STAGING, Watch};
use super::uffd::Userfaultfd;
use crate::base::page_run::PAGE_BYTES;
use crate::space::Space;

const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EINVAL_I32: i32 = 22;
const EAGAIN_I32: i32 = 11;
const MREMAP_FIXED: u64 = abi::remap::FIXED as u64;
const MAP_FIXED: u64 = 0x10;
const DONTNEED: u64 = abi::advice::DONTNEED as u64;
const GUARD_INSTALL: u64 = abi::advice::GUARD_INSTALL as u64;
const TRIES: u32 = 4;

/// Take commands until the process has ended.
pub fn run(space: &Arc<Space>) {
    let Some(process) = space.process.get() else {
        return;
    };
    let memory = space.uffd.memory();
    let agent = Agent {
        memory,
        main: Userfaultfd::of(memory),
        silent: Userfaultfd::silent(memory),
        tid: process.agent.tid().cast_unsigned(),
        ring: process.agent.ring(),
    };
    loop {
        let waiting = Arc::clone(space);
        actors::wait_until(world_is(move |world| {
            let ring = waiting.process.get().map(|process| process.agent.ring());
            world.memories[memory].gone || ring.is_some_and(is_asked)
        }));
        if world(|world| world.memories[memory].gone) {
            return;
        }
        let ring = agent.ring;
        let asked = ring.command_seq.load(Ordering::Acquire);
        let result = agent.carry_out();
        ring.result.store(result, Ordering::Relaxed);
        ring.complete_seq.store(asked, Ordering::Release);
    }
}

fn is_asked(ring: &Ring) -> bool {
    ring.command_seq.load(Ordering::Acquire) != ring.complete_seq.load(Ordering::Acquire)
}

struct Agent<'a> {
    memory: usize,
    main: Userfaultfd,
    silent: Userfaultfd,
    tid: u32,
    ring: &'a Ring,
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn pages(start: u64, bytes: u64) -> std::ops::Range<u64> {
    start / PAGE_BYTES..(start + bytes).div_ceil(PAGE_BYTES)
}

impl Agent<'_> {
    fn carry_out(&self) -> i64 {
        let argument = |index: usize| load(&self.ring.args[index]);
        let answer = |result: Result<(), i64>| result.map_or_else(|errno| -errno, |()| 0);
        let place = |result: Result<u64, i64>| match result {
            Ok(page) => (page * PAGE_BYTES).cast_signed(),
            Err(errno) => -errno,
        };
        match self.ring.op.load(Ordering::Relaxed) {
            op::MOVE_OUT => self.move_out(),
            op::STAGING_FREE => self.free_staging(argument(1)),
            op::POPULATE_WRITE => self.populate(),
            op::MREMAP => {
                let old = pages(argument(0), argument(1));
                let target = if argument(3) & MREMAP_FIXED == 0 {
                    Target::Anywhere
                } else {
                    Target::At(argument(4) / PAGE_BYTES)
                };
                place(calls::remap(
                    self.memory,
                    old,
                    argument(2) / PAGE_BYTES,
                    target,
                ))
            }
            op::MMAP => {
                let is_fixed = argument(3) & MAP_FIXED != 0;
                let at = is_fixed.then(|| argument(0) / PAGE_BYTES);
                place(calls::map(self.memory, at, argument(1) / PAGE_BYTES))
            }
            op::ADVISE => {
                let range = pages(argument(0), argument(1));
                match argument(2) {
                    DONTNEED => answer(calls::discard(self.memory, range)),
                    GUARD_INSTALL => answer(calls::guard(self.memory, range, true)),
                    _ => -EINVAL,
                }
            }
            op::TAKE_ASIDE => answer(self.take_aside(argument(0) / PAGE_BYTES, argument(1))),
            op::ASIDE_TO_STAGING => self.aside_to_staging(argument(0)),
            op::ASIDE_END => self.end_aside(),
            _ => -EINVAL,
        }
    }

    fn runs(&self) -> Vec<std::ops::Range<u64>> {
        let count = self.ring.run_count.load(Ordering::Relaxed) as usize;
        let runs = self.ring.runs.iter().take(count);
        runs.map(|run| pages(load(&run.address), load(&run.pages) * PAGE_BYTES))
            .collect()
    }

    fn settle(&self, index: usize, pages: u64, errno: i32) {
        let words = self.ring.page_errno.iter().skip(index);
        for word in words.take(usize::try_from(pages).unwrap_or(0)) {
            word.store(errno, Ordering::Relaxed);
        }
    }

    fn move_out(&self) -> i64 {
        let runs = self.runs();
        let all = runs.iter().map(|run| run.end - run.start).sum();
        self.settle(0, all, EAGAIN_I32);
        let (mut index, mut moved) = (0, 0);
        for run in runs {
            let (mut page, mut at_once) = (run.start, u64::MAX);
            while page < run.end {
                let now = (run.end - page).min(at_once);
                let to = STAGING + index as u64;
                let (done, errno) = self.main.move_pages(to, page, now, false);
                let (settled, errno) = match errno {
                    None => (now, 0),
                    Some(_) if done > 0 => (done, 0),
                    Some(EAGAIN_I32) => return moved,
                    Some(EINVAL_I32) if now > 1 => {
                        at_once = 1;
                        continue;
                    }
                    Some(errno) => (1, errno),
                };
                self.settle(index, settled, errno);
                index += usize::try_from(settled).unwrap_or(0);
                page += settled;
                moved += i64::from(errno == 0) * settled.cast_signed();
            }
        }
        moved
    }

    fn free_staging(&self, pages: u64) -> i64 {
        let mut done = 0;
        while done < pages && !self.main.is_gone() {
            let (to, from) = (FREEING + done, STAGING + done);
            let (moved, _) = self.silent.move_pages(to, from, pages - done, true);
            done += moved;
            // If the kernel does not say that a page has moved, the page blocks the place for itself.
            actors::step("frees staging", 0, pages);
            world(|world| world.memories[self.memory].zap(FREEING..FREEING + pages));
        }
        0
    }

    fn populate(&self) -> i64 {
        let mut done = 0;
        for run in self.runs() {
            let all = run
                .into_iter()
                .all(|page| calls::populate(self.memory, page, self.tid));
            done += i64::from(all);
        }
        done
    }

    fn take_aside(&self, first: u64, count: u64) -> Result<(), i64> {
        let memory = self.memory;
        world(|world| world.memories[memory].zap(FREEING..FREEING + 64));
        if self.main.events_pending() {
            return Err(EAGAIN);
        }
        calls::remap(memory, first..first + count, count, Target::Aside(ASIDE)).map(drop)
    }

    fn aside_to_staging(&self, count: u64) -> i64 {
        let aside = ASIDE..ASIDE + count;
        let memory = self.memory;
        // The result does not matter, because the range is the agent's.
        let _ = self.main.unregister(ASIDE * PAGE_BYTES, count * PAGE_BYTES);
        calls::protect(memory, aside, true);
        self.settle(0, count, 0);
        for index in 0..count {
            for _ in 0..TRIES {
                let (to, from) = (FREEING + index, ASIDE + index);
                match self.silent.move_pages(to, from, 1, false).1 {
                    Some(EBUSY) => {
                        let at = usize::try_from(index).unwrap_or(0);
                        self.settle(at, 1, EBUSY);
                        calls::populate(memory, from, self.tid);
                    }
                    Some(EEXIST) if self.is_aside(from) => {
                        world(|world| world.memories[memory].zap(to..to + 1));
                    }
                    _ => break,
                }
            }
        }
        0
    }

    fn is_aside(&self, page: u64) -> bool {
        world(|world| world.memories[self.memory].pages.contains_key(&page))
    }

    fn end_aside(&self) -> i64 {
        let _ = self.main.unregister(ASIDE * PAGE_BYTES, 64 * PAGE_BYTES);
        world(|world| {
            let memory = &mut world.memories[self.memory];
            memory.unmap(ASIDE..ASIDE + 64);
            memory.map(ASIDE..ASIDE + 64);
            memory.set_watch(ASIDE..ASIDE + 64, Watch::Silent);
            memory.zap(FREEING..FREEING + 64);
        });
        0
    }
}
