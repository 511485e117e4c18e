//! References are taken away; with the last one everything behind an entry is freed.
//!
//! At once, or by the thread that is just writing the page out or reading it, which finds that nobody wants it any
//! longer. Many references are taken away in a row (a range is unmapped, a process ends), and what groups are charged
//! for their pages is taken back for neighbours together.

use crate::charge::Uncharges;
use crate::cluster::ClusterGuard;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::shadow::Shadow;
use crate::transition::Left;

impl Engine {
    /// Takes a reference away. An entry that is free is left alone.
    pub fn put(&self, entry: Entry) {
        self.puts().put(entry);
    }

    /// Takes many references away, one after the other.
    #[must_use]
    pub fn puts(&self) -> Puts<'_> {
        Puts {
            engine: self,
            uncharges: Uncharges::new(&self.groups),
        }
    }
}

/// References that are being taken away. What was behind the last ones is free at once; groups are uncharged at the
/// latest when this is dropped.
#[derive(Debug)]
pub struct Puts<'a> {
    engine: &'a Engine,
    uncharges: Uncharges<'a>,
}

impl Puts<'_> {
    /// As [`Engine::put`].
    #[inline]
    pub fn put(&mut self, entry: Entry) {
        let Some((mut cluster, slot)) = self.engine.lock(entry) else {
            return;
        };
        if cluster.put(slot) == Some(0) {
            self.free(cluster, entry, slot);
        }
    }

    /// Frees a slot whose count is 0, unless somebody is at its content and will.
    #[inline]
    fn free(&mut self, mut cluster: ClusterGuard<'_>, entry: Entry, slot: usize) {
        let engine = self.engine;
        let word = cluster.word(slot);
        let frame = word.frame();
        if frame.is_some_and(|index| engine.frames.is_claimed(index)) {
            // The writer finds count 0 when it gives the claim back, which it does under this lock.
            return;
        }
        let group = cluster.group(slot);
        let left = cluster.take_backing(slot);
        match left {
            Left::ToReaders if frame.is_some() => {
                // They free the slot; a clean copy of its content is ours to free.
                cluster.set_word(slot, word.into_shadow(Shadow::ABSENT));
            }
            Left::ToReaders => {}
            Left::Here(_) => engine.release_slot(&mut cluster, entry),
        }
        drop(cluster);
        if let Some(index) = frame {
            engine.frames.release(index);
        }
        if let Left::Here(stored) = left {
            engine.lose_all(entry, group, stored, &mut self.uncharges);
        }
    }
}
