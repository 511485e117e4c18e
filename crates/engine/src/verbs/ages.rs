//! What is kept of the ages of pages: shadows, and generations of the pool.

use super::lookup::Lookup;
use crate::engine::Engine;
use crate::words::backing::{Backing, Stored};
use crate::words::entry::Entry;
use crate::words::shadow::Shadow;
use crate::words::slot::Kind;

impl Engine {
    /// What the entry keeps of its page's age. `None` if the entry is free or its age is unknown.
    #[must_use]
    pub fn shadow(&self, entry: Entry) -> Option<Shadow> {
        let (cluster, slot) = self.locate(entry)?;
        let shadow = match cluster.word(slot).kind() {
            Kind::Shadow(shadow) => shadow,
            // The frame may go to another slot between our look at the word and our look at the frame. So hold the
            // frame and look again.
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

    /// Gives an entry another shadow, when its page came back to memory and has left it again, unchanged. Takes the
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

    /// Begins a generation. Pages stored or read in the pool from here on are younger than all that were before. Call
    /// this as the pool fills, several times for each time that its content is exchanged. The more often it is called,
    /// the more finely ages are told apart.
    pub fn begin_generation(&self) {
        self.aging.begin(|| self.areas_to_age());
    }

    /// The backing word for bytes that were just stored.
    #[inline]
    pub(crate) fn backing_of(&self, stored: Stored) -> Backing {
        Backing::of(stored).touched(self.aging.youngest())
    }
}
