//! Address spaces as the kernel has them: mappings, pages, and what a program without vswap would read.
//!
//! Plain data. Every method is one step under the kernel's lock of the address space. Numbers are page numbers. Beside
//! its page table each address space has the *truth*: the content that its pages would have natively. Calls of the
//! program change both. The pager changes the page table alone. So everything that a program reads can be compared with
//! the truth.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::uffd::{Event, Waiting};

/// Where the program's mappings are.
pub const PROGRAM: Range<u64> = 0x1000..0x1030;
/// Where the agent's memory is: two staging ranges and the aside range.
pub const OWN: Range<u64> = STAGING..ASIDE + 64;
/// The staging range whose userfaultfd has events.
pub const STAGING: u64 = 0x8_0000;
/// The staging range whose userfaultfd has no events.
pub const FREEING: u64 = STAGING + 1024;
/// The range that pages are taken aside to.
pub const ASIDE: u64 = FREEING + 1024;

/// Who watches a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Nobody.
    No,
    /// The userfaultfd with events, missing pages and write protection.
    Program,
    /// The same userfaultfd, but nobody is told of missing pages.
    Events,
    /// The userfaultfd without events.
    Silent,
}

/// A mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vma {
    pub end: u64,
    pub watch: Watch,
    pub writable: bool,
}

/// The content of a page table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pte {
    Page {
        tag: u64,
        /// Write-protected by the userfaultfd.
        protected: bool,
        /// Not shared since a fork.
        exclusive: bool,
        /// The shared zero page.
        zero: bool,
    },
    /// Write protection of a missing page.
    Marker,
    Guard,
}

impl Pte {
    /// A page of the process's own.
    pub fn own(tag: u64) -> Pte {
        Pte::Page {
            tag,
            protected: false,
            exclusive: true,
            zero: false,
        }
    }
}

/// What happened when a thread touched a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// The page was there, with this content.
    Done(u64),
    /// Nothing that may be touched is there.
    Refused,
    /// A fault that somebody has to answer, with its number.
    Waits(u64),
    /// The page had wrong content.
    Wrong { found: u64, expected: u64 },
}

/// One address space.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    pub vmas: BTreeMap<u64, Vma>,
    pub pages: BTreeMap<u64, Pte>,
    /// Content of pages that are not zeros.
    truth: BTreeMap<u64, u64>,
    guards: BTreeSet<u64>,
    /// Pages that must not be read. None in a kernel before 6.6, which cannot poison.
    pub poisoned: Option<BTreeSet<u64>>,
    /// Discards that are not done yet, and whether the pager has heard of each.
    discarding: Vec<(Range<u64>, bool)>,
    /// What was written to the pages of such a discard since the pager has heard of it.
    late: BTreeMap<u64, u64>,
    /// The same after the discard. Until somebody looks, either the write or the discard may have come first.
    maybe: BTreeMap<u64, u64>,
    /// Layout events under way (`mmap_changing`).
    pub changing: u32,
    pub events: VecDeque<Event>,
    pub faults: Vec<Waiting>,
    /// Threads of the program that run.
    pub threads: u32,
    /// The address space has ended.
    pub gone: bool,
    /// One of its trapped calls is being answered.
    pub is_calling: bool,
    /// Calls under way that change the layout, and a fork that nobody has announced. The two are known not to work
    /// together, so they wait for each other (docs/reliability.md).
    pub calls: u32,
    pub is_bare_fork: bool,
    /// Children whose birth the pager has not heard of.
    pub unborn: Vec<usize>,
}

/// All address spaces, and the kernel's own data.
#[derive(Debug, Default)]
pub struct World {
    pub memories: Vec<Memory>,
    pub last_id: u64,
    /// All programs have ended.
    pub is_over: bool,
    /// Forks by token: whether the pager is ready, and whether the fork is over.
    pub forks: BTreeMap<u64, (bool, bool)>,
}

