//! Writing: one request for each cluster of slots and copy, all of them at once.
//!
//! Each deletes what it replaces, sets what is new and renews the lease, all or nothing: a key never is without a
//! lease. With two copies a write has succeeded when both are stored, or one while the other's node does not answer.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, cmd};
use vswap_engine::StorageError;

use crate::area::{Area, BRIEFLY, delete_fields, error, set_fields};
use crate::exchange::{Failure, Request, Served};
use crate::node::Deadline;
use crate::slots::{Discarded, Field, Home, Writing, by_cluster};
use crate::suspects::Why;

/// How long the second copy of a page is waited for when the first is there. A master that fails over answers again in
/// less, as a rule.
const FOR_OTHER_COPY: Duration = Duration::from_secs(5);

/// A part of a write: what goes to one cluster.
struct Part {
    writing: Writing,
    bytes: usize,
}

impl Area {
    /// Writes payloads to neighbouring slots. Returns what was written, in order. Blocks.
    ///
    /// # Errors
    /// [`StorageError`]; the slots then hold nothing.
    pub(crate) fn write_payloads(
        &self,
        slot: u64,
        payloads: &[&[u8]],
    ) -> Result<Vec<(Home, Field)>, StorageError> {
        let end = slot.checked_add(payloads.len() as u64);
        let end = end.filter(|end| *end <= self.slots.len());
        let slots = slot..end.ok_or(StorageError::Short)?;
        let mut parts = Vec::new();
        let mut requests = Vec::new();
        for (cluster, places, of_run) in by_cluster(slots) {
            let begun = self
                .slots
                .begin_write(cluster, places, |home| self.salt(home));
            let Ok(writing) = begun else {
                self.end(parts, false);
                return Err(StorageError::Full);
            };
            let slot = slot + of_run.start as u64;
            let payloads = payloads.get(of_run).unwrap_or_default();
            let sealed = self.sealed(slot, &writing, payloads);
            let bytes = payloads.iter().map(|payload| payload.len()).sum();
            let is_sealed = sealed.len() == payloads.len();
            for copy in 0..self.copies {
                let commands = |key: &[u8]| self.commands(key, &writing, &sealed);
                requests.push(self.request(writing.home, copy, commands, true));
            }
            parts.push(Part { writing, bytes });
            if !is_sealed {
                self.end(parts, false);
                return Err(StorageError::Unsupported);
            }
        }
        let served = self.served(&requests);
        self.concluded(parts, &requests, &served)
    }

    /// Sends the requests, all copies of a part one after the other. Where one copy is enough for now, nobody waits
    /// long for the other one: it is written anew in the background. Where there is none, all the time is waited.
    fn served(&self, requests: &[Request]) -> Vec<Served> {
        if self.copies == 1 {
            return self.exchange.run(requests, self.deadline());
        }
        let served = match self.is_given_up(requests) {
            true => self.exchange.run_briefly(requests, BRIEFLY),
            false => {
                let soon = Deadline::after(self.bound.min(FOR_OTHER_COPY));
                self.exchange.run(requests, soon)
            }
        };
        let mut parts = served.chunks(self.copies);
        match parts.all(|copies| copies.iter().any(Result::is_ok)) {
            true => served,
            false => self.exchange.run(requests, self.deadline()),
        }
    }

    fn sealed(&self, slot: u64, writing: &Writing, payloads: &[&[u8]]) -> Vec<Vec<u8>> {
        let each = (slot..).zip(&writing.new).zip(payloads);
        each.map_while(|((slot, field), payload)| self.cipher.seal(slot, field.version, payload))
            .collect()
    }

    fn commands(&self, key: &[u8], writing: &Writing, sealed: &[Vec<u8>]) -> Vec<Cmd> {
        let mut commands = Vec::with_capacity(3);
        if !writing.old.is_empty() {
            commands.push(delete_fields(key, &writing.old));
        }
        let fields = writing.new.iter().copied();
        commands.push(set_fields(
            key,
            fields.zip(sealed.iter().map(Vec::as_slice)),
        ));
        commands.push(self.expire(key));
        commands
    }

