//! Pages that UFFDIO_MOVE refuses where they are: memory that the program may execute, or may not write.
//!
//! UFFDIO_MOVE wants source and target to have one protection, and to be writable. Where a program may both write and
//! execute, staging takes that protection for one window. What it may not write (read-only, executable, no access) is
//! *taken aside*: the agent's mremap with MREMAP_DONTUNMAP moves the page table entries to a place of the agent's, in
//! one step, and leaves the mapping as it was, empty and watched. From there it goes on as ever: UFFDIO_MOVE into
//! staging, which refuses what is pinned; copy, publish, discard. The program's protection is never touched, no content
//! is ever in two places, and a write or a read that comes meanwhile finds a hole and waits for the claim.
//!
//! **What may happen at the same time.** mremap raises a REMAP event from the range to the agent's place, which no call
//! of the program can raise: the agent waits in it until it is read. The space lock is held from before the command
//! until the event has been read, by this thread, and so nobody else reads messages, brings pages in, or registers
//! memory. Of other threads' calls:
//!
//! - A discard (MADV_DONTNEED) whose event was read before: the pages are stale (rule P1), and a range with a stale or
//!   a claimed page is left alone. One whose event was not read before: it is read after the pages have left, for no
//!   message is read before they are seen aside; its thread waits until then, so what was taken is what it discards.
//! - munmap, or a mapping over the range: before the mremap, see below; after it, its event drops the content, if the
//!   kernel has unmapped it.
//! - mprotect: cuts the mapping, and the mremap fails; or the protection is another, which does not matter.
//! - A fork that nobody announced (others wait for the slot): its child has either the pages where they were, and then
//!   the words as they were are right, or has them aside, and then the words with the entries are. The child's own
//!   userfaultfd says which: aside is watched in it or not.
//! - mlock: memory that is locked stays; a lock that comes in between is lost for this one range.
//! - I/O: memory that is pinned for long is counted by the kernel (VmPin), and then nothing is taken aside. A page that
//!   is pinned for one request goes when that is over: it is waited for.
//!
//! **The range is another mapping by now.** UFFDIO_MOVE finds that out, mremap does not: another thread may have
//! unmapped the range, and a mapping that is not watched may lie there, although no event was unread a moment before.
//! Then no REMAP event comes, which is how it is noticed. What was hit cannot be memory of a kind that would be missed
//! meanwhile: private anonymous mappings wait for the agent's slot before they are made (`notify.rs`), and
//! of shared memory and files only page table entries are moved, which the next touch makes again. There remain the
//! modified pages of a private file mapping that was made, and written to, within the microsecond between the agent's
//! last look and its mremap. They are in the agent's hands, the program may have read the file instead, and so it is
//! stopped.

use std::ops::Range;
use std::time::Duration;

use vswap_sys::ring::{ASIDE_PAGES, op};

use super::carried::{Moving, Proposed, Published, Staged};
use super::staging::EBUSY;
use super::{Evictor, WINDOW_PAGES};
use crate::base::kernel::clock;
use crate::base::kernel::pagemap::{Query, Region};
use crate::base::kernel::procmap::holds_memory;
use crate::base::kernel::uffd::{Message, Messages, Userfaultfd};
use crate::base::lock::MutexGuard;
use crate::base::page_run::PAGE_BYTES;
use crate::base::ranges::RangeSet;
use crate::events::{fork, layout_events};
use crate::fault::{Outcome, lost};
use crate::layout::Direction;
use crate::layout::words::{PageState, PageWord};
use crate::space::agent::{AgentGone, Slot};
use crate::space::fault::Fault;
use crate::space::wait::Wait;
use crate::space::{State, marks, present};

/// Most pages of a range.
const RANGE_PAGES: u64 = ASIDE_PAGES as u64;
/// How long pages may be pinned that the kernel does not count as pinned for long: as requests of slow storage take.
const PIN_PATIENCE: Duration = Duration::from_secs(60);
const PIN_PACE: Duration = Duration::from_millis(1);
/// Looks without a pause while the agent takes pages aside, and the pause afterwards.
const LOOKS: u32 = 100;
const LOOK_PACE: Duration = Duration::from_micros(20);
/// After so many looks the range is taken for one that was emptied by something that raises no event.
const LOOKS_MAX: u32 = 100_000;

