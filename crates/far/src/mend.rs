//! Copies that are missing are written anew, in the background and a few keys at a time.
//!
//! Three things say that a copy of a key may lack pages: one copy alone could be written; a page was found missing
//! there, or its key; or the node has lost pages of another key. So when a node was started anew and is empty, all of
//! its keys are noted once a single page of it was found missing.
//!
//! Whoever mends a key asks the copy for all of its pages, has those that are missing or altered from the other copy,
//! verifies them, and writes the very same bytes: other bytes would need another version.

use std::sync::atomic::Ordering;

use redis::Value;

use crate::area::{Area, BRIEFLY, get_fields, set_fields};
use crate::cipher::Plain;
use crate::exchange::Failure;
use crate::slots::{CLUSTER_SLOTS, Field, Home, SPAN};
use crate::suspects::Why;
use crate::write::unlink;

/// Keys that are looked at before the thread does something else. It comes back five times a second.
const KEYS_AT_ONCE: usize = 4;
/// Pages that are asked for with one request.
const FIELDS_AT_ONCE: usize = 64;
/// Keys that are searched at once for those of a node.
const HOMES_AT_ONCE: usize = 256;

/// What a look at a copy has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It has all that it should have, or nobody has that, or its node does not take it.
    Left,
    /// It lacked pages, and has them again.
    Mended,
    /// A node does not answer.
    NotNow,
}

impl Area {
    /// Looks at some of the copies that may lack pages. Blocks.
    pub(crate) fn mend(&self) {
        if self.copies < 2 {
            return;
        }
        for _ in 0..KEYS_AT_ONCE {
            let Some(((cluster, copy), why)) = self.suspects.next() else {
                return;
            };
            let (home, fields) = self.slots.look_up(cluster, 0..CLUSTER_SLOTS);
            let Some(home) = home else { continue };
            let fields: Vec<Field> = fields.into_iter().flatten().collect();
            let look = self.mend_key(home, copy, &fields);
            match look.unwrap_or_else(|failure| after(&failure)) {
                Look::Mended if why == Why::Lost && !self.suspects.has_of_node() => {
                    self.suspect_node(home, copy);
                }
                Look::Mended | Look::Left => {}
                Look::NotNow => {
                    self.suspects.note(home, copy, why);
                    return;
                }
            }
        }
    }

    /// Notes all keys that the node of this copy should have.
    fn suspect_node(&self, lost: Home, copy: usize) {
        let node = |home, copy| {
            let node = self.exchange.topology.node_of(&self.id.place(home, copy));
            node.map(|node| node.name.clone())
        };
        let Some(empty) = node(lost, copy) else {
            return;
        };
        let mut from = 0;
        loop {
            let (copies, next) = self.copies_from(from, HOMES_AT_ONCE);
            if copies.is_empty() {
                return;
            }
            from = next;
            copies
                .into_iter()
                .filter(|(home, copy)| node(*home, *copy).as_ref() == Some(&empty))
                .for_each(|(home, copy)| self.suspects.note(home, copy, Why::Node));
        }
    }

    fn mend_key(&self, home: Home, copy: usize, fields: &[Field]) -> Result<Look, Failure> {
        let mut look = Look::Left;
        for fields in fields.chunks(FIELDS_AT_ONCE) {
            let there = self.sealed_in(home, copy, fields)?;
            let lacks = fields.iter().zip(there).filter(|(_, has)| has.is_none());
            let lacks: Vec<Field> = lacks.map(|(field, _)| *field).collect();
            if lacks.is_empty() {
                continue;
            }
            let other = self.sealed_in(home, 1 - copy, &lacks)?;
            let found = lacks.into_iter().zip(other);
            // What was written since is not missing.
            let found: Vec<(Field, Vec<u8>)> = found
                .filter(|(field, _)| self.slots.is_current(home, *field))
                .filter_map(|(field, sealed)| Some((field, sealed?)))
                .collect();
            if found.is_empty() {
                continue;
            }
            self.write_copy(home, copy, &found)?;
            look = Look::Mended;
        }
        Ok(look)
    }

    /// What a copy has of these pages, verified.
    fn sealed_in(
        &self,
        home: Home,
        copy: usize,
        fields: &[Field],
    ) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let get = |key: &[u8]| vec![get_fields(key, fields.iter().copied())];
        let request = self.request(home, copy, get, false);
        let served = self.exchange.run_briefly(&[request], BRIEFLY).pop();
        let answer = served.unwrap_or(Err(Failure::NoAnswer))?.pop();
        let Some(Value::Array(values)) = answer else {
            return Err(Failure::WrongType);
        };
        let opened = |(field, value): (&Field, Value)| {
            let Value::BulkString(sealed) = value else {
                return None;
            };
            let slot = home.cluster * SPAN + u64::from(field.at);
            let mut copy = Plain::new(sealed.clone());
            let is_good = self.cipher.open(slot, field.version, &mut copy).is_ok();
            is_good.then_some(sealed)
        };
        Ok(fields.iter().zip(values).map(opened).collect())
    }

    fn write_copy(
        &self,
        home: Home,
        copy: usize,
        pages: &[(Field, Vec<u8>)],
    ) -> Result<(), Failure> {
        let commands = |key: &[u8]| {
            let pages = pages.iter().map(|(field, sealed)| (*field, &sealed[..]));
            vec![set_fields(key, pages), self.expire(key)]
        };
        let request = self.request(home, copy, commands, true);
        let served = self.exchange.run_briefly(&[request], BRIEFLY).pop();
        let served = served.unwrap_or(Err(Failure::NoAnswer));
        if served.is_ok() {
            let pages = pages.len() as u64;
            self.counts.repaired.fetch_add(pages, Ordering::Relaxed);
        }
        // Also if nobody has answered: it may have been done.
        self.forget_outdated(home, copy, pages);
        served.map(drop)
    }

    /// What was replaced or given up while it was written here has come back, and is to go again.
    fn forget_outdated(&self, home: Home, copy: usize, pages: &[(Field, Vec<u8>)]) {
        if self.slots.look_up(home.cluster, 0..0).0 != Some(home) {
            // Should this fail, the key goes with its lease.
            let request = self.request(home, copy, unlink, false);
            let _ = self.exchange.run_briefly(&[request], BRIEFLY);
            return;
        }
        let fields = pages.iter().map(|(field, _)| *field);
        let outdated = fields.filter(|field| !self.slots.is_current(home, *field));
        let outdated: Vec<Field> = outdated.collect();
        if !outdated.is_empty() {
            self.slots.keep_stale(home, outdated);
        }
    }
}

/// What to do with a copy after a request has failed.
fn after(failure: &Failure) -> Look {
    match failure {
        Failure::NoAnswer => Look::NotNow,
        Failure::Full | Failure::WrongType => Look::Left,
    }
}
