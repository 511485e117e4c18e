//! `madvise(MADV_WIPEONFORK)`: a child finds zeros, and its parent keeps what it wrote.
//!
//! Every thread asks for it on one mapping before anything else happens. In every round it asks for it on another
//! mapping, when pages of that may be out. With MADV_KEEPONFORK the child gets them after all.

use crate::content::{PAGE_BYTES, Random};
use crate::pages::Pages;
use crate::run::{Child, Options};
use crate::victim::doors::{self, Door};
use crate::wrong::Checked;

/// Pages that are checked and rewritten at a time.
const STIR_PAGES: usize = 64;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 21);
        let part = options.pages_per_thread() / 4;
        let mut early = Pages::new(part, options.tag(thread) ^ 1)?;
        advise(&early, Door::Madvise, libc::MADV_WIPEONFORK)?;
        (0..early.len()).for_each(|index| early.rewrite(index));
        let mut kept = Pages::filled(part * 2, options.tag(thread))?;
        loop {
            let mut late = Pages::filled(part, random.next())?;
            kept.stir("page beside", &mut random, STIR_PAGES)?;
            let door = Door::ALL[random.index(Door::ALL.len())];
            advise(&late, door, libc::MADV_WIPEONFORK)?;
            wiped_in_a_child(&mut [&mut early, &mut late], &mut kept, &mut random)?;
            advise(&late, door, libc::MADV_KEEPONFORK)?;
            let child = Child::fork(|| late.check_all("page that a child keeps after all"))?;
            late.stir("page of the parent", &mut random, STIR_PAGES)?;
            child.wait()?;
            kept.check_all("page beside")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

fn advise(pages: &Pages, door: Door, advice: i32) -> Checked {
    let start = pages.mapping.page(0).cast();
    doors::advise(door, start, pages.len() * PAGE_BYTES, advice)
}

/// The child writes to the zeros that it finds, and the parent to its content.
fn wiped_in_a_child(wiped: &mut [&mut Pages], kept: &mut Pages, random: &mut Random) -> Checked {
    let child = Child::fork(|| {
        for pages in wiped.iter_mut() {
            pages.versions.fill(0);
            pages.check_all("wiped page in a child")?;
            pages.stir("wiped page in a child", random, STIR_PAGES)?;
            pages.check_all("wiped page in a child")?;
        }
        kept.check_all("page beside, in a child")
    })?;
    for pages in wiped.iter_mut() {
        pages.stir("page of the parent", random, STIR_PAGES)?;
        pages.check_all("page of the parent")?;
    }
    child.wait()
}
