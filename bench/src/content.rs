//! What pages contain: cheap to make, recomputable from (seed, page index, version), of known compressibility.
//!
//! Each kind has a set of template pages, made once from the seed. A page is a copy of a template with a few words of
//! its own patched in, one per quarter, so that a quarter of another page never passes for its own. One further word,
//! the *stamp*, changes with the version. Reading or writing a page at random touches only the stamp. The templates of
//! recorded content are pages of real programs (`recorded.rs`), the same for every seed.

pub mod recorded;

use std::str::FromStr;

use crate::random::{Random, mix};
use crate::region::PAGE_WORDS;

/// Templates per seed. They take 256 KiB, which stay in a second-level cache while pages are filled.
const TEMPLATES: usize = 64;
/// Words between patched words: one word is patched in each quarter of a page.
const PATCH_STRIDE_WORDS: usize = PAGE_WORDS / 4;
/// Offset of the patched word in its quarter. It is not at the start of a 64-byte line, because mixed content fills
/// lines with runs.
const PATCH_OFFSET_WORDS: usize = 13;
/// zstd's fastest ordinary level.
const ZSTD_LEVEL: i32 = 1;
/// Number of words in the vocabulary of text.
const VOCABULARY: usize = 1200;

/// One page of words.
pub type PageWords = [u64; PAGE_WORDS];

/// Kinds of content.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Kind {
    /// Records, runs and noise in a mixture that lz4 compresses 2-3x, as real heaps do.
    Mixed,
    /// Zero pages until they are written.
    Zero,
    /// Words of a small vocabulary, frequent ones first.
    Text,
    /// Objects as an allocator lays them out: pointers, counts, short strings, free space.
    Heap,
    /// Bytes that do not compress.
    Random,
    /// Pages of the heaps of real programs.
    Recorded,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Self as clap::ValueEnum>::from_str(text, true)
    }
}

/// Content of all pages for one seed and kind.
#[derive(Debug)]
pub struct Content {
    seed: u64,
    kind: Kind,
    templates: Vec<PageWords>,
}

impl Content {
    /// Makes the templates.
    #[must_use]
    pub fn new(seed: u64, kind: Kind) -> Self {
        let mut random = Random::new(seed);
        let words = vocabulary(&mut random);
        let mut make = || match kind {
            Kind::Mixed => mixed(&mut random),
            Kind::Text => text(&mut random, &words),
            Kind::Heap => heap(&mut random),
            Kind::Random => std::array::from_fn(|_| random.next()),
            Kind::Zero | Kind::Recorded => [0; PAGE_WORDS],
        };
        let templates = match kind {
            Kind::Recorded => recorded_pages(),
            _ => (0..TEMPLATES).map(|_| make()).collect(),
        };
        Self {
            seed,
            kind,
            templates,
        }
    }

    /// Index of the stamp word of page `index`.
    #[must_use]
    pub fn stamp_word(&self, index: usize) -> usize {
        // The modulus is PAGE_WORDS, so the index always fits.
        usize::try_from(mix(self.seed ^ (index as u64) << 1) % PAGE_WORDS as u64).unwrap_or(0)
    }

    /// The stamp of page `index` at `version`.
    #[must_use]
    pub fn stamp(&self, index: usize, version: u32) -> u64 {
        if self.kind == Kind::Zero && version == 0 {
            return 0;
        }
        mix(self.seed.rotate_left(17) ^ (index as u64) << 24 ^ u64::from(version)) | 1
    }

    /// Writes page `index` at `version` into `page`.
    pub fn generate(&self, index: usize, version: u32, page: &mut PageWords) {
        let own = mix(self.seed ^ (index as u64) << 20);
        let template = usize::try_from(own % self.templates.len() as u64).unwrap_or(0);
        *page = self.templates[template];
        if self.kind != Kind::Zero {
            let mut patch = own;
            for word in page
                .iter_mut()
                .skip(PATCH_OFFSET_WORDS)
                .step_by(PATCH_STRIDE_WORDS)
            {
                patch = patch.wrapping_add(own | 1).rotate_left(23);
                *word = patch;
            }
        }
        page[self.stamp_word(index)] = self.stamp(index, version);
    }

    /// The ratio at which lz4 compresses the pages, measured on `sample` of them.
    ///
    /// Pages that do not shrink count as stored raw, as a swap engine would store them.
    #[must_use]
    pub fn lz4_ratio(&self, sample: usize) -> f64 {
        self.ratio(sample, lz4_bytes)
    }

