//! Finding another home for pages that leave their place: the zero flag, the pool, or slots of areas.
//!
//! Pages that go to an area get a run of neighbouring slots there, and one request writes them all. If no run is long
//! enough, they get several shorter ones. Runs that happen to be neighbours are also written with one request. A page
//! gets no place that its group may not have (`charge.rs`); then it stays where it was. Slots are found for pages of
//! one group at a time, because each group may have other tiers.

use std::ops::Deref;

use super::charge::{PoolRefusal, Uncharges};
use super::leaving::{Coming, Destination, Leaving, Written};
use super::runs::are_neighbours;
use crate::areas::Payer;
use crate::base::pages::Page;
use crate::codec::{Codec, Pack, Scratch};
use crate::engine::Engine;
use crate::groups::GroupIndex;
use crate::words::backing::Stored;
use crate::words::entry::Entry;
use crate::words::slot::Word;
use crate::words::tier::TierId;

/// A page that is yet to find a slot in an area, as it is.
const RAW: Destination = Destination::None {
    is_raw: true,
    is_limited: false,
};

impl Engine {
    /// Tries the zero flag and the pool. A page that does not compress is kept for an area if its group may use areas.
    pub(crate) fn pack<P>(&self, leaving: &mut Leaving<P>, how: Pack, scratch: &mut Scratch)
    where
        P: Deref<Target = Page>,
    {
        let (group, page) = (leaving.group, &*leaving.page);
        leaving.to = if page.is_zero() {
            Destination::Zero
        } else if self.pool.is_off() {
            // Nothing would take the compressed bytes.
            Destination::NOWHERE
        } else {
            match how.codec.compress(page, scratch) {
                Ok(packed) => self.store_packed(group, packed),
                Err(_incompressible) if self.may_go_to_areas(group) => self
                    .pack_densely(page, how, scratch)
                    .map_or(RAW, |packed| self.store_packed(group, packed)),
                Err(_incompressible) => self.store(group, &page.0, Written::Raw),
            }
        };
    }