const STAGING_ORDINARY: u64 = 3;
const STAGING_EXECUTABLE: u64 = 7;

const _: () = assert!(RANGE_PAGES <= WINDOW_PAGES as u64);

/// What became of refused pages.
#[derive(Default)]
pub(super) struct Gone {
    pub moved: u64,
    pub published: Vec<Published>,
    /// Pages that stay in memory until kin follow.
    pub kept_by_kin: u64,
}

/// What happened while the agent took a range aside.
#[derive(Default)]
struct Crossing {
    /// The pages have been seen aside, so messages may be read.
    has_left: bool,
    /// Our own event was read: it was the mapping that is watched.
    was_ours: bool,
    /// Pages whose content nobody wants any more.
    dropped: RangeSet,
    faults: Vec<Fault>,
    /// Children that have the pages aside.
    children: Vec<Userfaultfd>,
}

impl Crossing {
    /// The process is gone, and with it what its children miss. They shall wait for ever rather than read zeros.
    fn abandon(self) -> AgentGone {
        self.children.into_iter().for_each(std::mem::forget);
        AgentGone
    }
}

impl<'a> Evictor<'a> {
    /// Move out what MOVE_OUT has refused, and what lies around it in the same mapping.
    pub(super) fn take_refused(
        &mut self,
        slot: &mut Slot<'_>,
        refused: &[u64],
        proposals: &mut Proposed<'_>,
    ) -> Result<Gone, AgentGone> {
        let mut gone = Gone::default();
        let mut from = 0;
        let mut is_held = None;
        while let Some(&page) = refused.iter().find(|page| **page >= from) {
            let Some(vma) = self.process.map.at(page * PAGE_BYTES) else {
                from = page + 1;
                continue;
            };
            let mapping = vma.start / PAGE_BYTES..vma.end / PAGE_BYTES;
            from = mapping.end;
            if vma.writable && vma.executable {
                let here = |page: &u64| mapping.contains(page);
                let pages: Vec<u64> = refused.iter().copied().filter(here).collect();
                self.take_executable(slot, &pages, proposals, &mut gone)?;
            } else if !vma.writable {
                let Some(range) = around(page, &mapping) else {
                    continue;
                };
                from = range.end;
                if !*is_held.get_or_insert_with(|| self.process_holds_memory()) {
                    self.take_aside(slot, &range, proposals, &mut gone)?;
                }
            }
        }
        Ok(gone)
    }

    /// True also where that cannot be seen.
    fn process_holds_memory(&self) -> bool {
        let is_free = |tid| (!holds_memory(tid)).then_some(()).ok_or(());
        self.process.by_a_thread(is_free).is_err()
    }

    /// Move out pages that may be written and executed.
    fn take_executable(
        &mut self,
        slot: &mut Slot<'_>,
        pages: &[u64],
        proposals: &mut Proposed<'_>,
        gone: &mut Gone,
    ) -> Result<(), AgentGone> {
        // A process may be forbidden to have such memory from now on.
        if slot.call(op::STAGING_PROTECT, &[STAGING_EXECUTABLE], &[])? < 0 {
            return Ok(());
        }
        let taken = self.take_through_staging(slot, pages, proposals, gone);
        slot.call(op::STAGING_PROTECT, &[STAGING_ORDINARY], &[])?;
        taken
    }

    fn take_through_staging(
        &mut self,
        slot: &mut Slot<'_>,
        pages: &[u64],
        proposals: &mut Proposed<'_>,
        gone: &mut Gone,
    ) -> Result<(), AgentGone> {
        let frames = self.frames(proposals.is_empty());
        let space = self.space;
        let mut state = space.lock_thawed();
        let mut pages = self.hand.choose(&mut state, pages);
        pages.truncate(frames.len());
        let taken = self.move_pages(slot, state, &pages)?;
        let Staged::Pages {
            moving,
            clean,
            busy,
            ..
        } = taken
        else {
            return Ok(());
        };
        let staging = self.process.agent.staging;
        let entries = self.copy_to_entries(staging, &moving, frames, proposals);
        gone.published.extend(self.publish(&moving, entries));
        gone.moved += (moving.len() + clean) as u64;
        self.empty_staging(slot)?;
        self.make_exclusive(slot, &busy)
    }

