//! Giving a stored page another home: the last step of writing back, of demotion, of packing again, and of swapping an
//! area off.
//!
//! Whoever moves a page has pinned and copied what is behind its slot, and now says where the page is instead. One
//! compare-exchange of the backing word decides. It happens under the lock of the slot's cluster, which keeps puts
//! away, and succeeds only while nobody else has the bytes pinned. So afterwards the old bytes belong to the mover
//! alone. If the last reference was put meanwhile, or if the page was read and that matters, the word says so. Then the
//! new home is freed, and unpinning does the rest. Every move to another kind of place ends in [`Engine::settle`].

use std::ops::Deref;

use super::charge::Uncharges;
use super::leaving::{Destination, Leaving};
use crate::base::pages::Page;
use crate::base::sync::yield_now;
use crate::cluster::Exchanged;
use crate::engine::Engine;
use crate::words::backing::Backing;
use crate::words::backing_word::place_fits;
use crate::words::entry::Entry;

/// How often to try a page that others are reading before leaving it where it is. They need it for one request of a
/// device, and other pages are waiting.
const EXCHANGE_TRIES_MAX: usize = 8;

/// What became of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The page has its new home, and the old place is free.
    Moved,
    /// Others use or used the page, or its last reference was put.
    Held,
    /// An area failed to take the page.
    Refused,
    NoRoom,
}

impl Engine {
    /// Makes a page's new home known, or lets go of the page where it is. The caller has its bytes pinned at `old`.
    /// What the page has given up is free afterwards, and no longer charged once `uncharges` is dropped.
    pub(crate) fn settle<P>(
        &self,
        old: Backing,
        page: &Leaving<P>,
        uncharges: &mut Uncharges<'_>,
    ) -> Settled
    where
        P: Deref<Target = Page>,
    {
        let home = match page.to {
            Destination::Zero => None,
            Destination::Stored(stored, _) => Some(stored),
            Destination::None { .. } | Destination::Refused(_) => {
                self.unpin_entry(page.entry);
                return if page.is_refused() {
                    Settled::Refused
                } else {
                    Settled::NoRoom
                };
            }
        };
        // Now, because neither place may be in use afterwards.
        let common = self.common_charges(old.stored(), home);
        debug_assert!(home.is_none_or(|home| place_fits(page.entry, home)));
        let new = home.map_or(Backing::NONE, |stored| self.backing_of(stored));
        let is_moved = self.exchange(page.entry, old, new);
        let lost = if is_moved {
            old.stored()
        } else {
            self.unpin_entry(page.entry);
            home
        };
        if let Some(lost) = lost {
            self.lose_one_of_two(page.entry, page.group, lost, common, uncharges);
        }
        if is_moved {
            Settled::Moved
        } else {
            Settled::Held
        }
    }

    /// Exchanges what is behind an entry, and what the caller has pinned, for what it is from now on. A word that names
    /// nothing stands for the zero flag. False if the word differs from `old` in more than pins, or if others keep
    /// reading the bytes. Then nothing has changed.
    pub(crate) fn exchange(&self, entry: Entry, old: Backing, new: Backing) -> bool {
        for _ in 0..EXCHANGE_TRIES_MAX {
            let Some((mut cluster, slot)) = self.lock(entry) else {
                return false;
            };
            match cluster.exchange_backing(slot, old, new) {
                Exchanged::Changed => return false,
                Exchanged::Shared => {}
                Exchanged::Done => {
                    if new.stored().is_none() {
                        // A reader that finds nothing behind the slot looks again under the lock, which we hold.
                        let zero = cluster.word(slot).with_zero(true);
                        cluster.set_word(slot, zero);
                    }
                    return true;
                }
            }
            drop(cluster);
            yield_now();
        }
        false
    }
}
