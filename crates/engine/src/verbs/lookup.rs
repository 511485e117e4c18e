//! Finding out where an entry's content is.
//!
//! A reference holds a frame in place. It is taken first, and then the slot's word is read again. So the content of
//! another entry is never returned.

use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::frames::FrameRef;
use crate::words::backing::Stored;
use crate::words::entry::{AreaId, Entry};
use crate::words::slot::Kind;

/// What [`Engine::lookup`] found.
#[derive(Debug)]
pub enum Lookup<'a> {
    /// The entry is free.
    Gone,
    /// The content is in this frame, which stays in place as long as the reference lives.
    Cached(FrameRef<'a>),
    /// The page is all zeros.
    Zero,
    /// The content is in the pool or in a physical area, or was a moment ago. Swap it in.
    Stored,
}

impl Engine {
    /// Finds out where an entry's content is. If it is in a frame, holds the frame. Takes no lock.
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

    /// A function of its own, so that looking up a virtual slot stays short.
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
            // The frame may have been reused between the two steps. While we hold it that cannot happen. So if the word
            // names the frame now, the frame has this slot's content.
            let again = cluster.word(slot);
            match frame {
                Some(frame) if again.frame() == Some(index) && again.count_field() > 0 => {
                    return Lookup::Cached(frame);
                }
                // The frame is already freed, and the word will say so in a moment: the owner changes the word before
                // it drops the frame.
                _ => word = again,
            }
        }
    }

    /// Whether the entry's content is only in a physical area right now, so that bringing it back may block. A hint: at
    /// the time of that call the content may be elsewhere. Takes no lock.
    #[inline]
    #[must_use]
    pub fn is_physical(&self, entry: Entry) -> bool {
        self.physical_of(entry).is_some()
    }

    /// The area that the entry's content is in, and in no other place. A hint in the same way.
    #[inline]
    #[must_use]
    pub fn area_of(&self, entry: Entry) -> Option<AreaId> {
        Some(self.physical_of(entry)?.area())
    }

    /// Whether an area's storage is on other machines, so that reading may take long.
    #[inline]
    #[must_use]
    pub fn is_far(&self, area: AreaId) -> bool {
        self.areas.is_far(area)
    }

    /// The physical slot, if the entry's content is only there. A hint.
    #[inline]
    pub(crate) fn physical_of(&self, entry: Entry) -> Option<Entry> {
        let (cluster, slot) = self.locate(entry)?;
        let Kind::Shadow(_) = cluster.word(slot).kind() else {
            // A page that was read ahead is also in a frame.
            return None;
        };
        match cluster.backing(slot)?.peek().stored() {
            Some(Stored::Physical(physical)) => Some(physical),
            _ => None,
        }
    }
}
