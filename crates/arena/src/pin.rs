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
        let count = pages.len() as u64;
        let too_much = |most| ArenaError::TooMuchPinned { pages: count, most };
        core.room.pin(count).map_err(too_much)?;
        let mut pinned = Pin {
            core: Arc::clone(core),
            pages: pages.start..pages.start,
            memory: PhantomData,
        };
        for page in pages.clone() {
            let _masked = Masked::new();
            if let Err(why) = core.pin_page(page) {
                // What is pinned so far is given back by the drop.
                core.room.unpin(count - pinned.pages.len() as u64);
                return Err(why.into());
            }
            pinned.pages.end = page + 1;
        }
        Ok(pinned)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if !self.core.is_at_home() {
            return;
        }
        for page in self.pages.clone() {
            let _masked = Masked::new();
            self.core.unpin_page(page);
        }
        self.core.room.unpin(self.pages.len() as u64);
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

    fn unpin_page(&self, page: usize) {
        loop {
            let word = self.words.load(page);
            let to = match word.state() {
                State::Pinned(0 | 1) => State::Plain,
                State::Pinned(pins) => State::Pinned(pins - 1),
                _ if word.is_claimed() => {
                    self.words.wait(page, word);
                    continue;
                }
                // Only a pin ends a pin, so there is none.
                _ => return,
            };
            if self.words.change(page, word, word.with(to)) {
                return;
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
