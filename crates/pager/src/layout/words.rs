//! The page words of a space: what vswap knows of each page of a process, one `u64` a page.
//!
//! A page word is the user-space twin of the kernel's page table entry. Pure data, guarded by the space lock.
//!
//! ```text
//!   63        62       61     60 59   58..56  55 ..................... 0
//!  +---------+--------+------+-------+-------+--------------------------+
//!  | CLAIMED | unused | KEPT | heat  | laps  | entry, 0 = none          |
//!  +---------+--------+------+-------+-------+--------------------------+
//!   word 0           plain: present or never touched; the kernel's page table knows which
//!   entry            swapped: a hole in the page table, the content is behind the entry
//!   entry + KEPT     resident and write-protected, and the entry still holds the same content
//!   CLAIMED          somebody carries the page in or out at this moment (see layout::claims)
//!   heat             resident, and came back early so often in a row (see working_set)
//!   laps             so many more sweeps pass the page over; in a swapped page the lowest bit is MARKED: the kernel
//!                    has a marker in its place (see marks)
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use vswap_engine::Entry;

use crate::policy::working_set::Heat;

const CLAIMED: u64 = 1 << 63;
const KEPT: u64 = 1 << 61;
const HEAT_SHIFT: u32 = 59;
const LAPS_SHIFT: u32 = 56;
/// One lap; all laps; heat and laps.
const LAP: u64 = 1 << LAPS_SHIFT;
const LAPS_MASK: u64 = (1 << HEAT_SHIFT) - LAP;
const AGE_MASK: u64 = KEPT - LAP;
/// Used in swapped pages, which have no age.
const MARKED: u64 = LAP;
const ENTRY_BITS: u32 = 56;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;

const _: () = assert!((CLAIMED | KEPT | AGE_MASK) & ENTRY_MASK == 0);
const _: () = assert!(HEAT_SHIFT + Heat::BITS == KEPT.trailing_zeros());
const _: () = assert!((Heat::LAPS_MAX as u64) << LAPS_SHIFT & !LAPS_MASK == 0);

/// Pages whose words are allocated together: a stretch of 2 MiB has 4 KiB of words.
const CHUNK_PAGES: u64 = 512;
const CHUNK_WORDS: usize = 512;
const _: () = assert!(CHUNK_WORDS as u64 == CHUNK_PAGES);

/// What a page word says, without its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState {
    /// The kernel's page table says all there is to know.
    Plain,
    /// Swapped out to the entry.
    Swapped(Entry),
    /// Resident and write-protected, with the same content as the entry.
    Kept(Entry),
}

/// One page's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageWord(u64);

impl PageWord {
    /// The word of a page that vswap knows nothing of.
    pub const PLAIN: PageWord = PageWord(0);

    /// A page that is out.
    pub fn swapped(entry: Entry) -> PageWord {
        debug_assert!(entry.raw() & !ENTRY_MASK == 0);
        PageWord(entry.raw())
    }

    /// A page that came back for reading and has kept its entry.
    pub fn kept(entry: Entry) -> PageWord {
        PageWord(PageWord::swapped(entry).0 | KEPT)
    }

    /// Decode.
    pub fn state(self) -> PageState {
        match Entry::from_raw(self.0 & ENTRY_MASK) {
            None => PageState::Plain,
            Some(entry) if self.0 & KEPT != 0 => PageState::Kept(entry),
            Some(entry) => PageState::Swapped(entry),
        }
    }

    /// The entry that the word holds a reference to, swapped or kept.
    pub fn entry(self) -> Option<Entry> {
        Entry::from_raw(self.0 & ENTRY_MASK)
    }

    /// The word of a page that is out, with or without a marker in its place.
    pub fn with_mark(self, marked: bool) -> PageWord {
        debug_assert!(matches!(self.state(), PageState::Swapped(_)));
        PageWord(self.0 & !MARKED | if marked { MARKED } else { 0 })
    }

    /// Is the page out, with a marker in its place?
    pub fn is_marked(self) -> bool {
        self.0 & MARKED != 0 && matches!(self.state(), PageState::Swapped(_))
    }

    /// Is the page out?
    pub fn is_swapped(self) -> bool {
        matches!(self.state(), PageState::Swapped(_))
    }

