//! What each space has in memory, as far as the governor knows.
//!
//! A look at one takes about a microsecond, so looks at all would be the governor's whole time with thousands of
//! processes. Nearly all of these sleep. So it looks at those that changed lately, and at some of the others in turn.

use std::collections::HashMap;
use std::sync::Arc;

use crate::space::Space;

/// How many of those that seem to sleep are looked at in one sample.
const IN_TURN: usize = 128;
/// A space that has changed is looked at in so many samples from then on.
const LIVELY_SAMPLES: u64 = 64;

/// What was seen last of each space.
#[derive(Debug, Default)]
pub struct Residents {
    /// By the space's id.
    seen: HashMap<u64, Seen>,
    sample: u64,
    /// The id of the first space that is looked at in turn.
    turn: u64,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    bytes: u64,
    changed_in: u64,
    /// The last sample in which the space was in the list.
    listed_in: u64,
}

impl Residents {
    /// Take a sample of `spaces`, in the order of their ids. `read` tells what one has in memory.
    pub fn look<'a>(
        &mut self,
        spaces: &'a [Arc<Space>],
        read: impl Fn(&Space) -> u64,
    ) -> Vec<(u64, &'a Arc<Space>)> {
        self.sample += 1;
        let ids: Vec<u64> = spaces.iter().map(|space| space.id).collect();
        let in_turn = self.in_turn(&ids);
        let looked = spaces.iter().enumerate().map(|(place, space)| {
            let bytes = self.bytes(space.id, in_turn(place), || read(space));
            (bytes, space)
        });
        let looked = looked.collect();
        self.forget_ended(spaces.len());
        looked
    }

    /// Which places of the list are to be looked at in turn. All of them, if they are few.
    fn in_turn(&mut self, ids: &[u64]) -> impl Fn(usize) -> bool + use<> {
        let count = ids.len();
        let first = ids.partition_point(|id| *id < self.turn) % count.max(1);
        self.turn = ids
            .get((first + IN_TURN) % count.max(1))
            .copied()
            .unwrap_or(0);
        move |place| (place + count - first) % count < IN_TURN
    }

    fn bytes(&mut self, id: u64, is_in_turn: bool, read: impl FnOnce() -> u64) -> u64 {
        let sample = self.sample;
        let Some(seen) = self.seen.get_mut(&id) else {
            let bytes = read();
            let new = Seen {
                bytes,
                changed_in: sample,
                listed_in: sample,
            };
            self.seen.insert(id, new);
            return bytes;
        };
        seen.listed_in = sample;
        if is_in_turn || sample - seen.changed_in < LIVELY_SAMPLES {
            let bytes = read();
            if bytes != seen.bytes {
                (seen.bytes, seen.changed_in) = (bytes, sample);
            }
        }
        seen.bytes
    }

    fn forget_ended(&mut self, listed: usize) {
        if self.seen.len() > listed {
            let sample = self.sample;
            self.seen.retain(|_, seen| seen.listed_in == sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The ids that were looked at in a sample.
    fn looked_at(residents: &mut Residents, bytes: &HashMap<u64, u64>) -> Vec<u64> {
        residents.sample += 1;
        let mut ids: Vec<u64> = bytes.keys().copied().collect();
        ids.sort_unstable();
        let in_turn = residents.in_turn(&ids);
        let looked = RefCell::new(Vec::new());
        for (place, id) in ids.iter().enumerate() {
            let known = residents.bytes(*id, in_turn(place), || {
                looked.borrow_mut().push(*id);
                bytes[id]
            });
            assert!(known == bytes[id] || !looked.borrow().contains(id));
        }
        residents.forget_ended(ids.len());
        looked.into_inner()
    }

    #[test]
    fn each_comes_in_turn_and_who_grows_is_looked_at_all_the_time() {
        let mut residents = Residents::default();
        let mut bytes: HashMap<u64, u64> = (0..1000).map(|id| (id, 4096)).collect();
        assert_eq!(looked_at(&mut residents, &bytes).len(), 1000, "all are new");
        for _ in 1..LIVELY_SAMPLES {
            assert_eq!(looked_at(&mut residents, &bytes).len(), 1000, "it is early");
        }
        let mut seen: Vec<u64> = (0..8)
            .flat_map(|_| looked_at(&mut residents, &bytes))
            .collect();
        assert_eq!(seen.len(), 8 * IN_TURN);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000, "none is left out");
        bytes.insert(700, 8192);
        let noticed = (0..8).position(|_| looked_at(&mut residents, &bytes).contains(&700));
        assert!(noticed.is_some());
        for _ in 0..8 {
            assert!(looked_at(&mut residents, &bytes).contains(&700));
        }
    }

    #[test]
    fn few_are_all_looked_at_and_who_ends_is_forgotten() {
        let mut residents = Residents::default();
        let mut bytes: HashMap<u64, u64> = (0..IN_TURN as u64).map(|id| (id, 1)).collect();
        for _ in 0..100 {
            assert_eq!(looked_at(&mut residents, &bytes).len(), IN_TURN);
        }
        bytes.clear();
        assert!(looked_at(&mut residents, &bytes).is_empty());
        assert!(residents.seen.is_empty());
    }
}
