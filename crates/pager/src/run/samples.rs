//! What sampling has seen: events of watched pages, looks at how much there is, and how its pages compress.
//!
//! Everything has a bound, however long the run lasts. When there are too many events, fewer blocks are watched, and
//! the events of the others are dropped. The locks are innermost.
//!
//! A run is sampled from its start, or for a while because somebody asks. Each such while is a session with a number.
//! Evictors may be in the middle of a sweep when it ends: what they say of a session that is over is dropped.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::base::kernel::clock;
use crate::base::lock::{Mutex, Row};
use crate::policy::sampling::{Event, is_chosen};

/// Most events that are kept: 24 MiB.
const EVENTS_MAX: usize = 1 << 20;
/// Most looks that are kept. Half of them are dropped when there are more.
const LOOKS_MAX: usize = 1 << 14;

/// Most pages that may have come back and wait for a sweep. Without a sweep for so long what comes back is not noted.
const FRESH_MAX: usize = 1 << 16;

/// Sampling of a run.
#[derive(Debug)]
pub struct Samples {
    /// Somebody samples. Only a hint for the fault path: whether a session goes on is decided under the lock.
    is_on: AtomicBool,
    /// When the first page was looked at, in whichever session. All times are counted from here.
    began: OnceLock<Instant>,
    shift: AtomicU32,
    inner: Mutex<Session>,
    fresh: Mutex<Vec<Access>>,
}

/// One while of sampling.
#[derive(Debug, Default)]
struct Session {
    /// Its number, counted from 1.
    number: u64,
    /// The pause between two sweeps, if it goes on.
    every: Option<Duration>,
    began_us: u64,
    sampled: Sampled,
}

/// A page has come back.
#[derive(Debug, Clone, Copy)]
struct Access {
    space: u64,
    page: u64,
    at_us: u64,
}

/// How much there was at one moment.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Look {
    /// Microseconds since sampling began.
    pub at_us: u64,
    /// Whose pages the next two are.
    pub space: u32,
    /// Pages in memory that could be moved out.
    pub present_pages: u64,
    /// Pages that are out.
    pub out_pages: u64,
    /// Memory of all processes of the run.
    pub run_resident_bytes: u64,
    /// First touches so far, of all processes.
    pub first_touches: u64,
    /// How long the threads of the space have run, in microseconds together ...
    pub ran_us: u64,
    /// ... and how long they were ready to run and had no processor.
    pub queued_us: u64,
}

/// How pages compress with one codec.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Packed {
    /// Bytes that came out.
    pub bytes: u64,
    /// Time that it took to compress them.
    pub compress_ns: u64,
    /// Time that it took to decompress them.
    pub decompress_ns: u64,
}

/// How pages compress.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Packing {
    /// Pages that were tried.
    pub pages: u64,
    /// Of these, pages of zeros, which take nothing.
    pub zero_pages: u64,
    /// The others with lz4.
    pub lz4: Packed,
    /// The others with zstd.
    pub zstd: Packed,
}

/// All that was seen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sampled {
    /// One block in 2^this was watched.
    pub shift: u32,
    /// What happened to watched pages. Of each page in order.
    pub events: Vec<Event>,
    /// How much there was, in order.
    pub looks: Vec<Look>,
    /// Least microseconds between two looks at one space.
    pub look_every_us: u64,
    /// How pages compress.
    pub packing: Packing,
    /// When it ended, in microseconds since sampling began.
    pub end_us: u64,
}

impl Samples {
    /// Sampling with this pause between two sweeps from now on, or none until somebody asks.
    pub fn new(every: Option<Duration>) -> Samples {
        let samples = Samples {
            is_on: AtomicBool::new(false),
            began: OnceLock::new(),
            shift: AtomicU32::new(0),
            inner: Mutex::new(Row::Innermost, "what was sampled", Session::default()),
            fresh: Mutex::new(Row::Innermost, "what came back", Vec::new()),
        };
        if let Some(every) = every {
            samples.open(every, 0);
        }
        samples
    }

    /// Begin a session. None if there is one.
    pub fn begin(&self, every: Duration) -> Option<u64> {
        self.open(every, self.now_us())
    }

    fn open(&self, every: Duration, began_us: u64) -> Option<u64> {
        let number = {
            let mut session = self.inner.lock();
            if session.every.is_some() {
                return None;
            }
            let number = session.number + 1;
            *session = Session {
                number,
                every: Some(every),
                began_us,
                sampled: Sampled::default(),
            };
            self.shift.store(0, Ordering::Relaxed);
            self.is_on.store(true, Ordering::Relaxed);
            number
        };
        // What a session before has left. Neither lock is taken under the other.
        self.fresh.lock().clear();
        Some(number)
    }

