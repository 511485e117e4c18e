//! Finding out where an entry's content is.
//!
//! A frame is held by a reference. It is taken first and the slot looked at again, so that the content of another entry
//! is never returned.

use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::frames::FrameRef;
use crate::words::backing::Stored;
use crate::words::entry::Entry;
use crate::words::slot::Kind;

/// What [`Engine::lookup`] found.
#[derive(Debug)]
pub enum Lookup<'a> {
    /// The entry is free.
    Gone,
    /// The content is in this frame, held in place as long as the reference lives.
    Cached(FrameRef<'a>),
    /// The page is all zeros.
    Zero,
    /// The content is in the pool or in a physical area (or was, a moment ago): swap it in.
    Stored,
}

impl Engine {
    /// Finds out where an entry's content is, and holds the frame if it is in one. Takes no lock.
    #[inline]
    pub fn lookup(&self, entry: Entry) -> Lookup<'_> {
        if entry.is_direct() {
            return self.lookup_direct(entry);
        }
        match self.virtual_area.locate_own(entry) {
            Some((cluster, slot)) => self.lookup_at(cluster, slot),
            None => Lookup::Gone,
        }
    }

    /// Apart, so that looking up a virtual slot stays short.
    #[cold]
    #[inline(never)]
    fn lookup_direct(&self, entry: Entry) -> Lookup<'_> {
        match self.locate(entry) {
            Some((cluster, slot)) => self.lookup_at(cluster, slot),
            None => Lookup::Gone,
        }
    }

    #[inline]
    fn lookup_at(&self, cluster: &Cluster, slot: usize) -> Lookup<'_> {
        let mut word = cluster.word(slot);
        loop {
            if word.count_field() == 0 {
                return Lookup::Gone;
            }
            let Kind::Cached(index) = word.kind() else {
                return if word.is_zero() {
                    Lookup::Zero
                } else {
                    Lookup::Stored
                };
            };
            let frame = self.frames.try_get(index);
            // The frame was perhaps reused between the two steps. While we hold it, it cannot be; so if the word names
            // it now, its content is this slot's.
            let again = cluster.word(slot);
            match frame {
                Some(frame) if again.frame() == Some(index) && again.count_field() > 0 => {
                    return Lookup::Cached(frame);
                }
                // Freed already, and the word says so in a moment: the owner changes it before it drops the frame.
                _ => word = again,
            }
        }
    }

    /// Whether the entry's content lies in a physical area just now, so that bringing it back may block. A hint: by the
    /// time of the call it may lie elsewhere. Takes no lock.
    #[inline]
    #[must_use]
    pub fn is_physical(&self, entry: Entry) -> bool {
        self.physical_of(entry).is_some()
    }

    /// The physical slot that the entry's content lies in alone; a hint.
    #[inline]
    pub(crate) fn physical_of(&self, entry: Entry) -> Option<Entry> {
        let (cluster, slot) = self.locate(entry)?;
        let Kind::Shadow(_) = cluster.word(slot).kind() else {
            // One that was read ahead is in a frame as well.
            return None;
        };
        match cluster.backing(slot)?.peek().stored() {
            Some(Stored::Physical(physical)) => Some(physical),
            _ => None,
        }
    }
}
