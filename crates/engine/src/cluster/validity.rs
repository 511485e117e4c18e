//! Checks of what always holds for a cluster while its lock is held.

use super::guard::ClusterGuard;
use crate::groups::GroupIndex;
use crate::words::backing::Backing;
use crate::words::geometry::SLOTS_PER_CLUSTER;
use crate::words::slot::{COUNT_OVERFLOW, Kind, Word};

impl ClusterGuard<'_> {
    /// Checks that the counters fit each other. Cheap: looks at no word.
    pub(super) fn are_counters_valid(&self) -> Result<(), String> {
        let state = &*self.state;
        let in_runs = usize::from(state.runs) * self.order().slots();
        let fit = usize::from(state.used) <= SLOTS_PER_CLUSTER
            && self.mapped() <= state.used
            && state.zero <= self.mapped()
            && usize::from(state.cursor) < SLOTS_PER_CLUSTER
            && in_runs <= self.free_slots()
            && (state.runs == 0 || !self.order().is_slot());
        if fit {
            Ok(())
        } else {
            Err(format!(
                "counters do not fit: {} used, {} mapped, {} zero, {} runs of {:?}, cursor at {}",
                state.used,
                self.mapped(),
                state.zero,
                state.runs,
                self.order(),
                state.cursor
            ))
        }
    }

    /// Checks that counters and tables agree with the words, and that each slot is in a state of the table in
    /// `transition.rs`. Looks at every slot.
    pub(crate) fn is_valid(&self) -> Result<(), String> {
        self.are_counters_valid()?;
        let count = |is: &dyn Fn(Word) -> bool| {
            let slots = (0..SLOTS_PER_CLUSTER).filter(|&slot| is(self.word(slot)));
            slots.count()
        };
        let state = &*self.state;
        let counters = [
            ("used", state.used, count(&|word| word != Word::NULL)),
            ("zero", state.zero, count(&Word::is_zero)),
            ("mapped", self.mapped(), count(&Word::is_used)),
            ("runs", state.runs, self.free_runs()),
        ];
        for (name, says, is) in counters {
            if usize::from(says) != is {
                return Err(format!("{name} is {is}, and its counter says {says}"));
            }
        }
        let mut is_extended = false;
        for slot in 0..SLOTS_PER_CLUSTER {
            self.is_slot_valid(slot)
                .map_err(|what| format!("slot {slot}, {:?}: {what}", self.word(slot).kind()))?;
            is_extended |= self.word(slot).count_field() == COUNT_OVERFLOW;
        }
        if is_extended != state.extend.is_some() {
            return Err(format!("is a count extended: {is_extended}, and the table"));
        }
        Ok(())
    }

    /// Number of free runs of the cluster's order. 0 in order 0, where runs are not counted.
    fn free_runs(&self) -> usize {
        let slots = self.order().slots();
        if self.order().is_slot() {
            return 0;
        }
        let is_free = |slot| self.word(slot) == Word::NULL;
        let starts = (0..SLOTS_PER_CLUSTER).step_by(slots);
        starts
            .filter(|&first| (first..first + slots).all(is_free))
            .count()
    }

    fn is_slot_valid(&self, slot: usize) -> Result<(), String> {
        let (word, backing) = (self.word(slot), self.backing(slot));
        let extended = self.state.extend.as_ref().map_or(0, |extend| extend[slot]);
        if (word.count_field() == COUNT_OVERFLOW) != (extended >= u32::from(COUNT_OVERFLOW)) {
            return Err(format!("the extend table says {extended}"));
        }
        if !word.is_used() && backing != Backing::NONE {
            return Err(format!("{backing:?} is behind it"));
        }
        if !word.is_used() && self.state.groups.of(slot) != GroupIndex::ROOT {
            return Err("it is a group's".into());
        }
        let is_stored = backing.stored().is_some();
        match word.kind() {
            Kind::Invalid => Err(format!("{:#x}", word.raw())),
            _ if word.is_zero() && is_stored => Err("zero and stored".into()),
            _ if backing.is_abandoned() != (is_stored && word.count_field() == 0) => {
                Err(format!("{backing:?} with count {}", word.count_field()))
            }
            Kind::Shadow(_) if !is_stored && !word.is_zero() => Err("its page is lost".into()),
            _ => Ok(()),
        }
    }
}
