//! First half of a swap-out: a page that is about to leave gets its slot. From then on it is found in its frame.
//!
//! The slot is in the virtual area, which has as many slots as there is memory for their tables. Or it is *directly
//! mapped*: a slot of a physical area that page tables name themselves. A directly mapped page needs no virtual slot
//! and no tables of one. But its slot is taken and charged to the page's group even if the page is all zeros or fits
//! the pool. A full area refuses pages. And an area that is to go must be searched for in every page table
//! (`swap_off.rs`). From here on the two kinds are the same: `cluster/transition.rs` says what can become of either.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crate::area::{AllocError, OfGroup};
use crate::areas::Payer;
use crate::base::pages::Page;
use crate::engine::Engine;
use crate::frames::FrameMut;
use crate::groups::{GroupId, GroupIndex, Resource};
use crate::words::entry::Entry;
use crate::words::order::Order;
use crate::words::shadow::Shadow;
use crate::words::slot::Word;
use crate::words::tier::TierId;

/// Which slots page tables name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mapping {
    /// Those of the virtual area.
    #[default]
    Virtual,
    /// Those of physical areas.
    Direct,
}

/// A free frame that already has its slot. Fill it, then publish it. Until then nobody else has the frame or the slot,
/// and dropping this frees both. So a page that would find no slot need not be moved out at all.
#[derive(Debug)]
pub struct Placed<'a> {
    // Dropped first, because its word names the frame.
    slot: TakenSlot<'a>,
    frame: FrameMut<'a>,
}

/// A slot whose page has not come yet. Dropping this gives the slot back.
#[derive(Debug)]
struct TakenSlot<'a> {
    engine: &'a Engine,
    entry: Entry,
}