    fn concluded(
        &self,
        parts: Vec<Part>,
        requests: &[Request],
        served: &[Served],
    ) -> Result<Vec<(Home, Field)>, StorageError> {
        let copies = || served.chunks(self.copies);
        // All of it or nothing: whoever is told that it failed takes what was stored for nobody's.
        let failed = copies().find_map(worst);
        let mut written = Vec::new();
        let mut left = Vec::new();
        let requests = requests.chunks(self.copies);
        for ((part, served), requests) in parts.into_iter().zip(copies()).zip(requests) {
            let Part { writing, bytes } = part;
            for (request, _) in requests.iter().zip(served).filter(|(_, one)| one.is_ok()) {
                self.count_pages(request, writing.new.len(), bytes, true);
            }
            let stored = served.iter().filter(|one| one.is_ok()).count();
            let home = writing.home;
            if failed.is_none() {
                if stored < self.copies {
                    let pages = writing.new.len() as u64;
                    self.counts.single.fetch_add(pages, Ordering::Relaxed);
                }
                written.extend(writing.new.iter().map(|field| (home, *field)));
            } else if stored > 0 || failed == Some(Failure::Full) {
                // A store without room still deletes.
                left.push((home, [&writing.old[..], &writing.new[..]].concat()));
            }
            self.slots.end_write(writing, failed.is_none());
            // Whoever looks at it finds what was written.
            let missing = served.iter().enumerate().filter(|(_, one)| one.is_err());
            for (copy, _) in missing.filter(|_| failed.is_none()) {
                self.suspects.note(home, copy, Why::Single);
            }
        }
        for (home, fields) in left {
            // What is not deleted now goes with the next write to the cluster.
            let _ = self.delete(home, &fields);
        }
        match failed {
            None => Ok(written),
            Some(failure) => Err(error(&failure)),
        }
    }

    fn end(&self, parts: Vec<Part>, done: bool) {
        for part in parts {
            self.slots.end_write(part.writing, done);
        }
    }

    /// Forgets what slots hold. Blocks.
    ///
    /// # Errors
    /// [`StorageError`]; what is left in the store is of no use to anybody and goes with its lease.
    pub(crate) fn discard_slots(&self, slots: Range<u64>) -> Result<(), StorageError> {
        if slots.end > self.slots.len() {
            return Err(StorageError::Short);
        }
        let mut requests = Vec::new();
        let mut left = Vec::new();
        for (cluster, places, _) in by_cluster(slots) {
            let discarded = self.slots.discard(cluster, places);
            for copy in 0..self.copies {
                match &discarded {
                    Discarded::Nothing => {}
                    Discarded::Key(home) => requests.push(self.request(*home, copy, unlink, false)),
                    Discarded::Fields(home, fields) => {
                        let delete = |key: &[u8]| vec![delete_fields(key, fields)];
                        requests.push(self.request(*home, copy, delete, false));
                    }
                }
            }
            if let Discarded::Fields(home, fields) = discarded {
                left.push((home, fields));
            }
        }
        let served = match self.copies > 1 && self.is_given_up(&requests) {
            true => self.exchange.run_briefly(&requests, BRIEFLY),
            false => self.exchange.run(&requests, self.deadline()),
        };
        let failure = served.iter().find_map(|one| one.as_ref().err());
        if let Some(failure) = failure {
            for (home, fields) in left {
                self.slots.keep_stale(home, fields);
            }
            return Err(error(failure));
        }
        Ok(())
    }

    /// Deletes fields of a key, if that is quickly done.
    fn delete(&self, home: Home, fields: &[Field]) -> Vec<Served> {
        let delete = |key: &[u8]| vec![delete_fields(key, fields)];
        let requests: Vec<_> = (0..self.copies)
            .map(|copy| self.request(home, copy, delete, false))
            .collect();
        self.exchange.run_briefly(&requests, BRIEFLY)
    }
}

/// Why a part of a write has failed, by what its copies have met with. One copy is enough if the other's node does not
/// answer.
fn worst(served: &[Served]) -> Option<Failure> {
    let is_stored = served.iter().any(Result::is_ok);
    let failures = served.iter().filter_map(|one| one.as_ref().err());
    let mut bad = failures.filter(|failure| !is_stored || **failure != Failure::NoAnswer);
    bad.next().cloned()
}

/// The command that deletes a key.
pub(crate) fn unlink(key: &[u8]) -> Vec<Cmd> {
    let mut command = cmd("UNLINK");
    command.arg(key);
    vec![command]
}
