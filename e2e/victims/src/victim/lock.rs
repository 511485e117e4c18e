//! `mlockall`: all memory is locked at any moment, swapped or not, and unlocked again.
//!
//! The first time is before anything else happens, when nothing is swapped yet.

use crate::content::Random;
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, call};

/// Pages that are checked and rewritten in a go.
const STIR_PAGES: usize = 64;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    lock_all()?;
    options.parallel(|thread| {
        let mut random = options.random(thread, 25);
        let part = options.pages_per_thread() / 2;
        let mut old = Pages::filled(part, options.tag(thread))?;
        loop {
            let mut new = Pages::filled(part, random.next())?;
            stir(&mut old, &mut new, &mut random)?;
            lock_all()?;
            stir(&mut old, &mut new, &mut random)?;
            // Made while the rest is locked, and free to go.
            let mut beside = Pages::filled(part / 4, random.next())?;
            stir(&mut new, &mut beside, &mut random)?;
            // SAFETY: unlocking changes no content.
            call("munlockall", unsafe { libc::munlockall() })?;
            old.check_all("old page")?;
            new.check_all("new page")?;
            beside.check_all("page made beside locked ones")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

fn lock_all() -> Checked {
    // SAFETY: locking changes no content.
    call("mlockall", unsafe { libc::mlockall(libc::MCL_CURRENT) }).map(drop)
}

fn stir(one: &mut Pages, other: &mut Pages, random: &mut Random) -> Checked {
    one.stir("page", random, STIR_PAGES)?;
    other.stir("page", random, STIR_PAGES)
}
