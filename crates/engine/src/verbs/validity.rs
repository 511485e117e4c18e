//! A check of what holds for a whole engine while nobody else uses it.

use std::collections::HashSet;

use crate::engine::Engine;
use crate::groups::{GroupIndex, SlotsOf};
use crate::words::backing::Stored;
use crate::words::backing_word::place_fits;
use crate::words::entry::Entry;
use crate::words::slot::Kind;

/// What the slots that page tables name lead to. Each of these has only one slot.
#[derive(Debug, Default)]
struct Named {
    frames: HashSet<u32>,
    payloads: HashSet<u64>,
    slots: HashSet<Entry>,
}

impl Engine {
    /// Whether everything that the engine keeps agrees with itself: counters with what they count, lists with what is
    /// on them, and every slot with the frame, payload or physical slot that it names. For tests. Goes through
    /// everything, and nobody else may use the engine meanwhile. Frames, slots and pages in transit count as leaks.
    ///
    /// # Errors
    /// What does not agree.
    pub fn is_valid(&self) -> Result<(), String> {
        self.groups.is_valid(&self.slots_by_group())?;
        self.pool
            .is_valid()
            .map_err(|what| format!("pool: {what}"))?;
        let mut named = Named::default();
        for area in self.all_areas() {
            area.is_valid()?;
            for (id, record) in area.clusters() {
                for (entry, _) in area.used_in(id, record) {
                    self.note_named(entry, &mut named)
                        .map_err(|what| format!("{entry:?}: {what}"))?;
                }
            }
        }
        for area in self.all_areas() {
            for (id, record) in area.clusters() {
                for (slot, word) in area.used_in(id, record) {
                    if word.owner().is_some() && !named.slots.contains(&slot) {
                        return Err(format!(
                            "{slot:?} stands behind a slot that does not name it"
                        ));
                    }
                }
            }
        }
        let (payloads, stored) = (named.payloads.len(), self.pool.payloads());
        if payloads != stored {
            return Err(format!(
                "{stored} payloads in the pool, {payloads} are named"
            ));
        }
        Ok(())
    }

    /// Slots of physical areas in use, by group and tier.
    fn slots_by_group(&self) -> SlotsOf {
        let mut slots = SlotsOf::new();
        for (_, physical) in self.areas.all() {
            for (id, record) in physical.area.clusters() {
                for (slot, _) in physical.area.used_in(id, record) {
                    // A slot that nobody owns is found later.
                    let owner = self.areas.owner(slot);
                    let group = owner.map_or(GroupIndex::ROOT, |owner| self.group_of(owner));
                    *slots.entry((group, physical.tier())).or_default() += 1;
                }
            }
        }
        slots
    }

    /// Notes what a used slot names. No other slot may name it, and it must lead back.
    fn note_named(&self, entry: Entry, named: &mut Named) -> Result<(), String> {
        let (cluster, slot) = self.locate(entry).ok_or("no such cluster")?;
        let word = cluster.word(slot);
        if let Kind::Cached(frame) = word.kind()
            && !named.frames.insert(frame)
        {
            return Err(format!("frame {frame} is named twice"));
        }
        let stored = cluster
            .backing(slot)
            .and_then(|backing| backing.load().stored());
        let Some(stored) = stored else {
            return Ok(());
        };
        if !place_fits(entry, stored) {
            return Err(format!("{stored:?} does not fit"));
        }
        let is_right = match stored {
            Stored::Pool(handle) => named.payloads.insert(handle.raw()) && self.pool.holds(handle),
            Stored::Physical(own) if own == entry => true,
            Stored::Physical(physical) => {
                named.slots.insert(physical) && self.areas.owner(physical) == Some(entry)
            }
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("{stored:?} is another's, or nothing"))
        }
    }
}
