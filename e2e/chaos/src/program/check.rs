//! Steps that write and read memory and compare it with the model.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::program::access;
use crate::program::actor::{Actor, LEFT_OUT};
use crate::program::calls::{self, Answer, PAGE_BYTES};
use crate::program::content::{self, PAGE_WORDS, Words};
use crate::program::log::Wrong;
use crate::program::model::{ARENA_PAGES, FREED, GUARD, Of, READ, SEALED, UNKNOWN, WRITE};
use crate::program::signals;
use crate::step::Access;

const PAGE: i64 = PAGE_BYTES as i64;

impl Actor<'_> {
    /// Writes the pages of the range that may be written. Returns their number.
    pub(crate) fn fill(&mut self, range: Range<usize>, by: Access) -> Answer {
        let mut written = 0;
        for page in range {
            if !self.model.writable(page) {
                continue;
            }
            let by = self.usable(page, by);
            let stamp = content::stamp(self.line, page);
            let words = content::page(stamp);
            let mut answer = self.channels.write(self.address(page), &words, by);
            if by == Access::ProcMem && answer.1 == libc::EIO {
                answer = self
                    .channels
                    .write(self.address(page), &words, Access::Touch);
            }
            if answer != (PAGE, 0) {
                let words = (PAGE as u64, answer.0 as u64);
                self.fail(Wrong::Call, self.address(page), words);
            }
            self.model.wrote(page, stamp);
            self.shared.log.beat(self.line);
            written += 1;
        }
        (written, 0)
    }

    /// Compares the range with the model. Pages that may not be read must not be readable either.
    pub(crate) fn check(&mut self, range: Range<usize>, by: Access) -> Answer {
        let mut checked = 0;
        for page in range {
            self.shared.log.beat(self.line);
            let known = self.model.pages[page];
            if known.allows(READ) {
                checked += i64::from(self.check_page(page, by));
            } else if by == Access::ProcMem && known.of != Of::Nothing && !known.has(GUARD) {
                // Not counted: whether this door works depends on where the page is.
                self.check_page(page, by);
            } else {
                self.check_absent(page);
            }
        }
        (checked, 0)
    }

    /// The access to use for this page. As a fixed buffer the kernel takes only writable memory, and none of files. A
    /// ring also needs memory of its own.
    fn usable(&mut self, page: usize, by: Access) -> Access {
        let known = self.model.pages[page];
        let fixable = known.of == Of::Anon && known.allows(WRITE);
        let fixable = fixable && !self.limited && !self.divided;
        match by {
            Access::IoUringFixed if !fixable => Access::Pipe,
            Access::IoUringFixed => {
                self.had_ring = true;
                by
            }
            _ => by,
        }
    }

    /// Checks a page. False if nobody can say what it holds.
    fn check_page(&mut self, page: usize, by: Access) -> bool {
        let stamp = self.model.content(page);
        if stamp == UNKNOWN {
            return false;
        }
        let address = self.address(page);
        let by = self.usable(page, by);
        self.model.read(page);
        let mut words = Words([!0; PAGE_WORDS]);
        let mut answer = self.channels.read(address, &mut words, by);
        if by == Access::ProcMem && answer.1 == libc::EIO {
            // Documented: this door cannot handle memory that waits for a userfaultfd.
            if !self.model.pages[page].allows(READ) {
                return false;
            }
            answer = self.channels.read(address, &mut words, Access::Touch);
        }
        if answer != (PAGE, 0) {
            self.fail(Wrong::Access, address, (PAGE as u64, answer.1 as u64));
        }
        if self.model.pages[page].has(FREED) && access::holds(&words, 0) {
            // From now on the page is zero. The flag stays, because it decides which steps are left out. They are left
            // out natively as well, where the kernel may keep the page longer.
            self.model.pages[page].stamp = 0;
            return true;
        }
        if let Some((index, expected, found)) = content::difference(&words, stamp) {
            self.fail(Wrong::Content, address + index * 8, (expected, found));
        }
        true
    }

    /// The kernel must not reach the page either. It answers with an error where a load would raise a signal.
    fn check_absent(&mut self, page: usize) {
        let mut words = Words([0; PAGE_WORDS]);
        let address = self.address(page);
        let answer = self.channels.read(address, &mut words, Access::ProcessVm);
        if answer != (-1, libc::EFAULT) {
            self.fail(
                Wrong::Access,
                address,
                (libc::EFAULT as u64, answer.0 as u64),
            );
        }
    }

    /// Checks all pages, even those that may not be read: they are made readable first.
    pub(crate) fn check_all(&mut self) {
        for page in 0..ARENA_PAGES {
            let known = self.model.pages[page];
            if known.of != Of::Nothing && known.prot & READ == 0 && !known.has(SEALED) {
                self.protect(page as u32, 1, READ, false);
            }
        }
        self.check(0..ARENA_PAGES, Access::Touch);
    }

    /// Checks all readable pages again and again.
    pub(crate) fn linger(&mut self, ms: u32) -> Answer {
        let ms = if self.shared.fast { 1 } else { ms };
        let until = Instant::now() + Duration::from_millis(ms.into());
        loop {
            self.check(0..ARENA_PAGES, Access::Touch);
            self.shared.log.beat(self.line);
            if Instant::now() >= until {
                return (0, 0);
            }
            calls::sleep_ms(1);
        }
    }

    /// Lets a signal handler read the first word of a page.
    pub(crate) fn signal(&mut self, at: u32) -> Answer {
        let page = at as usize % ARENA_PAGES;
        let known = self.model.pages[page];
        let stamp = self.model.content(page);
        if !known.allows(READ) || known.has(FREED) || stamp == UNKNOWN {
            return (LEFT_OUT, 0);
        }
        let address = self.address(page);
        let expected = content::word(stamp, 0);
        match signals::read_in_handler(address, at & 1 == 1) {
            Some(found) if found == expected => (0, 0),
            Some(found) => self.fail(Wrong::Content, address, (expected, found)),
            None => self.fail(Wrong::Call, address, (0, calls::errno() as u64)),
        }
    }
}
