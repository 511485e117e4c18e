//! Numbers by which the pager knows whose memory it reads.
//!
//! Memory is read by process id. The process may have ended, with its id given to another one, or it may run another
//! program by now, one that is more privileged perhaps. What the pager reads there would come into a hostile program
//! that has kept its old memory alive in a child. So a number that nobody can guess is put into the ring before each
//! reading and read back in the same system call. Only memory in which this ring is mapped has it.
//!
//! A reading may wait for a page that another thread of the pager has claimed, and that thread reads the same memory
//! before it lets go of the page. So no reading waits for another one: each has a place of its own in the ring.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vswap_sys::ring::READERS_MAX;

use crate::base::kernel::clock;
use crate::base::kernel::process::RemoteSpan;
use crate::base::page_run::{PAGE_BYTES, pages_of};
use crate::space::agent::Agent;

/// More is never read at a time: what an eviction window has in staging.
const READING_BYTES_MAX: u64 = 1024 * PAGE_BYTES;
/// How long a reading waits before it looks for a place again.
const PLACE_PACE: Duration = Duration::from_millis(1);

const _: () = assert!(READERS_MAX <= u64::BITS as usize);

/// The numbers for one process.
#[derive(Debug, Default)]
pub struct Proofs {
    /// How many were made.
    made: AtomicU64,
    secret: RandomState,
    /// The places in use, one bit each.
    taken: AtomicU64,
    readings: [Span; READERS_MAX],
}

/// What is read just now by whoever has this place.
#[derive(Debug, Default)]
struct Span {
    first: AtomicU64,
    bytes: AtomicU64,
}

/// A number that was never used before, in the ring until this is dropped.
#[derive(Debug)]
pub struct Proof<'a> {
    proofs: &'a Proofs,
    place: usize,
    /// The number.
    pub number: u64,
    /// Where the process has it.
    pub address: u64,
}

impl Proofs {
    /// A new number, put into the ring of `agent`. Waits only while `READERS_MAX` others are being read.
    pub fn begin(&self, agent: &Agent) -> Proof<'_> {
        let place = loop {
            match self.take_place() {
                Some(place) => break place,
                None => clock::sleep(PLACE_PACE),
            }
        };
        let number = self
            .secret
            .hash_one(self.made.fetch_add(1, Ordering::Relaxed));
        agent.ring().proofs[place].store(number, Ordering::SeqCst);
        Proof {
            proofs: self,
            place,
            number,
            address: agent.proof_address(place),
        }
    }

    fn take_place(&self) -> Option<usize> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let place = taken.trailing_ones() as usize;
            if place >= READERS_MAX {
                return None;
            }
            let others = self.taken.fetch_or(1 << place, Ordering::Acquire);
            if others & (1 << place) == 0 {
                return Some(place);
            }
            taken = others;
        }
    }

    /// The pages that are being read just now.
    pub fn reading(&self) -> impl Iterator<Item = Range<u64>> {
        let readings = self.readings.iter();
        readings.map(|span| {
            let bytes = span.bytes.load(Ordering::Relaxed);
            pages_of(
                span.first.load(Ordering::Relaxed),
                bytes.min(READING_BYTES_MAX),
            )
        })
    }
}

impl Proof<'_> {
    /// These spans are being read from now on.
    pub fn note(&self, spans: &[RemoteSpan]) {
        let first = spans.iter().map(|span| span.address).min().unwrap_or(0);
        let end = spans
            .iter()
            .map(|span| span.address.saturating_add(span.bytes as u64));
        let bytes = end.max().unwrap_or(0).saturating_sub(first);
        // A look from outside needs no more than to see both in the end: the reading that it is for does not end.
        let span = &self.proofs.readings[self.place];
        span.first.store(first, Ordering::Relaxed);
        span.bytes.store(bytes, Ordering::Relaxed);
    }
}

impl Drop for Proof<'_> {
    fn drop(&mut self) {
        self.proofs.readings[self.place]
            .bytes
            .store(0, Ordering::Relaxed);
        let place = 1 << self.place;
        self.proofs.taken.fetch_and(!place, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reading_has_the_place_of_another() {
        let proofs = Proofs::default();
        let places: Vec<_> = (0..READERS_MAX).map(|_| proofs.take_place()).collect();
        assert!(places.iter().copied().eq((0..READERS_MAX).map(Some)));
        assert_eq!(proofs.take_place(), None);
        drop(Proof {
            proofs: &proofs,
            place: 5,
            number: 0,
            address: 0,
        });
        assert_eq!(proofs.take_place(), Some(5));
    }

    #[test]
    fn what_each_reading_reads_is_known() {
        let proofs = Proofs::default();
        let proof = |place| Proof {
            proofs: &proofs,
            place,
            number: 0,
            address: 0,
        };
        let (one, other) = (proof(0), proof(3));
        let span = |page: u64| RemoteSpan {
            address: page * PAGE_BYTES,
            bytes: 4096,
        };
        one.note(&[span(9), span(7)]);
        other.note(&[span(20)]);
        let pages = || proofs.reading().flatten().collect::<Vec<_>>();
        assert_eq!(pages(), [7, 8, 9, 20]);
        drop(one);
        assert_eq!(pages(), [20]);
    }
}