    /// The same for zstd with its level 1.
    #[must_use]
    pub fn zstd_ratio(&self, sample: usize) -> f64 {
        self.ratio(sample, zstd_bytes)
    }

    #[expect(clippy::cast_precision_loss, reason = "byte counts are far below 2^53")]
    fn ratio(&self, sample: usize, packed_bytes: fn(&PageWords) -> Option<usize>) -> f64 {
        let mut page = [0; PAGE_WORDS];
        let bytes = size_of::<PageWords>();
        let mut stored = 0usize;
        for index in 0..sample {
            self.generate(index * 7 + 1, 0, &mut page);
            stored += packed_bytes(&page).unwrap_or(bytes).min(bytes);
        }
        (bytes * sample) as f64 / stored.max(1) as f64
    }
}

/// The size of a page compressed with lz4, or `None` if that is no smaller than a page.
fn lz4_bytes(page: &PageWords) -> Option<usize> {
    let mut out = [0u8; size_of::<PageWords>()];
    let len = i32::try_from(size_of::<PageWords>()).ok()?;
    // SAFETY: both buffers are `len` bytes long, and the call writes no more than that. The lz4 library is in C.
    let written = unsafe {
        lz4_sys::LZ4_compress_default(page.as_ptr().cast(), out.as_mut_ptr().cast(), len, len)
    };
    usize::try_from(written).ok().filter(|&bytes| bytes > 0)
}

/// The same for zstd.
fn zstd_bytes(page: &PageWords) -> Option<usize> {
    let mut out = [0u8; size_of::<PageWords>()];
    let mut bytes = [0u8; size_of::<PageWords>()];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(page) {
        *bytes = word.to_le_bytes();
    }
    zstd_safe::compress(&mut out[..], &bytes, ZSTD_LEVEL).ok()
}

/// The recorded pages of all programs.
///
/// # Panics
/// What this program was built with is damaged, which its tests notice.
fn recorded_pages() -> Vec<PageWords> {
    let heaps = recorded::heaps().expect("the recorded heaps that this program was built with");
    heaps.into_iter().flat_map(|heap| heap.pages).collect()
}

/// 64-byte lines: some noise, some runs of one word, the rest records with small numbers.
fn mixed(random: &mut Random) -> PageWords {
    let mut page = [0; PAGE_WORDS];
    let heap_base = 0x0000_5500_0000_0000 | (random.next() & 0xff_ffff_f000);
    for line in page.chunks_exact_mut(8) {
        match random.below(100) {
            0..22 => line.fill_with(|| random.next()),
            22..55 => line.fill(random.next() & 0xff),
            _ => {
                line[0] = heap_base + (random.next() & 0xffff) * 64;
                line[1] = random.next() & 0xff;
                line[2] = 0x0000_0001_0000_0000 | (random.next() & 0xf);
                line[3] = heap_base + (random.next() & 0xff) * 64;
                line[4] = u64::from(random.below(4) == 0);
            }
        }
    }
    page
}

/// Objects of 16 to 128 bytes, each with a size word like malloc's.
fn heap(random: &mut Random) -> PageWords {
    let mut page = [0; PAGE_WORDS];
    let heap_base = 0x0000_5600_0000_0000 | (random.next() & 0x3f_ffff_f000);
    let classes: [u64; 8] = std::array::from_fn(|n| 0x0000_7f3a_1200_0000 + n as u64 * 0x1a8);
    let mut at = 0;
    while at + 18 <= PAGE_WORDS {
        let words = 2 + 2 * random.below(8);
        page[at] = (words as u64 * 8) | 1;
        let used = random.below(10) < 8;
        for slot in 1..words {
            page[at + slot] = match (used, random.below(10)) {
                (false, _) => 0,
                (true, 0..2) => classes[random.below(8)],
                (true, 2..6) => heap_base + (random.next() & 0xf_ffff) * 16,
                (true, 6..8) => random.next() & 0x3ff,
                (true, 8) => u64::from_le_bytes(*b"user:000") + (random.next() & 0x7_0707 << 40),
                _ => 0,
            };
        }
        at += words;
    }
    page
}

