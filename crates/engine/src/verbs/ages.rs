//! What is kept of the ages of pages: shadows, and generations of the pool.

use super::lookup::Lookup;
use crate::engine::Engine;
use crate::words::backing::{Backing, Stored};
use crate::words::entry::Entry;
use crate::words::shadow::Shadow;
use crate::words::slot::Kind;

impl Engine {
    /// What the entry keeps of its page's age; `None` if it is free or nothing was known.
    #[must_use]
    pub fn shadow(&self, entry: Entry) -> Option<Shadow> {
        let (cluster, slot) = self.locate(entry)?;
        let shadow = match cluster.word(slot).kind() {
            Kind::Shadow(shadow) => shadow,
            // Between the look at the word and at the frame the frame may have gone to another slot: look with a hold.
            Kind::Cached(_) => match self.lookup(entry) {
                Lookup::Cached(frame) => self.frames.shadow(frame.index()),
                _ => match cluster.word(slot).kind() {
                    Kind::Shadow(shadow) => shadow,
                    _ => return None,
                },
            },
            _ => return None,
        };
        (shadow != Shadow::ABSENT).then_some(shadow)
    }

    /// Gives an entry another shadow: its page was in memory again and has left once more, unchanged. Takes the
    /// cluster's lock.
    pub fn set_shadow(&self, entry: Entry, shadow: Shadow) {
        let Some((mut cluster, slot)) = self.lock(entry) else {
            return;
        };
        let word = cluster.word(slot);
        match word.kind() {
            Kind::Shadow(_) => cluster.set_word(slot, word.into_shadow(shadow)),
            Kind::Cached(frame) => self.frames.set_shadow(frame, shadow),
            _ => {}
        }
    }

    /// Begins a generation: pages that are stored in the pool, or read in it, from here on are younger than all that
    /// were before. To be called as the pool is filled, some times for each time that its content is exchanged: ages
    /// are told apart as finely as this is called often.
    pub fn begin_generation(&self) {
        self.aging.begin(|| self.areas_to_age());
    }

    /// The word for bytes that were just stored.
    #[inline]
    pub(crate) fn backing_of(&self, stored: Stored) -> Backing {
        Backing::of(stored).touched(self.aging.youngest())
    }
}
