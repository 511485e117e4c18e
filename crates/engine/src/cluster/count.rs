//! Counts of references: up to 14 in the slot word, above that in the cluster's extend table.
//!
//! The extend table is made when the first slot of a cluster gets its 15th reference. It is freed when the last such
//! slot falls back to 14. The cluster's lock guards both word and table, so a count is exact only under that lock.

use super::guard::ClusterGuard;
use crate::base::sync::try_boxed_array;
use crate::words::slot::{COUNT_INLINE_MAX, COUNT_OVERFLOW};

/// Why a reference could not be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DupError {
    /// The slot is free.
    #[error(
        "the entry is not in use, expected one with a count of 1 or more: it was put before it was duplicated"
    )]
    Gone,
    /// No memory for the extend table.
    #[error(
        "no memory for the table of counts beyond {COUNT_INLINE_MAX}: raise the limit or let processes end"
    )]
    NoMemory,
    /// The count already has the largest possible value.
    #[error("the entry has {} sharers, the most there can be", u32::MAX)]
    TooMany,
}

impl ClusterGuard<'_> {
    /// The exact count of a slot. 0 if the slot is free.
    pub(crate) fn count(&self, slot: usize) -> u32 {
        match self.word(slot).count_field() {
            COUNT_OVERFLOW => self.state.extend.as_ref().map_or(0, |extend| extend[slot]),
            count => u32::from(count),
        }
    }

    /// Adds a reference to a slot that already has one.
    pub(crate) fn dup(&mut self, slot: usize) -> Result<(), DupError> {
        let word = self.word(slot);
        match word.count_field() {
            0 => return Err(DupError::Gone),
            COUNT_OVERFLOW => {
                let extend = self.state.extend.as_mut().ok_or(DupError::Gone)?;
                extend[slot] = extend[slot].checked_add(1).ok_or(DupError::TooMany)?;
            }
            COUNT_INLINE_MAX => {
                if self.state.extend.is_none() {
                    self.state.extend = Some(try_boxed_array(|_| 0).ok_or(DupError::NoMemory)?);
                }
                if let Some(extend) = self.state.extend.as_mut() {
                    extend[slot] = u32::from(COUNT_OVERFLOW);
                }
                self.set_word(slot, word.with_count_field(COUNT_OVERFLOW));
            }
            count => self.set_word(slot, word.with_count_field(count + 1)),
        }
        Ok(())
    }

    /// Takes a reference away and returns how many are left. `None` if there was none. At 0 the slot stays used.
    pub(crate) fn put(&mut self, slot: usize) -> Option<u32> {
        let word = self.word(slot);
        match word.count_field() {
            0 => None,
            COUNT_OVERFLOW => {
                let extend = self.state.extend.as_mut()?;
                extend[slot] -= 1;
                let left = extend[slot];
                if left == u32::from(COUNT_INLINE_MAX) {
                    extend[slot] = 0;
                    if extend.iter().all(|&count| count == 0) {
                        self.state.extend = None;
                    }
                    self.set_word(slot, word.with_count_field(COUNT_INLINE_MAX));
                }
                Some(left)
            }
            count => {
                self.set_word(slot, word.with_count_field(count - 1));
                Some(u32::from(count - 1))
            }
        }
    }
}
