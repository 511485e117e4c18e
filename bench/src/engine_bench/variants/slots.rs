//! Slots for the variants, like the engine's: clusters with a lock and a table of words, a cluster for each processor
//! to allocate from, and a list of clusters with room.
//!
//! What the variants do not differ in is left out: tables of empty clusters are not given back, and clusters with few
//! free slots wait until they have many.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crossbeam_utils::CachePadded;

use super::Word;

/// As in the engine and the kernel.
const SLOTS_PER_CLUSTER: usize = 512;
/// Free slots that a cluster must have before slots are allocated from it again: the engine's number.
const NONFULL_FREE_MIN: usize = SLOTS_PER_CLUSTER / 8;
const NO_CLUSTER: u32 = u32::MAX;
/// A free slot.
const FREE: u64 = 0;

type Table = [AtomicU64; SLOTS_PER_CLUSTER];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Place {
    /// Never used, or waiting until more slots are freed.
    #[default]
    Aside,
    Current,
    Listed,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    cursor: usize,
    place: Place,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Cluster {
    state: Mutex<State>,
    table: OnceLock<Box<Table>>,
}

#[derive(Debug)]
struct Lists {
    nonfull: Vec<u32>,
    /// The first cluster that was never used.
    end: u32,
}

/// An area's slots, by number.
#[derive(Debug)]
pub(crate) struct Slots {
    clusters: Box<[Cluster]>,
    currents: Box<[CachePadded<AtomicU32>]>,
    lists: Mutex<Lists>,
}

/// A slot whose cluster is locked.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    word: &'a AtomicU64,
    state: MutexGuard<'a, State>,
}

impl Locked<'_> {
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Ordering::Relaxed))
    }

    fn set_word(&self, word: Word) {
        self.word.store(word.0, Ordering::Release);
    }
}

impl Slots {
    pub(crate) fn new(slots: usize, cpus: usize) -> Slots {
        let none = || CachePadded::new(AtomicU32::new(NO_CLUSTER));
        Slots {
            clusters: (0..slots.div_ceil(SLOTS_PER_CLUSTER))
                .map(|_| Cluster::default())
                .collect(),
            currents: (0..cpus.max(1)).map(|_| none()).collect(),
            lists: Mutex::new(Lists {
                nonfull: Vec::new(),
                end: 0,
            }),
        }
    }

    /// Takes a free slot and gives it `word`.
    pub(crate) fn take(&self, cpu: usize, word: Word) -> Option<u64> {
        let mut taken = None;
        self.take_several(cpu, word, 1, |slot| taken = Some(slot));
        taken
    }

    /// Takes up to `count` free slots of one cluster and gives them `word`. Takes at least one, unless all slots are in
    /// use.
    pub(crate) fn take_several(
        &self,
        cpu: usize,
        word: Word,
        count: usize,
        mut each: impl FnMut(u64),
    ) {
        let current = &self.currents[cpu % self.currents.len()];
        loop {
            let id = current.load(Ordering::Acquire);
            if self.take_from(id, word, count, &mut each) {
                return;
            }
            let Some(fresh) = self.next_cluster() else {
                return;
            };
            let order = Ordering::AcqRel;
            if current
                .compare_exchange(id, fresh, order, Ordering::Relaxed)
                .is_err()
            {
                // Another thread on this processor was faster.
                self.list(fresh);
            }
        }
    }

    fn take_from(&self, id: u32, word: Word, count: usize, each: &mut impl FnMut(u64)) -> bool {
        let Some((cluster, table)) = self.cluster(id) else {
            return false;
        };
        let mut state = lock(&cluster.state);
        if state.place != Place::Current {
            return false;
        }
        let mut any = false;
        for _ in 0..count.min(SLOTS_PER_CLUSTER - state.used) {
            let is_free = |slot: &usize| table[*slot].load(Ordering::Relaxed) == FREE;
            let ahead = (state.cursor..SLOTS_PER_CLUSTER).find(is_free);
            let Some(slot) = ahead.or_else(|| (0..state.cursor).find(is_free)) else {
                break;
            };
            state.used += 1;
            state.cursor = (slot + 1) % SLOTS_PER_CLUSTER;
            table[slot].store(word.0, Ordering::Release);
            each(u64::from(id) * SLOTS_PER_CLUSTER as u64 + slot as u64);
            any = true;
        }
        let free = SLOTS_PER_CLUSTER - state.used;
        if free == 0 || (state.cursor == 0 && free < NONFULL_FREE_MIN) {
            state.place = Place::Aside;
        }
        any
    }

