//! The header of a swap area: its page 0, in the format that Linux and util-linux share.
//!
//! Pure bytes, no state. A header is only a claim by whoever wrote it, and the area may have been cut, copied or
//! damaged since. So [`decode`] checks the bound of every number before it uses the number. Every reason to refuse a
//! header has its own error.
//!
//! ```text
//!      0  1024 bytes that are left to boot loaders
//!   1024  version: 1
//!   1028  number of the last page; the header itself is page 0
//!   1032  how many bad pages follow
//!   1036  UUID, 16 bytes
//!   1052  label, 16 bytes, filled up with zeros
//!   1068  zeros
//!   1536  numbers of the bad pages, at most 637
//!   4086  "SWAPSPACE2", the last 10 bytes of the page
//! ```
//!
//! Numbers are 32 bits wide, in the byte order of the machine that wrote them. A machine with larger pages puts the
//! magic at the end of its own first page, and counts in its own pages.

mod label;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use thiserror::Error;

pub use label::{Label, LabelError};

use crate::base::pages::PAGE_BYTES;

/// Bytes at the start that are not part of the header.
pub const BOOT_BYTES: usize = 1024;
const VERSION_AT: usize = 1024;
const LAST_PAGE_AT: usize = 1028;
const BAD_COUNT_AT: usize = 1032;
const UUID_AT: usize = 1036;
const LABEL_AT: usize = 1052;
const BAD_PAGES_AT: usize = 1536;

/// Bytes of a magic or signature at the end of the first page.
const MAGIC_BYTES: usize = 10;
const MAGIC_AT: usize = PAGE_BYTES - MAGIC_BYTES;
const MAGIC: &[u8; MAGIC_BYTES] = b"SWAPSPACE2";
/// The format before version 1, without label, UUID and version.
const MAGIC_OLD: &[u8; MAGIC_BYTES] = b"SWAP-SPACE";
/// These replace the magic while the area holds a hibernated system: two from the kernel, those of the user-space image
/// and of the compressed image, and that of TuxOnIce.
const SUSPENDED: [&[u8]; 5] = [
    b"S1SUSPEND\0",
    b"S2SUSPEND\0",
    b"ULSUSPEND\0",
    b"LINHIB0001",
    b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c",
];
/// Page sizes of Linux whose headers [`signature`] recognises. It looks at no more bytes than the largest.
const PAGE_SIZES_BYTES: [usize; 4] = [PAGE_BYTES, 8192, 16384, HEAD_BYTES];
/// How many bytes from the start of an area [`signature`] and [`decode`] want, if the area has that many.
pub const HEAD_BYTES: usize = 65536;

const VERSION: u32 = 1;
/// The most bad pages: their list ends where the magic begins.
pub const BAD_PAGES_MAX: usize = (MAGIC_AT - BAD_PAGES_AT) / size_of::<u32>();
/// The fewest pages of a new area, including the header. util-linux makes none with fewer.
pub const PAGES_MIN: u64 = 10;
/// The most pages of an area, including the header: Linux counts the pages of an area in 32 bits.
pub const PAGES_MAX: u64 = u32::MAX as u64;

/// Bytes of a page in the type of file sizes.
const PAGE_BYTES_64: u64 = PAGE_BYTES as u64;

const _: () = assert!(BAD_PAGES_MAX == 637);
const _: () = assert!(LABEL_AT == UUID_AT + size_of::<Uuid>());
const _: () = assert!(LABEL_AT + label::FIELD_BYTES <= BAD_PAGES_AT);
// The size of an area in bytes never overflows.
const _: () = assert!(PAGES_MAX <= u64::MAX / PAGE_BYTES_64);

/// A UUID as in the header. All zeros means none.
pub type Uuid = [u8; 16];

/// What an area is stored on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    RegularFile,
    /// A block device.
    BlockDevice,
}

/// What an area is stored on, and how long that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Medium {
    /// File or device.
    pub kind: Kind,
    /// Length in bytes.
    pub bytes: u64,
}

/// What the start of a file or device says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// A swap area of a machine with pages of this size.
    Swap {
        /// Bytes of its pages.
        page_bytes: usize,
    },
    /// A swap area of the format before version 1.
    Old,
    /// A swap area that holds a hibernated system.
    Suspended,
    /// Not a swap area.
    None,
}

/// The header of an area, as [`decode`] accepted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Pages of the area, including the header; at most [`PAGES_MAX`].
    pub pages: u64,
    /// Pages that the header names beyond [`PAGES_MAX`]. They cannot be used.
    pub dropped_pages: u64,
    /// Pages that hold slots: neither the header nor bad. At least one.
    pub usable_pages: u64,
    /// Pages of the area that must not be used, ascending.
    pub bad_pages: Vec<u32>,
    /// The label, if there is one.
    pub label: Option<Label>,
    /// The UUID. All zeros means none.
    pub uuid: Uuid,
    /// Whether a machine of the other byte order wrote the header. The content of pages does not depend on that.
    pub foreign_endian: bool,
}