    /// Tries zstd, if it is to be tried for such a page and is not in vain as a rule.
    fn pack_densely<'s>(
        &self,
        page: &Page,
        how: Pack,
        scratch: &'s mut Scratch,
    ) -> Option<&'s [u8]> {
        if !how.tries_zstd || !self.second_codec.is_due() {
            return None;
        }
        let packed = Codec::Zstd.compress(page, scratch).ok();
        self.second_codec.note(packed.is_some());
        packed
    }

    fn store_packed(&self, group: GroupIndex, packed: &[u8]) -> Destination {
        let bytes = packed.len();
        self.store(group, packed, Written::Compressed { bytes })
    }

    fn may_go_to_areas(&self, group: GroupIndex) -> bool {
        !self.areas.is_empty() && self.groups.writes_back(group)
    }

    fn store(&self, group: GroupIndex, payload: &[u8], written: Written) -> Destination {
        match self.store_charged(group, payload) {
            Ok(handle) => Destination::Stored(Stored::Pool(handle), written),
            Err(why) => Destination::None {
                is_raw: false,
                is_limited: why == PoolRefusal::Limited,
            },
        }
    }

    /// Gives slots of the areas to the pages that have no place yet, and writes each row of neighbours at once. A page
    /// that gets no slot there, and was not offered to the pool before, goes to the pool uncompressed.
    pub(crate) fn write_to_areas<P>(&self, cpu: usize, leaving: &mut [Leaving<P>], coming: Coming)
    where
        P: Deref<Target = Page>,
    {
        if !self.areas.is_empty() {
            let mut admitted = self.admit(leaving, coming);
            self.write_admitted(cpu, &mut admitted, coming);
        }
        for page in leaving {
            let Destination::None {
                is_raw: true,
                is_limited,
            } = page.to
            else {
                continue;
            };
            let to = self.store(page.group, &page.page.0, Written::Raw);
            page.to = to.or_limited(is_limited);
        }
    }

    /// Writes pages that may have slots in areas, or as many of them as get one.
    fn write_admitted<P>(&self, cpu: usize, admitted: &mut [&mut Leaving<P>], coming: Coming)
    where
        P: Deref<Target = Page>,
    {
        let mut uncharges = Uncharges::new(&self.groups);
        let mut slots = Vec::with_capacity(admitted.len());
        let mut placed = Vec::with_capacity(admitted.len());
        for of_one in admitted.chunk_by_mut(|a, b| have_one_payer(a, b)) {
            let entries = of_one.iter().map(|page| page.entry);
            let found = self.slots_for(cpu, of_one[0].group, of_one[0].from, entries);
            let (with, without) = of_one.split_at_mut(found.slots.len());
            for page in without {
                page.to = page.to.or_limited(found.is_limited);
                if coming == Coming::FromMemory {
                    self.admitted_in_vain(page.group, &mut uncharges);
                }
            }
            slots.extend(found.slots);
            placed.extend(with.iter_mut().map(|page| &mut **page));
        }
        self.write_runs(&slots, &mut placed);
        if coming == Coming::FromMemory {
            let refused = placed.iter().filter(|page| page.is_refused());
            refused.for_each(|page| uncharges.admitted_for(page.entry, page.group));
        }
    }

    /// The pages without a home that may have slots in areas. Charges them for the slots. The limits of each group
    /// apply in turn, and neighbours of one group are charged together.
    fn admit<'a, P>(
        &self,
        leaving: &'a mut [Leaving<P>],
        coming: Coming,
    ) -> Vec<&'a mut Leaving<P>> {
        let mut admitted = Vec::with_capacity(leaving.len());
        let alike =
            |a: &Leaving<P>, b: &Leaving<P>| a.group == b.group && are_alike(a.entry, b.entry);
        for run in leaving.chunk_by_mut(alike) {
            let homeless = run
                .iter_mut()
                .filter(|page| matches!(page.to, Destination::None { .. }));
            let mut homeless: Vec<&mut Leaving<P>> = homeless.collect();
            let count = match (coming, homeless.first()) {
                (Coming::FromMemory, Some(first)) => {
                    self.admit_to_areas(first.entry, first.group, homeless.len())
                }
                _ => homeless.len(),
            };
            for page in homeless.drain(count..) {
                page.to = page.to.or_limited(true);
            }
            admitted.append(&mut homeless);
        }
        admitted
    }

    /// Slots in the areas for the first of `entries`, for all if there is room. The pages are all of `group`, and all
    /// leave a slot of tier `from` or none. The group is charged in the tiers of the slots. A directly mapped page has
    /// its own slot. The entries are all directly mapped, or none is.
    pub(crate) fn slots_for(
        &self,
        cpu: usize,
        group: GroupIndex,
        from: Option<TierId>,
        entries: impl Iterator<Item = Entry>,
    ) -> Found {
        let entries: Vec<Entry> = entries.collect();
        if entries.first().is_some_and(|first| first.is_direct()) {
            debug_assert!(entries.iter().all(|entry| entry.is_direct()));
            return Found {
                slots: entries,
                is_limited: false,
            };
        }
        let payer = Payer::pages(&self.groups, group, from);
        slots_from(entries.into_iter(), &payer, |words| {
            self.areas.allocate(cpu, words, &payer)
        })
    }

    /// Writes one page to each of `slots`, and each row of neighbours at once. Slots that could not be written are no
    /// longer charged in their tiers.
    pub(crate) fn write_runs<P>(&self, slots: &[Entry], mut pages: &mut [&mut Leaving<P>])
    where
        P: Deref<Target = Page>,
    {
        for run in slots.chunk_by(|&a, &b| are_neighbours(a, b)) {
            let (of_run, rest) = pages.split_at_mut(run.len());
            self.write_run(run, of_run);
            pages = rest;
        }
    }

    /// Writes pages to the neighbouring slots of `run`. If that fails the slots are given back, except those that page
    /// tables name.
    fn write_run<P>(&self, run: &[Entry], pages: &mut [&mut Leaving<P>])
    where
        P: Deref<Target = Page>,
    {
        let Some(&first) = run.first() else { return };
        self.at_storage.pass();
        let written = if pages.iter().any(|page| page.is_packed()) {
            let payloads: Vec<&[u8]> = pages.iter().map(|page| page.payload()).collect();
            self.areas.write_packed(first, &payloads)
        } else {
            let content: Vec<&Page> = pages.iter().map(|page| &*page.page).collect();
            self.areas.write(first, &content)
        };
        for (page, &slot) in pages.iter_mut().zip(run) {
            page.to = match written {
                Ok(()) => Destination::Stored(Stored::Physical(slot), Written::Physical),
                Err(error) => {
                    if slot != page.entry {
                        self.lose_unwritten(slot, page.group, page.from);
                    }
                    Destination::Refused(error)
                }
            };
        }
    }
}

/// Slots that were found for pages of one group.
pub(crate) struct Found {
    /// For the first of the pages.
    pub(crate) slots: Vec<Entry>,
    /// The group may have no more of some tier. If a page got no slot, this may be the reason.
    pub(crate) is_limited: bool,
}

/// Slots for the pages of the first of `entries`, all of them the payer's. Calls `allocate` for runs until it has none.
pub(crate) fn slots_from(
    entries: impl Iterator<Item = Entry>,
    payer: &Payer<'_>,
    mut allocate: impl FnMut(&[Word]) -> Option<(Entry, usize)>,
) -> Found {
    // No entry's offset is too wide for a word. If one were, its page would stay where it is.
    let words: Vec<Word> = entries
        .map(Entry::offset)
        .map_while(Word::pointer)
        .collect();
    let mut slots = Vec::with_capacity(words.len());
    while let Some((first, count)) = allocate(&words[slots.len()..]) {
        slots.extend((0..count).map(|at| first.behind(at)));
    }
    Found {
        slots,
        is_limited: payer.was_refused(),
    }
}

/// Whether slots can be found for both pages together.
pub(crate) fn have_one_payer<P>(a: &Leaving<P>, b: &Leaving<P>) -> bool {
    a.group == b.group && a.from == b.from && are_alike(a.entry, b.entry)
}

/// Whether both are virtual, or both directly mapped.
pub(crate) fn are_alike(a: Entry, b: Entry) -> bool {
    a.is_direct() == b.is_direct()
}
