//! How much memory of a process counts as its own. This matters for processes that share pages since a fork and for
//! processes without an agent.
//!
//! The kernel divides shared pages among their processes (Pss). To tell it walks the page table, which may wait for the
//! process's own system calls. So one thread does nothing but look, at a bounded cost. Between two walks the figure is
//! estimated from what is known:
//!
//! - pages that vswap has given to the process or moved out of it (a shared page is copied before it goes, so that
//!   counts too);
//! - minor faults that vswap has not served. Each may have touched fresh memory or copied a shared page.
//!
//! A fork halves what a walk finds of the parent and its kin at once, and the child has no process to look at before it
//! says hello. So what a walk finds less of a family counts as its newborn children's, until they are looked at: else
//! the family would seem to have shrunk, and be given memory that is not there.
//!
//! The estimate errs upwards. The lock is innermost and is held for arithmetic only.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use vswap_sys::memory::maps;
use vswap_sys::process::{procfs, task::has_ended};

use crate::base::lock::{Mutex, MutexGuard, Row};
use crate::base::page_run::PAGE_BYTES;
use crate::space::Space;
use crate::space::kin::Kin;

/// Figures on processes whose resident size is not their own.
#[derive(Debug)]
pub struct Shares {
    known: Mutex<Known>,
    /// Signalled when a process has forked.
    forked: Condvar,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares {
            known: Mutex::new(Row::Innermost, "what is known of shares", Known::default()),
            forked: Condvar::new(),
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    /// By space.
    shares: HashMap<u64, Share>,
    /// Those of the shares, and of some that have ended since the last walk, by their addresses.
    families: HashMap<usize, Arc<Kin>>,
    strangers: Vec<Stranger>,
    /// A process has forked since the thread that looks went to sleep.
    has_forked: bool,
}

/// One process: its own memory at the last walk, and what has happened since.
#[derive(Debug)]
struct Share {
    kin: Arc<Kin>,
    /// No walk has found the process yet.
    is_newborn: bool,
    own_bytes: u64,
    /// What the last walk found less of the family, if that had no newborn child.
    less_bytes: i64,
    resident_bytes: u64,
    then: Counts,
    now: Counts,
}

/// What makes a process's memory grow and shrink.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// Pages that vswap has given to the process, minus those it has taken.
    given: i64,
    /// Minor faults that vswap has not served.
    faults: u64,
}

impl Counts {
    /// The kernel counts faults served by vswap among the minor ones, so these are subtracted.
    fn read(space: &Space) -> Option<Counts> {
        let served = space.faults_served.load(Ordering::Relaxed);
        let given = space.pages_given.load(Ordering::Relaxed);
        let minor = procfs::stat(space.pid()?).ok()?.minor_faults;
        Some(Counts {
            given,
            faults: minor.saturating_sub(served),
        })
    }
}

/// A process without an agent.
#[derive(Debug, Clone, Copy)]
pub struct Stranger {
    pid: u32,
    /// What counts as its own.
    bytes: u64,
}

/// Processes of the run without an agent, e.g. static programs. They are counted, not managed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Strangers {
    /// How many there are.
    pub count: u64,
    /// Memory that counts as theirs.
    pub bytes: u64,
}

/// Pages that processes share.
#[derive(Debug, Clone, Copy, Default)]
pub struct SharedPages {
    /// The last of them has given these up since their memory was measured.
    pub freed: u64,
    /// Some of them have given these up, and the others are at it.
    pub leaving: u64,
}

impl Shares {
    /// A space was forked. Until somebody looks at one of its kin, its memory counts as its parent's. The last walk may
    /// have seen the fork before its event was read.
    pub fn begin(&self, id: u64, parent: &Space) {
        // It reads a file, so before the lock.
        let resident_bytes = parent.resident_bytes();
        let mut known = self.lock();
        let less = known.shares.get(&parent.id).map_or(0, |it| it.less_bytes);
        let share = Share {
            kin: Arc::clone(&parent.kin),
            is_newborn: true,
            own_bytes: less.max(0).cast_unsigned().min(resident_bytes),
            less_bytes: 0,
            resident_bytes,
            then: Counts::default(),
            now: Counts::default(),
        };
        known
            .families
            .insert(Arc::as_ptr(&parent.kin).addr(), Arc::clone(&parent.kin));
        known.shares.insert(id, share);
        known.has_forked = true;
        drop(known);
        self.forked.notify_one();
    }

    /// A space has ended.
    pub fn end(&self, id: u64) {
        self.lock().shares.remove(&id);
    }

    /// The part of a space's `resident` bytes that counts as its own.
    pub fn own_bytes(&self, space: &Space, resident: u64) -> u64 {
        if !is_sharing(space) {
            return resident;
        }
        self.lock().own_bytes(space, resident)
    }

