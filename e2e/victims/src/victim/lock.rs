//! `mlockall`: all memory is locked at any moment, whether swapped or not, and unlocked again.
//!
//! It is locked first before anything else happens, when nothing is swapped yet. Besides, mappings that are locked one
//! by one grow, in place or elsewhere. The kernel fills what they gain within the call.

use std::time::Duration;

use crate::content::{PAGE_BYTES, Random};
use crate::pages::{Pages, unmap_raw};
use crate::run::Options;
use crate::segment::Segment;
use crate::wrong::{Checked, call};

/// Pages that are checked and rewritten at a time.
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
            // Made while the rest is locked. This memory is free to go.
            let mut beside = Pages::filled(part / 4, random.next())?;
            stir(&mut new, &mut beside, &mut random)?;
            for _ in 0..4 {
                grow_locked(&mut random)?;
            }
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

/// Locks the first part of a mapping, unmaps the rest, and makes the first part grow. It grows into the place of the
/// rest, or elsewhere if something lies there by then.
fn grow_locked(random: &mut Random) -> Checked {
    let mut segment = Segment::new(2 + random.index(100), random)?;
    let pages = segment.pages.len();
    let kept = 1 + random.index(pages - 1);
    // Time to be swapped out.
    std::thread::sleep(Duration::from_millis(random.index(8) as u64));
    // SAFETY: the range belongs to the segment.
    let locked = unsafe { libc::mlock(segment.start.cast(), kept * PAGE_BYTES) };
    call("mlock", locked)?;
    // SAFETY: the unmapped part belongs to the segment, and the segment's model forgets it.
    unsafe { unmap_raw(segment.page(kept), pages - kept) }?;
    segment.pages.truncate(kept);
    let blocker = match random.index(2) {
        0 => None,
        _ => Some(Segment::new(pages - kept, random)?),
    };
    segment.resize(pages + random.index(64), libc::MREMAP_MAYMOVE, random)?;
    segment.check_all("locked mapping that has grown")?;
    segment.unmap()?;
    blocker.map_or(Ok(()), Segment::unmap)
}

fn lock_all() -> Checked {
    // SAFETY: locking changes no content.
    call("mlockall", unsafe { libc::mlockall(libc::MCL_CURRENT) }).map(drop)
}

fn stir(one: &mut Pages, other: &mut Pages, random: &mut Random) -> Checked {
    one.stir("page", random, STIR_PAGES)?;
    other.stir("page", random, STIR_PAGES)
}
