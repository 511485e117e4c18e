//! The repacker: a thread that packs cold pages of the pool again, more densely.
//!
//! Which pages those are and when it pays, `policy/repack.rs` decides; how it is done is the engine's business
//! (`Engine::repack_of`). The thread works in batches. It runs as an ordinary thread, because it takes locks that
//! faults need for moments, and a thread of low priority could be stopped while it has one. So it keeps out of the way
//! by pausing: the longer, the more it has to wait for a processor.
//!
//! It does nothing until writers have stored something, and looks through the pool again only after a new generation of
//! its pages has begun: until then no page has become older. While everything is full nothing goes out, and so no
//! generation would begin. Then it begins them itself: whatever is in the pool is packed again then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_engine::{Repack, Scratch};
use vswap_sys::process::cpu;

use crate::base::threads;
use crate::evict::evicting::Evicting;
use crate::evict::shrink;
use crate::policy::density::Density;
use crate::policy::repack::{AGE_LEAST, Pace, Worth};

/// Pages between two looks at the pool.
const BATCH: usize = 64;
/// Pause after a look that found nothing. Meanwhile writers may store many batches. While everything is full each pause
/// is twice the last one, up to the longest: a run that waits costs nothing.
const NOTHING_PACE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Start the thread. Without it pages stay as they are.
pub fn start(evicting: &Arc<Evicting>) {
    let evicting = Arc::clone(evicting);
    let started = threads::try_spawn("repack", move || run(&evicting));
    if let Err(error) = started {
        tracing::warn!("no thread packs cold pages again: {error}");
    }
}

fn run(evicting: &Evicting) {
    let stored = &evicting.stored;
    // Most runs never store anything. They need none of the buffers.
    if !stored.wait() {
        return;
    }
    let mut repacker = Repacker {
        evicting,
        scratch: evicting.serving.engine.scratch(),
        worth: Worth::default(),
        seen_all_of: None,
    };
    let mut pace = Pace::default();
    let mut nothing_pace = NOTHING_PACE.0;
    loop {
        let began = (Instant::now(), cpu::thread_time());
        let has_found = repacker.step();
        let processor = cpu::thread_time().saturating_sub(began.1);
        let pause = pace.after(began.0.elapsed(), processor);
        let is_full = evicting.serving.limit.is_stalled();
        let goes_on = if has_found {
            nothing_pace = NOTHING_PACE.0;
            // Who waits for room cannot use the processor.
            stored.pause(if is_full { Duration::ZERO } else { pause })
        } else if is_full {
            nothing_pace = (nothing_pace * 2).min(NOTHING_PACE.1);
            stored.pause(nothing_pace)
        } else {
            stored.pause(NOTHING_PACE.0.max(pause)) && stored.wait()
        };
        if !goes_on {
            return;
        }
    }
}

struct Repacker<'a> {
    evicting: &'a Evicting,
    scratch: Scratch,
    worth: Worth,
    /// The generation since whose beginning nothing more was old enough.
    seen_all_of: Option<u64>,
}

impl Repacker<'_> {
    /// Pack a batch again. False if there is none.
    fn step(&mut self) -> bool {
        let serving = &self.evicting.serving;
        let fill = shrink::look(self.evicting);
        let generation = serving.shrinker.generation();
        if self.seen_all_of == Some(generation) {
            if !serving.limit.is_stalled() {
                return false;
            }
            (0..AGE_LEAST).for_each(|_| serving.engine.begin_generation());
        }
        if !serving.limit.is_short() {
            return false;
        }
        // Whoever debugs wants to see it happen.
        let always = self.evicting.all_every.is_some();
        let is_fast = serving.packing.density() == Some(Density::Fast);
        let resident_pages = serving.limit.resident_pages();
        let age = if is_fast && !always {
            self.worth.least_age(&fill, resident_pages)
        } else {
            Some(AGE_LEAST)
        };
        let Some(age) = age else {
            return false;
        };
        let done = self.batch(age);
        self.seen_all_of = (done.tried() < BATCH).then_some(generation);
        if done.pages > 0 {
            serving.limit.has_more_room();
        }
        done.tried() > 0
    }

    fn batch(&mut self, age: u8) -> Repack {
        let Evicting { serving, part, .. } = self.evicting;
        let began = cpu::thread_time();
        let group = part.group_in_pool();
        let done = serving
            .engine
            .repack_of(group, age, BATCH, &mut self.scratch);
        let took = cpu::thread_time().saturating_sub(began);
        self.worth.note(done.tried() as u64, took, done.saved_bytes);
        serving.stats.pages_repacked.add(done.pages as u64);
        serving.stats.repack_saved_bytes.add(done.saved_bytes);
        done
    }
}