/// Why the start of a file or device is not the header of a usable area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Less than one page.
    #[error(
        "{bytes} bytes are no swap area: its header alone takes {PAGE_BYTES}. Make it larger, then an area of it"
    )]
    Short {
        /// How many bytes there are.
        bytes: usize,
    },
    /// No magic at the end of the first page.
    #[error("no swap area: its first page does not end in SWAPSPACE2. Make one of it first")]
    NotSwap,
    /// SWAP-SPACE, the format before version 1.
    #[error(
        "a swap area of the old format (SWAP-SPACE), expected version 1 (SWAPSPACE2). Make it anew"
    )]
    OldFormat,
    /// A signature of hibernation.
    #[error(
        "a hibernated system lies in it, and to use it would destroy that. Resume that system, or make it anew"
    )]
    Suspended,
    /// The magic at the end of a larger page.
    #[error(
        "a swap area for pages of {page_bytes} bytes, expected {PAGE_BYTES}. Make it anew on this machine"
    )]
    OtherPageSize {
        /// Bytes of its pages.
        page_bytes: usize,
    },
    /// A version that is not 1 in either byte order.
    #[error("a swap area of version {version}, expected version 1. Make it anew")]
    Version {
        /// What stands in place of the version.
        version: u32,
    },
    /// Page 0 is the last.
    #[error("a swap area without pages: its header names page 0 as the last. Make it anew")]
    NoPages,
    /// The file or device ends before the area's last page.
    #[error(
        "it is cut off: its header names {expected_bytes} bytes and it has {bytes}. Make it anew at this length"
    )]
    CutOff {
        /// How long it has to be.
        expected_bytes: u64,
        /// How long it is.
        bytes: u64,
    },
    /// Bad pages in a regular file.
    #[error(
        "its header names {count} bad pages, which only devices have. It is damaged or of a device: make it anew"
    )]
    BadPagesInFile {
        /// How many the header names.
        count: u32,
    },
    /// More bad pages than fit the header.
    #[error(
        "its header names {count} bad pages and holds {BAD_PAGES_MAX} at most. It is damaged: make it anew"
    )]
    TooManyBadPages {
        /// How many the header names.
        count: u32,
    },
    /// A bad page that is outside the area, or is the header.
    #[error(
        "its header names page {page} as bad, expected one from 1 to {last_page}. It is damaged: make it anew"
    )]
    BadPageOutside {
        /// The page.
        page: u32,
        /// Last page of the area.
        last_page: u32,
    },
    /// The same bad page twice.
    #[error("its header names page {page} as bad twice. It is damaged: make it anew")]
    BadPageTwice {
        /// The page.
        page: u32,
    },
    /// Every page but the header is bad.
    #[error("all pages of it are bad: nothing can be kept in it. Replace the device")]
    Empty,
}

/// What the first bytes of a file or device say that it is. `head` has [`HEAD_BYTES`] bytes, or fewer if there are not
/// as many.
#[must_use]
pub fn signature(head: &[u8]) -> Signature {
    for page_bytes in PAGE_SIZES_BYTES {
        let Some(end) = head.get(page_bytes - MAGIC_BYTES..page_bytes) else {
            break;
        };
        if end == MAGIC {
            return Signature::Swap { page_bytes };
        }
        if end == MAGIC_OLD {
            return Signature::Old;
        }
        if SUSPENDED.iter().any(|suspended| end.starts_with(suspended)) {
            return Signature::Suspended;
        }
    }
    Signature::None
}

/// Decodes the header of an area. `head` has the first [`HEAD_BYTES`] bytes of `medium`, or fewer if it is shorter.
/// With only one page, an area of another page size gives [`HeaderError::NotSwap`].
///
/// # Errors
/// The first thing found wrong; see [`HeaderError`].
pub fn decode(head: &[u8], medium: Medium) -> Result<Header, HeaderError> {
    let page: &[u8; PAGE_BYTES] = head
        .first_chunk()
        .ok_or(HeaderError::Short { bytes: head.len() })?;
    match signature(head) {
        Signature::Swap {
            page_bytes: PAGE_BYTES,
        } => {}
        Signature::Swap { page_bytes } => return Err(HeaderError::OtherPageSize { page_bytes }),
        Signature::Old => return Err(HeaderError::OldFormat),
        Signature::Suspended => return Err(HeaderError::Suspended),
        Signature::None => return Err(HeaderError::NotSwap),
    }
    let words = Words::of_version_1(page)?;
    let last_page = words.at(LAST_PAGE_AT);
    if last_page == 0 {
        return Err(HeaderError::NoPages);
    }
    let claimed_pages = u64::from(last_page) + 1;
    let pages = claimed_pages.min(PAGES_MAX);
    let expected_bytes = pages * PAGE_BYTES_64;
    if medium.bytes < expected_bytes {
        let bytes = medium.bytes;
        return Err(HeaderError::CutOff {
            expected_bytes,
            bytes,
        });
    }
    let mut bad_pages = bad_pages(words, last_page, medium.kind)?;
    // A bad page may be among the pages dropped beyond the limit.
    bad_pages.retain(|bad| u64::from(*bad) < pages);
    let usable_pages = (pages - 1)
        .checked_sub(bad_pages.len() as u64)
        .filter(|usable| *usable > 0)
        .ok_or(HeaderError::Empty)?;
    Ok(Header {
        pages,
        dropped_pages: claimed_pages - pages,
        usable_pages,
        bad_pages,
        label: Label::from_field(field(page, LABEL_AT)),
        uuid: *field(page, UUID_AT),
        foreign_endian: words.swapped,
    })
}

