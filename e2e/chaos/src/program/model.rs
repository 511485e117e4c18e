//! What each page of an arena must hold, and which part of a call took effect.
//!
//! The model follows what calls answered. It does not judge whether the answer is right: the driver compares it with
//! the native one. The model follows a call that fails half-way as Linux does it: over the mappings from low to high,
//! up to the first that refuses. Nothing here allocates, because children without the C library's handlers run it.

use crate::step::Advice;

/// Pages of an arena.
pub(crate) const ARENA_PAGES: usize = 512;
/// Pages of an object, which is a file or the memory behind a shared anonymous mapping.
pub(crate) const OBJECT_PAGES: usize = 128;
/// Most objects of one arena.
pub(crate) const OBJECTS: usize = 12;
/// The objects behind an arena's private mappings: a file and a memfd. Nobody writes them. So a private page that was
/// never written holds what they hold, whether or not the kernel has copied it already.
pub(crate) const FILE: u8 = 0;
pub(crate) const MEMFD: u8 = 1;
/// The objects behind its shared mappings.
pub(crate) const SHARED_FILE: u8 = 2;
pub(crate) const SHARED_MEMFD: u8 = 3;

/// The stamp of a private page of a file that was not written yet. It holds what the file holds.
pub(crate) const CLEAN: u64 = u64::MAX;
/// The stamp of unknown content: another process may change the object.
pub(crate) const UNKNOWN: u64 = u64::MAX - 1;

const EINVAL: i32 = libc::EINVAL;

/// What is mapped at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Nothing,
    Anon,
    Private,
    Shared,
}

pub(crate) const READ: u8 = 1;
pub(crate) const WRITE: u8 = 2;

pub(crate) const LOCKED: u8 = 1;
pub(crate) const GUARD: u8 = 2;
pub(crate) const DONT_FORK: u8 = 4;
pub(crate) const WIPE_ON_FORK: u8 = 8;
pub(crate) const SEALED: u8 = 16;
/// Given back with `MADV_FREE`: it holds its old content or zeros.
pub(crate) const FREED: u8 = 32;
/// Anonymous memory around this page was read before it was written.
pub(crate) const READ_EMPTY: u8 = 64;

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) of: Of,
    pub(crate) prot: u8,
    pub(crate) flags: u8,
    pub(crate) object: u8,
    pub(crate) index: u16,
    /// Names the content; 0 is zeros.
    pub(crate) stamp: u64,
}

pub(crate) const NOTHING: Page = Page {
    of: Of::Nothing,
    prot: 0,
    flags: 0,
    object: 0,
    index: 0,
    stamp: 0,
};

impl Page {
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Would a load or store of the program succeed?
    pub(crate) fn allows(self, access: u8) -> bool {
        self.of != Of::Nothing && self.prot & access != 0 && !self.has(GUARD)
    }

    /// Perhaps the page was only read. Natively, mappings merge even if parts of them were only read. Under a
    /// userfaultfd they do not always (docs/limits.md), and only whole mappings grow.
    pub(crate) fn was_only_read(self) -> bool {
        self.prot & WRITE == 0 || self.has(READ_EMPTY)
    }

    fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    /// What the page holds if the kernel has no page for it.
    fn empty(self) -> u64 {
        if self.of == Of::Private { CLEAN } else { 0 }
    }
}

