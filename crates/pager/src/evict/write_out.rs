//! Writing out: a few threads, one for each CPU, compress what the evictors have published.
//!
//! An evictor that compressed pages itself would slow a program that fills memory, while the program's CPU idles in a
//! fault. Pages that wait here are in frames. So faults on them are served at once, and the number of frames bounds the
//! queue. The queue's lock is innermost.

use std::io;
use std::sync::Arc;

use vswap_engine::{Codec, Entry, Pack, Scratch, Shadow, WriteOutError, Written};

use crate::base::page_run::PAGE_BYTES;
use crate::base::threads;
use crate::evict::evicting::Evicting;
use crate::evict::shrink;
use crate::fault::serving::Serving;
use crate::policy::density::Density;
use crate::policy::working_set::heat_of;
use crate::run::buffers::Buffers;

/// Additional writers for areas, so that several requests are under way at once. A small run has frames for no more.
const AREA_WRITERS: usize = 4;
/// Write out one batch in the calling thread. False when there was none, or the pool takes no more: then only writers
/// try again, now and then, since what is refused has been compressed in vain.
pub fn help(evicting: &Evicting) -> bool {
    if evicting.serving.limit.is_stalled() {
        return false;
    }
    let batch = evicting.write_queue.take(&evicting.serving.areas);
    let write = |buffers: &mut Buffers| write(evicting, &batch, &mut buffers.scratch);
    !batch.is_empty()
        && evicting.serving.spare_buffers.with(
            &evicting.serving.engine,
            &evicting.serving.stats,
            write,
        )
}

/// Write out a batch. What the full pool refuses stays in its frame and goes to the end of the queue.
fn write(evicting: &Evicting, batch: &[Entry], scratch: &mut Scratch) -> bool {
    let mut refused = Vec::new();
    let mut is_limited = false;
    shrink::make_room(evicting, batch.len(), scratch);
    evicting.stored.note();
    let engine = &evicting.serving.engine;
    let density = evicting.serving.packing.density();
    let how = |entry| match density {
        None => engine.codec().into(),
        Some(density) => how_packed(density, engine.shadow(entry)),
    };
    // Asked once a batch, so that its pages lie side by side and leave with one request.
    let cpu = threads::current_cpu();
    engine.write_out_packed(cpu, batch, how, scratch, |entry, outcome| match outcome {
        Ok(written) => count(&evicting.serving, written),
        // The entry was given up meanwhile. Or its slot was, and was taken again: then it is in the queue twice, and is
        // written out already, here or by another writer, which sees to it if there is no room.
        Err(WriteOutError::NotCached | WriteOutError::Busy) => {}
        Err(error) => {
            is_limited |= error == WriteOutError::Limited;
            refused.push(entry);
        }
    });
    let full = !refused.is_empty();
    let was_full = evicting.serving.limit.is_stalled();
    evicting.serving.limit.note_full(full, is_limited);
    if full {
        evicting.write_queue.push(&evicting.serving.areas, refused);
    }
    if full && !was_full {
        // Entries that kin also refer to are not shed: their pages would be stored twice when they leave again.
        let is_alone = |entry| !evicting.serving.engine.is_shared(entry);
        evicting
            .serving
            .references
            .shed_kept(&evicting.listening.spaces, is_alone);
    }
    !full
}

/// How a page with this shadow is packed. What is cold and does not compress with lz4 may do so with zstd; what comes
/// back soon is not worth a second try.
fn how_packed(density: Density, shadow: Option<Shadow>) -> Pack {
    let heat = heat_of(shadow.unwrap_or_default());
    if density.packs_densely(heat) {
        return Codec::Zstd.into();
    }
    Pack {
        codec: Codec::Lz4,
        tries_zstd: !heat.is_early(),
    }
}

/// Count what was written out.
fn count(serving: &Serving, written: Written) {
    let stats = &serving.stats;
    let stored = match written {
        Written::Zero => return stats.pages_out_zero.add(1),
        Written::Compressed { bytes } => bytes as u64,
        Written::Raw => PAGE_BYTES,
        // These take no memory of the run.
        Written::Physical | Written::Freed => return,
    };
    stats.compressed_pages.add(1);
    stats.compressed_out_bytes.add(stored);
    serving.limit.stored(stored);
}

/// Start one writer for each CPU, as far as threads are available.
///
/// # Errors
/// There is no thread at all.
pub fn start(evicting: &Arc<Evicting>, cpus: &[usize]) -> io::Result<()> {
    let start = |cpu| start_one(evicting, &format!("write-{cpu}"));
    let (started, refused): (Vec<_>, Vec<_>) = cpus.iter().map(start).partition(Result::is_ok);
    match refused.into_iter().next() {
        Some(refused) if started.is_empty() => refused,
        _ => Ok(()),
    }
}

/// Start the writers for areas, once, before the first area is used. While they wait for areas, the writers of the CPUs
/// compress. If threads are missing, the writers of the CPUs wait for areas themselves.
pub fn start_for_areas(evicting: &Arc<Evicting>) {
    if evicting.write_queue.begin_for_areas() {
        for number in 0..AREA_WRITERS {
            let _ = start_one(evicting, &format!("swap-out-{number}"));
        }
    }
}

fn start_one(evicting: &Arc<Evicting>, name: &str) -> io::Result<()> {
    let evicting = Arc::clone(evicting);
    threads::try_spawn(name, move || {
        let mut scratch = evicting.serving.engine.scratch();
        let mut tries = 0;
        while let Some(batch) = evicting.write_queue.next(&evicting.serving.areas) {
            if write(&evicting, &batch, &mut scratch) {
                tries = 0;
            } else {
                evicting.serving.limit.stall.pause(tries);
                tries += 1;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::run::Lab;

    /// The first one was given up while it waited. Its slot was taken again.
    #[test]
    fn an_entry_that_waits_twice_does_not_mean_that_all_is_full() {
        let run = Lab::new().new_run(1);
        let (engine, evicting) = (&run.serving.engine, &run.evicting);
        let mut frame = engine.frame().expect("a free frame");
        frame.0.fill(7);
        let out = engine.swap_out(0, frame, Shadow::ABSENT, evicting.part.group);
        let entry = out.expect("a slot");
        let queue = &evicting.write_queue;
        queue.push(&evicting.serving.areas, [entry, entry]);
        assert!(help(evicting), "it is written out");
        assert!(!evicting.serving.limit.is_stalled() && queue.pending() == 0);
        assert_eq!(evicting.serving.stats.compressed_pages.get(), 1);
        engine.put(entry);
        assert_eq!(engine.stats().slots_used, 0);
    }

    #[test]
    fn only_what_is_cold_is_tried_with_both_codecs() {
        let of = |density, bits| how_packed(density, Some(Shadow::truncated(bits)));
        for density in [Density::Fast, Density::ColdDense] {
            let hot = of(density, 1);
            assert_eq!((hot.codec, hot.tries_zstd), (Codec::Lz4, false));
        }
        let cold = how_packed(Density::Fast, None);
        assert_eq!((cold.codec, cold.tries_zstd), (Codec::Lz4, true));
        let dense = how_packed(Density::ColdDense, None);
        assert_eq!(dense, Codec::Zstd.into());
    }
}
