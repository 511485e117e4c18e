//! Allocations smaller than a page: slabs of four pages, each with objects of one size. Pure data; its user locks it.
//!
//! What is known of a slab lies outside of the arena, so that to allocate or free brings no page back.

use std::alloc::Layout;
use std::collections::HashMap;
use std::ops::Range;

use crate::groups::GroupNumber;
use crate::state::PAGE_BYTES;

/// Pages of a slab.
pub const SLAB_PAGES: usize = 4;
const SLAB_BYTES: usize = SLAB_PAGES * PAGE_BYTES;
/// Sizes of objects, each at most half more than the one before. Larger ones are whole pages.
const CLASSES: [usize; 15] = [
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
];
/// Bits for the objects of the smallest class.
const BIT_WORDS: usize = SLAB_BYTES / CLASSES[0] / 64;

/// The class of objects that fit a layout, if it is small. A slab begins at a page, so an object is aligned as its
/// class is.
pub fn class_of(layout: Layout) -> Option<usize> {
    let fits = |class: &usize| *class >= layout.size() && class.is_multiple_of(layout.align());
    CLASSES.iter().position(fits)
}

/// The bytes of an object of a class.
pub fn class_bytes(class: usize) -> usize {
    CLASSES[class]
}

/// No object that is in use begins there: it was given back before, or never given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotInUse;

#[derive(Debug)]
struct Slab {
    class: usize,
    group: GroupNumber,
    /// A bit for each object that is in use.
    used: [u64; BIT_WORDS],
    count: usize,
}

impl Slab {
    fn capacity(&self) -> usize {
        SLAB_BYTES / CLASSES[self.class]
    }

    /// The number of the object that is in use and begins at this byte of the arena, which lies in the slab.
    fn object(&self, at: usize) -> Result<usize, NotInUse> {
        let (inside, bytes) = (at % SLAB_BYTES, CLASSES[self.class]);
        let object = inside / bytes;
        // Behind the last object there may be a rest, whose bits nobody sets.
        let is_used = self.used[object / 64] & (1 << (object % 64)) != 0;
        (is_used && inside.is_multiple_of(bytes))
            .then_some(object)
            .ok_or(NotInUse)
    }

    fn take(&mut self) -> Option<usize> {
        let capacity = self.capacity();
        for (at, word) in self.used.iter_mut().enumerate() {
            let bit = word.trailing_ones() as usize;
            let object = at * 64 + bit;
            if bit < 64 && object < capacity {
                *word |= 1 << bit;
                self.count += 1;
                return Some(object);
            }
        }
        None
    }
}

/// All slabs.
#[derive(Debug, Default)]
pub struct Small {
    /// By their first page.
    slabs: HashMap<usize, Slab>,
    /// Slabs of each group and class that may have a free object. Some may be full, or gone.
    partial: HashMap<GroupNumber, [Vec<usize>; CLASSES.len()]>,
}

impl Small {
    /// Takes an object of a group. Returns its first byte, in bytes of the arena. None if there is no slab with a free
    /// one.
    pub fn take(&mut self, class: usize, group: GroupNumber) -> Option<usize> {
        let partial = &mut self.partial.entry(group).or_default()[class];
        while let Some(&page) = partial.last() {
            let slab = self.slabs.get_mut(&page);
            let slab = slab.filter(|slab| slab.class == class && slab.group == group);
            if let Some(object) = slab.and_then(Slab::take) {
                return Some(page * PAGE_BYTES + object * CLASSES[class]);
            }
            partial.pop();
        }
        None
    }

    /// Adds a slab of a class.
    pub fn add(&mut self, class: usize, group: GroupNumber, page: usize) {
        let slab = Slab {
            class,
            group,
            used: [0; BIT_WORDS],
            count: 0,
        };
        self.slabs.insert(page, slab);
        self.partial.entry(group).or_default()[class].push(page);
    }

    /// The slab that a byte of the arena is of.
    fn slab(&self, at: usize) -> Option<(usize, &Slab)> {
        let page = at / SLAB_BYTES * SLAB_PAGES;
        self.slabs.get(&page).map(|slab| (page, slab))
    }

    /// The pages of the slab that a page is of.
    pub fn holding(&self, page: usize) -> Option<Range<usize>> {
        let (first, _) = self.slab(page * PAGE_BYTES)?;
        Some(first..first + SLAB_PAGES)
    }

