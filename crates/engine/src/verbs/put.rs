//! Putting references. With the last one everything behind an entry is freed.
//!
//! It is freed at once, or by the thread that is just writing the page out or reading it, when that thread finds that
//! nobody wants the page any more. Many references are often put in a row (a range is unmapped, a process ends). Then
//! the charges of neighbouring pages are taken back together.

use super::charge::Uncharges;
use crate::cluster::{ClusterGuard, Left};
use crate::engine::Engine;
use crate::groups::GroupIndex;
use crate::words::backing::Stored;
use crate::words::entry::Entry;
use crate::words::shadow::Shadow;
use crate::words::tier::TierId;

/// Puts many references. What was behind a last reference is free at once. Groups are uncharged by the time this is
/// dropped.
#[derive(Debug)]
pub struct Puts<'a> {
    engine: &'a Engine,
    uncharges: Uncharges<'a>,
}

/// The charge for the page of a freed slot, and the bytes that are still to be freed.
struct Charged {
    group: GroupIndex,
    stored: Option<Stored>,
    /// The tier of the slot itself, if it was directly mapped.
    own: Option<TierId>,
}

impl Engine {
    /// Takes a reference away. Does nothing to a free entry.
    pub fn put(&self, entry: Entry) {
        if let Some(Charged { group, stored, own }) = self.put_slot(entry) {
            let mut uncharges = Uncharges::new(&self.groups);
            self.lose_all(entry, group, stored, own, &mut uncharges);
        }
    }

    /// Takes many references away, one after the other.
    #[must_use]
    pub fn puts(&self) -> Puts<'_> {
        Puts {
            engine: self,
            uncharges: Uncharges::new(&self.groups),
        }
    }

    /// Takes a reference away. If it was the last, frees slot and frame and returns what is left.
    #[inline]
    fn put_slot(&self, entry: Entry) -> Option<Charged> {
        let (mut cluster, slot) = self.lock(entry)?;
        if cluster.put(slot) != Some(0) {
            return None;
        }
        self.free(cluster, entry, slot)
    }

    /// Frees a slot whose count is 0, unless another thread is using its content and will free it.
    #[inline]
    fn free(&self, mut cluster: ClusterGuard<'_>, entry: Entry, slot: usize) -> Option<Charged> {
        let word = cluster.word(slot);
        let frame = word.frame();
        if frame.is_some_and(|index| self.frames.is_claimed(index)) {
            // The writer finds count 0 when it gives its claim back, which it does under this lock.
            return None;
        }
        let group = cluster.state.groups.of(slot);
        let left = cluster.take_backing(slot);
        let mut own = None;
        match left {
            Left::ToReaders if frame.is_some() => {
                // The readers free the slot. We free the frame, which holds a clean copy.
                cluster.set_word(slot, word.into_shadow(Shadow::ABSENT));
            }
            Left::ToReaders => {}
            Left::Here(_) => own = self.release_slot(&mut cluster, entry),
        }
        drop(cluster);
        if let Some(index) = frame {
            self.frames.release(index);
        }
        match left {
            // Most slots freed while their page is in memory have cost their group nothing.
            Left::Here(stored) if stored.is_some() || own.is_some() => {
                Some(Charged { group, stored, own })
            }
            Left::Here(_) | Left::ToReaders => None,
        }
    }
}

impl Puts<'_> {
    /// Like [`Engine::put`].
    pub fn put(&mut self, entry: Entry) {
        let engine = self.engine;
        if let Some(Charged { group, stored, own }) = engine.put_slot(entry) {
            engine.lose_all(entry, group, stored, own, &mut self.uncharges);
        }
    }
}
