//! Which pages owe an entry: the handler has brought them back and may not put the entry itself, because that takes
//! locks and may free memory.
//!
//! Two levels of bits, so that the owing pages of a large arena are found at once. Bits are hints: the page word says
//! what is owed. A bit that is set is looked at by the next who drains. For any number of threads.

use std::sync::atomic::{AtomicU64, Ordering};

use vswap_sys::memory::{MemoryError, Words};

/// Pages, or words of bits, for each bit of the level above.
const BITS: usize = u64::BITS as usize;

/// The bits.
#[derive(Debug)]
pub struct Owed {
    /// A bit for each page.
    pages: Words,
    /// A bit for each word of `pages`.
    summary: Words,
    /// How many were marked since the last drain.
    marked: AtomicU64,
}

impl Owed {
    /// For so many pages.
    ///
    /// # Errors
    /// No memory.
    pub fn new(pages: usize) -> Result<Owed, MemoryError> {
        let words = pages.div_ceil(BITS);
        Ok(Owed {
            pages: Words::new(words)?,
            summary: Words::new(words.div_ceil(BITS))?,
            marked: AtomicU64::new(0),
        })
    }

    /// The page owes something now: its word says so already. Returns how many were marked since the last drain.
    pub fn mark(&self, page: usize) -> u64 {
        // Release pairs with the swaps in `drain`: who finds the bit sees the word.
        self.pages[page / BITS].fetch_or(1 << (page % BITS), Ordering::AcqRel);
        self.summary[page / BITS / BITS].fetch_or(1 << (page / BITS % BITS), Ordering::AcqRel);
        self.marked.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How many were marked since the last drain.
    pub fn marked(&self) -> u64 {
        self.marked.load(Ordering::SeqCst)
    }

    /// Looks at every page that was marked.
    pub fn drain(&self, mut look: impl FnMut(usize)) {
        if self.marked.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        for (at, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Acquire pairs with `mark`.
            for word in bits(summary.swap(0, Ordering::AcqRel)) {
                let word = at * BITS + word;
                for page in bits(self.pages[word].swap(0, Ordering::AcqRel)) {
                    look(word * BITS + page);
                }
            }
        }
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        // Takes the lowest bit away; there is none to take from 0.
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_is_looked_at_once() {
        let owed = Owed::new(100_000).expect("memory");
        let marked = [0, 1, 63, 64, 4095, 4096, 99_999];
        for page in marked {
            owed.mark(page);
        }
        let mut seen = Vec::new();
        owed.drain(|page| seen.push(page));
        assert_eq!(seen, marked);
        owed.drain(|page| panic!("{page} again"));
    }
}