    /// Take a range aside and move out what was in it.
    fn take_aside(
        &mut self,
        slot: &mut Slot<'_>,
        range: &Range<u64>,
        proposals: &mut Proposed<'_>,
        gone: &mut Gone,
    ) -> Result<(), AgentGone> {
        let frames = self.frames(proposals.is_empty());
        let space = self.space;
        let mut state = space.lock_thawed();
        if space.uffd.events_pending() || !self.may_go(&mut state, range, frames.len()) {
            return Ok(());
        }
        let (mut state, is_taken, mut crossing) = self.cross(slot, state, range)?;
        // What a munmap has named meanwhile: gone, or not (rule P9).
        layout_events::decide(&self.serving.references, space, &mut state, slot);
        let (moving, clean) = if is_taken && crossing.was_ours {
            self.claim_taken(&mut state, range, &crossing.dropped)
        } else {
            (Vec::new(), 0)
        };
        marks::forget(&mut state, range.clone());
        self.mark(&mut state, &range.clone().collect::<Vec<_>>());
        for fault in std::mem::take(&mut crossing.faults) {
            let (after, outcome) = self.server.serve(state, &fault);
            state = after;
            if outcome == Outcome::Again {
                state.deferred.push(fault);
                space.mailbox.ask(|wanted| wanted.deferred = true);
            }
        }
        self.server.release(state);
        if !is_taken {
            return Ok(());
        }
        if !crossing.was_ours && !self.evictable(&self.aside(range)).is_empty() {
            let why = "its mapping was replaced while it was moved out";
            lost::fail_closed(space, range.start, &why);
            return Err(crossing.abandon());
        }
        let Ok(shared) = self.stage(slot, range, &moving) else {
            return Err(crossing.abandon());
        };
        let staging = self.process.agent.second_staging();
        let entries = self.copy_to_entries(staging, &moving, frames, proposals);
        let published = self.publish(&moving, entries);
        for child in crossing.children {
            drop(fork::apply(
                &self.evicting.listening,
                space,
                space.lock_thawed(),
                child,
            ));
        }
        slot.call(op::ASIDE_END, &[], &[])?;
        gone.moved += (moving.len() + clean) as u64;
        gone.kept_by_kin += self.propose(&published, &shared);
        gone.published.extend(published);
        Ok(())
    }

    /// May all that is present of a range leave, and is there a frame for each page? With the space lock held and no
    /// event unread, nothing comes to it and nothing leaves it but by munmap.
    fn may_go(&mut self, state: &mut State, range: &Range<u64>, frames: usize) -> bool {
        let pages: Vec<u64> = range.clone().collect();
        let is_watched = state.layout.registered.covered(range.clone()) == pages.len() as u64;
        let is_stale = |(_, word): (u64, PageWord)| word.is_stale();
        if !is_watched || state.layout.words.iter(range.clone()).any(is_stale) {
            return false;
        }
        let present = self.evictable(range);
        let going = self.hand.choose(state, &pages);
        let is_place_empty = present::present_pages(self.space, self.aside(range)).is_empty();
        let fits = !present.is_empty() && going == present && present.len() <= frames;
        // What else there is in the page table would move along and be lost. Our own marks are made again.
        fits && is_place_empty && marks::are_all(self.space, state, range.clone())
    }