    /// Is somebody carrying the page?
    pub fn is_claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }

    /// How often in a row the page came back early.
    pub fn heat(self) -> Heat {
        Heat::from_bits(self.0 >> HEAT_SHIFT)
    }

    /// Does the next sweep pass the page over?
    pub fn is_spared(self) -> bool {
        self.0 & LAPS_MASK != 0
    }

    /// The word of a resident page that came back with this heat.
    pub fn returned(self, heat: Heat) -> PageWord {
        let age = heat.bits() << HEAT_SHIFT | u64::from(heat.laps()) << LAPS_SHIFT;
        PageWord(self.0 & !AGE_MASK | age)
    }

    /// The word of a spared page after a sweep has passed it over.
    pub fn swept(self) -> PageWord {
        PageWord(self.0 - LAP)
    }

    /// The word of a kept page after a write: plain, and as hot as before.
    pub fn written(self) -> PageWord {
        PageWord(self.0 & AGE_MASK)
    }

    /// The same word with the claim set or lifted.
    pub fn with_claim(self, claimed: bool) -> PageWord {
        PageWord(if claimed {
            self.0 | CLAIMED
        } else {
            self.0 & !CLAIMED
        })
    }
}

#[derive(Debug, Clone)]
struct Chunk {
    words: [PageWord; CHUNK_WORDS],
    /// Words that are not PLAIN. The chunk is dropped at 0.
    used: u32,
}

/// All page words of a space, sparse: a stretch with PLAIN words alone costs nothing. A clone shares its chunks with
/// the original until either changes a word in them, as page tables would if forks shared them.
#[derive(Debug, Clone, Default)]
pub struct PageWords {
    chunks: BTreeMap<u64, Arc<Chunk>>,
    /// Words of pages that are out.
    swapped: u64,
}

impl PageWords {
    /// How many pages are out.
    pub fn swapped(&self) -> u64 {
        self.swapped
    }

    /// Are all words PLAIN?
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The word of `page`.
    pub fn get(&self, page: u64) -> PageWord {
        self.chunks
            .get(&(page / CHUNK_PAGES))
            .map_or(PageWord::PLAIN, |chunk| chunk.words[slot(page)])
    }

    /// Replace the word of `page` and return the old one.
    pub fn set(&mut self, page: u64, word: PageWord) -> PageWord {
        let index = page / CHUNK_PAGES;
        if word == PageWord::PLAIN && !self.chunks.contains_key(&index) {
            return PageWord::PLAIN;
        }
        let chunk = self.chunks.entry(index).or_insert_with(|| {
            Arc::new(Chunk {
                words: [PageWord::PLAIN; CHUNK_WORDS],
                used: 0,
            })
        });
        let old = chunk.words[slot(page)];
        if old == word {
            return old;
        }
        let chunk = Arc::make_mut(chunk);
        chunk.words[slot(page)] = word;
        chunk.used += u32::from(word != PageWord::PLAIN);
        chunk.used -= u32::from(old != PageWord::PLAIN);
        self.swapped += u64::from(word.is_swapped());
        self.swapped -= u64::from(old.is_swapped());
        if chunk.used == 0 {
            self.chunks.remove(&index);
        }
        old
    }

