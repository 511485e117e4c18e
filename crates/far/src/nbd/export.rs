//! What an export is and what lies in it: whether it is fit for an area, and making it one.
//!
//! Somebody's data may lie there, so what is no area and not blank is left alone. Blank means what `vswap mkswap` means
//! by it: zeros at both ends.

use aes_gcm::aead::Generate;
use vswap_engine::header::{self, HEAD_BYTES, Header, HeaderError, Kind, Medium, PAGES_MIN};
use vswap_engine::{PAGE_BYTES, Page};

use crate::nbd::connection::Request;
use crate::nbd::link::Link;
use crate::nbd::mark::is_marked;
use crate::nbd::protocol::{Command, Export};
use crate::nbd::spec::NbdSpec;
use crate::store::{FarError, Patience};

/// [`PAGE_BYTES`], for arithmetic with offsets.
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
/// Bytes at the start that must be zeros in a blank export.
const BLANK_HEAD_BYTES: u64 = 1 << 20;
/// The same at the end: some file systems and volumes keep a copy of what they are there.
const BLANK_TAIL_BYTES: u64 = 64 << 10;
/// Bytes of one request. A line of 2 Mbit/s carries as many within the time of one answer.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// What lies in an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A swap area.
    Area(Header),
    /// Nothing.
    Blank,
    /// Something else, and what.
    Other(String),
}

/// An export that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdProbe {
    /// What the server says of it.
    pub export: Export,
    /// What lies in it.
    pub content: Content,
    /// Whether a run uses the area in it, or has crashed and left it so.
    pub is_marked: bool,
}

/// Connects to an export and asks whether it is fit for an area. Its first page is written as it was read, so that
/// nothing has changed, if no data of others is in it and no run uses it. Blocks.
///
/// # Errors
/// [`FarError`] says what is wrong and what mends it.
pub fn probe(spec: &NbdSpec, patience: &Patience) -> Result<NbdProbe, FarError> {
    let link = Link::open(spec, patience, None)?;
    check(&link)?;
    let (content, head) = look(&link)?;
    let content = usable(&link, spec, content)?;
    let is_marked = is_marked(&head);
    if !is_marked {
        write_first_page(&link, &head)?;
    }
    Ok(NbdProbe {
        export: link.export,
        content,
        is_marked,
    })
}

/// Refuses what the server's own words make unfit.
pub(crate) fn check(link: &Link) -> Result<(), FarError> {
    let export = link.export;
    let least = PAGES_MIN * PAGE;
    let what = if export.read_only {
        "does not let its export be written: expected is one that is not read-only (nbdkit without -r, qemu-nbd \
         without -r)"
            .into()
    } else if export.bytes < least {
        format!(
            "has an export of {} bytes: expected are at least {least}; make it larger",
            export.bytes
        )
    } else if !PAGE.is_multiple_of(u64::from(export.block_bytes)) {
        format!(
            "takes blocks of {} bytes alone: expected are {PAGE} or a part of that; have the server write parts of \
             its blocks (nbdkit --filter=blocksize)",
            export.block_bytes
        )
    } else if u64::from(export.payload_bytes_max) < PAGE {
        format!(
            "takes requests of {} bytes at most: expected are at least {PAGE}",
            export.payload_bytes_max
        )
    } else {
        return Ok(());
    };
    Err(unfit(link, what))
}

pub(crate) fn unfit(link: &Link, what: String) -> FarError {
    FarError::Unfit {
        node: link.node.name.clone(),
        what,
    }
}

/// What lies in the export, and its first page.
fn look(link: &Link) -> Result<(Content, Page), FarError> {
    let bytes = link.export.bytes / PAGE * PAGE;
    let head = read(link, 0, BLANK_HEAD_BYTES.min(bytes))?;
    let tail_bytes = BLANK_TAIL_BYTES.min(bytes);
    let tail = read(link, bytes - tail_bytes, tail_bytes)?;
    let medium = Medium {
        kind: Kind::BlockDevice,
        bytes: link.export.bytes,
    };
    let first = head
        .first_chunk()
        .map_or_else(Page::zeroed, |page| Page(*page));
    Ok((judge(&head, &tail, medium), first))
}