    /// Have the agent take a range aside, and read messages until it is done. True if it did.
    fn cross<'g>(
        &mut self,
        slot: &mut Slot<'_>,
        mut state: MutexGuard<'g, State>,
        range: &Range<u64>,
    ) -> Result<(MutexGuard<'g, State>, bool, Crossing), AgentGone>
    where
        'a: 'g,
    {
        let pages = range.end - range.start;
        slot.post(op::TAKE_ASIDE, &[range.start * PAGE_BYTES, pages], &[])?;
        let mut crossing = Crossing::default();
        let mut messages = Messages::new();
        let mut looks = 0;
        loop {
            match slot.poll() {
                Ok(None) => {}
                Ok(Some(result)) => return Ok((state, result >= 0, crossing)),
                Err(AgentGone) => return Err(crossing.abandon()),
            }
            if crossing.has_left {
                state = self.read_one(state, range, &mut messages, &mut crossing);
            } else {
                let aside = present::present_pages(self.space, self.aside(range));
                crossing.has_left = !aside.is_empty() || looks > LOOKS_MAX;
            }
            looks += 1;
            if looks > LOOKS {
                clock::sleep(LOOK_PACE);
            }
        }
    }

    /// Read one message: the pages are aside, and the agent waits for its own event to be read.
    fn read_one<'g>(
        &mut self,
        mut state: MutexGuard<'g, State>,
        range: &Range<u64>,
        messages: &mut Messages,
        crossing: &mut Crossing,
    ) -> MutexGuard<'g, State>
    where
        'a: 'g,
    {
        let space = self.space;
        // An error is a race with the end of the process.
        if messages.is_empty() && space.uffd.read(messages, 1).unwrap_or(0) == 0 {
            return state;
        }
        let aside = self.aside(range);
        let (source, target) = (range.start * PAGE_BYTES, aside.start * PAGE_BYTES);
        let pages = |start: u64, end: u64| start / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        for message in messages {
            match message {
                Message::Fault {
                    address, write, wp, ..
                } => crossing.faults.push(Fault {
                    page: address / PAGE_BYTES,
                    write,
                    protected: wp,
                    urgent: false,
                    ahead: false,
                    since: clock::now(),
                    wait: Wait::since(&self.serving.pressure.waits, clock::now()),
                }),
                Message::Remap { from, to, .. } if from == source && to == target => {
                    crossing.was_ours = true;
                }
                Message::Fork { uffd } => {
                    let bytes = (aside.end - aside.start) * PAGE_BYTES;
                    if uffd.write_unprotect(target, bytes, true).is_ok() {
                        crossing.children.push(uffd);
                    } else {
                        state = fork::apply(&self.evicting.listening, space, state, uffd);
                    }
                }
                other => {
                    match other {
                        Message::Remove { start, end } => {
                            crossing.dropped.insert(pages(start, end));
                        }
                        Message::Remap { from, bytes, .. } => {
                            crossing.dropped.insert(pages(from, from + bytes));
                        }
                        _ => {}
                    }
                    layout_events::apply(&self.serving.references, space, &mut state, &other);
                }
            }
        }
        state
    }

    /// Claim what has arrived aside. Returns the pages to be copied, and how many need no copy.
    fn claim_taken(
        &self,
        state: &mut State,
        range: &Range<u64>,
        dropped: &RangeSet,
    ) -> (Vec<Moving>, usize) {
        let aside = self.aside(range);
        let (mut moving, mut clean) = (Vec::new(), 0);
        for place in self.evictable(&aside) {
            let offset = place - aside.start;
            let page = range.start + offset;
            if dropped.contains(page) || !state.layout.registered.contains(page) {
                continue;
            }
            let word = state.layout.words.get(page);
            if let PageState::Kept(entry) = word.state() {
                self.went_out_clean(state, page, entry, false);
                clean += 1;
                continue;
            }
            moving.push(Moving {
                page,
                ticket: state.layout.claim(page, Direction::Out),
                staged: usize::try_from(offset).unwrap_or(0),
                heat: word.heat(),
                marked: false,
            });
        }
        (moving, clean)
    }

    /// Have the agent move what was taken on to staging. Returns the pages that it had to copy: they were shared.
    fn stage(
        &mut self,
        slot: &mut Slot<'_>,
        range: &Range<u64>,
        moving: &[Moving],
    ) -> Result<Vec<u64>, AgentGone> {
        let aside = self.aside(range);
        let mut shared = Vec::new();
        let since = clock::now();
        while !moving.is_empty() {
            slot.call(op::ASIDE_TO_STAGING, &[range.end - range.start], &[])?;
            let left = self.evictable(&aside);
            let is_left = |moved: &&Moving| left.contains(&(aside.start + moved.staged as u64));
            let copied = moving
                .iter()
                .filter(|moved| slot.page_errno(moved.staged) == EBUSY && !is_left(moved));
            shared.extend(copied.map(|moved| moved.page));
            let Some(stuck) = moving.iter().find(is_left) else {
                break;
            };
            if self.space.has_ended() || clock::now().duration_since(since) > PIN_PATIENCE {
                let why = "it is pinned for I/O, and was not when it was moved out";
                lost::fail_closed(self.space, stuck.page, &why);
                return Err(AgentGone);
            }
            clock::sleep(PIN_PACE);
        }
        shared.sort_unstable();
        self.space.gave((shared.len() as u64).cast_signed());
        Ok(shared)
    }

    /// Propose to kin what they share; the number of pages that stay in memory until they follow.
    fn propose(&self, published: &[Published], shared: &[u64]) -> u64 {
        let is_shared = |page: &&Published| shared.binary_search(&page.page).is_ok();
        let pages: Vec<_> = published
            .iter()
            .filter(is_shared)
            .map(|page| (page.page, page.entry))
            .collect();
        self.space
            .kin
            .propose(&self.serving.engine, self.space.id, &pages);
        pages.len() as u64
    }

    /// Where a range is taken to.
    fn aside(&self, range: &Range<u64>) -> Range<u64> {
        let start = self.process.agent.aside() / PAGE_BYTES;
        start..start + (range.end - range.start)
    }

    /// The pages of a range, `RANGE_PAGES` at most, that hold content of their own.
    fn evictable(&self, range: &Range<u64>) -> Vec<u64> {
        let mut regions = [Region::default(); ASIDE_PAGES];
        let (start, end) = (range.start * PAGE_BYTES, range.end * PAGE_BYTES);
        let scan = self
            .process
            .pagemap
            .scan(start, end, &Query::EVICTABLE, &mut regions);
        let found = scan.map_or(0, |scan| scan.regions);
        let pages = |region: &Region| region.start / PAGE_BYTES..region.end / PAGE_BYTES;
        regions.iter().take(found).flat_map(pages).collect()
    }
}