    /// End a session.
    pub fn end(&self, number: u64) {
        let mut session = self.inner.lock();
        if session.number == number && session.every.is_some() {
            session.every = None;
            session.sampled = Sampled::default();
            self.is_on.store(false, Ordering::Relaxed);
            drop(session);
            *self.fresh.lock() = Vec::new();
        }
    }

    /// The session that goes on and the pause between two sweeps, if pages are sampled at all.
    pub fn session(&self) -> Option<(u64, Duration)> {
        let session = self.inner.lock();
        session.every.map(|every| (session.number, every))
    }

    /// Microseconds since sampling began for the first time.
    pub fn now_us(&self) -> u64 {
        let now = clock::now();
        let passed = now.saturating_duration_since(*self.began.get_or_init(|| now));
        u64::try_from(passed.as_micros()).unwrap_or(u64::MAX)
    }

    /// One block in 2^this is watched.
    pub fn shift(&self) -> u32 {
        self.shift.load(Ordering::Relaxed)
    }

    /// Watch half as many blocks as one in 2^`than`.
    pub fn thin(&self, number: u64, than: u32) {
        let mut session = self.inner.lock();
        if session.goes_on(number) && self.shift() == than {
            self.shift.store(than + 1, Ordering::Relaxed);
            session.sampled.thin(than + 1);
        }
    }

    /// Pages of a space have come back.
    pub fn came_back(&self, space: u64, pages: impl Iterator<Item = u64>) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let (at_us, shift) = (self.now_us(), self.shift());
        let short = u32::try_from(space).unwrap_or(u32::MAX);
        let chosen = pages.filter(|page| is_chosen(short, *page, shift));
        let mut fresh = self.fresh.lock();
        let room = FRESH_MAX.saturating_sub(fresh.len());
        fresh.extend(chosen.take(room).map(|page| Access { space, page, at_us }));
    }

    /// Which pages of a space have come back since the last call, and when.
    pub fn take_back(&self, space: u64) -> Vec<(u64, u64)> {
        let mut fresh = self.fresh.lock();
        let taken = fresh.extract_if(.., |access| access.space == space);
        taken.map(|access| (access.page, access.at_us)).collect()
    }

    /// Keep events.
    pub fn note(&self, number: u64, events: &[Event]) {
        let is_full = {
            let mut session = self.inner.lock();
            if !session.goes_on(number) {
                return;
            }
            let shift = self.shift();
            let chosen = events.iter().filter(|e| is_chosen(e.space, e.page, shift));
            session.sampled.events.extend(chosen);
            session.sampled.events.len() > EVENTS_MAX
        };
        if is_full {
            self.thin(number, self.shift());
        }
    }

    /// Keep a look.
    pub fn note_look(&self, number: u64, look: Look) {
        let mut session = self.inner.lock();
        if session.goes_on(number) {
            session.sampled.note_look(look);
        }
    }

    /// Take in how pages compress.
    pub fn note_packing(&self, number: u64, packing: &Packing) {
        let mut session = self.inner.lock();
        if session.goes_on(number) {
            session.sampled.packing.add(packing);
        }
    }

    /// All that was seen so far.
    pub fn all(&self) -> Sampled {
        let (mut sampled, began_us) = {
            let session = self.inner.lock();
            (session.sampled.clone(), session.began_us)
        };
        sampled.finish(self.shift(), began_us, self.now_us());
        sampled
    }

    /// What was seen in a session since the last call, with times since it began.
    pub fn take(&self, number: u64) -> Sampled {
        let (mut sampled, began_us) = {
            let mut session = self.inner.lock();
            if !session.goes_on(number) {
                return Sampled::default();
            }
            (std::mem::take(&mut session.sampled), session.began_us)
        };
        sampled.finish(self.shift(), began_us, self.now_us());
        sampled
    }
}

impl Session {
    fn goes_on(&self, number: u64) -> bool {
        self.number == number && self.every.is_some()
    }
}

impl Sampled {
    /// Take in what was seen later. The lists stay as bounded as those of a run.
    pub fn append(&mut self, later: &Sampled) {
        self.shift = self.shift.max(later.shift);
        self.end_us = later.end_us;
        self.events.extend(&later.events);
        for look in &later.looks {
            self.note_look(*look);
        }
        self.packing.add(&later.packing);
        self.thin(self.shift);
        while self.events.len() > EVENTS_MAX {
            self.shift += 1;
            self.thin(self.shift);
        }
    }

    /// Counted from the beginning of its session.
    fn finish(&mut self, shift: u32, began_us: u64, now_us: u64) {
        let since = |at_us: &mut u64| *at_us = at_us.saturating_sub(began_us);
        self.events
            .iter_mut()
            .for_each(|event| since(&mut event.at_us));
        self.looks
            .iter_mut()
            .for_each(|look| since(&mut look.at_us));
        self.shift = shift;
        self.end_us = now_us.saturating_sub(began_us);
    }

