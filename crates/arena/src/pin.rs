//! Keeping memory in RAM: for system calls, for devices, and where a fault would come at a bad time.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use vswap_sys::sigbus::Masked;

use crate::error::ArenaError;
use crate::fault::Refused;
use crate::state::Core;
use crate::word::State;

/// Memory that stays in RAM, writable, until this is dropped.
#[derive(Debug)]
pub struct Pin<'a> {
    core: Arc<Core>,
    pages: Range<usize>,
    memory: PhantomData<&'a [u8]>,
}

impl Pin<'_> {
    /// Pins pages.
    pub(crate) fn new<'a>(core: &Arc<Core>, pages: Range<usize>) -> Result<Pin<'a>, ArenaError> {
        core.pin_pages(&pages)?;
        Ok(Pin {
            core: Arc::clone(core),
            pages,
            memory: PhantomData,
        })
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if self.core.is_at_home() {
            self.core.unpin_pages(&self.pages);
        }
    }
}

/// Bytes that stay in RAM, for a system call to write to.
#[derive(Debug)]
pub struct PinMut<'a> {
    pub(crate) bytes: &'a mut [u8],
    #[expect(dead_code, reason = "it is there to be dropped")]
    pub(crate) pin: Pin<'a>,
}

impl Deref for PinMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for PinMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl From<Refused> for ArenaError {
    fn from(why: Refused) -> ArenaError {
        match why {
            Refused::Full => ArenaError::Full,
            Refused::Lost => ArenaError::Lost,
            Refused::Kernel => ArenaError::KernelRefuses,
        }
    }
}

impl Core {
    /// Keeps pages in memory until they are unpinned as often as they were pinned, or freed.
    pub fn pin_pages(&self, pages: &Range<usize>) -> Result<(), ArenaError> {
        let count = pages.len() as u64;
        let too_much = |most| ArenaError::TooMuchPinned { pages: count, most };
        self.room.pin(count).map_err(too_much)?;
        for page in pages.clone() {
            let masked = Masked::new();
            if let Err(why) = self.pin_page(page) {
                drop(masked);
                self.unpin_pages(&(pages.start..page));
                self.room.unpin((pages.end - page) as u64);
                return Err(why.into());
            }
        }
        self.bridges.wait();
        Ok(())
    }

    /// Ends a pin of each of these pages. Returns whether all of them had one.
    pub fn unpin_pages(&self, pages: &Range<usize>) -> bool {
        let mut unpinned = 0;
        for page in pages.clone() {
            let _masked = Masked::new();
            unpinned += usize::from(self.unpin_page(page));
        }
        self.room.unpin(unpinned as u64);
        unpinned == pages.len()
    }

    fn pin_page(&self, page: usize) -> Result<(), Refused> {
        loop {
            self.have(page)?;
            let word = self.words.load(page);
            let pins = match word.state() {
                State::Plain | State::Owed(_) => 1,
                State::Pinned(pins) if pins < u32::MAX => pins + 1,
                _ => continue,
            };
            if self
                .words
                .change(page, word, word.with(State::Pinned(pins)))
            {
                self.put(word.entry());
                return Ok(());
            }
        }
    }

    /// Ends one pin. False if there is none.
    fn unpin_page(&self, page: usize) -> bool {
        loop {
            let word = self.words.load(page);
            let to = match word.state() {
                State::Pinned(0 | 1) => State::Plain,
                State::Pinned(pins) => State::Pinned(pins - 1),
                _ if word.is_claimed() => {
                    self.words.wait(page, word);
                    continue;
                }
                _ => return false,
            };
            if self.words.change(page, word, word.with(to)) {
                return true;
            }
        }
    }

    /// Has a page stay in memory until it is freed, or no longer. Pins are counted by the caller. Returns whether that
    /// changed anything.
    pub fn set_stays(&self, page: usize, stays: bool) -> Result<bool, Refused> {
        loop {
            if stays {
                self.have(page)?;
            }
            let word = self.words.load(page);
            if word.is_claimed() {
                self.words.wait(page, word);
                continue;
            }
            // One that is leaving would go all the same.
            if stays && word.is_protected() {
                continue;
            }
            if word.stays() == stays {
                return Ok(false);
            }
            if self.words.change(page, word, word.with_stays(stays)) {
                return Ok(true);
            }
        }
    }
}