fn judge(head: &[u8], tail: &[u8], medium: Medium) -> Content {
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let start = head.get(..HEAD_BYTES).unwrap_or(head);
    match header::decode(start, medium) {
        Ok(header) => Content::Area(header),
        Err(HeaderError::NotSwap) if is_blank(head) && is_blank(tail) => Content::Blank,
        Err(HeaderError::NotSwap) => Content::Other(
            "holds data: the first MiB and the last 64 KiB of its export are not all zeros".into(),
        ),
        Err(error) => Content::Other(format!("has an export that is no usable area: {error}")),
    }
}

/// Refuses what holds something else than an area, unless that was said to be of no use.
fn usable(link: &Link, spec: &NbdSpec, content: Content) -> Result<Content, FarError> {
    match content {
        Content::Other(what) if !spec.force => Err(unfit(
            link,
            format!(
                "{what}, and that would be lost: name another export, or add ?force if nobody needs it"
            ),
        )),
        content => Ok(content),
    }
}

/// Finds the area in an export, or makes one. Returns what its header says, and its first page.
///
/// # Errors
/// [`FarError`].
pub(crate) fn area(link: &Link, spec: &NbdSpec) -> Result<(Header, Page), FarError> {
    let (content, first) = look(link)?;
    match usable(link, spec, content)? {
        Content::Area(header) => return Ok((header, first)),
        Content::Blank => {}
        Content::Other(what) => tracing::warn!("{spec} is written over, as ?force says: it {what}"),
    }
    let mut uuid = <[u8; 16]>::try_generate().map_err(|_| FarError::NoKey)?;
    // Of version 4, which is random.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let encoded = header::encode(link.export.bytes, None, uuid);
    let encoded = encoded.map_err(|error| unfit(link, format!("is too small: {error}")))?;
    write_first_page(link, &Page(encoded.page))?;
    let medium = Medium {
        kind: Kind::BlockDevice,
        bytes: link.export.bytes,
    };
    let header = header::decode(&encoded.page, medium)
        .map_err(|error| unfit(link, format!("is not as it must be: {error}")))?;
    Ok((header, Page(encoded.page)))
}

/// Writes the first page, and reads it again.
fn write_first_page(link: &Link, page: &Page) -> Result<(), FarError> {
    asked(link, &writes(0, page.0.to_vec(), link))?;
    if read(link, 0, PAGE)? == page.0 {
        return Ok(());
    }
    Err(unfit(
        link,
        "does not give back what was written to it".into(),
    ))
}

fn read(link: &Link, offset: u64, bytes: u64) -> Result<Vec<u8>, FarError> {
    asked(link, &reads(offset, bytes, link)).map(|answers| answers.concat())
}

fn asked(link: &Link, requests: &[Request]) -> Result<Vec<Vec<u8>>, FarError> {
    let answers = link.run(requests, link.deadline());
    let answers = answers.ok_or_else(|| FarError::NoAnswer {
        node: link.node.name.clone(),
        reason: "it has not answered in time".into(),
    })?;
    let answers: Result<Vec<_>, u32> = answers.into_iter().collect();
    answers.map_err(|errno| {
        let error = std::io::Error::from_raw_os_error(errno.cast_signed());
        unfit(link, format!("cannot read or write its export: {error}"))
    })
}

/// Parts of a run of bytes that one request each can carry: where they begin, and how long they are.
fn parts(offset: u64, bytes: u64, most: u64) -> impl Iterator<Item = (u64, u32)> {
    let most = most.max(1);
    (0..bytes.div_ceil(most)).filter_map(move |part| {
        let begin = part * most;
        let length = u32::try_from(most.min(bytes - begin)).ok()?;
        Some((offset + begin, length))
    })
}

