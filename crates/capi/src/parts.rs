//! Passing memory to a call in parts: only so much is kept in RAM at a time, however large the memory is.
//!
//! Every part ends at the end of a page, so that what was aligned for direct I/O still is.
//!
//! Unsafe is not needed here: addresses are counted, and what is behind them is left to the kernel.

use libc::iovec;
use vswap_arena::Passed;

use crate::failure::{Failure, errno};
use crate::way::Way;

const PAGE_BYTES: usize = 4096;
/// Pages that are kept in RAM for one call: 1 MiB. Beyond that a call costs little against what it moves, and of the
/// smallest arena it is an eighth.
const PART_PAGES: usize = 256;

/// Why nothing was moved.
#[derive(Debug)]
pub enum Stopped {
    /// The kernel says so.
    Errno(i32),
    /// The arena does.
    Arena(Failure),
}

/// Bytes of all pieces, if there is such a number.
pub fn bytes_of(pieces: &[iovec]) -> Option<usize> {
    let mut bytes = 0_usize;
    for piece in pieces {
        bytes = bytes.checked_add(piece.iov_len)?;
    }
    isize::try_from(bytes).ok().map(|_| bytes)
}

/// The first pieces, as far as they have so many pages. At least one byte, if there is one.
fn first(pieces: &[iovec], mut pages: usize) -> Vec<iovec> {
    let mut part = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        if pages == 0 {
            break;
        }
        let before = piece.iov_base.addr() % PAGE_BYTES;
        let bytes = piece.iov_len.min(pages * PAGE_BYTES - before);
        part.push(iovec {
            iov_base: piece.iov_base,
            iov_len: bytes,
        });
        pages -= (before + bytes).div_ceil(PAGE_BYTES);
        if bytes < piece.iov_len {
            break;
        }
    }
    part
}

/// Takes bytes away from the front.
fn advance(pieces: &mut Vec<iovec>, mut bytes: usize) {
    let mut gone = 0;
    for piece in pieces.iter_mut() {
        let taken = bytes.min(piece.iov_len);
        piece.iov_base = piece.iov_base.wrapping_byte_add(taken);
        piece.iov_len -= taken;
        bytes -= taken;
        if piece.iov_len > 0 {
            break;
        }
        gone += 1;
    }
    pieces.drain(..gone);
}

/// Keeps pieces in RAM.
pub fn pin(pieces: &[iovec]) -> Result<Vec<Passed>, Failure> {
    let mut pins = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let start = piece.iov_base.addr();
        pins.push(Passed::new(start..start.saturating_add(piece.iov_len))?);
    }
    Ok(pins)
}

/// Is any of it in an arena?
fn concerns_arenas(pieces: &[iovec]) -> bool {
    pieces.iter().any(|piece| {
        let start = piece.iov_base.addr();
        Passed::concerns(&(start..start.saturating_add(piece.iov_len)))
    })
}

/// What is passed next, and its pins. Fewer pages where the arena has not so many to pin.
fn next_part(
    rest: &[iovec],
    pages: &mut usize,
    way: &impl Fn() -> Way,
) -> Result<(Vec<iovec>, Vec<Passed>), Failure> {
    loop {
        let part = first(rest, *pages);
        if bytes_of(&part) != bytes_of(rest) && way() == Way::Whole {
            return Ok((rest.to_vec(), pin(rest)?));
        }
        match pin(&part) {
            Err(failure) if failure.is_pin_limit() && *pages > 1 => *pages /= 2,
            pins => return Ok((part, pins?)),
        }
    }
}

/// Passes pieces to a call, which is told how many bytes were moved before, and returns what read and write return.
pub fn carry(
    mut rest: Vec<iovec>,
    way: impl Fn() -> Way,
    mut call: impl FnMut(&[iovec], usize) -> isize,
) -> Result<usize, Stopped> {
    let mut moved_before = 0;
    let mut pages = PART_PAGES;
    let is_plain = bytes_of(&rest).is_none_or(|bytes| bytes == 0) || !concerns_arenas(&rest);
    loop {
        let (part, pins) = if is_plain {
            (rest.clone(), Vec::new())
        } else {
            match next_part(&rest, &mut pages, &way) {
                Err(_) if moved_before > 0 => return Ok(moved_before),
                next => next.map_err(Stopped::Arena)?,
            }
        };
        let Ok(moved) = usize::try_from(call(&part, moved_before)) else {
            let errno = errno();
            drop(pins);
            let is_first = moved_before == 0;
            return if is_first {
                Err(Stopped::Errno(errno))
            } else {
                Ok(moved_before)
            };
        };
        drop(pins);
        moved_before += moved;
        let passed = bytes_of(&part);
        let is_last = is_plain || passed == bytes_of(&rest);
        if is_last || passed != Some(moved) || way() == Way::FirstPart {
            return Ok(moved_before);
        }
        advance(&mut rest, moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: usize, bytes: usize) -> iovec {
        iovec {
            iov_base: std::ptr::without_provenance_mut(start),
            iov_len: bytes,
        }
    }

    fn shown(pieces: &[iovec]) -> Vec<(usize, usize)> {
        let show = |piece: &iovec| (piece.iov_base.addr(), piece.iov_len);
        pieces.iter().map(show).collect()
    }

    #[test]
    fn parts_end_at_pages_and_leave_nothing_out() {
        let pieces = [piece(4096 + 512, 10_000), piece(0, 0), piece(40_960, 5000)];
        assert_eq!(shown(&first(&pieces, 1)), [(4608, 3584)]);
        assert_eq!(shown(&first(&pieces, 2)), [(4608, 7680)]);
        assert_eq!(shown(&first(&pieces, 3)), [(4608, 10_000)]);
        assert_eq!(shown(&first(&pieces, 4)), [(4608, 10_000), (40_960, 4096)]);
        assert_eq!(shown(&first(&pieces, 9)), [(4608, 10_000), (40_960, 5000)]);
        for pages in 1..6 {
            let mut rest = pieces.to_vec();
            let mut bytes = 0;
            while bytes_of(&rest) > Some(0) {
                let part = bytes_of(&first(&rest, pages)).expect("a number");
                assert!(part > 0);
                bytes += part;
                advance(&mut rest, part);
            }
            assert_eq!(bytes, 15_000);
        }
    }

    #[test]
    fn what_is_taken_away_is_the_front() {
        let mut pieces = vec![piece(100, 10), piece(200, 10)];
        advance(&mut pieces, 4);
        assert_eq!(shown(&pieces), [(104, 6), (200, 10)]);
        advance(&mut pieces, 7);
        assert_eq!(shown(&pieces), [(201, 9)]);
        advance(&mut pieces, 9);
        assert_eq!(shown(&pieces), []);
    }

    #[test]
    fn memory_of_no_arena_is_passed_as_it_is() {
        let pieces = vec![piece(8192, 1 << 40), piece(1, 3)];
        let passed = shown(&pieces);
        let moved = carry(
            pieces,
            || Way::Whole,
            |part, before| {
                assert_eq!((shown(part), before), (passed.clone(), 0));
                7
            },
        );
        assert_eq!(moved.expect("no error"), 7);
    }

    #[test]
    fn too_many_bytes_have_no_sum() {
        assert_eq!(bytes_of(&[piece(0, usize::MAX), piece(0, 2)]), None);
        assert_eq!(bytes_of(&[piece(0, usize::MAX)]), None);
    }
}
