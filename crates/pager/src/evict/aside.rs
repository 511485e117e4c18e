//! Pages that UFFDIO_MOVE refuses where they are: memory that the program may execute or may not write.
//!
//! UFFDIO_MOVE needs source and target to be writable and to have the same protection. For memory that may be written
//! and executed, staging gets that protection for one window. Memory that may not be written (read-only, executable, no
//! access) is *taken aside*. The agent calls mremap with MREMAP_DONTUNMAP, which moves the page table entries to a
//! place of the agent's in one step. The mapping stays, empty and watched. From the agent's place the pages go on as
//! usual: UFFDIO_MOVE into staging (which refuses pinned pages), copy, publish, discard. The program's protection is
//! never changed, and no content is ever in two places. A read or write meanwhile finds a hole and waits for the claim.
//!
//! **What may happen at the same time.** The mremap raises a REMAP event from the range to the agent's place. No call
//! of the program can raise such an event. The agent waits inside mremap until the event is read. This thread takes the
//! space lock before the command and holds it until it has read the event. So nobody else reads messages, brings pages
//! in, or registers memory meanwhile. Other threads' calls:
//!
//! - A discard (MADV_DONTNEED) whose event was read before: its pages are stale (rule P1). A range with a stale or
//!   claimed page is left alone.
//! - A discard whose event was not read before: the event is read only after the pages were seen aside, and the
//!   discarding thread waits until then. So what was taken is what it discards.
//! - munmap, or a mapping over the range, before the mremap: see below. After the mremap: its event drops the content,
//!   if the kernel has really unmapped it.
//! - mprotect: it cuts the mapping, and the mremap fails. Or it changes the whole mapping, which does not matter.
//! - A fork that nobody announced (announced ones wait for the slot): the child has the pages in their old place, and
//!   then the old words are right. Or it has them aside, and then the words with the new entries are right. The child's
//!   own userfaultfd tells which, because either it watches the aside range or it does not.
//! - mlock: locked memory stays. A lock that comes in between is lost for this one range.
//! - I/O: the kernel counts memory that is pinned for long (VmPin), and then nothing is taken aside. A page pinned for
//!   a single request is waited for.
//!
//! **The range is another mapping by now.** UFFDIO_MOVE notices that, mremap does not. Another thread may have unmapped
//! the range, and an unwatched mapping may lie there, although no event was unread a moment before. Then no REMAP event
//! comes, and that is how it is noticed. Most memory that may be hit is not missed meanwhile. Private anonymous
//! mappings wait for the agent's slot before they are made (`notify.rs`). Of shared memory and files only page table
//! entries are moved, and the next touch makes them again. One case remains: modified pages of a private file mapping
//! that was made and written to within the microsecond between the agent's last check and its mremap. The agent has
//! these pages, and the program may have read the file in their place. So the program is stopped.

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
use crate::layout::words::PageState;
use crate::space::agent::{AgentGone, Slot};
use crate::space::fault::Fault;
use crate::space::giving::SharedGuard;
use crate::space::wait::Wait;
use crate::space::{State, marks, present};

/// Most pages of a range.
const RANGE_PAGES: u64 = ASIDE_PAGES as u64;
/// How long to wait for pages that are pinned but not counted as pinned for long. A request to slow storage takes as
/// long.
const PIN_PATIENCE: Duration = Duration::from_secs(60);
const PIN_PACE: Duration = Duration::from_millis(1);
/// Checks without a pause while the agent takes pages aside, and the pause between later ones.
const LOOKS: u32 = 100;
const LOOK_PACE: Duration = Duration::from_micros(20);
/// After so many checks without a page, something that raises no event has emptied the range.
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
    /// The pages were seen aside, so messages may be read.
    has_left: bool,
    /// Our own event was read, so the range was the watched mapping.
    was_ours: bool,
    /// Pages whose content nobody needs any more.
    dropped: RangeSet,
    faults: Vec<Fault>,
    /// Children that have the pages aside.
    children: Vec<Userfaultfd>,
}

