//! Copies of keys that may lack pages, and why. `mend.rs` looks at them in turn.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::slots::Home;

/// A copy of a key: number of the cluster of slots, and which copy.
pub(crate) type KeyCopy = (u64, usize);

/// Why a copy is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// Its node has lost pages of another key.
    Node,
    /// A page was not written there, because its node did not answer.
    Single,
    /// A page, or all of its key, was not there any more.
    Lost,
}

/// Copies that may lack pages.
#[derive(Debug, Default)]
pub(crate) struct Suspects(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    copies: BTreeMap<KeyCopy, Why>,
    /// Where the last look ended: a copy whose node does not answer must not keep the others waiting.
    last: Option<KeyCopy>,
}

impl Suspects {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, home: Home, copy: usize, why: Why) {
        let mut noted = self.lock();
        let known = noted.copies.entry((home.cluster, copy)).or_insert(why);
        *known = why.max(*known);
    }

    /// Takes out the next one.
    pub(crate) fn next(&self) -> Option<(KeyCopy, Why)> {
        let mut noted = self.lock();
        let after = noted.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = noted.copies.range((after, Bound::Unbounded));
        let found = behind.next().or_else(|| noted.copies.first_key_value());
        let (&copy, &why) = found?;
        noted.copies.remove(&copy);
        noted.last = Some(copy);
        Some((copy, why))
    }

    /// Whether the keys of a node that has lost some are still being looked at.
    pub(crate) fn has_of_node(&self) -> bool {
        self.lock().copies.values().any(|why| *why == Why::Node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(cluster: u64) -> Home {
        Home {
            cluster,
            base: 0,
            salt: 0,
        }
    }

    #[test]
    fn each_copy_has_its_turn_and_the_gravest_reason_counts() {
        let suspects = Suspects::default();
        assert_eq!(suspects.next(), None);
        for (cluster, why) in [(1, Why::Lost), (2, Why::Node), (1, Why::Node)] {
            suspects.note(home(cluster), 0, why);
        }
        suspects.note(home(2), 1, Why::Single);
        assert!(suspects.has_of_node());
        assert_eq!(suspects.next(), Some(((1, 0), Why::Lost)));
        suspects.note(home(1), 0, Why::Lost);
        assert_eq!(suspects.next(), Some(((2, 0), Why::Node)));
        assert!(!suspects.has_of_node());
        assert_eq!(suspects.next(), Some(((2, 1), Why::Single)));
        assert_eq!(suspects.next(), Some(((1, 0), Why::Lost)), "it waited");
        assert_eq!(suspects.next(), None);
    }
}