/// How many bytes one request carries at most: whole pages.
fn payload_bytes_max(export: Export) -> u64 {
    let most = REQUEST_BYTES_MAX.min(export.payload_bytes_max.into());
    (most / PAGE * PAGE).max(PAGE)
}

/// Requests that read these bytes.
pub(crate) fn reads(offset: u64, bytes: u64, link: &Link) -> Vec<Request> {
    let parts = parts(offset, bytes, payload_bytes_max(link.export));
    parts
        .map(|(offset, length)| bare(Command::Read, offset, length))
        .collect()
}

/// Requests that write this.
pub(crate) fn writes(offset: u64, content: Vec<u8>, link: &Link) -> Vec<Request> {
    let most = payload_bytes_max(link.export);
    let request = |(offset, length), payload| Request {
        payload,
        ..bare(Command::Write, offset, length)
    };
    if content.len() as u64 <= most {
        let part = parts(offset, content.len() as u64, most).next();
        return part
            .map(|part| request(part, content))
            .into_iter()
            .collect();
    }
    let chunks = content.chunks(usize::try_from(most).unwrap_or(PAGE_BYTES));
    parts(offset, content.len() as u64, most)
        .zip(chunks)
        .map(|(part, chunk)| request(part, chunk.to_vec()))
        .collect()
}

/// Bytes that one request gives up. They do not travel, so this is the largest whole number of pages in a signed number
/// of 32 bits, which is what all servers take.
const TRIM_BYTES_MAX: u64 = (1 << 31) - PAGE;

/// Requests that give these bytes up.
pub(crate) fn trims(offset: u64, bytes: u64) -> Vec<Request> {
    let parts = parts(offset, bytes, TRIM_BYTES_MAX);
    parts
        .map(|(offset, length)| bare(Command::Trim, offset, length))
        .collect()
}

fn bare(command: Command, offset: u64, length: u32) -> Request {
    Request {
        command,
        offset,
        length,
        payload: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 4 << 20;

    fn judged(at: usize, bytes: &[u8], in_tail: bool) -> Content {
        let (mut head, mut tail) = (vec![0; 1 << 20], vec![0; 64 << 10]);
        let to = if in_tail { &mut tail } else { &mut head };
        to[at..at + bytes.len()].copy_from_slice(bytes);
        let medium = Medium {
            kind: Kind::BlockDevice,
            bytes: BYTES,
        };
        judge(&head, &tail, medium)
    }

    #[test]
    fn only_areas_and_blanks_are_usable() {
        let made = header::encode(BYTES, None, [0; 16]).unwrap();
        match judged(0, &made.page, false) {
            Content::Area(header) => assert_eq!(header.pages, BYTES / PAGE),
            other => panic!("{other:?}"),
        }
        assert_eq!(judged(0, b"", false), Content::Blank);
        let longer = header::encode(2 * BYTES, None, [0; 16]).unwrap();
        for (at, bytes, in_tail, expected) in [
            (1080, &b"\x53\xef"[..], false, "holds data"),
            (1 << 19, b"x", false, "holds data"),
            (65535, b"x", true, "holds data"),
            (4086, b"S1SUSPEND\0", false, "hibernated system"),
            (4086, b"SWAP-SPACE", false, "old format"),
            (0, &longer.page[..], false, "cut off"),
        ] {
            match judged(at, bytes, in_tail) {
                Content::Other(what) => assert!(what.contains(expected), "{what}"),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    #[test]
    fn runs_of_bytes_are_cut_into_what_a_request_carries() {
        let cut: Vec<_> = parts(4096, 10_000, 4096).collect();
        assert_eq!(cut, [(4096, 4096), (8192, 4096), (12288, 1808)]);
        assert_eq!(parts(0, 0, 4096).count(), 0);
        let cut = trims(PAGE, 5 << 30);
        assert_eq!(cut.len(), 3);
        let all: u64 = cut.iter().map(|one| u64::from(one.length)).sum();
        assert_eq!(all, 5 << 30);
        assert!(cut.iter().all(|one| one.offset.is_multiple_of(PAGE)));
    }
}
