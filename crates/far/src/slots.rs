//! What is known here of each slot: which version of it was written last, and whether the store holds that.
//!
//! Versions are never used twice, because they are nonces ([`cipher`](crate::cipher)). A swap cluster has a table only
//! while it holds something: 2 KiB and 200 bytes. One that is emptied keeps the highest of its versions, and the next
//! table goes on from there. That number is part of the cluster's key too, so that a late command to delete the old key
//! does not meet the new one.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cipher::{TAG_BYTES, TagBytes};

/// Slots of a swap cluster: those of one key.
pub(crate) const CLUSTER_SLOTS: usize = 512;
/// [`CLUSTER_SLOTS`], for arithmetic with slots.
pub(crate) const SPAN: u64 = CLUSTER_SLOTS as u64;
/// Stale fields that one request takes along at most.
const STALE_AT_ONCE: usize = 256;
/// Stale fields that are remembered for a cluster at most. Others stay until its key goes.
const STALE_MAX: usize = 4096;

/// A version of a slot: the name of a field of a cluster's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// The slot within its cluster.
    pub at: u16,
    /// The how manieth content of the slot it is.
    pub version: u32,
}

impl Field {
    /// The name as it travels.
    pub(crate) fn name(self) -> [u8; 6] {
        let (at, version) = (self.at.to_be_bytes(), self.version.to_be_bytes());
        [at[0], at[1], version[0], version[1], version[2], version[3]]
    }
}

/// Where a cluster lies now: its number and what tells this key of it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    /// Number of the cluster.
    pub cluster: u64,
    /// The highest version that was used before this key.
    pub base: u32,
    /// What has the second copy's key lie on another node.
    pub salt: u16,
}

/// A write that is under way.
#[derive(Debug)]
pub(crate) struct Writing {
    pub home: Home,
    /// What is being written, one for each slot, in order.
    pub new: Vec<Field>,
    /// What can be deleted along with it.
    pub old: Vec<Field>,
}

/// What a discard leaves to be deleted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Discarded {
    Nothing,
    Fields(Home, Vec<Field>),
    /// All of the cluster.
    Key(Home),
}

/// No version is left for a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// A bit for each slot of a cluster.
#[derive(Default)]
struct Bits([u64; CLUSTER_SLOTS / 64]);

impl Bits {
    fn has(&self, at: usize) -> bool {
        self.0[at / 64] & (1 << (at % 64)) != 0
    }

