//! The designs that the engine is compared with. The kernel's swap has given them up. Each is the engine's own design
//! but for one thing. They know slots, frames and counts, and nothing of content, shadows or storage.

mod count_map;
mod engine;
mod frames;
mod global_tree;
mod slot_cache;
mod slots;
mod table;

pub(crate) use count_map::CountMap;
pub(crate) use engine::Real;
pub(crate) use global_tree::GlobalTree;
pub(crate) use slot_cache::SlotCache;
pub(crate) use table::SwapTable;

/// Frames of every variant: more than all threads of a load ever hold.
pub(crate) const FRAMES: u32 = 1 << 16;
/// Slots of a variant's area, 4 GiB. The engine's virtual area has no size.
pub(crate) const SLOTS: usize = 1 << 20;

/// What a load asks of a variant.
pub(crate) trait Variant: Sync {
    /// Takes a frame and a slot for it, with count 1.
    fn alloc(&self, cpu: usize) -> Option<u64>;
    /// Finds a slot's frame and holds it for a moment. False if the slot is free.
    fn lookup(&self, slot: u64) -> bool;
    /// Adds a reference to a slot that has one.
    fn dup(&self, slot: u64);
    /// Takes a reference away. With the last one, slot and frame are freed.
    fn put(&self, slot: u64);
    /// Bytes of everything but the frames' content.
    fn table_bytes(&self) -> u64;
    /// Slots and frames in use.
    #[cfg(test)]
    fn used(&self) -> (usize, usize);
}

const COUNT_SHIFT: u32 = 60;
const FRAME_SHIFT: u32 = 2;
const CACHED: u64 = 0b10;

/// A variant's slot word, laid out like the engine's: count on top, frame number above a mark. Counts of a load stay
/// below 15, so there is no extend table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word(u64);

impl Word {
    const fn new(frame: u32, count: u64) -> Word {
        Word(count << COUNT_SHIFT | (frame as u64) << FRAME_SHIFT | CACHED)
    }

    const fn is_cached(self) -> bool {
        self.0 & CACHED != 0
    }

    #[expect(clippy::cast_possible_truncation, reason = "the frame's 32 bits")]
    const fn frame(self) -> u32 {
        (self.0 >> FRAME_SHIFT) as u32
    }

    const fn count(self) -> u64 {
        self.0 >> COUNT_SHIFT
    }

    const fn counted(self, by: i64) -> Word {
        Word(self.0.wrapping_add_signed(by << COUNT_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use crate::random::Random;

    use super::*;

    const CPUS: usize = 2;
    const THREADS: usize = 4;
    const STEPS: usize = 20_000;

    fn all() -> Vec<(&'static str, Box<dyn Variant>)> {
        vec![
            ("engine", Box::new(Real::new(CPUS).unwrap())),
            ("table", Box::new(SwapTable::new(CPUS))),
            ("tree", Box::new(GlobalTree::new(CPUS))),
            ("map", Box::new(CountMap::new(CPUS))),
            ("cache", Box::new(SlotCache::new(CPUS))),
        ]
    }

    /// Allocates, shares and frees at random, and checks the slots that it holds.
    fn exercise(variant: &dyn Variant, thread: usize) {
        let mut random = Random::new(thread as u64);
        let mut held: Vec<u64> = Vec::new();
        for _ in 0..STEPS {
            if held.len() < 700 || random.below(2) == 0 {
                held.push(variant.alloc(thread).unwrap());
            } else {
                let slot = held.swap_remove(random.below(held.len()));
                variant.dup(slot);
                variant.put(slot);
                assert!(variant.lookup(slot));
                variant.put(slot);
            }
        }
        for slot in held {
            assert!(variant.lookup(slot));
            variant.put(slot);
        }
    }

    #[test]
    fn all_do_the_same() {
        for (name, variant) in all() {
            let (first, second) = (variant.alloc(0).unwrap(), variant.alloc(1).unwrap());
            assert_ne!(first, second, "{name}");
            assert_eq!(variant.used(), (2, 2), "{name}");
            variant.dup(first);
            variant.put(first);
            assert!(variant.lookup(first) && variant.lookup(second), "{name}");
            variant.put(first);
            assert!(!variant.lookup(first) && variant.lookup(second), "{name}");
            variant.put(second);
            assert_eq!(variant.used(), (0, 0), "{name}");
            assert!(variant.table_bytes() > 0, "{name}");
        }
    }

    #[test]
    fn nothing_is_lost_among_threads() {
        for (name, variant) in all() {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let variant = &*variant;
                    scope.spawn(move || exercise(variant, thread));
                }
            });
            assert_eq!(variant.used(), (0, 0), "{name}");
        }
    }

    #[test]
    fn frames_run_out_and_slots_are_given_back() {
        for (name, variant) in all() {
            let held: Vec<u64> = std::iter::from_fn(|| variant.alloc(0)).collect();
            assert_eq!(held.len(), FRAMES as usize, "{name}");
            held.iter().for_each(|&slot| variant.put(slot));
            assert_eq!(variant.used(), (0, 0), "{name}");
        }
    }
}
