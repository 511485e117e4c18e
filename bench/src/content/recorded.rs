//! Pages of the heaps of real programs, recorded by `record-heaps`, as a file that is part of this program.
//!
//! The file is a line `vswap heaps 1`, a line `NAME PAGES` for each program, an empty line, and one zstd frame of all
//! pages in that order.

use crate::region::{PAGE_BYTES, PAGE_WORDS};

use super::PageWords;

/// What was recorded.
const HEAPS: &[u8] = include_bytes!("recorded.heaps");
/// The first line.
const MAGIC: &str = "vswap heaps 1";
/// A file that promises more pages than this is no sample.
const PAGES_MAX: usize = 1 << 14;
/// The densest level that needs no more memory to unpack than others.
const LEVEL: i32 = 19;

/// Pages of one program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Heap {
    /// The program.
    pub name: String,
    /// What was in its memory.
    pub pages: Vec<PageWords>,
}

/// The heaps that are part of this program.
///
/// # Errors
/// The file is damaged.
pub fn heaps() -> Result<Vec<Heap>, String> {
    read(HEAPS)
}

/// Reads such a file.
///
/// # Errors
/// It is none, or damaged.
pub fn read(file: &[u8]) -> Result<Vec<Heap>, String> {
    let end = file.windows(2).position(|two| two == b"\n\n");
    let end = end.ok_or("no empty line ends the header of recorded heaps")?;
    let header = std::str::from_utf8(&file[..end]).map_err(|error| error.to_string())?;
    let mut lines = header.lines();
    if lines.next() != Some(MAGIC) {
        return Err(format!(
            "expected recorded heaps, which begin with {MAGIC:?}"
        ));
    }
    let counts = lines.map(count).collect::<Result<Vec<_>, _>>()?;
    let pages: usize = counts.iter().map(|(_, pages)| pages).sum();
    if pages > PAGES_MAX {
        return Err(format!(
            "{pages} pages of heaps, expected {PAGES_MAX} at most"
        ));
    }
    let mut bytes = vec![0; pages * PAGE_BYTES];
    let unpacked = zstd_safe::decompress(&mut bytes[..], &file[end + 2..]);
    if unpacked != Ok(bytes.len()) {
        return Err(format!("recorded heaps do not unpack to {pages} pages"));
    }
    let mut pages = bytes.chunks_exact(PAGE_BYTES).map(words);
    let heaps = counts.into_iter().map(|(name, count)| Heap {
        name,
        pages: pages.by_ref().take(count).collect(),
    });
    Ok(heaps.collect())
}

/// Makes such a file.
///
/// # Errors
/// Memory is short, or a name is no word.
pub fn write(heaps: &[Heap]) -> Result<Vec<u8>, String> {
    let mut header = format!("{MAGIC}\n");
    let mut bytes = Vec::new();
    for Heap { name, pages } in heaps {
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("{name:?} is no word"));
        }
        header += &format!("{name} {}\n", pages.len());
        let words = pages.iter().flatten();
        bytes.extend(words.flat_map(|word| word.to_le_bytes()));
    }
    let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
    let packed_bytes = zstd_safe::compress(&mut packed[..], &bytes, LEVEL)
        .map_err(|code| zstd_safe::get_error_name(code).to_owned())?;
    packed.truncate(packed_bytes);
    Ok([header.as_bytes(), b"\n", &packed].concat())
}

/// The words of a page, or of the beginning of one.
#[must_use]
pub fn words(bytes: &[u8]) -> PageWords {
    let mut page = [0; PAGE_WORDS];
    for (word, bytes) in page.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    page
}

fn count(line: &str) -> Result<(String, usize), String> {
    let count = line.split_once(' ').and_then(|(name, pages)| {
        let pages = pages.parse().ok()?;
        Some((name.to_owned(), pages))
    });
    count.ok_or_else(|| format!("{line:?} names no program and its pages"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// What is recorded is small and wide enough to stand for heaps.
    #[test]
    fn the_sample_has_different_pages_of_several_programs() {
        assert!(HEAPS.len() <= 600 << 10, "{} bytes", HEAPS.len());
        let heaps = heaps().unwrap();
        let names: Vec<&str> = heaps.iter().map(|heap| heap.name.as_str()).collect();
        assert_eq!(names, ["redis", "python", "java", "node", "sqlite", "gcc"]);
        let pages: Vec<&PageWords> = heaps.iter().flat_map(|heap| &heap.pages).collect();
        assert!(heaps.iter().all(|heap| heap.pages.len() == 64));
        assert_eq!(pages.iter().collect::<HashSet<_>>().len(), 6 * 64);
        assert!(!pages.contains(&&[0; PAGE_WORDS]));
    }

    #[test]
    fn what_is_written_is_read() {
        let heap = |name: &str, seed| Heap {
            name: name.to_owned(),
            pages: vec![[seed; PAGE_WORDS]; 3],
        };
        let heaps = [heap("a", 1), heap("b", u64::MAX)];
        let file = write(&heaps).unwrap();
        assert_eq!(read(&file).unwrap(), heaps);
        assert!(write(&[heap("a b", 1)]).unwrap_err().contains("no word"));
    }

    #[test]
    fn damage_is_noticed() {
        let heap = Heap {
            name: "a".to_owned(),
            pages: vec![[7; PAGE_WORDS]],
        };
        let file = write(&[heap]).unwrap();
        let text = String::from_utf8_lossy(&file).into_owned();
        for (bad, expected) in [
            (&file[..file.len() - 1], "do not unpack to 1 pages"),
            (&file[..5], "no empty line"),
            (&b"vswap heaps 2\n\n"[..], "expected recorded heaps"),
            (&b"vswap heaps 1\na\n\n"[..], "names no program"),
            (&b"vswap heaps 1\na 99999999\n\n"[..], "16384 at most"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(expected), "{error}: {text}");
        }
    }
}