    /// Returns whether it was set before.
    fn set(&mut self, at: usize, to: bool) -> bool {
        let had = self.has(at);
        if to {
            self.0[at / 64] |= 1 << (at % 64);
        } else {
            self.0[at / 64] &= !(1 << (at % 64));
        }
        had
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

struct Table {
    salt: u16,
    /// The last version that was used for each slot.
    last: [u32; CLUSTER_SLOTS],
    /// Whether the store has that.
    held: Bits,
    /// Whether the backup has that.
    backed: Bits,
    /// Writes under way.
    writing: u32,
    /// What may lie in the store and is of no use.
    stale: Vec<Field>,
    /// What proves contents that lie elsewhere without it. None where they lie with it.
    tags: Option<Box<[TagBytes; CLUSTER_SLOTS]>>,
}

#[derive(Default)]
struct Cluster {
    base: u32,
    table: Option<Box<Table>>,
}

/// All slots of an area.
pub(crate) struct Slots {
    clusters: Box<[Mutex<Cluster>]>,
    slots: u64,
    pages: AtomicU64,
    keys: AtomicU64,
}

impl Slots {
    /// Slots 0 to `slots`, none of them written.
    pub(crate) fn new(slots: u64) -> Slots {
        Slots {
            clusters: (0..slots.div_ceil(SPAN))
                .map(|_| Mutex::default())
                .collect(),
            slots,
            pages: AtomicU64::new(0),
            keys: AtomicU64::new(0),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.slots
    }

    /// Slots whose content the store has.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Clusters that have a key.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Gives the slots of one cluster new versions. What they held is held no more. A cluster without a key gets one;
    /// `salt` then says what is to be part of it.
    ///
    /// # Errors
    /// [`Exhausted`]; nothing has changed then.
    pub(crate) fn begin_write(
        &self,
        cluster: u64,
        places: Range<usize>,
        salt: impl FnOnce(Home) -> u16,
    ) -> Result<Writing, Exhausted> {
        let mut guard = self.lock(cluster).ok_or(Exhausted)?;
        let record = &mut *guard;
        let base = record.base;
        let is_new = record.table.is_none();
        let table = record.table.get_or_insert_with(|| {
            let salt = salt(Home {
                cluster,
                base,
                salt: 0,
            });
            Box::new(Table {
                salt,
                last: [base; CLUSTER_SLOTS],
                held: Bits::default(),
                backed: Bits::default(),
                writing: 0,
                stale: Vec::new(),
                tags: None,
            })
        });
        if table.last[places.clone()].contains(&u32::MAX) {
            if is_new {
                record.table = None;
            }
            return Err(Exhausted);
        }
        if is_new {
            self.keys.fetch_add(1, Ordering::Relaxed);
        }
        let rest = table.stale.len().saturating_sub(STALE_AT_ONCE);
        let mut old = table.stale.split_off(rest);
        let mut new = Vec::with_capacity(places.len());
        for at in places {
            if table.held.set(at, false) {
                self.pages.fetch_sub(1, Ordering::Relaxed);
                old.push(field(at, table.last[at]));
            }
            table.backed.set(at, false);
            table.last[at] += 1;
            new.push(field(at, table.last[at]));
        }
        table.writing += 1;
        let home = home(cluster, base, table);
        Ok(Writing { home, new, old })
    }

    /// Keeps what proves the contents that are being written, one tag for each.
    pub(crate) fn keep_tags(&self, writing: &Writing, tags: &[TagBytes]) {
        let mut record = self.lock(writing.home.cluster);
        let table = record.as_mut().and_then(|record| record.table.as_mut());
        let Some(table) = table else {
            return;
        };
        let kept = &mut table.tags;
        let kept = kept.get_or_insert_with(|| Box::new([[0; TAG_BYTES]; CLUSTER_SLOTS]));
        for (field, tag) in writing.new.iter().zip(tags) {
            kept[usize::from(field.at)] = *tag;
        }
    }

    /// What proves the contents of slots of one cluster. Zeros where there is none.
    pub(crate) fn tags(&self, cluster: u64, places: Range<usize>) -> Vec<TagBytes> {
        let record = self.lock(cluster);
        let table = record.as_ref().and_then(|record| record.table.as_ref());
        match table.and_then(|table| table.tags.as_ref()) {
            Some(kept) => kept[places].to_vec(),
            None => vec![[0; TAG_BYTES]; places.len()],
        }
    }

    /// Ends a write. After one that failed the store may hold any of the contents.
    pub(crate) fn end_write(&self, writing: Writing, done: bool) {
        let Some(mut record) = self.lock(writing.home.cluster) else {
            return;
        };
        let Some(table) = record.table.as_mut() else {
            return;
        };
        table.writing -= 1;
        if done {
            for field in &writing.new {
                if !table.held.set(usize::from(field.at), true) {
                    self.pages.fetch_add(1, Ordering::Relaxed);
                }
            }
        } else if table.stale.len() < STALE_MAX {
            table.stale.extend(writing.new);
            table.stale.extend(writing.old);
        }
    }

    /// Where slots of one cluster lie, and their versions. None for a slot that holds nothing.
    pub(crate) fn look_up(
        &self,
        cluster: u64,
        places: Range<usize>,
    ) -> (Option<Home>, Vec<Option<Field>>) {
        let record = self.lock(cluster);
        let Some((record, table)) = record
            .as_ref()
            .and_then(|record| Some((record, record.table.as_ref()?)))
        else {
            return (None, vec![None; places.len()]);
        };
        let held = |at| table.held.has(at).then(|| field(at, table.last[at]));
        let home = home(cluster, record.base, table);
        (Some(home), places.map(held).collect())
    }

    /// Forgets what slots of one cluster hold.
    pub(crate) fn discard(&self, cluster: u64, places: Range<usize>) -> Discarded {
        let Some(mut record) = self.lock(cluster) else {
            return Discarded::Nothing;
        };
        let base = record.base;
        let Some(table) = record.table.as_mut() else {
            return Discarded::Nothing;
        };
        let mut fields = std::mem::take(&mut table.stale);
        for at in places {
            table.backed.set(at, false);
            if table.held.set(at, false) {
                self.pages.fetch_sub(1, Ordering::Relaxed);
                fields.push(field(at, table.last[at]));
            }
        }
        let home = home(cluster, base, table);
        if table.writing > 0 || !table.held.is_empty() {
            return match fields.is_empty() {
                true => Discarded::Nothing,
                false => Discarded::Fields(home, fields),
            };
        }
        record.base = table.last.iter().copied().max().unwrap_or(base);
        record.table = None;
        self.keys.fetch_sub(1, Ordering::Relaxed);
        Discarded::Key(home)
    }

    /// Remembers fields that could not be deleted.
    pub(crate) fn keep_stale(&self, home: Home, fields: Vec<Field>) {
        let Some(mut record) = self.lock(home.cluster) else {
            return;
        };
        let same_key = record.base == home.base;
        if let Some(table) = record.table.as_mut().filter(|_| same_key)
            && table.stale.len() < STALE_MAX
        {
            table.stale.extend(fields);
        }
    }

    /// Whether this is still what the slot holds.
    pub(crate) fn is_current(&self, home: Home, field: Field) -> bool {
        let Some(record) = self.lock(home.cluster) else {
            return false;
        };
        let at = usize::from(field.at);
        let current = |table: &Table| table.held.has(at) && table.last[at] == field.version;
        record.base == home.base && record.table.as_deref().is_some_and(current)
    }

    /// Whether the backup has what the slot holds.
    pub(crate) fn is_backed(&self, cluster: u64, at: usize) -> bool {
        let record = self.lock(cluster);
        let table = record.as_ref().and_then(|record| record.table.as_ref());
        table.is_some_and(|table| table.backed.has(at))
    }

    /// Notes that the backup has this version, unless there is a newer one.
    pub(crate) fn note_backed(&self, home: Home, field: Field) {
        let at = usize::from(field.at);
        if let Some(mut record) = self.lock(home.cluster)
            && let Some(table) = record.table.as_mut()
            && table.last[at] == field.version
        {
            table.backed.set(at, true);
        }
    }

    /// Keys of clusters from number `from` on, `max` at most, and the number to go on from.
    pub(crate) fn homes(&self, from: u64, max: usize) -> (Vec<Home>, u64) {
        let mut homes = Vec::new();
        let mut next = from;
        while let Some(record) = self.lock(next).filter(|_| homes.len() < max) {
            if let Some(table) = &record.table {
                homes.push(home(next, record.base, table));
            }
            next += 1;
        }
        (homes, next)
    }

    /// None for a number that the area does not have.
    fn lock(&self, cluster: u64) -> Option<MutexGuard<'_, Cluster>> {
        let record = self.clusters.get(usize::try_from(cluster).ok()?)?;
        Some(record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn home(cluster: u64, base: u32, table: &Table) -> Home {
    Home {
        cluster,
        base,
        salt: table.salt,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "places are below 512")]
fn field(at: usize, version: u32) -> Field {
    Field {
        at: at as u16,
        version,
    }
}

/// A run of slots, cut at the borders of clusters: number of the cluster, places within it, and which of the run these
/// are.
pub(crate) fn by_cluster(
    slots: Range<u64>,
) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let first = slots.start;
    let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    (slots.start / SPAN..slots.end.div_ceil(SPAN)).map(move |cluster| {
        let begin = slots.start.max(cluster * SPAN);
        let end = slots.end.min((cluster + 1) * SPAN);
        let places = small(begin - cluster * SPAN)..small(end - cluster * SPAN);
        (cluster, places, small(begin - first)..small(end - first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(slots: &Slots, cluster: u64, places: Range<usize>) -> Writing {
        let writing = slots.begin_write(cluster, places, |_| 0).unwrap();
        let copy = Writing {
            home: writing.home,
            new: writing.new.clone(),
            old: writing.old.clone(),
        };
        slots.end_write(writing, true);
        copy
    }

    #[test]
    fn a_rewrite_names_what_it_replaces() {
        let slots = Slots::new(1024);
        let first = written(&slots, 1, 4..6);
        assert!(first.old.is_empty());
        assert_eq!(slots.pages(), 2);
        let second = written(&slots, 1, 5..7);
        assert_eq!(second.old, [first.new[1]]);
        assert_eq!(second.new[0].version, 2);
        assert!(slots.is_current(second.home, second.new[0]));
        assert!(!slots.is_current(second.home, first.new[1]));
        let (_, held) = slots.look_up(1, 3..6);
        assert_eq!(held, [None, Some(first.new[0]), Some(second.new[0])]);
        assert_eq!(slots.look_up(0, 0..1), (None, vec![None]));
    }

    #[test]
    fn versions_never_repeat_and_a_new_key_has_another_name() {
        let slots = Slots::new(512);
        let first = written(&slots, 0, 0..1);
        assert_eq!(slots.discard(0, 0..1), Discarded::Key(first.home));
        assert_eq!((slots.keys(), slots.pages()), (0, 0));
        let second = written(&slots, 0, 0..2);
        assert_ne!(second.home, first.home);
        assert!(second.new.iter().all(|field| field.version == 2));
    }

    #[test]
    fn a_key_stays_while_it_is_written_to() {
        let slots = Slots::new(512);
        let first = written(&slots, 0, 0..1);
        let writing = slots.begin_write(0, 1..2, |_| 0).unwrap();
        let left = Discarded::Fields(first.home, first.new.clone());
        assert_eq!(slots.discard(0, 0..1), left);
        let failed = writing.new.clone();
        slots.end_write(writing, false);
        let third = written(&slots, 0, 1..2);
        assert_eq!(third.old, failed);
        assert_eq!(slots.homes(0, 9), (vec![third.home], 1));
    }

    #[test]
    fn what_may_lie_in_the_store_goes_with_the_next_write_to_its_key() {
        let slots = Slots::new(512);
        let first = written(&slots, 0, 0..2);
        let second = written(&slots, 0, 0..1);
        assert_eq!(second.old, first.new[..1]);
        slots.keep_stale(first.home, vec![first.new[0]]);
        let third = written(&slots, 0, 5..6);
        assert_eq!(third.old, first.new[..1], "once more");
        assert!(written(&slots, 0, 6..7).old.is_empty(), "and that was all");
        // Also with a discard.
        slots.keep_stale(first.home, vec![first.new[0]]);
        let left = vec![first.new[0], third.new[0]];
        let discarded = slots.discard(0, 5..6);
        assert_eq!(discarded, Discarded::Fields(first.home, left));
        // Of a key that is gone nothing is kept, and nothing without end.
        assert_eq!(slots.discard(0, 0..8), Discarded::Key(first.home));
        slots.keep_stale(first.home, vec![first.new[0]]);
        let new_key = written(&slots, 0, 0..1);
        slots.keep_stale(first.home, vec![first.new[1]]);
        assert!(written(&slots, 0, 1..2).old.is_empty());
        for _ in 0..3 {
            slots.keep_stale(new_key.home, vec![first.new[0]; STALE_MAX]);
        }
        let stale = slots.lock(0).unwrap().table.as_ref().unwrap().stale.len();
        assert_eq!(stale, STALE_MAX);
    }

    #[test]
    fn a_backup_counts_for_its_version_alone() {
        let slots = Slots::new(512);
        let first = written(&slots, 0, 0..1);
        slots.note_backed(first.home, first.new[0]);
        assert!(slots.is_backed(0, 0));
        let second = written(&slots, 0, 0..1);
        assert!(!slots.is_backed(0, 0));
        slots.note_backed(first.home, first.new[0]);
        assert!(!slots.is_backed(0, 0));
        slots.note_backed(second.home, second.new[0]);
        assert!(slots.is_backed(0, 0));
    }

    #[test]
    fn tags_stay_as_long_as_the_cluster_holds_something() {
        let slots = Slots::new(512);
        let writing = slots.begin_write(0, 3..5, |_| 0).unwrap();
        slots.keep_tags(&writing, &[[1; TAG_BYTES], [2; TAG_BYTES]]);
        slots.end_write(writing, true);
        let none = [0; TAG_BYTES];
        assert_eq!(slots.tags(0, 2..5), [none, [1; TAG_BYTES], [2; TAG_BYTES]]);
        slots.discard(0, 3..5);
        assert_eq!(slots.tags(0, 3..5), [none, none]);
        assert_eq!(slots.tags(1, 0..1), [none]);
    }

    #[test]
    fn slots_without_versions_are_refused() {
        let slots = Slots::new(512);
        slots.lock(0).unwrap().base = u32::MAX;
        assert_eq!(slots.begin_write(0, 0..1, |_| 0).err(), Some(Exhausted));
        assert_eq!(slots.keys(), 0);
    }

    #[test]
    fn runs_are_cut_at_the_borders_of_clusters() {
        let cut: Vec<_> = by_cluster(500..1030).collect();
        assert_eq!(
            cut,
            [
                (0, 500..512, 0..12),
                (1, 0..512, 12..524),
                (2, 0..6, 524..530)
            ]
        );
        assert_eq!(by_cluster(5..5).map(|cut| cut.1.len()).sum::<usize>(), 0);
    }
}