    /// Pages of `range` whose word is not PLAIN, in address order.
    pub fn iter(&self, range: Range<u64>) -> impl Iterator<Item = (u64, PageWord)> + '_ {
        let chunks = range.start / CHUNK_PAGES
            ..range
                .end
                .div_ceil(CHUNK_PAGES)
                .max(range.start / CHUNK_PAGES);
        self.chunks
            .range(chunks)
            .flat_map(|(&index, chunk)| {
                chunk
                    .words
                    .iter()
                    .zip(index * CHUNK_PAGES..)
                    .map(|(&word, page)| (page, word))
            })
            .filter(move |(page, word)| *word != PageWord::PLAIN && range.contains(page))
    }

    /// Pages of `range` that are out, of those blocks of `block_pages` pages alone whose first page `is_wanted`. A
    /// block does not cross the end of a chunk.
    pub fn swapped_in_blocks(
        &self,
        range: Range<u64>,
        block_pages: u64,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        debug_assert!(CHUNK_PAGES.is_multiple_of(block_pages));
        let chunks = range.start / CHUNK_PAGES..range.end.div_ceil(CHUNK_PAGES);
        let mut pages = Vec::new();
        for (&index, chunk) in self
            .chunks
            .range(chunks.start..chunks.end.max(chunks.start))
        {
            let blocks = (0..CHUNK_PAGES / block_pages)
                .map(|block| index * CHUNK_PAGES + block * block_pages);
            let wanted = blocks.filter(|first| is_wanted(*first));
            let all = wanted.flat_map(|first| first..first + block_pages);
            let is_out = |page: &u64| range.contains(page) && chunk.words[slot(*page)].is_swapped();
            pages.extend(all.filter(is_out));
        }
        pages
    }

    /// Take all words of `range` out that are not PLAIN, in address order; they are PLAIN afterwards. Whole chunks
    /// leave as they are, so what is taken is not listed page by page: one call may unmap a terabyte that is out.
    pub fn take(&mut self, range: Range<u64>) -> impl Iterator<Item = (u64, PageWord)> + use<> {
        let last = range.end / CHUNK_PAGES * CHUNK_PAGES;
        let first = range.start.next_multiple_of(CHUNK_PAGES);
        let (before, whole, after) = if first < last {
            (range.start..first, first..last, last..range.end)
        } else {
            (range.clone(), 0..0, range.end..range.end)
        };
        let before = self.take_listed(before);
        let chunks = self.take_chunks(whole);
        let after = self.take_listed(after);
        let taken = chunks.into_iter().flat_map(|(index, chunk)| {
            let pages = index * CHUNK_PAGES..(index + 1) * CHUNK_PAGES;
            pages
                .map(move |page| (page, chunk.words[slot(page)]))
                .filter(|(_, word)| *word != PageWord::PLAIN)
        });
        before.into_iter().chain(taken).chain(after)
    }

    /// The words of a part of a chunk or two.
    fn take_listed(&mut self, range: Range<u64>) -> Vec<(u64, PageWord)> {
        let taken: Vec<(u64, PageWord)> = self.iter(range).collect();
        for &(page, _) in &taken {
            self.set(page, PageWord::PLAIN);
        }
        taken
    }

    /// The chunks of `range`, which begins and ends with one.
    fn take_chunks(&mut self, range: Range<u64>) -> Vec<(u64, Arc<Chunk>)> {
        let (first, end) = (range.start / CHUNK_PAGES, range.end / CHUNK_PAGES);
        let indexes: Vec<u64> = self.chunks.range(first..end).map(|(&at, _)| at).collect();
        let mut taken = Vec::with_capacity(indexes.len());
        for index in indexes {
            if let Some(chunk) = self.chunks.remove(&index) {
                let swapped = chunk.words.iter().filter(|word| word.is_swapped());
                self.swapped -= swapped.count() as u64;
                taken.push((index, chunk));
            }
        }
        taken
    }

    /// Take all words out that are wanted, in address order. No more than those of one chunk are listed at a time.
    pub fn take_wanted(
        &mut self,
        is_wanted: impl Fn(PageWord) -> bool,
        mut taken: impl FnMut(PageWord),
    ) {
        let mut from = 0;
        while let Some(index) = self.chunks.range(from..).next().map(|(&index, _)| index) {
            from = index + 1;
            let all = self.iter(index * CHUNK_PAGES..from * CHUNK_PAGES);
            let wanted: Vec<(u64, PageWord)> = all.filter(|(_, word)| is_wanted(*word)).collect();
            for (page, word) in wanted {
                self.set(page, PageWord::PLAIN);
                taken(word);
            }
        }
    }

    /// Does each chunk count its words that are not PLAIN correctly, and has each some? Are those of pages that are out
    /// counted correctly?
    pub fn is_valid(&self) -> bool {
        let used = |chunk: &Chunk| {
            let words = chunk.words.iter();
            words.filter(|word| **word != PageWord::PLAIN).count()
        };
        let words = self.chunks.values().flat_map(|chunk| chunk.words.iter());
        let swapped = words.filter(|word| word.is_swapped()).count() as u64;
        let is_counted = swapped == self.swapped;
        is_counted
            && self
                .chunks
                .values()
                .all(|chunk| chunk.used > 0 && used(chunk) == chunk.used as usize)
    }

    /// The words that hold a reference, in address order. A chunk is freed when its words are done.
    pub fn into_references(self) -> impl Iterator<Item = PageWord> {
        let words = self.chunks.into_values().flat_map(|chunk| chunk.words);
        words.filter(|word| word.entry().is_some())
    }

    /// Every word that is not PLAIN.
    pub fn iter_all(&self) -> impl Iterator<Item = (u64, PageWord)> + '_ {
        self.iter(0..u64::MAX / CHUNK_PAGES * CHUNK_PAGES)
    }
}

