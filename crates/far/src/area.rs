//! What the threads of one area share: its slots, its key, the way to the store, and what is counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, cmd};
use vswap_engine::{Codec, Page, Scratch, StorageError};

use crate::cipher::{Cipher, Plain};
use crate::exchange::{Exchange, Failure, Request};
use crate::keys::AreaId;
use crate::node::Deadline;
use crate::slots::{Field, Home, Slots};
use crate::suspects::Suspects;
use crate::topology::Kind;

/// Names that are tried for a second copy's key, until one of them lies on another node.
const SALTS: u16 = 512;
/// Bytes of a request beside its payloads, for each of them.
const FRAMING_BYTES: usize = 40;
/// How long a request waits for one copy while there is another.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(500);

/// What is counted for the whole area.
#[derive(Debug, Default)]
pub(crate) struct AreaCounts {
    pub lost: AtomicU64,
    pub altered: AtomicU64,
    pub single: AtomicU64,
    pub repaired: AtomicU64,
    pub keys_gone: AtomicU64,
    pub from_backup: AtomicU64,
    pub backup_failed: AtomicU64,
}

/// An area.
pub(crate) struct Area {
    pub id: AreaId,
    pub exchange: Exchange,
    pub slots: Slots,
    pub cipher: Cipher,
    pub codec: Codec,
    pub copies: usize,
    pub lease: Duration,
    pub bound: Duration,
    pub counts: AreaCounts,
    pub suspects: Suspects,
    scratches: Mutex<Vec<Scratch>>,
}

impl Area {
    pub(crate) fn new(
        id: AreaId,
        exchange: Exchange,
        cipher: Cipher,
        slots: u64,
        (codec, copies): (Codec, usize),
        (lease, bound): (Duration, Duration),
    ) -> Area {
        Area {
            id,
            exchange,
            slots: Slots::new(slots),
            cipher,
            codec,
            copies,
            lease,
            bound,
            counts: AreaCounts::default(),
            suspects: Suspects::default(),
            scratches: Mutex::default(),
        }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.bound)
    }

    /// Runs something with contexts of the codec, which few threads need at once.
    pub(crate) fn with_scratch<T>(&self, what: impl FnOnce(&mut Scratch) -> T) -> T {
        let pool = || {
            self.scratches
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let taken = pool().pop();
        let mut scratch = taken.unwrap_or_else(|| self.codec.scratch());
        let done = what(&mut scratch);
        pool().push(scratch);
        done
    }

    /// The page as it is packed.
    pub(crate) fn packed(&self, page: &Page, scratch: &mut Scratch) -> Plain {
        match self.codec.compress(page, scratch) {
            Ok(packed) => packed.to_vec().into(),
            Err(_) => page.0.to_vec().into(),
        }
    }

    /// What to make part of the second copy's key, so that it lies on another node than the first.
    pub(crate) fn salt(&self, home: Home) -> u16 {
        if self.copies < 2 || self.exchange.topology.kind == Kind::Stores {
            return 0;
        }
        let node = |home, copy| self.exchange.topology.node_of(&self.id.place(home, copy));
        let first = node(home, 0).map(|node| node.name.clone());
        let is_elsewhere = |salt: &u16| {
            let home = Home {
                salt: *salt,
                ..home
            };
            node(home, 1).map(|node| node.name.clone()) != first
        };
        (0..SALTS).find(is_elsewhere).unwrap_or(0)
    }

    pub(crate) fn request(
        &self,
        home: Home,
        copy: usize,
        commands: impl FnOnce(&[u8]) -> Vec<Cmd>,
        atomic: bool,
    ) -> Request {
        let place = self.id.place(home, copy);
        let commands = commands(&place.key);
        Request {
            place,
            commands,
            atomic,
        }
    }

    /// The command that renews the lease of a key.
    pub(crate) fn expire(&self, key: &[u8]) -> Cmd {
        let milliseconds = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let mut command = cmd("PEXPIRE");
        command.arg(key).arg(milliseconds);
        command
    }

    /// The copies of the keys of clusters from number `from` on, of `most` keys at most, and the number to go on from.
    /// Empty at the end.
    pub(crate) fn copies_from(&self, from: u64, most: usize) -> (Vec<(Home, usize)>, u64) {
        let (homes, next) = self.slots.homes(from, most);
        let homes = homes.into_iter();
        let copies = homes.flat_map(|home| (0..self.copies).map(move |copy| (home, copy)));
        (copies.collect(), next)
    }

    /// Whether requests to a node that has one of these keys have failed for good and none has been served since.
    pub(crate) fn is_given_up(&self, requests: &[Request]) -> bool {
        requests.iter().any(|request| {
            let node = self.exchange.topology.node_of(&request.place);
            node.is_none_or(|node| node.is_given_up())
        })
    }

    /// Counts pages that went to or came from the node that has this key.
    pub(crate) fn count_pages(&self, request: &Request, pages: usize, bytes: usize, out: bool) {
        let Some(node) = self.exchange.topology.node_of(&request.place) else {
            return;
        };
        let counts = &node.counts;
        let (to_pages, to_bytes) = match out {
            true => (&counts.pages_out, &counts.bytes_out),
            false => (&counts.pages_in, &counts.bytes_in),
        };
        to_pages.fetch_add(pages as u64, Ordering::Relaxed);
        to_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The command that reads fields of a key.
pub(crate) fn get_fields(key: &[u8], fields: impl IntoIterator<Item = Field>) -> Cmd {
    let mut command = cmd("HMGET");
    command.arg(key);
    for field in fields {
        command.arg(&field.name()[..]);
    }
    command
}

/// The command that writes fields of a key: sealed payloads by their fields.
pub(crate) fn set_fields<'s>(
    key: &[u8],
    pages: impl Iterator<Item = (Field, &'s [u8])> + Clone,
) -> Cmd {
    let bytes = |(_, sealed): (Field, &[u8])| sealed.len() + FRAMING_BYTES;
    let bytes = pages.clone().map(bytes).sum();
    let mut command = Cmd::with_capacity(2 * pages.clone().count() + 2, bytes);
    command.arg("HSET").arg(key);
    for (field, sealed) in pages {
        command.arg(&field.name()[..]).arg(sealed);
    }
    command
}

/// The command that deletes fields of a key.
pub(crate) fn delete_fields(key: &[u8], fields: &[Field]) -> Cmd {
    let mut command = cmd("HDEL");
    command.arg(key);
    for field in fields {
        command.arg(&field.name()[..]);
    }
    command
}

pub(crate) fn error(failure: &Failure) -> StorageError {
    match failure {
        Failure::NoAnswer => StorageError::TimedOut,
        Failure::Full => StorageError::Full,
        Failure::WrongType => StorageError::Altered,
    }
}
