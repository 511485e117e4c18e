//! The mark in the first page of an area that is used. What it is for stands in [`claim`](crate::nbd::claim).

use vswap_engine::Page;

/// Where the mark lies: between the label and the list of bad pages, where the format has nothing, behind the words
/// there that util-linux wants to be zeros.
const AT: usize = 1400;
const MAGIC: &[u8; 16] = b"used by a vswap\0";
/// The magic, the run's number, and how often the mark was renewed.
const BYTES: usize = 16 + 16 + 8;
/// Whose area it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub run: u128,
    pub renewed: u64,
}

impl Mark {
    pub(crate) fn of(page: &Page) -> Option<Mark> {
        let (magic, rest) = page.0[AT..AT + BYTES].split_first_chunk::<16>()?;
        let (run, rest) = rest.split_first_chunk()?;
        let renewed = u64::from_be_bytes(*rest.first_chunk()?);
        (magic == MAGIC).then_some(Mark {
            run: u128::from_be_bytes(*run),
            renewed,
        })
    }

    /// Puts a mark into a header, or takes it away.
    pub(crate) fn put(page: &mut Page, mark: Option<Mark>) {
        let place = &mut page.0[AT..AT + BYTES];
        place.fill(0);
        if let Some(Mark { run, renewed }) = mark {
            place[..16].copy_from_slice(MAGIC);
            place[16..32].copy_from_slice(&run.to_be_bytes());
            place[32..].copy_from_slice(&renewed.to_be_bytes());
        }
    }
}

/// Whether somebody uses the area, or has left it without a word.
pub(crate) fn is_marked(header: &Page) -> bool {
    Mark::of(header).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_lies_where_headers_have_nothing() {
        let made = vswap_engine::header::encode(1 << 20, None, [7; 16]).unwrap();
        let mut page = Page(made.page);
        assert_eq!(Mark::of(&page), None);
        let mark = Mark { run: 9, renewed: 3 };
        Mark::put(&mut page, Some(mark));
        assert_eq!(Mark::of(&page), Some(mark));
        assert!(is_marked(&page));
        let medium = vswap_engine::header::Medium {
            kind: vswap_engine::header::Kind::BlockDevice,
            bytes: 1 << 20,
        };
        let header = vswap_engine::header::decode(&page.0, medium).unwrap();
        assert_eq!((header.pages, header.uuid), (256, [7; 16]));
        Mark::put(&mut page, None);
        assert!(page.0 == made.page);
    }
}