    /// The processes without an agent at the last look, except those that have said hello since. A newborn child is
    /// seen as one of them too, and must not count twice.
    pub fn strangers(&self, spaces: &[Arc<Space>]) -> Strangers {
        let mut known = self.lock();
        if !known.strangers.is_empty() {
            let pids = pids(spaces);
            known.strangers.retain(|it| !pids.contains(&it.pid));
        }
        let seen: u64 = known.strangers.iter().map(|it| it.bytes).sum();
        let silent = spaces.iter().filter(|space| space.pid().is_none());
        let newborn: u64 = silent.map(|space| known.own_bytes(space, 0)).sum();
        Strangers {
            count: known.strangers.len() as u64,
            bytes: seen.saturating_sub(newborn),
        }
    }

    /// Pages of families that have become free since these were measured, which `own_bytes` does not know, and pages
    /// that are about to.
    pub fn shared_pages(&self) -> SharedPages {
        let families: Vec<Arc<Kin>> = self.lock().families.values().cloned().collect();
        SharedPages {
            freed: families.iter().map(|kin| kin.freed_pages()).sum(),
            leaving: families.iter().map(|kin| kin.leaving_pages()).sum(),
        }
    }

    /// Process ids of the processes without an agent at the last look.
    pub fn stranger_pids(&self) -> Vec<u32> {
        self.lock().strangers.iter().map(|it| it.pid).collect()
    }

    /// Sleep until a process forks, but at most for `pause`.
    pub fn wait_for_fork(&self, pause: Duration) {
        let known = self.lock();
        let mut known = known.wait_timeout_while(&self.forked, pause, |known| !known.has_forked);
        known.has_forked = false;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Walk the page tables of the spaces that share pages. `found` are the processes without an agent, if somebody has
    /// just looked.
    ///
    /// One of those may be a forked child that has not said hello. It shares pages with its parent, so the two are
    /// divided at the same moment: what moves from one to the other is to count neither twice nor not at all.
    pub fn walk(&self, spaces: &[Arc<Space>], found: Option<Vec<Stranger>>) {
        let mut strangers = found.unwrap_or_else(|| self.lock().strangers.clone());
        // Before the walk, so that one that ends meanwhile counts twice until the next one.
        strangers.retain(|it| !has_ended(it.pid));
        let sharing = spaces.iter().filter(|space| is_sharing(space));
        let walked: Vec<_> = sharing
            .filter_map(|space| Some((space, Share::measure(space)?)))
            .collect();
        let mut known = self.lock();
        let mut less = HashMap::new();
        for (space, share) in walked {
            let before = known.own_bytes_at(space, &share);
            let family = less.entry(Arc::as_ptr(&share.kin)).or_insert(0_i64);
            *family += before.cast_signed() - share.own_bytes.cast_signed();
            known.shares.insert(space.id, share);
        }
        for kin in std::mem::take(&mut known.families).into_values() {
            // No newborn child has what is free.
            if let Some(less) = less.get_mut(&Arc::as_ptr(&kin)) {
                *less -= (kin.measured() * PAGE_BYTES).cast_signed();
            }
        }
        let families = known.shares.values().map(|share| &share.kin);
        known.families = families
            .map(|kin| (Arc::as_ptr(kin).addr(), Arc::clone(kin)))
            .collect();
        known.divide(&less);
        known.strangers = strangers;
    }

    /// Read the counts of the spaces that share pages.
    pub fn glance(&self, spaces: &[Arc<Space>]) {
        for space in spaces.iter().filter(|space| is_sharing(space)) {
            let counts = Counts::read(space);
            if let (Some(counts), Some(share)) = (counts, self.lock().shares.get_mut(&space.id)) {
                share.now = counts;
            }
        }
    }

    /// Take note of the processes without an agent. Returns them if there are some that were not there before: then
    /// they are to be noted by a walk.
    pub fn note_strangers(&self, found: Vec<Stranger>) -> Option<Vec<Stranger>> {
        let mut known = self.lock();
        let before: HashSet<u32> = known.strangers.iter().map(|it| it.pid).collect();
        if found.iter().all(|it| before.contains(&it.pid)) {
            known.strangers = found;
            return None;
        }
        Some(found)
    }

    /// The same processes as before, without those that have ended.
    pub fn known_strangers(&self) -> Vec<Stranger> {
        let known = self.lock().strangers.clone();
        known.iter().filter_map(|it| measured(it.pid)).collect()
    }
}

/// A process without an agent. `None` if it is gone.
fn measured(pid: u32) -> Option<Stranger> {
    let bytes = maps::rollup(pid).ok()?.pss_anonymous_bytes;
    Some(Stranger { pid, bytes })
}

/// The processes without an agent among those that descend from `root_pid`, or from a process with one.
pub fn look_for_strangers(root_pid: u32, spaces: &[Arc<Space>]) -> Vec<Stranger> {
    let known = pids(spaces);
    let roots: Vec<u32> = known.iter().copied().chain([root_pid]).collect();
    let running = procfs::descendants_of(&roots).unwrap_or_default();
    let unknown = running.into_iter().filter(|pid| !known.contains(pid));
    unknown.filter_map(measured).collect()
}

impl Known {
    /// The part of a sharing space's `resident` bytes that counts as its own.
    fn own_bytes(&self, space: &Space, resident: u64) -> u64 {
        let Some(share) = self.shares.get(&space.id) else {
            return resident;
        };
        // A child that has not said hello has no figures yet.
        if resident == 0 {
            return if share.is_newborn { share.own_bytes } else { 0 };
        }
        let now = Counts {
            given: space.pages_given.load(Ordering::Relaxed),
            ..share.now
        };
        share.estimate(resident, now)
    }