    /// The class of the object that begins here, if there is a slab here at all.
    pub fn class_at(&self, at: usize) -> Option<Result<usize, NotInUse>> {
        let (_, slab) = self.slab(at)?;
        Some(slab.object(at).map(|_| slab.class))
    }

    /// Gives an object back. Returns the pages of its slab, which is no longer one, if it was the last one there.
    ///
    /// # Errors
    /// No object that is in use begins there. Nothing is changed.
    pub fn give(&mut self, at: usize) -> Result<Option<Range<usize>>, NotInUse> {
        let page = at / SLAB_BYTES * SLAB_PAGES;
        let slab = self.slabs.get_mut(&page).ok_or(NotInUse)?;
        let object = slab.object(at)?;
        slab.used[object / 64] &= !(1 << (object % 64));
        let was_full = slab.count == slab.capacity();
        slab.count -= 1;
        let (class, count) = (slab.class, slab.count);
        let partial = &mut self.partial.entry(slab.group).or_default()[class];
        if was_full {
            partial.push(page);
        }
        // The last slab of a class is kept: an object that comes and goes would take and give pages each time.
        if count > 0 || *partial == [page] {
            return Ok(None);
        }
        self.slabs.remove(&page);
        partial.retain(|other| *other != page);
        Ok(Some(page..page + SLAB_PAGES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a layout")
    }

    #[test]
    fn classes_fit_size_and_alignment() {
        for size in 1..4000 {
            for align in [1, 8, 64, 1024] {
                let class = class_of(layout(size, align));
                let fits = class.is_none_or(|class| {
                    CLASSES[class] >= size && CLASSES[class].is_multiple_of(align)
                });
                assert!(fits, "{size} {align}");
            }
        }
        assert!(class_of(layout(2048, 8)).is_some() && class_of(layout(3073, 8)).is_none());
        assert!(class_of(layout(8, 4096)).is_none());
    }

    #[test]
    fn objects_do_not_overlap_and_slabs_go_back() {
        let mut small = Small::default();
        let mut next_page = 0;
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut given = 0;
        let groups = [GroupNumber::ROOT, GroupNumber::of_test(3)];
        let mut seed = 3_usize;
        for round in 0..30_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = seed >> 33;
            let grows = if round < 15_000 {
                !random.is_multiple_of(3)
            } else {
                random.is_multiple_of(3)
            };
            if grows {
                let class = random / 3 % CLASSES.len();
                let group = groups[random / 64 % 2];
                let at = small.take(class, group).unwrap_or_else(|| {
                    small.add(class, group, next_page);
                    next_page += SLAB_PAGES;
                    small.take(class, group).expect("a new slab")
                });
                let of_slab = small.slab(at).map(|(_, slab)| slab.group);
                assert_eq!(of_slab, Some(group), "of whom it was taken for");
                held.push((at, CLASSES[class]));
            } else if !held.is_empty() {
                let (at, _) = held.swap_remove(random % held.len());
                let gone = small.give(at).expect("it is in use");
                given += usize::from(gone.is_some());
                assert_eq!(small.give(at), Err(NotInUse));
            }
        }
        held.sort_unstable();
        for pair in held.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        assert!(given > 0);
    }

    #[test]
    fn only_what_is_in_use_and_begins_there_is_taken_back() {
        let mut small = Small::default();
        let three_kib = class_of(layout(3072, 16)).expect("a class");
        small.add(three_kib, GroupNumber::ROOT, 8);
        let at = small
            .take(three_kib, GroupNumber::ROOT)
            .expect("a new slab");
        assert_eq!(small.class_at(at), Some(Ok(three_kib)));
        for wrong in [at + 16, at + 3072, at + 5 * 3072, at + SLAB_BYTES - 16] {
            assert_eq!(small.class_at(wrong), Some(Err(NotInUse)), "{wrong}");
            assert_eq!(small.give(wrong), Err(NotInUse), "{wrong}");
        }
        assert_eq!((small.class_at(0), small.give(0)), (None, Err(NotInUse)));
        assert_eq!((small.holding(11), small.holding(12)), (Some(8..12), None));
        assert_eq!((small.give(at), small.give(at)), (Ok(None), Err(NotInUse)));
    }
}
