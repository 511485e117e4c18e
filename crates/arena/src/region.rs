//! A range of pages that a program has.

use std::ops::{Bound, Deref, DerefMut, Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use vswap_sys::sigbus::Masked;

use crate::error::ArenaError;
use crate::owner::Owner;
use crate::pin::{Pin, PinMut};
use crate::state::{Core, PAGE_BYTES};
use crate::word::State;

/// What a program knows of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// It is needed soon: bring back as much as there is room for without moving anything out.
    WillNeed,
    /// It is not needed for a while: move it out soon, in the background.
    Cold,
    /// Bring it back and never move it out, until it is freed or advised `MaySwap`. Counts as pinned.
    NeverSwap,
    /// Take `NeverSwap` back.
    MaySwap,
}

/// Whole pages out of an arena, zero at first. They are freed when this is dropped.
///
/// To read or write the bytes may raise a fault, which the arena serves. A system call that is given them while they
/// are out fails with EFAULT: [pin](Region::pin) them for it.
#[derive(Debug)]
pub struct Region {
    owner: Arc<Owner>,
    pages: Range<usize>,
    bytes: usize,
}

impl Region {
    pub(crate) fn new(owner: Arc<Owner>, pages: Range<usize>, bytes: usize) -> Region {
        Region {
            owner,
            pages,
            bytes,
        }
    }

    /// The first byte.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.owner.place(self.pages.start * PAGE_BYTES)
    }

    /// The pages that hold these bytes.
    fn pages_of(&self, bytes: impl RangeBounds<usize>) -> Result<Range<usize>, ArenaError> {
        let start = match bytes.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match bytes.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(self.bytes),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.bytes => {
                let first = self.pages.start + start / PAGE_BYTES;
                Ok(first..self.pages.start + end.div_ceil(PAGE_BYTES))
            }
            _ => Err(ArenaError::NotOurs),
        }
    }

    /// Keeps the pages of some of the bytes in RAM until the pin is dropped.
    ///
    /// # Errors
    /// `NotOurs` for bytes outside, `TooMuchPinned`, `Full`, `Lost`, `Forked`.
    pub fn pin(&self, bytes: impl RangeBounds<usize>) -> Result<Pin<'_>, ArenaError> {
        self.owner.check_home()?;
        Pin::new(&self.owner.core, self.pages_of(bytes)?)
    }

    /// Keeps all pages in RAM, and gives the bytes for a system call to write to.
    ///
    /// # Errors
    /// As [`Region::pin`].
    pub fn pin_mut(&mut self) -> Result<PinMut<'_>, ArenaError> {
        self.owner.check_home()?;
        let pin = Pin::new(&self.owner.core, self.pages.clone())?;
        Ok(PinMut { pin, bytes: self })
    }

    /// Says something of the pages of some of the bytes.
    ///
    /// # Errors
    /// As [`Region::pin`].
    pub fn advise(&self, bytes: impl RangeBounds<usize>, advice: Advice) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        let pages = self.pages_of(bytes)?;
        self.owner.core.advise(pages, advice)
    }

    /// Drops the content of all pages that lie in these bytes as a whole. They read as zeros.
    ///
    /// # Errors
    /// `NotOurs` for bytes outside, `Pinned` if a pin still holds some of the pages, `Forked`.
    pub fn drop_content(&mut self, bytes: Range<usize>) -> Result<(), ArenaError> {
        self.owner.check_home()?;
        if bytes.start > bytes.end || bytes.end > self.bytes {
            return Err(ArenaError::NotOurs);
        }
        let first = self.pages.start + bytes.start.div_ceil(PAGE_BYTES);
        let end = if bytes.end == self.bytes {
            self.pages.end
        } else {
            self.pages.start + bytes.end / PAGE_BYTES
        };
        if first >= end || self.owner.core.discard(first..end, true) {
            Ok(())
        } else {
            Err(ArenaError::Pinned)
        }
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are this region's alone, mapped as long as the arena is, and read as zeros before they are
        // written to.
        unsafe { std::slice::from_raw_parts(self.as_ptr().as_ptr(), self.bytes) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.owner.free_pages(self.pages.clone());
    }
}

impl Core {
    /// Does what was advised.
    pub fn advise(&self, pages: Range<usize>, advice: Advice) -> Result<(), ArenaError> {
        match advice {
            Advice::WillNeed => self.will_need(pages),
            Advice::Cold => {
                self.say_cold(pages);
                Ok(())
            }
            Advice::NeverSwap => self.never_swap(pages),
            Advice::MaySwap => {
                for page in pages {
                    let _masked = Masked::new();
                    if self.set_stays(page, false)? {
                        self.room.unpin(1);
                    }
                }
                Ok(())
            }
        }
    }

    fn will_need(&self, pages: Range<usize>) -> Result<(), ArenaError> {
        for page in pages {
            let _masked = Masked::new();
            if self.room.is_short() {
                break;
            }
            if let State::Out(_) = self.words.load(page).state() {
                self.serve(page, false)?;
            }
        }
        Ok(())
    }

    fn never_swap(&self, pages: Range<usize>) -> Result<(), ArenaError> {
        let count = pages.len() as u64;
        let too_much = |most| ArenaError::TooMuchPinned { pages: count, most };
        self.room.pin(count).map_err(too_much)?;
        let mut done = 0;
        for page in pages {
            let _masked = Masked::new();
            match self.set_stays(page, true) {
                Ok(is_new) => {
                    done += 1;
                    if !is_new {
                        self.room.unpin(1);
                    }
                }
                Err(why) => {
                    self.room.unpin(count - done);
                    return Err(why.into());
                }
            }
        }
        self.bridges.wait();
        Ok(())
    }
}