impl Crossing {
    /// The process is gone, and with it the pages that its children miss. Leak the children's userfaultfds, so that the
    /// children wait for ever rather than read zeros.
    fn abandon(self) -> AgentGone {
        self.children.into_iter().for_each(std::mem::forget);
        AgentGone
    }
}

impl<'a> Evictor<'a> {
    /// Move out the pages that MOVE_OUT has refused, and those around them in the same mapping.
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

    /// Does the process have locked or pinned memory? True also if nobody can tell.
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
        // The program may have lost the right to make such memory.
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

    /// Take a range aside and move its pages out.
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
        // Ranges that munmap has named meanwhile may be gone or not (rule P9).
        layout_events::decide(&self.serving.references, space, &mut state, slot);
        let (moving, clean) = if is_taken && crossing.was_ours {
            self.claim_taken(&mut state, range, &crossing.dropped)
        } else {
            (Vec::new(), 0)
        };
        marks::forget(&mut state, range.clone());
        self.mark(&mut state, &range.clone().collect::<Vec<_>>());
        let mut state = SharedGuard::from(state);
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
            space.has_applied_child();
        }
        slot.call(op::ASIDE_END, &[], &[])?;
        gone.moved += (moving.len() + clean) as u64;
        gone.kept_by_kin += self.propose(&published, &shared);
        gone.published.extend(published);
        Ok(())
    }

    /// May all present pages of a range leave, and is there a frame for each? With the space lock held and no event
    /// unread, no page comes to the range, and only munmap takes one away.
    fn may_go(&mut self, state: &mut State, range: &Range<u64>, frames: usize) -> bool {
        let pages: Vec<u64> = range.clone().collect();
        let is_watched = state.layout.registered.covered(range.clone()) == pages.len() as u64;
        if !is_watched || state.layout.has_stale(range.clone()) {
            return false;
        }
        let present = self.evictable(range);
        let going = self.hand.choose(state, &pages);
        let is_place_empty = present::present_parts(self.space, self.aside(range)).is_empty();
        let fits = !present.is_empty() && going == present && present.len() <= frames;
        // Any other page table entry would move along and be lost. Our own markers are made again.
        fits && is_place_empty && marks::are_all(self.space, state, range.clone())
    }

    /// Have the agent take a range aside, and read messages until the command is complete. True if the range was taken.
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
                let aside = present::present_parts(self.space, self.aside(range));
                crossing.has_left = !aside.is_empty() || looks > LOOKS_MAX;
            }
            looks += 1;
            if looks > LOOKS {
                clock::sleep(LOOK_PACE);
            }
        }
    }

    /// Read one message. The pages are aside, and the agent waits until its own event is read.
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
                        state.has_read_child();
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

    /// Claim the pages that have arrived aside. Returns the pages to copy, and how many need no copy.
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

    /// Have the agent move the pages from aside to staging. Returns the pages that it had to copy because they were
    /// shared.
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

    /// Propose shared pages to kin. Returns how many stay in memory until kin follow.
    fn propose(&self, published: &[Published], shared: &[u64]) -> u64 {
        let is_shared = |page: &&Published| shared.binary_search(&page.page).is_ok();
        let pages: Vec<_> = published
            .iter()
            .filter(is_shared)
            .map(|page| (page.page, page.entry))
            .collect();
        let engine = &self.serving.engine;
        self.space.kin.propose(engine, self.space.id, &pages)
    }

    /// The place that a range is taken to.
    fn aside(&self, range: &Range<u64>) -> Range<u64> {
        let start = self.process.agent.aside() / PAGE_BYTES;
        start..start + (range.end - range.start)
    }

    /// The pages of a range that hold content of their own, at most `RANGE_PAGES`.
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

/// The part of a mapping around `page` that is taken aside: an aligned one, or what there is, but never the whole
/// mapping.
///
/// A mapping that MREMAP_DONTUNMAP empties as a whole loses its anon_vma. If the anon_vma was inherited from a fork, or
/// a fork follows, the kernel no longer merges the mapping with its neighbours. An mremap over what would natively be
/// one mapping then fails. So a mapping of one page stays in memory.
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