/// The numbers of a header, in this machine's byte order.
#[derive(Debug, Clone, Copy)]
struct Words<'a> {
    page: &'a [u8; PAGE_BYTES],
    swapped: bool,
}

impl<'a> Words<'a> {
    /// Finds the byte order in which the version is 1.
    fn of_version_1(page: &'a [u8; PAGE_BYTES]) -> Result<Words<'a>, HeaderError> {
        let version = u32::from_ne_bytes(*field(page, VERSION_AT));
        match (version, version.swap_bytes()) {
            (VERSION, _) => Ok(Words {
                page,
                swapped: false,
            }),
            (_, VERSION) => Ok(Words {
                page,
                swapped: true,
            }),
            _ => Err(HeaderError::Version { version }),
        }
    }

    /// The number at byte `at`.
    fn at(self, at: usize) -> u32 {
        let word = u32::from_ne_bytes(*field(self.page, at));
        if self.swapped {
            word.swap_bytes()
        } else {
            word
        }
    }
}

/// `N` bytes of a page from byte `at`, which is one of the offsets above.
fn field<const N: usize>(page: &[u8; PAGE_BYTES], at: usize) -> &[u8; N] {
    const {
        assert!(N <= PAGE_BYTES);
    }
    // Every offset above leaves room for its field, so the fallback is never used.
    page[at..].first_chunk().unwrap_or(&[0; N])
}

/// The bad pages that the header names, in ascending order.
fn bad_pages(words: Words<'_>, last_page: u32, kind: Kind) -> Result<Vec<u32>, HeaderError> {
    let count = words.at(BAD_COUNT_AT);
    if count == 0 {
        return Ok(Vec::new());
    }
    if kind == Kind::RegularFile {
        return Err(HeaderError::BadPagesInFile { count });
    }
    if count as usize > BAD_PAGES_MAX {
        return Err(HeaderError::TooManyBadPages { count });
    }
    let mut bad: Vec<u32> = (0..count as usize)
        .map(|index| words.at(BAD_PAGES_AT + index * size_of::<u32>()))
        .collect();
    bad.sort_unstable();
    for page in &bad {
        if *page == 0 || *page > last_page {
            let page = *page;
            return Err(HeaderError::BadPageOutside { page, last_page });
        }
    }
    match bad.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(HeaderError::BadPageTwice { page: pair[0] }),
        None => Ok(bad),
    }
}

/// A new header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Page 0 of the area. The bytes for boot loaders are zeros.
    pub page: [u8; PAGE_BYTES],
    /// Pages of the area, including the header.
    pub pages: u64,
    /// Whole pages of the file or device beyond [`PAGES_MAX`]. They are not part of the area.
    pub dropped_pages: u64,
}

/// A file or device is too small for an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "{bytes} bytes are too few for a swap area: it takes at least {} ({PAGES_MIN} pages). Make it larger",
    PAGES_MIN * PAGE_BYTES_64
)]
pub struct TooSmall {
    /// Its length.
    pub bytes: u64,
}

/// Encodes the header of a new area without bad pages, in a file or device of `bytes` bytes. A rest after the last
/// whole page is not used.
///
/// # Errors
/// [`TooSmall`] for fewer than [`PAGES_MIN`] pages.
pub fn encode(bytes: u64, label: Option<Label>, uuid: Uuid) -> Result<Encoded, TooSmall> {
    let whole_pages = bytes / PAGE_BYTES_64;
    if whole_pages < PAGES_MIN {
        return Err(TooSmall { bytes });
    }
    let pages = whole_pages.min(PAGES_MAX);
    let last_page = u32::try_from(pages - 1).map_err(|_| TooSmall { bytes })?;
    let mut page = [0; PAGE_BYTES];
    let mut put = |at: usize, field: &[u8]| page[at..at + field.len()].copy_from_slice(field);
    put(VERSION_AT, &VERSION.to_ne_bytes());
    put(LAST_PAGE_AT, &last_page.to_ne_bytes());
    put(UUID_AT, &uuid);
    if let Some(label) = label {
        put(LABEL_AT, &label.field());
    }
    put(MAGIC_AT, MAGIC);
    Ok(Encoded {
        page,
        pages,
        dropped_pages: whole_pages - pages,
    })
}