impl World {
    /// A number that nothing else has.
    pub fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl Memory {
    /// Add the agent's mappings, watched as the agent has them watched.
    pub fn add_agent(&mut self) {
        for (range, watch) in [
            (STAGING..FREEING, Watch::Events),
            (FREEING..OWN.end, Watch::Silent),
        ] {
            self.map(range.clone());
            self.set_watch(range, watch);
        }
    }

    /// The mapping of a page.
    pub fn vma(&self, page: u64) -> Option<(Range<u64>, Vma)> {
        let (&start, &vma) = self.vmas.range(..=page).next_back()?;
        (page < vma.end).then_some((start..vma.end, vma))
    }

    /// The mapped parts of a range.
    pub fn parts(&self, range: Range<u64>) -> Vec<(Range<u64>, Vma)> {
        let before = self.vmas.range(..range.start).next_back();
        let inside = self.vmas.range(range.start..range.end.max(range.start));
        let all = before.into_iter().chain(inside);
        all.map(|(&start, &vma)| (start.max(range.start)..vma.end.min(range.end), vma))
            .filter(|(part, _)| part.start < part.end)
            .collect()
    }

    fn split(&mut self, at: u64) {
        if let Some((range, vma)) = self.vma(at)
            && range.start < at
        {
            self.vmas.insert(range.start, Vma { end: at, ..vma });
            self.vmas.insert(at, vma);
        }
    }

    /// Merge neighbours that are alike.
    fn merge(&mut self) {
        let mut merged: Vec<(u64, Vma)> = Vec::new();
        for (&start, &vma) in &self.vmas {
            match merged.last_mut() {
                Some((_, last))
                    if last.end == start
                        && Vma {
                            end: vma.end,
                            ..*last
                        } == vma =>
                {
                    last.end = vma.end;
                }
                _ => merged.push((start, vma)),
            }
        }
        self.vmas = merged.into_iter().collect();
    }

    fn change(&mut self, range: &Range<u64>, change: impl Fn(&mut Vma)) {
        self.split(range.start);
        self.split(range.end);
        self.vmas
            .range_mut(range.clone())
            .for_each(|(_, vma)| change(vma));
        self.merge();
    }

    /// Change who watches a range, except in holes.
    pub fn set_watch(&mut self, range: Range<u64>, watch: Watch) {
        self.change(&range, |vma| vma.watch = watch);
    }

    /// Change whether a range may be written.
    pub fn protect(&mut self, range: Range<u64>, writable: bool) {
        self.change(&range, |vma| vma.writable = writable);
    }

    /// Make a mapping of zeros where nothing is mapped.
    pub fn map(&mut self, range: Range<u64>) {
        let vma = Vma {
            end: range.end,
            watch: Watch::No,
            writable: true,
        };
        self.vmas.insert(range.start, vma);
        self.merge();
    }

    /// Remove the mappings of a range and everything in them.
    pub fn unmap(&mut self, range: Range<u64>) {
        self.split(range.start);
        self.split(range.end);
        self.vmas.retain(|start, _| !range.contains(start));
        self.zap(range);
    }

    /// Turn content into zeros and remove guards.
    pub fn zap(&mut self, range: Range<u64>) {
        self.pages.retain(|page, _| !range.contains(page));
        self.guards.retain(|page| !range.contains(page));
        for content in [&mut self.truth, &mut self.late, &mut self.maybe] {
            content.retain(|page, _| !range.contains(page));
        }
    }

    /// A discard begins.
    pub fn begin_discard(&mut self, range: Range<u64>) {
        self.discarding.push((range, false));
    }

    /// The pager has heard of a discard. From now on writes to missing pages may survive it.
    pub fn heard_of_discard(&mut self, range: &Range<u64>) {
        if let Some(known) = self.discarding.iter_mut().find(|known| known.0 == *range) {
            known.1 = true;
        }
    }

    /// MADV_DONTNEED: discard everything but guards. `told` is the range that the pager was told of.
    pub fn discard(&mut self, range: Range<u64>, told: &Range<u64>) {
        if let Some(at) = self.discarding.iter().position(|known| known.0 == *told) {
            self.discarding.swap_remove(at);
        }
        for page in told.clone() {
            // A mapping that has changed meanwhile is not discarded, though the pager has believed the event.
            let kept = (!range.contains(&page)).then(|| self.truth.remove(&page));
            if let Some(tag) = self.late.remove(&page).or(kept.flatten()) {
                self.maybe.insert(page, tag);
            } else if range.contains(&page) {
                self.maybe.remove(&page);
            }
        }
        let is_guard = |pte: &Pte| *pte == Pte::Guard;
        self.pages
            .retain(|page, pte| !range.contains(page) || is_guard(pte));
        self.truth.retain(|page, _| !range.contains(page));
    }

    /// Replace what is there by guards.
    pub fn guard(&mut self, range: Range<u64>) {
        self.zap(range.clone());
        for page in range {
            self.pages.insert(page, Pte::Guard);
            self.guards.insert(page);
        }
    }

    /// Remove guards.
    pub fn unguard(&mut self, range: Range<u64>) {
        let is_guard = |pte: &Pte| *pte == Pte::Guard;
        self.pages
            .retain(|page, pte| !range.contains(page) || !is_guard(pte));
        self.guards.retain(|page| !range.contains(page));
    }

    /// Move pages from one range to another, with their truth.
    pub fn carry(&mut self, from: Range<u64>, to: u64) {
        for (index, page) in from.enumerate() {
            let target = to + index as u64;
            if self
                .discarding
                .iter()
                .any(|(range, _)| range.contains(&page))
            {
                self.leave_open(page);
            }
            if let Some(pte) = self.pages.remove(&page) {
                self.pages.insert(target, pte);
            }
            for content in [&mut self.truth, &mut self.late, &mut self.maybe] {
                if let Some(tag) = content.remove(&page) {
                    content.insert(target, tag);
                }
            }
            if self.guards.remove(&page) {
                self.guards.insert(target);
            }
        }
    }

    /// Move page table entries, as the agent does. The truth stays.
    pub fn carry_aside(&mut self, from: Range<u64>, to: u64) {
        for (index, page) in from.enumerate() {
            if let Some(pte) = self.pages.remove(&page) {
                self.pages.insert(to + index as u64, pte);
            }
        }
    }

    /// What a fork gives to the child: everything but the agent's memory.
    pub fn fork(&mut self) -> Memory {
        let mut child = Memory {
            vmas: self.vmas.clone(),
            truth: self.truth.clone(),
            guards: self.guards.clone(),
            maybe: self.maybe.clone(),
            ..Memory::default()
        };
        child.unmap_own();
        // A discard under way may have come before or after the fork.
        for page in self.discarding.iter().flat_map(|(range, _)| range.clone()) {
            child.leave_open(page);
        }
        for (&page, pte) in self
            .pages
            .iter_mut()
            .filter(|(page, _)| !OWN.contains(page))
        {
            if let Pte::Page { exclusive, .. } = pte {
                *exclusive = false;
            }
            child.pages.insert(page, *pte);
        }
        child
    }

    /// From now on the page may hold its content or zeros.
    pub fn leave_open(&mut self, page: u64) {
        if let Some(tag) = self.truth.remove(&page) {
            self.maybe.insert(page, tag);
        }
    }

    fn unmap_own(&mut self) {
        self.split(OWN.start);
        self.vmas.retain(|start, _| !OWN.contains(start));
    }

    /// A place for so many pages where nothing is mapped.
    pub fn free_place(&self, pages: u64) -> Option<u64> {
        let last = PROGRAM.end.checked_sub(pages)?;
        (PROGRAM.start..=last).find(|&start| self.parts(start..start + pages).is_empty())
    }

    /// A thread reads a page, or writes `tag` to it. If it has to wait, its fault is queued under number `id`.
    pub fn touch(&mut self, page: u64, write: Option<u64>, tid: u32, id: u64) -> Touch {
        let Some((_, vma)) = self.vma(page) else {
            return Touch::Refused;
        };
        let is_guard = self.guards.contains(&page);
        if write.is_some() && !vma.writable {
            return Touch::Refused;
        }
        let pte = self.pages.get(&page).copied();
        let is_protected = matches!(
            pte,
            Some(Pte::Page {
                protected: true,
                ..
            })
        );
        match pte {
            Some(Pte::Guard) if is_guard => return Touch::Refused,
            Some(Pte::Guard) => return self.wrong(page, u64::MAX),
            None | Some(Pte::Marker) if vma.watch == Watch::Program => {
                return self.wait(page, write.is_some(), false, tid, id);
            }
            Some(Pte::Page { .. })
                if is_protected && write.is_some() && vma.watch == Watch::Program =>
            {
                return self.wait(page, true, true, tid, id);
            }
            _ => {}
        }
        let found = match pte {
            Some(Pte::Page { tag, .. }) => tag,
            _ => 0,
        };
        if found != 0 && self.maybe.remove(&page) == Some(found) {
            self.truth.insert(page, found);
        }
        self.maybe.remove(&page);
        if found == 0 && self.is_discarding(page) {
            self.truth.remove(&page);
        }
        if is_guard || found != self.truth.get(&page).copied().unwrap_or(0) {
            return self.wrong(page, found);
        }
        match write {
            Some(tag) => {
                self.pages.insert(page, Pte::own(tag));
                self.truth.insert(page, tag);
                if self.is_discarding(page) {
                    self.late.insert(page, tag);
                }
                Touch::Done(tag)
            }
            None => {
                self.pages.entry(page).or_insert(Pte::Page {
                    tag: 0,
                    protected: false,
                    exclusive: false,
                    zero: true,
                });
                Touch::Done(found)
            }
        }
    }

    fn is_discarding(&self, page: u64) -> bool {
        self.discarding
            .iter()
            .any(|(range, heard)| *heard && range.contains(&page))
    }

    fn wrong(&self, page: u64, found: u64) -> Touch {
        let expected = self.truth.get(&page).copied().unwrap_or(0);
        Touch::Wrong { found, expected }
    }

    fn wait(&mut self, page: u64, write: bool, protected: bool, tid: u32, id: u64) -> Touch {
        self.faults.push(Waiting {
            id,
            page,
            write,
            protected,
            tid,
            is_read: false,
        });
        Touch::Waits(id)
    }

    /// Let threads go on that wait for pages of a range.
    pub fn wake(&mut self, range: Range<u64>) {
        self.faults.retain(|fault| !range.contains(&fault.page));
    }

    /// MADV_POPULATE_WRITE on a present page: make a copy for this process alone. False if the page has to be brought
    /// first.
    pub fn make_exclusive(&mut self, page: u64) -> bool {
        match self.pages.get_mut(&page) {
            Some(Pte::Page {
                exclusive,
                zero,
                protected: false,
                ..
            }) => {
                (*exclusive, *zero) = (true, false);
                true
            }
            _ => false,
        }
    }
}
