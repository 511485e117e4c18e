//! What processes that have ended leave behind: the words of their pages, whose entries are still counted.
//!
//! Giving up the entries takes the longer the more was out: a terabyte takes many seconds. Who notices that a process
//! has ended is in the real-time class and holds the lock of its space. So the words are left here, and a thread of the
//! ordinary class gives their entries up. What waits here is charged to the run as before.

use std::collections::VecDeque;

use crate::base::lock::{Mutex, Row};
use crate::layout::words::PageWords;
use crate::run::references::References;

/// References that are given up before the run is told, a few milliseconds' work.
const BATCH_PAGES: usize = 1 << 16;

/// The words that have been left behind. The lock is innermost, and is held for moments.
#[derive(Debug)]
pub struct Remains(Mutex<Left>);

#[derive(Debug, Default)]
struct Left {
    /// Oldest first.
    words: VecDeque<PageWords>,
    /// Some thread gives up the entries, or is about to.
    is_attended: bool,
}

impl Default for Remains {
    fn default() -> Remains {
        Remains(Mutex::new(
            Row::Innermost,
            "what is left of processes",
            Left::default(),
        ))
    }
}

impl Remains {
    /// Leave the words of a process.
    pub fn add(&self, words: PageWords) {
        if !words.is_empty() {
            self.0.lock().words.push_back(words);
        }
    }

    /// Take it on to give up what is left. False if there is nothing, or another thread has taken it on.
    pub fn attend(&self) -> bool {
        let mut left = self.0.lock();
        let begins = !left.is_attended && !left.words.is_empty();
        left.is_attended |= begins;
        begins
    }

    /// Whoever has taken it on cannot do it.
    pub fn neglect(&self) {
        self.0.lock().is_attended = false;
    }

    /// Have the entries of all words been given up?
    pub fn are_gone(&self) -> bool {
        let left = self.0.lock();
        !left.is_attended && left.words.is_empty()
    }

    /// Give up all entries, also what comes meanwhile, and tell `gave_up` now and then: there is more room. The caller
    /// has taken it on (`attend`). Takes no lock of a space.
    pub fn give_up(&self, references: &References, gave_up: impl Fn()) {
        let mut left = self.0.lock();
        while let Some(words) = left.words.pop_front() {
            drop(left);
            let mut words = words.into_references().peekable();
            while words.peek().is_some() {
                // What was put is not charged any more when `puts` is dropped.
                words.by_ref().take(BATCH_PAGES).for_each(references.puts());
                gave_up();
            }
            left = self.0.lock();
        }
        left.is_attended = false;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use vswap_engine::{Codec, Config, Engine, GroupId, HeapPages, Shadow};

    use super::*;
    use crate::layout::words::PageWord;

    fn engine() -> Arc<Engine> {
        let config = Config {
            frames: 8,
            cpus: 1,
            codec: Codec::Lz4,
            pool_limit_bytes: 1 << 20,
            checksums: true,
        };
        Arc::new(Engine::new(&config, Arc::new(HeapPages::new())).expect("memory"))
    }

    /// The words of a process of which `pages` zero pages are out.
    fn words(engine: &Engine, pages: u64) -> PageWords {
        let mut words = PageWords::default();
        let mut scratch = engine.scratch();
        for page in 0..pages {
            let mut frame = engine.frame().expect("a free frame");
            frame.0.fill(0);
            let out = engine.swap_out(0, frame, Shadow::ABSENT, GroupId::ROOT);
            let entry = out.expect("a slot");
            engine
                .write_out(entry, &mut scratch)
                .expect("zeros go nowhere");
            words.set(page, PageWord::swapped(entry));
        }
        words
    }

    #[test]
    fn all_references_are_given_up_a_batch_at_a_time() {
        let engine = engine();
        let references = References::new(Arc::clone(&engine));
        let remains = Remains::default();
        let batch = BATCH_PAGES as u64;
        remains.add(words(&engine, batch + 1));
        remains.add(PageWords::default());
        remains.add(words(&engine, 3));
        assert_eq!(engine.stats().slots_used, batch + 4, "nothing is put yet");
        assert!(remains.attend());
        let left = Cell::new(Vec::new());
        remains.give_up(&references, || {
            let mut seen = left.take();
            seen.push(engine.stats().slots_used);
            left.set(seen);
        });
        assert_eq!(left.take(), [4, 3, 0]);
        assert!(remains.are_gone() && !remains.attend());
    }

    #[test]
    fn one_thread_at_a_time_gives_up_also_what_comes_meanwhile() {
        let engine = engine();
        let references = References::new(Arc::clone(&engine));
        let remains = Remains::default();
        remains.add(words(&engine, 2));
        assert!(remains.attend());
        remains.neglect();
        assert!(remains.attend() && !remains.attend());
        let mut late = Cell::new(Some(words(&engine, 5)));
        remains.give_up(&references, || {
            if let Some(late) = late.take() {
                remains.add(late);
                // No other thread begins, and the end of the run waits for this one.
                assert!(!remains.attend() && !remains.are_gone());
            }
        });
        assert!(late.get_mut().is_none() && remains.are_gone());
        assert_eq!(engine.stats().slots_used, 0);
    }
}