    fn thin(&mut self, shift: u32) {
        self.events.retain(|e| is_chosen(e.space, e.page, shift));
        self.events.shrink_to(EVENTS_MAX);
    }

    fn note_look(&mut self, look: Look) {
        let last = self
            .looks
            .iter()
            .rev()
            .find(|last| last.space == look.space);
        if last.is_some_and(|last| look.at_us < last.at_us + self.look_every_us) {
            return;
        }
        self.looks.push(look);
        if self.looks.len() > LOOKS_MAX {
            let mut is_kept = false;
            self.looks.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.look_every_us = (self.look_every_us * 2).max(200_000);
        }
    }
}

impl Packing {
    /// Add what was found with other pages.
    pub fn add(&mut self, other: &Packing) {
        self.pages += other.pages;
        self.zero_pages += other.zero_pages;
        for (sum, more) in [(&mut self.lz4, other.lz4), (&mut self.zstd, other.zstd)] {
            sum.bytes += more.bytes;
            sum.compress_ns += more.compress_ns;
            sum.decompress_ns += more.decompress_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sampling::{BLOCK_PAGES, What};

    #[test]
    fn too_many_events_have_fewer_blocks_watched() {
        let samples = Samples::new(Some(Duration::from_millis(1)));
        let event = |page| Event {
            at_us: 1,
            page,
            space: 1,
            what: What::Seen,
        };
        let events: Vec<Event> = (0..1000).map(|block| event(block * BLOCK_PAGES)).collect();
        for _ in 0..=EVENTS_MAX / events.len() {
            samples.note(1, &events);
        }
        let sampled = samples.all();
        assert_eq!(sampled.shift, 1);
        assert!(sampled.events.len() < EVENTS_MAX * 6 / 10);
        assert!(sampled.events.iter().all(|e| is_chosen(1, e.page, 1)));
    }

    #[test]
    fn looks_are_thinned_out() {
        let mut sampled = Sampled::default();
        for at in 0..2 * LOOKS_MAX as u64 {
            sampled.note_look(Look {
                at_us: at * 100_000,
                ..Look::default()
            });
        }
        assert!(sampled.looks.len() <= LOOKS_MAX);
        assert!(sampled.looks.is_sorted_by_key(|look| look.at_us));
        let last = sampled.looks.last().expect("a look").at_us;
        assert!(last > (2 * LOOKS_MAX as u64 - 10) * 100_000);
    }

    #[test]
    fn who_does_not_sample_keeps_nothing() {
        let samples = Samples::new(None);
        samples.came_back(1, 0..100);
        assert!(samples.take_back(1).is_empty());
        let samples = Samples::new(Some(Duration::from_millis(1)));
        samples.came_back(1, 0..3);
        samples.came_back(2, 7..8);
        let pages =
            |space| -> Vec<u64> { samples.take_back(space).iter().map(|back| back.0).collect() };
        assert_eq!(
            (pages(2), pages(1), pages(1)),
            (vec![7], vec![0, 1, 2], vec![])
        );
    }

    #[test]
    fn one_session_at_a_time_and_what_comes_late_is_dropped() {
        let samples = Samples::new(None);
        let every = Duration::from_millis(1);
        let first = samples.begin(every).expect("a session");
        assert_eq!(samples.begin(every), None, "there is one");
        let event = Event {
            at_us: samples.now_us(),
            page: 7,
            space: 1,
            what: What::Seen,
        };
        samples.note(first, &[event]);
        assert_eq!(samples.take(first).events.len(), 1);
        assert!(samples.take(first).events.is_empty(), "it was taken");
        samples.came_back(1, 0..3);
        assert_eq!(samples.begin(every), None, "there is one");
        assert_eq!(samples.take_back(1).len(), 3, "the second asker took it");
        samples.came_back(1, 0..3);
        samples.end(first);
        assert!(samples.session().is_none() && samples.take_back(1).is_empty());
        let second = samples.begin(every).expect("a session");
        samples.note(first, &[event]);
        samples.end(first);
        assert!(samples.take(second).events.is_empty(), "of another session");
        assert!(samples.session().is_some(), "another one was ended");
        let whole = |taken: &Sampled| serde_json::to_string(taken).expect("JSON");
        let mut all = Sampled::default();
        samples.note(second, &[event]);
        let taken = samples.take(second);
        let sent: Sampled = serde_json::from_str(&whole(&taken)).expect("what was sent");
        all.append(&sent);
        assert_eq!(all.events, taken.events);
    }
}