fn slot(page: u64) -> usize {
    // The remainder fits any integer.
    usize::try_from(page % CHUNK_PAGES).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Raw entries of the virtual area begin with this.
    const AREA: u64 = 1 << 48;

    fn entry(slot: u64) -> Entry {
        Entry::from_raw(AREA + slot).expect("a slot of the virtual area")
    }

    #[test]
    fn how_a_page_came_back_is_known_while_it_is_resident() {
        let heats: Vec<Heat> = (0..4).map(Heat::from_bits).collect();
        for &heat in &heats {
            let mut word = PageWord::PLAIN.returned(heat);
            for _ in 0..heat.laps() {
                assert!(word.is_spared());
                word = word.swept();
            }
            assert!(!word.is_spared());
            assert_eq!((word.state(), word.heat()), (PageState::Plain, heat));
        }
        let entry = entry(77);
        let kept = PageWord::kept(entry).returned(heats[3]);
        assert_eq!(kept.state(), PageState::Kept(entry));
        assert_eq!(
            (kept.written().entry(), kept.written().heat()),
            (None, heats[3])
        );
        assert_eq!(PageWord::kept(entry).written(), PageWord::PLAIN);
    }

    #[test]
    fn words_round_trip_at_the_extremes() {
        for raw in [0, 1, (1 << 41) - 513] {
            let swapped = PageWord::swapped(entry(raw));
            assert_eq!(swapped.state(), PageState::Swapped(entry(raw)));
            assert_eq!(
                PageWord::kept(entry(raw)).state(),
                PageState::Kept(entry(raw))
            );
            let flagged = swapped.with_claim(true);
            assert_eq!(flagged.state(), PageState::Swapped(entry(raw)));
            assert!(flagged.is_claimed());
            assert_eq!(flagged.with_claim(false), swapped);
        }
        assert_eq!(PageWord::PLAIN.state(), PageState::Plain);
    }

    #[test]
    fn what_is_wanted_is_taken_from_all_chunks_and_nothing_else() {
        let mut words = PageWords::default();
        let pages = 3 * CHUNK_PAGES - 5..5 * CHUNK_PAGES + 7;
        for page in pages.clone() {
            words.set(page, PageWord::swapped(entry(page)));
        }
        // A chunk of them is taken whole.
        let is_kept = |page: &u64| page.is_multiple_of(3) || page / CHUNK_PAGES == 4;
        let kept: Vec<u64> = pages.clone().filter(is_kept).collect();
        for &page in &kept {
            words.set(page, PageWord::kept(entry(page)));
        }
        let other = words.clone();
        let mut taken = Vec::new();
        let is_wanted = |word: PageWord| matches!(word.state(), PageState::Kept(_));
        words.take_wanted(is_wanted, |word| taken.extend(word.entry()));
        assert_eq!(
            taken,
            kept.iter().map(|&page| entry(page)).collect::<Vec<_>>()
        );
        assert_eq!(words.iter_all().count() as u64, words.swapped());
        assert_eq!(words.swapped(), other.swapped());
        assert!(words.is_valid() && other.is_valid());
        assert_eq!(other.iter_all().count() as u64, pages.end - pages.start);
    }

    #[test]
    fn a_clone_shares_what_neither_side_has_changed() {
        let mut parent = PageWords::default();
        for page in 0..3 * CHUNK_PAGES {
            parent.set(page, PageWord::swapped(entry(page)));
        }
        let mut child = parent.clone();
        let shared = |a: &PageWords, b: &PageWords| {
            let pairs = a.chunks.values().zip(b.chunks.values());
            pairs.map(|(a, b)| Arc::ptr_eq(a, b)).collect::<Vec<_>>()
        };
        assert_eq!(shared(&parent, &child), [true; 3]);
        child.set(CHUNK_PAGES, PageWord::swapped(entry(CHUNK_PAGES)));
        assert_eq!(shared(&parent, &child), [true; 3], "the same word again");
        child.set(CHUNK_PAGES, PageWord::PLAIN);
        parent.set(2 * CHUNK_PAGES + 7, PageWord::kept(entry(1)));
        assert_eq!(shared(&parent, &child), [true, false, false]);
        assert_eq!(child.get(CHUNK_PAGES), PageWord::PLAIN);
        assert_eq!(parent.get(CHUNK_PAGES).entry(), Some(entry(CHUNK_PAGES)));
        let page = 2 * CHUNK_PAGES + 7;
        assert_eq!(child.get(page), PageWord::swapped(entry(page)));
        assert_eq!(child.take(0..CHUNK_PAGES).count(), 512);
        assert_eq!(
            (parent.iter_all().count(), child.iter_all().count()),
            (1536, 1023)
        );
    }

    proptest! {
        #[test]
        fn sparse_words_behave_as_a_map(
            steps in prop::collection::vec((0u64..3000, 0u64..5), 1..200),
            from in 0u64..3000,
            pages in 0u64..2500,
        ) {
            let mut words = PageWords::default();
            let mut model = BTreeMap::new();
            for (page, raw) in steps {
                let word = if raw == 0 { PageWord::PLAIN } else { PageWord::swapped(entry(raw)) };
                let old = words.set(page, word);
                prop_assert_eq!(old, model.insert(page, word).unwrap_or(PageWord::PLAIN));
            }
            model.retain(|_, word| *word != PageWord::PLAIN);
            let expected: Vec<(u64, PageWord)> = model.into_iter().collect();
            prop_assert_eq!(words.swapped(), expected.len() as u64);
            prop_assert_eq!(words.iter_all().collect::<Vec<_>>(), expected.clone());
            prop_assert!(words.is_valid());
            let cut = from..from + pages;
            let (taken, left): (Vec<_>, Vec<_>) = expected.into_iter().partition(|(page, _)| cut.contains(page));
            prop_assert_eq!(words.take(cut).collect::<Vec<_>>(), taken);
            prop_assert_eq!(words.iter_all().collect::<Vec<_>>(), left);
            prop_assert!(words.is_valid());
        }
    }
}
