//! Reading: one request for each run of slots within a cluster, all of them at once.
//!
//! What one copy does not have, or has altered, comes from the other or from the backup. While there is another place
//! to look, a node that does not answer is waited for briefly. In the end all copies are waited for that may have it.

use std::sync::atomic::Ordering;

use redis::Value;
use vswap_engine::{Page, ReadRun, StorageError};

use crate::area::{Area, BRIEFLY, error, get_fields};
use crate::backup::Backup;
use crate::cipher::Plain;
use crate::exchange::Request;
use crate::node::Deadline;
use crate::slots::{Field, Home, SPAN, by_cluster};
use crate::suspects::Why;

/// A page that is to be read.
struct Wanted<'p> {
    /// Which run it is of.
    run: usize,
    slot: u64,
    /// None if the slot holds nothing.
    at: Option<(Home, Field)>,
    page: &'p mut Page,
    /// What each copy said last. None if it was not asked.
    said: [Option<StorageError>; 2],
    done: bool,
}

/// Where pages are looked for next.
#[derive(Clone, Copy)]
enum Step {
    /// In a copy, if its node answers soon.
    Briefly(usize),
    /// In a copy, until the time of the read is over.
    Patiently(usize),
    Backup,
}

impl Area {
    /// Reads runs of slots, each with a result of its own. Blocks.
    pub(crate) fn read_all(&self, runs: &mut [ReadRun<'_>], backup: Option<&Backup>) {
        let deadline = self.deadline();
        let mut wanted = Vec::new();
        for (index, run) in runs.iter_mut().enumerate() {
            let slots = run.slot..run.slot.saturating_add(run.pages.len() as u64);
            run.outcome = Ok(());
            let mut at = Vec::with_capacity(run.pages.len());
            for (cluster, places, _) in by_cluster(slots.clone()) {
                let (home, fields) = self.slots.look_up(cluster, places);
                at.extend(fields.into_iter().map(|field| Some((home?, field?))));
            }
            for ((slot, page), at) in slots.zip(run.pages.iter_mut()).zip(at) {
                wanted.push(Wanted {
                    run: index,
                    slot,
                    at,
                    page,
                    said: [None; 2],
                    done: false,
                });
            }
        }
        for step in self.steps(backup.is_some()) {
            if wanted.iter().all(|one| one.done || one.at.is_none()) {
                break;
            }
            match step {
                Step::Briefly(copy) => self.read_copy(&mut wanted, copy, None),
                // Also if the first copy has taken all of it.
                Step::Patiently(copy) => {
                    let deadline = deadline.at_least(BRIEFLY);
                    self.read_copy(&mut wanted, copy, Some(deadline));
                }
                Step::Backup => self.read_backup(&mut wanted, backup),
            }
        }
        let outcomes: Vec<(usize, StorageError)> = wanted
            .iter()
            .filter(|one| !one.done)
            .map(|one| (one.run, self.conclusion(one)))
            .collect();
        for (run, error) in outcomes {
            if let Some(run) = runs.get_mut(run).filter(|run| run.outcome.is_ok()) {
                run.outcome = Err(error);
            }
        }
    }

    fn steps(&self, has_backup: bool) -> Vec<Step> {
        if self.copies == 1 && !has_backup {
            return vec![Step::Patiently(0)];
        }
        let briefly = (0..self.copies).map(Step::Briefly);
        let backup = has_backup.then_some(Step::Backup);
        let patiently = (0..self.copies).map(Step::Patiently);
        briefly.chain(backup).chain(patiently).collect()
    }

    /// Until the deadline if there is one.
    fn read_copy(&self, wanted: &mut [Wanted<'_>], copy: usize, deadline: Option<Deadline>) {
        // What a copy has said for certain it will say again.
        let asks = |one: &Wanted<'_>| {
            !one.done
                && one.at.is_some()
                && matches!(one.said[copy], None | Some(StorageError::TimedOut))
        };
        let mut groups: Vec<(Home, Vec<&mut Wanted<'_>>)> = Vec::new();
        for one in wanted.iter_mut().filter(|one| asks(one)) {
            let Some((home, _)) = one.at else { continue };
            match groups.last_mut() {
                Some((last, group)) if *last == home => group.push(one),
                _ => groups.push((home, vec![one])),
            }
        }
        let requests: Vec<Request> = groups
            .iter()
            .map(|(home, group)| self.get(*home, copy, group))
            .collect();
        let served = match deadline {
            None => self.exchange.run_briefly(&requests, BRIEFLY),
            Some(deadline) => self.exchange.run(&requests, deadline),
        };
        for (((_, group), served), request) in groups.into_iter().zip(served).zip(&requests) {
            let values = match served {
                Ok(mut answers) => match answers.pop() {
                    Some(Value::Array(values)) => values,
                    _ => Vec::new(),
                },
                Err(failure) => {
                    for one in group {
                        one.said[copy] = Some(error(&failure));
                    }
                    continue;
                }
            };
            let (mut pages, mut bytes) = (0, 0);
            let mut values = values.into_iter();
            for one in group {
                let value = values.next().unwrap_or_default();
                match self.open(one, value) {
                    Ok(length) => {
                        one.done = true;
                        pages += 1;
                        bytes += length;
                    }
                    Err(error) => one.said[copy] = Some(error),
                }
                self.suspect_other(one, copy);
            }
            self.count_pages(request, pages, bytes, false);
        }
    }

    fn get(&self, home: Home, copy: usize, group: &[&mut Wanted<'_>]) -> Request {
        let fields = || {
            group
                .iter()
                .filter_map(|one| one.at)
                .map(|(_, field)| field)
        };
        let get = |key: &[u8]| vec![get_fields(key, fields())];
        self.request(home, copy, get, false)
    }

    /// Verifies and unpacks what the store gave. Returns the length of the payload.
    fn open(&self, one: &mut Wanted<'_>, value: Value) -> Result<usize, StorageError> {
        let Value::BulkString(sealed) = value else {
            return Err(StorageError::Lost);
        };
        let mut sealed = Plain::new(sealed);
        let version = one.at.map(|(_, field)| field.version).unwrap_or_default();
        let payload = self
            .cipher
            .open(one.slot, version, &mut sealed)
            .map_err(|_| StorageError::Altered)?;
        self.with_scratch(|scratch| scratch.decompress(payload, one.page))
            .map_err(|_| StorageError::Altered)?;
        Ok(payload.len())
    }

    /// Has the other copy of its key looked at if that is known not to have the page: it may lack others as well.
    fn suspect_other(&self, one: &Wanted<'_>, copy: usize) {
        let bad = [StorageError::Lost, StorageError::Altered];
        let is_bad = |copy: usize| one.said[copy].is_some_and(|said| bad.contains(&said));
        if let Some((home, _)) = one.at.filter(|_| one.done && self.copies > 1)
            && is_bad(1 - copy)
        {
            self.suspects.note(home, 1 - copy, Why::Lost);
        }
    }

    fn read_backup(&self, wanted: &mut [Wanted<'_>], backup: Option<&Backup>) {
        let Some(backup) = backup else { return };
        for one in wanted.iter_mut().filter(|one| !one.done) {
            let Some((home, field)) = one.at else {
                continue;
            };
            let cluster = one.slot / SPAN;
            let at = usize::from(field.at);
            if !self.slots.is_backed(cluster, at) {
                backup.flush(self.bound);
            }
            let is_same = self.slots.is_current(home, field) && self.slots.is_backed(cluster, at);
            if is_same && backup.read(one.slot, one.page).is_ok() {
                one.done = true;
                self.counts.from_backup.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What is said of a page that nobody has given.
    fn conclusion(&self, one: &Wanted<'_>) -> StorageError {
        let said = |what| one.said.contains(&Some(what));
        if one.at.is_some() && said(StorageError::TimedOut) {
            return StorageError::TimedOut;
        }
        if said(StorageError::Altered) {
            self.counts.altered.fetch_add(1, Ordering::Relaxed);
            return StorageError::Altered;
        }
        if one.at.is_some() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        StorageError::Lost
    }
}