    fn next_cluster(&self) -> Option<u32> {
        let mut lists = lock(&self.lists);
        let listed = lists.nonfull.pop();
        let id = listed.unwrap_or(lists.end);
        let cluster = self.clusters.get(id as usize)?;
        lists.end += u32::from(listed.is_none());
        drop(lists);
        cluster
            .table
            .get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(FREE))));
        lock(&cluster.state).place = Place::Current;
        Some(id)
    }

    fn list(&self, id: u32) {
        lock(&self.clusters[id as usize].state).place = Place::Listed;
        lock(&self.lists).nonfull.push(id);
    }

    #[inline]
    fn cluster(&self, id: u32) -> Option<(&Cluster, &Table)> {
        let cluster = self.clusters.get(id as usize)?;
        Some((cluster, cluster.table.get()?))
    }

    /// A slot's word. Takes no lock.
    #[inline]
    pub(crate) fn word(&self, slot: u64) -> Word {
        let (id, slot) = position(slot);
        let word = self
            .cluster(id)
            .map_or(FREE, |(_, table)| table[slot].load(Ordering::Acquire));
        Word(word)
    }

    /// Changes the word of a slot that nobody else knows yet.
    #[inline]
    pub(crate) fn publish(&self, slot: u64, word: Word) {
        let (id, slot) = position(slot);
        if let Some((_, table)) = self.cluster(id) {
            table[slot].store(word.0, Ordering::Release);
        }
    }

    /// Locks a slot's cluster. `None` for a slot that was never used.
    #[inline]
    pub(crate) fn lock(&self, slot: u64) -> Option<Locked<'_>> {
        let (id, slot) = position(slot);
        let (cluster, table) = self.cluster(id)?;
        Some(Locked {
            word: &table[slot],
            state: lock(&cluster.state),
        })
    }

    /// Adds a reference to a slot that has one.
    #[inline]
    pub(crate) fn dup(&self, slot: u64) {
        if let Some(locked) = self.lock(slot) {
            locked.set_word(locked.word().counted(1));
        }
    }

    /// Takes a reference away. If it was the last one, the caller has to free the slot.
    #[inline]
    pub(crate) fn put(&self, slot: u64) -> Option<Locked<'_>> {
        let locked = self.lock(slot)?;
        let word = locked.word();
        if word.count() > 1 {
            locked.set_word(word.counted(-1));
            return None;
        }
        Some(locked)
    }

    /// Frees a slot.
    pub(crate) fn free(&self, slot: u64, mut locked: Locked<'_>) {
        locked.set_word(Word(FREE));
        locked.state.used -= 1;
        let has_room = SLOTS_PER_CLUSTER - locked.state.used >= NONFULL_FREE_MIN;
        let list = has_room && locked.state.place == Place::Aside;
        if list {
            locked.state.place = Place::Listed;
        }
        drop(locked);
        if list {
            lock(&self.lists).nonfull.push(position(slot).0);
        }
    }

    /// Bytes of the records, and of the tables that exist.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = u64::from(lock(&self.lists).end) * size_of::<Table>() as u64;
        size_of_val(&*self.clusters) as u64 + tables
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.clusters
            .iter()
            .map(|cluster| lock(&cluster.state).used)
            .sum()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "both parts of a slot that `take` gave fit"
)]
const fn position(slot: u64) -> (u32, usize) {
    let per_cluster = SLOTS_PER_CLUSTER as u64;
    ((slot / per_cluster) as u32, (slot % per_cluster) as usize)
}

/// Ignores poisoning, as the engine's locks do: nothing panics while it holds one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