impl Engine {
    /// First half of a swap-out: takes a virtual slot whose cached content is `frame`, with count 1. From here on the
    /// entry can be looked up, swapped in, shared and put. `cpu` is a hint which cluster to take the slot from. The
    /// page belongs to `group` until its last reference is put. That alone charges the group nothing.
    ///
    /// # Errors
    /// Returns the frame with [`AllocError`] if there is no slot, or no such group.
    pub fn swap_out<'a>(
        &'a self,
        cpu: usize,
        mut frame: FrameMut<'a>,
        shadow: Shadow,
        group: GroupId,
    ) -> Result<Entry, (FrameMut<'a>, AllocError)> {
        frame.set_shadow(shadow);
        let word = Word::cached(frame.index()).with_count_field(1);
        match self.take_slot(cpu, word, group, Mapping::Virtual) {
            Ok(entry) => {
                frame.into_cache();
                Ok(entry)
            }
            Err(error) => Err((frame, error)),
        }
    }

    /// The same in two steps: gives a frame its slot before it is filled. The count is 0 until the page is published.
    /// So whoever still has the name of a page that was there before finds none. A directly mapped slot is charged to
    /// the group from here on, and is the only slot in which the page can lie.
    ///
    /// # Errors
    /// Returns the frame with [`AllocError`] if there is no slot, if the group may not have one, or if there is no such
    /// group.
    pub fn place<'a>(
        &'a self,
        cpu: usize,
        frame: FrameMut<'a>,
        group: GroupId,
        mapping: Mapping,
    ) -> Result<Placed<'a>, (FrameMut<'a>, AllocError)> {
        let word = Word::cached(frame.index());
        match self.take_slot(cpu, word, group, mapping) {
            Ok(entry) => Ok(Placed {
                slot: TakenSlot {
                    engine: self,
                    entry,
                },
                frame,
            }),
            Err(error) => Err((frame, error)),
        }
    }

    /// Like [`Engine::place`], for many frames: as many as there are slots. Virtual slots of one cluster are taken
    /// under one lock. If a slot was missing, also returns why, and the frames without a slot are free again.
    pub fn place_all<'a>(
        &'a self,
        cpu: usize,
        frames: Vec<FrameMut<'a>>,
        group: GroupId,
        mapping: Mapping,
    ) -> (Vec<Placed<'a>>, Option<AllocError>) {
        let words = frames.iter().map(|frame| Word::cached(frame.index()));
        let words: Vec<Word> = words.collect();
        let mut entries = Vec::with_capacity(words.len());
        let all = match mapping {
            Mapping::Virtual => {
                let (area, group) = (&self.virtual_area, self.of_group(group));
                area.allocate_each(cpu, &words, group, &mut entries)
            }
            Mapping::Direct => words.iter().try_for_each(|&word| {
                entries.push(self.take_direct(cpu, word, group)?);
                Ok(())
            }),
        };
        let place = |(entry, frame)| Placed {
            slot: TakenSlot {
                engine: self,
                entry,
            },
            frame,
        };
        let placed = entries.into_iter().zip(frames).map(place).collect();
        (placed, all.err())
    }

    #[inline]
    fn take_slot(
        &self,
        cpu: usize,
        word: Word,
        group: GroupId,
        mapping: Mapping,
    ) -> Result<Entry, AllocError> {
        match mapping {
            Mapping::Virtual => {
                let group = self.of_group(group);
                self.virtual_area.allocate(cpu, Order::SLOT, &[word], group)
            }
            Mapping::Direct => self.take_direct(cpu, word, group),
        }
    }

    #[inline]
    fn of_group(&self, id: GroupId) -> Option<OfGroup<'_>> {
        let groups = &self.groups;
        (id != GroupId::ROOT).then_some(OfGroup { groups, id })
    }

    /// Takes a slot of a physical area and charges the group for it. The group cannot be removed once the slot is its
    /// own.
    fn take_direct(&self, cpu: usize, word: Word, group: GroupId) -> Result<Entry, AllocError> {
        debug_assert!(word.is_used());
        let payer = Payer::mapped(self.of_group(group));
        // Each round but the last goes past one more tier.
        while let Some((entry, _)) = self.areas.allocate(cpu, &[word], &payer) {
            let tier = self.areas.tier_of(entry);
            let index = self.group_of(entry);
            let Err(limit) = self.charge_direct(index, tier) else {
                return Ok(entry);
            };
            // Counted while the slot keeps the group.
            if limit == Resource::Swap {
                self.groups.count_swap_fails(index, 1);
            }
            self.give_slot_back(entry);
            if limit == Resource::Swap {
                return Err(AllocError::Limited);
            }
            payer.go_past(tier);
        }
        self.virtual_area.count_rejected();
        // This was checked under each cluster's lock. Check again to find the reason.
        let index = self.groups.index_for_slot(group);
        let index = index.ok_or(AllocError::NoGroup)?;
        if payer.was_refused() {
            self.groups.count_swap_fails(index, 1);
            return Err(AllocError::Limited);
        }
        Err(AllocError::NoSlot)
    }

    /// Frees a slot that was taken for a page that did not come. Returns the slot's group, and its tier if it was
    /// directly mapped.
    fn give_slot_back(&self, entry: Entry) -> (GroupIndex, Option<TierId>) {
        let Some((mut cluster, slot)) = self.lock(entry) else {
            return (GroupIndex::ROOT, None);
        };
        let group = cluster.state.groups.of(slot);
        cluster.search_again_from(slot);
        (group, self.release_slot(&mut cluster, entry))
    }
}

impl Placed<'_> {
    /// The page's address, so that a system call can fill it. Like [`FrameMut::as_mut_ptr`].
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.frame.as_mut_ptr()
    }

    /// The slot's name. It leads to nothing before the page is published.
    #[must_use]
    pub fn entry(&self) -> Entry {
        self.slot.entry
    }

    /// Publishes the filled frame as the content of its entry. The caller has the entry's only reference.
    #[must_use]
    pub fn publish(self, shadow: Shadow) -> Entry {
        let Placed { slot, mut frame } = self;
        frame.set_shadow(shadow);
        frame.into_cache();
        let TakenSlot { engine, entry } = *ManuallyDrop::new(slot);
        if let Some((mut cluster, slot)) = engine.lock(entry) {
            let word = cluster.word(slot).with_count_field(1);
            cluster.set_word(slot, word);
        }
        entry
    }
}

impl Deref for Placed<'_> {
    type Target = Page;
    fn deref(&self) -> &Page {
        &self.frame
    }
}

impl DerefMut for Placed<'_> {
    fn deref_mut(&mut self) -> &mut Page {
        &mut self.frame
    }
}

impl Drop for TakenSlot<'_> {
    fn drop(&mut self) {
        let (group, own) = self.engine.give_slot_back(self.entry);
        if let Some(tier) = own {
            self.engine.uncharge_direct(group, tier);
        }
    }
}