/// The part of a mapping around `page` that is taken together: an aligned one, or what there is, but never all of it.
///
/// A mapping that MREMAP_DONTUNMAP empties as a whole loses its anon_vma. If it was inherited from a fork, or is later,
/// the kernel does not merge it with its neighbours any more, and an mremap over what would be one mapping natively
/// fails. So a mapping of one page stays in memory.
fn around(page: u64, mapping: &Range<u64>) -> Option<Range<u64>> {
    let aligned = page - page % RANGE_PAGES;
    let range = aligned.max(mapping.start)..(aligned + RANGE_PAGES).min(mapping.end);
    if range != *mapping {
        return Some(range);
    }
    let middle = range.start + (range.end - range.start) / 2;
    let half = if page < middle {
        range.start..middle
    } else {
        middle..range.end
    };
    (half != *mapping).then_some(half)
}

#[cfg(test)]
mod tests {
    use super::{RANGE_PAGES, around};

    #[test]
    fn a_range_holds_its_page_and_is_never_the_whole_mapping() {
        assert_eq!(around(130, &(0..1000)), Some(128..192));
        assert_eq!(around(130, &(129..1000)), Some(129..192));
        assert_eq!(around(130, &(0..140)), Some(128..140));
        assert_eq!(around(129, &(128..192)), Some(128..160));
        assert_eq!(around(160, &(128..192)), Some(160..192));
        assert_eq!(around(130, &(130..132)), Some(130..131));
        assert_eq!(around(130, &(130..131)), None);
        for page in 100..300 {
            for mapping in [100..300, 90..310, 64..320, 99..301, page - 1..page + 1] {
                let range = around(page, &mapping).unwrap_or_default();
                assert!(range.contains(&page), "{page} in {range:?}");
                assert!(mapping.start <= range.start && range.end <= mapping.end);
                assert_ne!(range, mapping);
                assert!(range.end - range.start <= RANGE_PAGES);
            }
        }
    }
}
