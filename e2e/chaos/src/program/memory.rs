//! Steps that change what is mapped and how.

use std::ops::Range;

use crate::program::actor::{Actor, ELSEWHERE, LEFT_OUT};
use crate::program::calls::{self, Answer, PAGE_BYTES, Span};
use crate::program::confine::REFUSED;
use crate::program::model::{
    ARENA_PAGES, FILE, FREED, GUARD, LOCKED, MEMFD, Model, NOTHING, OBJECT_PAGES, OBJECTS, Of,
    Page, SEALED, SHARED_FILE, SHARED_MEMFD,
};
use crate::step::{Advice, Door, Kind, Place, Step};

/// Offsets into files are in their first part, so that most lengths fit behind them.
const OFFSETS: usize = OBJECT_PAGES / 4;

impl Actor<'_> {
    pub(crate) fn map(&mut self, step: Step) -> Answer {
        let Step::Map {
            at,
            pages,
            kind,
            prot,
            place,
            populate,
            noreserve,
        } = step
        else {
            return (LEFT_OUT, 0);
        };
        let mut range = Model::range(at, pages);
        let Some((of, object, flags, fd)) = self.source(kind) else {
            return (LEFT_OUT, 0);
        };
        let first = if fd < 0 { 0 } else { range.start % OFFSETS };
        if of != Of::Anon {
            range.end = range.end.min(range.start + OBJECT_PAGES - first);
        }
        let flags = flags
            | match place {
                Place::Fixed => libc::MAP_FIXED,
                Place::NoReplace => libc::MAP_FIXED_NOREPLACE,
                Place::Hint => 0,
            }
            | if populate { libc::MAP_POPULATE } else { 0 }
            | if noreserve { libc::MAP_NORESERVE } else { 0 };
        let span = self.span(&range);
        let answer = calls::map(span, prot, flags, fd, first * PAGE_BYTES);
        let place = self.place_of(answer);
        if place == (range.start as i64, 0) {
            if kind == Kind::SharedAnon {
                self.model.objects[object as usize] = [0; OBJECT_PAGES];
                self.model.next_object += 1;
            }
            self.model.mapped(range, of, prot, (object, first));
        } else if place.1 == 0 {
            calls::unmap(Span {
                start: answer.0 as usize,
                bytes: span.bytes,
            });
        }
        place
    }

    /// The source of a mapping: page kind, object, flags and descriptor.
    fn source(&self, kind: Kind) -> Option<(Of, u8, i32, i32)> {
        let fd = |object: u8| self.objects[object as usize];
        let next = self.model.next_object;
        Some(match kind {
            Kind::Anon => (Of::Anon, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
            Kind::SharedAnon if (next as usize) < OBJECTS => {
                (Of::Shared, next, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
            }
            Kind::SharedAnon => return None,
            Kind::FilePrivate => (Of::Private, FILE, libc::MAP_PRIVATE, fd(FILE)),
            Kind::MemfdPrivate => (Of::Private, MEMFD, libc::MAP_PRIVATE, fd(MEMFD)),
            Kind::FileShared => (Of::Shared, SHARED_FILE, libc::MAP_SHARED, fd(SHARED_FILE)),
            Kind::MemfdShared => (Of::Shared, SHARED_MEMFD, libc::MAP_SHARED, fd(SHARED_MEMFD)),
        })
    }

    pub(crate) fn unmap(&mut self, at: u32, pages: u32) -> Answer {
        let range = Model::range(at, pages);
        let answer = calls::unmap(self.span(&range));
        if answer.1 == 0 {
            self.model.unmapped(range);
        }
        answer
    }

    /// `mremap` to page `to`. A range that would overlap itself or reach beyond the arena is cut or left out.
    pub(crate) fn move_to(&mut self, mut from: Range<usize>, to: u32, keep: bool) -> Answer {
        let to = to as usize % ARENA_PAGES;
        from.end = from.end.min(from.start + (ARENA_PAGES - to));
        if to < from.end && from.start < to + from.len() {
            return (LEFT_OUT, 0);
        }
        let sealed = self.model.pages[to..to + from.len()]
            .iter()
            .any(|page| page.has(SEALED));
        // With MREMAP_DONTUNMAP the kernel unlocks the whole mapping, and the model knows pages alone.
        let locked = self.model.pages[from.start].has(LOCKED);
        if keep && (sealed || locked || !self.is_even(from.clone())) {
            return (LEFT_OUT, 0);
        }
        let flags = libc::MREMAP_MAYMOVE
            | libc::MREMAP_FIXED
            | if keep { libc::MREMAP_DONTUNMAP } else { 0 };
        let span = self.span(&from);
        let answer = calls::remap(span, span.bytes, flags, self.address(to));
        for offset in 0..from.len() {
            let (source, target) = (from.start + offset, to + offset);
            if answer.1 == 0 && self.model.pages[source].of != Of::Nothing {
                self.model.moved(source, target, keep);
            } else if answer.1 == 0 {
                self.hole(target);
            } else {
                self.half_moved(source, target);
            }
        }
        self.place_of(answer)
    }

    /// Will one call treat all pages alike? If a call that keeps the old place fails half-way, nothing shows how far it
    /// came.
    fn is_even(&self, range: Range<usize>) -> bool {
        let first = self.model.pages[range.start];
        let alike = |page: &Page| {
            let flags = (page.flags & !FREED) == (first.flags & !FREED);
            page.of == first.of && page.object == first.object && page.prot == first.prot && flags
        };
        first.of != Of::Nothing && self.model.pages[range].iter().all(alike)
    }

    /// A hole was moved over `target`. Only the kernel can say whether what was there is gone.
    fn hole(&mut self, target: usize) {
        if !self.is_mapped(target) {
            self.model.pages[target] = NOTHING;
        }
    }

    /// A move has failed. What is still mapped shows how far it came.
    fn half_moved(&mut self, source: usize, target: usize) {
        if self.model.pages[source].of != Of::Nothing && !self.is_mapped(source) {
            self.model.moved(source, target, false);
        } else {
            self.hole(target);
        }
    }

    fn is_mapped(&self, page: usize) -> bool {
        calls::is_mapped(self.span(&(page..page + 1)))
    }

    /// `mremap` to `new` pages in place. Memory of objects does not grow, because there is nothing behind their end.
    pub(crate) fn resize(&mut self, range: Range<usize>, new: u32) -> Answer {
        let end = (range.start + (new as usize).max(1)).min(ARENA_PAGES);
        let last = range.end - 1;
        if end > range.end
            && self.model.pages[range.clone()]
                .iter()
                .any(|p| p.of != Of::Anon || p.was_only_read())
        {
            return (LEFT_OUT, 0);
        }
        let new_bytes = (end - range.start) * PAGE_BYTES;
        let answer = calls::remap(self.span(&range), new_bytes, 0, 0);
        if answer.1 == 0 && end < range.end {
            self.model.unmapped(end..range.end);
        } else if answer.1 == 0 {
            self.model.grown(last, range.end..end);
        }
        self.place_of(answer)
    }

    /// `mremap` to any place with room for twice as much, and back again.
    pub(crate) fn away(&mut self, range: Range<usize>) -> Answer {
        let pages = &self.model.pages[range.clone()];
        if pages
            .iter()
            .any(|page| page.of != Of::Anon || page.has(GUARD) || page.was_only_read())
        {
            return (LEFT_OUT, 0);
        }
        let span = self.span(&range);
        // The range moves if the pages behind it are not free.
        let there = calls::remap(span, 2 * span.bytes, libc::MREMAP_MAYMOVE, 0);
        if there.1 != 0 {
            return there;
        }
        let start = there.0 as usize;
        if start == span.start {
            let end = (range.end + range.len()).min(ARENA_PAGES);
            // It has grown in place. What lies beyond the arena is unmapped.
            let beyond = self.address(ARENA_PAGES);
            let over = (start + 2 * span.bytes).saturating_sub(beyond);
            if over > 0 {
                calls::unmap(Span {
                    start: beyond,
                    bytes: over,
                });
            }
            self.model.grown(range.end - 1, range.end..end);
            return (1, 0);
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let away = Span {
            start,
            bytes: 2 * span.bytes,
        };
        let back = calls::remap(away, span.bytes, flags, span.start);
        if back.1 == 0 { (ELSEWHERE, 0) } else { back }
    }

    pub(crate) fn protect(&mut self, at: u32, pages: u32, prot: u8, pkey: bool) -> Answer {
        let range = Model::range(at, pages);
        let answer = calls::protect(self.span(&range), prot, pkey);
        if answer.1 != REFUSED {
            self.model.protected(range, prot);
        }
        answer
    }

    pub(crate) fn advise(&mut self, step: Step) -> Answer {
        let Step::Advise {
            at,
            pages,
            advice,
            door,
        } = step
        else {
            return (LEFT_OUT, 0);
        };
        let range = Model::range(at, pages);
        // What a parent shares belongs to the parent.
        let shared = |page: usize| {
            let page = self.model.pages[page];
            page.of == Of::Shared && page.object < self.model.inherited
        };
        if advice == Advice::Remove && range.clone().any(shared) {
            return (LEFT_OUT, 0);
        }
        // A ring needs memory, which a limited process cannot get, and a thread of the kernel's in this process.
        let door = if self.limited || self.divided {
            Door::Madvise
        } else {
            door
        };
        self.had_ring |= door == Door::IoUring;
        let answer = calls::advise(self.span(&range), advice, door);
        if answer.1 != REFUSED {
            self.model.advised(range, advice, answer.1);
        }
        // Whether the kernel can make huge pages of it depends on the machine's memory.
        if advice == Advice::Collapse {
            return (0, 0);
        }
        answer
    }

    pub(crate) fn lock(&mut self, at: u32, pages: u32, on_fault: bool) -> Answer {
        let range = Model::range(at, pages);
        let answer = calls::lock(self.span(&range), on_fault);
        self.model.locked(range, true);
        answer
    }

    pub(crate) fn unlock(&mut self, at: u32, pages: u32) -> Answer {
        let range = Model::range(at, pages);
        let answer = calls::unlock(self.span(&range));
        self.model.locked(range, false);
        answer
    }

    /// A process with an arena leaves it out, and so do its children: it would fill and lock all that the library has
    /// reserved.
    pub(crate) fn lock_all(&mut self, future: bool) -> Answer {
        if !self.alone || self.shared.arena.is_some() {
            return (LEFT_OUT, 0);
        }
        let answer = calls::lock_all(true, future);
        if answer.1 == 0 {
            self.model.all_locked(true);
            self.model.locks_future = future;
        }
        answer
    }

    pub(crate) fn unlock_all(&mut self) -> Answer {
        if !self.alone || self.shared.arena.is_some() {
            return (LEFT_OUT, 0);
        }
        let answer = calls::lock_all(false, false);
        if answer.1 == 0 {
            self.model.all_locked(false);
            self.model.locks_future = false;
        }
        answer
    }

    pub(crate) fn seal(&mut self, at: u32, pages: u32) -> Answer {
        let range = Model::range(at, pages);
        let answer = calls::seal(self.span(&range));
        if answer.1 == 0 {
            self.model.sealed(range);
        }
        answer
    }
}
