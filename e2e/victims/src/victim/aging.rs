//! Pages whose age the kernel forgets all the time.
//!
//! Those who watch how much memory is in use (memory monitors, the kernel's own reclaim) clear the accessed bits of
//! page tables again and again, and the processor sets them. So a page table entry changes while nothing about the page
//! changes, and it may do so just when somebody is moving the page. Pages are visited lightly and in order. So pages
//! that are brought back ahead of a visit wait for it with their bit cleared. With one thread the bits are cleared
//! between visits.

use std::fs::{File, OpenOptions};
use std::io::Write;

use crate::content::{self, PAGE_WORDS};
use crate::pages::Mapping;
use crate::run::Options;
use crate::wrong::{Checked, Wrong};

/// The words of a page that each visit increments: the page's ends and some in between.
const COUNTERS: [usize; 4] = [0, 8, PAGE_WORDS / 2 + 3, PAGE_WORDS - 1];
/// Most pages of a thread: few enough that each is soon visited again.
const PAGES_MAX: usize = 128;
/// Tells the kernel to clear the accessed bits of all pages.
const ALL_PAGES: &[u8] = b"1";

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    let mut clearer = Clearer::new()?;
    if options.threads <= 1 {
        let mut pages = Visited::new(options.pages_per_thread())?;
        while clock.running() {
            pages.visit_all()?;
            clearer.clear()?;
        }
        return pages.visit_all();
    }
    std::thread::scope(|scope| {
        let clearing = scope.spawn(move || {
            while clock.running() {
                clearer.clear()?;
            }
            Ok(())
        });
        let visits = options.parallel(|_| {
            let mut pages = Visited::new(options.pages_per_thread())?;
            while clock.running() {
                pages.visit_all()?;
            }
            pages.visit_all()
        });
        match clearing.join() {
            Ok(cleared) => visits.and(cleared),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Clears the accessed bits of all pages of the process.
struct Clearer(File);

impl Clearer {
    fn new() -> Checked<Clearer> {
        let file = OpenOptions::new().write(true).open("/proc/self/clear_refs");
        file.map(Clearer)
            .map_err(|_| Wrong::last("open /proc/self/clear_refs"))
    }

    fn clear(&mut self) -> Checked {
        let written = self.0.write_all(ALL_PAGES);
        written.map_err(|_| Wrong::last("clear the accessed bits"))
    }
}

/// Pages of one thread. Each counts its visits in several places.
struct Visited {
    mapping: Mapping,
    visits: u64,
}

impl Visited {
    fn new(pages: usize) -> Checked<Visited> {
        let mapping = Mapping::new(pages.min(PAGES_MAX))?;
        Ok(Visited { mapping, visits: 0 })
    }

    /// Checks every page and counts the visit.
    fn visit_all(&mut self) -> Checked {
        for index in 0..self.mapping.pages() {
            self.visit(index)?;
        }
        self.visits += 1;
        content::strike(self.mapping.page(0));
        Ok(())
    }

    fn visit(&self, index: usize) -> Checked {
        let page = self.mapping.page(index);
        for word in COUNTERS {
            // SAFETY: the word is inside the page, which is this model's own.
            let found = unsafe { page.add(word).read_volatile() };
            if found != self.visits {
                return Err(Wrong::Content {
                    what: "aged page",
                    address: page.addr() + word * 8,
                    page: index,
                    word,
                    expected: self.visits,
                    found,
                });
            }
        }
        for word in COUNTERS {
            // SAFETY: as above.
            unsafe { page.add(word).write_volatile(self.visits + 1) };
        }
        Ok(())
    }
}