fn vocabulary(random: &mut Random) -> Vec<Vec<u8>> {
    const LETTERS: &[u8; 32] = b"eeeetttaaaooiinnsshhrrddllcumwfg";
    (0..VOCABULARY)
        .map(|_| {
            let len = 2 + random.below(4) + random.below(5);
            (0..len)
                .map(|_| LETTERS[random.below(LETTERS.len())])
                .collect()
        })
        .collect()
}

fn text(random: &mut Random, words: &[Vec<u8>]) -> PageWords {
    let mut bytes = Vec::with_capacity(size_of::<PageWords>() + 16);
    while bytes.len() < size_of::<PageWords>() {
        // Each pick bounds the next, which strongly favours the front of the vocabulary.
        let pick = (0..3).fold(words.len(), |bound, _| random.below(bound.max(1)));
        bytes.extend_from_slice(&words[pick]);
        bytes.extend_from_slice(if random.below(12) == 0 { b".\n" } else { b" " });
    }
    let mut page = [0; PAGE_WORDS];
    for (word, chunk) in page.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn equal_seeds_make_equal_pages_and_every_version_and_index_differs() {
        let (a, b) = (Content::new(1, Kind::Mixed), Content::new(1, Kind::Mixed));
        let mut pages = [[0; PAGE_WORDS]; 4];
        a.generate(5, 0, &mut pages[0]);
        b.generate(5, 0, &mut pages[1]);
        a.generate(5, 1, &mut pages[2]);
        a.generate(6, 0, &mut pages[3]);
        assert_eq!(pages[0], pages[1]);
        assert_ne!(pages[0], pages[2]);
        assert_ne!(pages[0], pages[3]);
        let other = Content::new(2, Kind::Mixed);
        other.generate(5, 0, &mut pages[1]);
        assert_ne!(pages[0], pages[1]);
    }

    #[test]
    fn a_version_changes_the_stamp_word_alone() {
        let content = Content::new(9, Kind::Heap);
        let (mut old, mut new) = ([0; PAGE_WORDS], [0; PAGE_WORDS]);
        for index in 0..100 {
            content.generate(index, 3, &mut old);
            content.generate(index, 4, &mut new);
            old[content.stamp_word(index)] = content.stamp(index, 4);
            assert_eq!(old, new);
        }
    }

    #[test]
    fn the_default_compresses_two_to_three_times_and_random_not_at_all() {
        for seed in 0..4 {
            let ratio = Content::new(seed, Kind::Mixed).lz4_ratio(512);
            assert!((2.0..3.0).contains(&ratio), "mixed, seed {seed}: {ratio}");
        }
        let ratio = |kind| Content::new(1, kind).lz4_ratio(64);
        assert!((ratio(Kind::Random) - 1.0).abs() < 1e-9);
        assert!(ratio(Kind::Heap) > 1.5);
        assert!(ratio(Kind::Text) > 1.2);
        let mut page = [1; PAGE_WORDS];
        Content::new(1, Kind::Zero).generate(3, 0, &mut page);
        assert_eq!(page, [0; PAGE_WORDS]);
    }

    /// All but five words of a page are as they were recorded, and all recorded pages are used.
    #[test]
    fn recorded_pages_are_real_ones_with_words_of_their_own() {
        let content = Content::new(3, Kind::Recorded);
        let recorded = recorded_pages();
        let (mut page, mut rewritten) = ([0; PAGE_WORDS], [0; PAGE_WORDS]);
        let mut used = HashSet::new();
        for index in 0..4096 {
            content.generate(index, 0, &mut page);
            let differs = |of: &PageWords| of.iter().zip(&page).filter(|(a, b)| a != b).count();
            let nearest = (0..recorded.len()).min_by_key(|at| differs(&recorded[*at]));
            let nearest = nearest.unwrap();
            assert!(differs(&recorded[nearest]) <= 5, "page {index}");
            used.insert(nearest);
            content.generate(index, 7, &mut rewritten);
            page[content.stamp_word(index)] = content.stamp(index, 7);
            assert!(page == rewritten, "page {index}");
        }
        assert!(used.len() > recorded.len() * 9 / 10, "{}", used.len());
    }

    #[test]
    fn recorded_pages_compress_as_heaps_do_and_zstd_makes_less_of_them() {
        let content = Content::new(1, Kind::Recorded);
        let (lz4, zstd) = (content.lz4_ratio(2048), content.zstd_ratio(2048));
        assert!((1.5..6.0).contains(&lz4), "{lz4}");
        assert!(zstd > lz4 * 1.1, "{zstd}, and lz4 {lz4}");
    }
}