/// An arena.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) pages: Box<[Page; ARENA_PAGES]>,
    pub(crate) objects: Box<[[u64; OBJECT_PAGES]; OBJECTS]>,
    /// The next object that is free.
    pub(crate) next_object: u8,
    /// Objects below this one belong to a parent.
    pub(crate) inherited: u8,
    /// New mappings are locked.
    pub(crate) locks_future: bool,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            pages: Box::new([NOTHING; ARENA_PAGES]),
            objects: Box::new([[0; OBJECT_PAGES]; OBJECTS]),
            next_object: SHARED_MEMFD + 1,
            inherited: 0,
            locks_future: false,
        }
    }

    /// The part of a range that is in the arena.
    pub(crate) fn range(at: u32, pages: u32) -> std::ops::Range<usize> {
        let start = (at as usize).min(ARENA_PAGES - 1);
        start..(start + (pages as usize).max(1)).min(ARENA_PAGES)
    }

    /// A page is read. If nobody has written it, that counts for all anonymous memory around it: where its mapping ends
    /// is not known here.
    pub(crate) fn read(&mut self, index: usize) {
        let is_anonymous = |page: &Page| page.of == Of::Anon;
        let page = self.pages[index];
        // The kernel decides when a page that was given back is empty.
        if !is_anonymous(&page) || page.stamp != 0 || page.has(FREED) || page.has(READ_EMPTY) {
            return;
        }
        let (below, above) = self.pages.split_at_mut(index);
        let below = below.iter_mut().rev().take_while(|page| is_anonymous(page));
        let above = above.iter_mut().take_while(|page| is_anonymous(page));
        below
            .chain(above)
            .for_each(|page| page.set(READ_EMPTY, true));
    }

    /// The stamp of the page's content.
    pub(crate) fn content(&self, index: usize) -> u64 {
        let page = self.pages[index];
        let shared = page.of == Of::Shared || page.stamp == CLEAN;
        if shared {
            self.objects[page.object as usize][page.index as usize]
        } else {
            page.stamp
        }
    }

    /// May the page be written? Its mapping must allow it, and the object behind it must be ours.
    pub(crate) fn writable(&self, index: usize) -> bool {
        let page = self.pages[index];
        page.allows(WRITE) && (page.of != Of::Shared || page.object >= self.inherited)
    }

    /// The page has been written.
    pub(crate) fn wrote(&mut self, index: usize, stamp: u64) {
        let page = &mut self.pages[index];
        if page.of == Of::Shared {
            self.objects[page.object as usize][page.index as usize] = stamp;
        } else {
            page.stamp = stamp;
            page.set(FREED, false);
        }
    }

    pub(crate) fn unmapped(&mut self, range: std::ops::Range<usize>) {
        self.pages[range].fill(NOTHING);
    }

    /// A new mapping, with zeros or with an object from the object's page `index` on.
    pub(crate) fn mapped(
        &mut self,
        range: std::ops::Range<usize>,
        of: Of,
        prot: u8,
        object: (u8, usize),
    ) {
        let flags = if self.locks_future { LOCKED } else { 0 };
        for (offset, page) in self.pages[range].iter_mut().enumerate() {
            *page = Page {
                of,
                prot,
                flags,
                object: object.0,
                index: (object.1 + offset) as u16,
                stamp: 0,
            };
            page.stamp = page.empty();
        }
    }

    /// Changes pages from low to high, up to a hole or a page that refuses.
    fn walk(
        &mut self,
        range: std::ops::Range<usize>,
        refuses: impl Fn(Page) -> bool,
        change: impl Fn(&mut Page),
    ) {
        for page in &mut self.pages[range] {
            if page.of == Of::Nothing || refuses(*page) {
                return;
            }
            change(page);
        }
    }

    pub(crate) fn protected(&mut self, range: std::ops::Range<usize>, prot: u8) {
        self.walk(range, |page| page.has(SEALED), |page| page.prot = prot);
    }

    pub(crate) fn locked(&mut self, range: std::ops::Range<usize>, on: bool) {
        self.walk(range, |_| false, |page| page.set(LOCKED, on));
    }

    pub(crate) fn all_locked(&mut self, on: bool) {
        for page in self.pages.iter_mut().filter(|page| page.of != Of::Nothing) {
            page.set(LOCKED, on);
        }
    }

    /// Sealing takes effect on the whole range or not at all.
    pub(crate) fn sealed(&mut self, range: std::ops::Range<usize>) {
        self.walk(range, |_| false, |page| page.set(SEALED, true));
    }

    /// Records advice that was answered with `errno`. The kernel goes on over holes, and stops at a refusal.
    pub(crate) fn advised(&mut self, range: std::ops::Range<usize>, advice: Advice, errno: i32) {
        for index in range {
            let page = self.pages[index];
            if page.of == Of::Nothing {
                continue;
            }
            if errno != 0 && refuses(page, advice) != 0 {
                return;
            }
            self.advise_page(index, advice);
        }
    }

    fn advise_page(&mut self, index: usize, advice: Advice) {
        let page = &mut self.pages[index];
        match advice {
            Advice::DontNeed | Advice::DontNeedLocked => {
                page.stamp = page.empty();
                page.set(FREED, false);
            }
            Advice::Free if page.stamp != 0 => page.set(FREED, true),
            Advice::Remove => {
                self.objects[page.object as usize][page.index as usize] = 0;
            }
            Advice::DontFork => page.set(DONT_FORK, true),
            Advice::DoFork => page.set(DONT_FORK, false),
            Advice::WipeOnFork => page.set(WIPE_ON_FORK, true),
            Advice::KeepOnFork => page.set(WIPE_ON_FORK, false),
            Advice::GuardInstall => {
                page.set(GUARD, true);
                page.stamp = page.empty();
                page.set(FREED, false);
            }
            Advice::GuardRemove => page.set(GUARD, false),
            _ => {}
        }
    }

    /// Records that pages moved within the arena. With `keep` the old place stays mapped and is empty.
    pub(crate) fn moved(&mut self, from: usize, to: usize, keep: bool) {
        let page = self.pages[from];
        self.pages[to] = page;
        self.pages[from] = NOTHING;
        if keep {
            let mut left = page;
            left.stamp = page.empty();
            left.flags &= !(LOCKED | GUARD | FREED);
            self.pages[from] = left;
        }
    }

    /// A mapping has grown. The new pages are like its last page, and empty.
    pub(crate) fn grown(&mut self, last: usize, new: std::ops::Range<usize>) {
        let mut page = self.pages[last];
        page.stamp = page.empty();
        page.flags &= !(GUARD | FREED);
        self.pages[new].fill(page);
    }

    /// Changes the model to that of a child. `steady`: nobody changes the parent's objects while the child lives.
    pub(crate) fn become_child(&mut self, steady: bool) {
        for page in self.pages.iter_mut() {
            if page.has(DONT_FORK) {
                *page = NOTHING;
            }
            if page.has(WIPE_ON_FORK) {
                page.stamp = 0;
                page.flags &= !(FREED | GUARD);
            }
            page.set(LOCKED, false);
        }
        self.locks_future = false;
        if !steady {
            self.objects[SHARED_FILE as usize..self.next_object as usize]
                .fill([UNKNOWN; OBJECT_PAGES]);
        }
        self.inherited = self.next_object;
    }

    /// A number for what is mapped and how. Equal layouts have equal numbers.
    pub(crate) fn layout(&self) -> u64 {
        self.pages.iter().fold(0, |sum, page| {
            let word = (page.of as u64) << 48
                | u64::from(page.prot) << 40
                | u64::from(page.flags & !(FREED | READ_EMPTY)) << 32
                | u64::from(page.object) << 16
                | u64::from(page.index);
            vswap_drive::random::mix(sum ^ word)
        })
    }
}

/// The error with which the kernel refuses this advice for such a page.
fn refuses(page: Page, advice: Advice) -> i32 {
    let sealed = page.has(SEALED) && page.prot & WRITE == 0 && page.of == Of::Anon;
    let when = |refused: bool| if refused { EINVAL } else { 0 };
    match advice {
        Advice::DontNeed | Advice::GuardInstall => when(page.has(LOCKED) || sealed),
        Advice::DontNeedLocked | Advice::DontFork => when(sealed),
        Advice::Free => when(page.has(LOCKED) || page.of != Of::Anon || sealed),
        Advice::Remove => when(page.has(LOCKED) || page.of != Of::Shared),
        Advice::WipeOnFork => when(page.of != Of::Anon || sealed),
        _ => 0,
    }
}