    /// The same as it was when the space was measured as `found`. What it has gained since then is not missing from
    /// what was found.
    fn own_bytes_at(&self, space: &Space, found: &Share) -> u64 {
        let before = self.shares.get(&space.id);
        before.map_or(found.resident_bytes, |share| {
            share.estimate(found.resident_bytes, found.then)
        })
    }

    /// A walk has found so many bytes `less` of each family. Newborn children have them.
    fn divide(&mut self, less: &HashMap<*const Kin, i64>) {
        let mut families: HashMap<*const Kin, Vec<&mut Share>> = HashMap::new();
        for share in self.shares.values_mut() {
            let kin = Arc::as_ptr(&share.kin);
            if less.contains_key(&kin) {
                families.entry(kin).or_default().push(share);
            }
        }
        for (kin, family) in families {
            let less = less[&kin];
            let (mut newborn, others): (Vec<_>, Vec<_>) =
                family.into_iter().partition(|share| share.is_newborn);
            if newborn.is_empty() {
                others.into_iter().for_each(|it| it.less_bytes = less);
                continue;
            }
            let each = less / i64::try_from(newborn.len()).unwrap_or(i64::MAX);
            for share in &mut newborn {
                let own_bytes = share.own_bytes.saturating_add_signed(each);
                // The child has no more than its parent had.
                share.own_bytes = own_bytes.min(share.resident_bytes);
            }
        }
    }
}

impl Share {
    /// What the kernel says of a process. `None` if it is gone, and takes nothing. Counts are read first, so that no
    /// fault is missed.
    fn measure(space: &Space) -> Option<Share> {
        let counts = Counts::read(space)?;
        let sums = maps::rollup(space.pid()?).ok()?;
        Some(Share {
            kin: Arc::clone(&space.kin),
            is_newborn: false,
            own_bytes: sums.pss_anonymous_bytes,
            less_bytes: 0,
            resident_bytes: sums.anonymous_bytes,
            then: counts,
            now: counts,
        })
    }

    /// The process's own bytes, if `resident` bytes are resident and these are its counts.
    fn estimate(&self, resident: u64, now: Counts) -> u64 {
        let faults = now.faults.saturating_sub(self.then.faults);
        let pages = (now.given - self.then.given).saturating_add_unsigned(faults);
        let known = pages.saturating_mul(PAGE_BYTES.cast_signed());
        // Unwatched memory grows unasked, and its faults are counted late.
        let seen = resident.cast_signed() - self.resident_bytes.cast_signed();
        let gained = known.max(seen);
        self.own_bytes.saturating_add_signed(gained).min(resident)
    }
}

/// Does the process share pages since a fork?
pub fn is_sharing(space: &Space) -> bool {
    space.shares.load(Ordering::Relaxed)
}

/// The processes that have an agent.
fn pids(spaces: &[Arc<Space>]) -> HashSet<u32> {
    spaces.iter().filter_map(|space| space.pid()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_and_what_was_broken_is_the_processs_own() {
        let own = |given: i64, faults: u64, resident: u64| {
            let then = Counts {
                given: 10,
                faults: 1000,
            };
            let share = Share {
                kin: Arc::default(),
                is_newborn: false,
                own_bytes: 50 * PAGE_BYTES,
                less_bytes: 0,
                resident_bytes: 100 * PAGE_BYTES,
                then,
                now: then,
            };
            let now = Counts {
                given: 10 + given,
                faults: 1000 + faults,
            };
            share.estimate(resident * PAGE_BYTES, now) / PAGE_BYTES
        };
        assert_eq!(own(0, 0, 100), 50);
        assert_eq!(own(0, 0, 130), 80, "memory that nobody watches");
        assert_eq!(own(20, 0, 120), 70);
        assert_eq!(own(0, 30, 100), 80);
        assert_eq!(
            own(-10, 10, 90),
            50,
            "a shared page that went out was copied first"
        );
        assert_eq!(own(-40, 0, 60), 10);
        assert_eq!(own(-90, 0, 10), 0);
        assert_eq!(own(0, 900, 100), 100, "never more than there is");
    }

    #[test]
    fn what_is_gained_after_the_measurement_is_not_missing_from_it() {
        let space = crate::simulator::bare_space(3);
        let share = |own_bytes, given| Share {
            kin: Arc::default(),
            is_newborn: false,
            own_bytes,
            less_bytes: 0,
            resident_bytes: 100 * PAGE_BYTES,
            then: Counts { given, faults: 0 },
            now: Counts { given, faults: 0 },
        };
        let mut known = Known::default();
        known.shares.insert(3, share(100 * PAGE_BYTES, 0));
        // It forked, and was measured. Until the others are measured too it is given more.
        let found = share(50 * PAGE_BYTES, 0);
        space.gave(1000);
        assert_eq!(known.own_bytes_at(&space, &found), 100 * PAGE_BYTES);
        known.shares.insert(3, found);
        let now = known.own_bytes(&space, 1100 * PAGE_BYTES);
        assert_eq!(now, 1050 * PAGE_BYTES, "it counts from then on");
    }

    #[test]
    fn what_a_family_seems_to_lose_is_its_newborn_childrens() {
        let [family, other] = [Arc::<Kin>::default(), Arc::default()];
        let share = |kin: &Arc<Kin>, is_newborn| Share {
            kin: Arc::clone(kin),
            is_newborn,
            own_bytes: 0,
            less_bytes: 0,
            resident_bytes: 100,
            then: Counts::default(),
            now: Counts::default(),
        };
        let shares = [
            share(&family, true),
            share(&family, true),
            share(&family, false),
            share(&other, true),
        ];
        let mut known = Known {
            shares: (0..).zip(shares).collect(),
            ..Known::default()
        };
        let mut divide = |less| {
            known.divide(&HashMap::from([(Arc::as_ptr(&family), less)]));
            [0, 1, 2, 3].map(|id| known.shares[&id].own_bytes)
        };
        assert_eq!(divide(120), [60, 60, 0, 0]);
        assert_eq!(divide(-40), [40, 40, 0, 0], "the others have more again");
        assert_eq!(divide(400), [100, 100, 0, 0], "no more than their parent");
        assert_eq!(divide(-400), [0, 0, 0, 0]);
    }

    #[test]
    fn many_families_are_divided_at_once() {
        let families: Vec<Arc<Kin>> = (0..100).map(|_| Arc::default()).collect();
        let share = |kin: &Arc<Kin>, is_newborn| Share {
            kin: Arc::clone(kin),
            is_newborn,
            own_bytes: 0,
            less_bytes: 0,
            resident_bytes: 1000,
            then: Counts::default(),
            now: Counts::default(),
        };
        // Each family has an elder, every other one a newborn child.
        let elders = families.iter().map(|kin| share(kin, false));
        let children = families.iter().step_by(2).map(|kin| share(kin, true));
        let mut known = Known {
            shares: (0..).zip(elders.chain(children)).collect(),
            ..Known::default()
        };
        // Nothing was found of the last family, and one family has no space any more.
        let gone = Arc::default();
        let found = families.iter().zip(1..).take(99).chain([(&gone, 7)]);
        known.divide(&found.map(|(kin, less)| (Arc::as_ptr(kin), less)).collect());
        for family in 0..100 {
            let elder = known.shares[&family].less_bytes;
            let expected = i64::try_from(family + 1).unwrap();
            if family % 2 == 0 {
                let child = &known.shares[&(100 + family / 2)];
                assert_eq!((elder, child.own_bytes), (0, family + 1), "{family}");
            } else {
                assert_eq!(elder, if family == 99 { 0 } else { expected }, "{family}");
            }
        }
    }

    #[test]
    fn strangers_are_walked_when_one_is_new() {
        let shares = Shares::default();
        let strangers = |pids: std::ops::Range<u32>| -> Vec<Stranger> {
            pids.map(|pid| Stranger { pid, bytes: 1 }).collect()
        };
        assert!(shares.note_strangers(Vec::new()).is_none());
        let found = shares.note_strangers(strangers(1..1001)).unwrap();
        assert_eq!(found.len(), 1000);
        assert!(shares.stranger_pids().is_empty(), "the walk notes them");
        shares.lock().strangers = found;
        assert!(shares.note_strangers(strangers(1..1001)).is_none());
        assert!(shares.note_strangers(strangers(500..1001)).is_none());
        assert_eq!(shares.stranger_pids().len(), 501, "others have ended");
        assert!(shares.note_strangers(strangers(500..1002)).is_some());
    }
}
