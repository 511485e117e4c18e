//! The sweeps of sampling: watched pages are moved out on purpose, and it is noted when they come back.
//!
//! They go the way that all pages go, a window at a time, so a watched page is as safe as any other.

use std::time::Duration;

use vswap_sys::process::{procfs, task};

use vswap_engine::{Codec, Entry, PAGE_BYTES, Page, Scratch};

use super::window::{Choice, Window};
use super::{Evictor, WINDOW_PAGES};
use crate::base::kernel::clock;
use crate::base::kernel::pagemap::Query;
use crate::policy::sampling::{BLOCK_PAGES, Event, Plan, is_chosen};
use crate::run::buffers::Buffers;
use crate::run::samples::{Look, Packed, Packing, Samples};
use crate::space::present;

/// A sweep that takes so long is not made again before so many times as long.
const SWEEP_PARTS: u32 = 30;
/// One page in this many is compressed with every codec.
const PACK_PART: usize = 16;
/// How many pages are tried in all.
const PACK_MAX: u64 = 4096;

/// What an evictor needs for sampling.
#[derive(Debug)]
pub struct Sampler {
    /// Which sampling it belongs to.
    session: u64,
    plan: Plan,
    pause: Duration,
    every: Duration,
    packed_pages: u64,
    /// Contexts of all codecs, which stay: to make them takes longer than to use them.
    scratch: Option<Scratch>,
}

impl Sampler {
    /// A sampler of this space, if the run is sampled.
    pub fn new(samples: &Samples, space: u64) -> Option<Sampler> {
        let (session, every) = samples.session()?;
        let space = u32::try_from(space).unwrap_or(u32::MAX);
        Some(Sampler {
            session,
            plan: Plan::new(space, samples.shift(), samples.now_us()),
            pause: every,
            every,
            packed_pages: 0,
            scratch: None,
        })
    }

    /// How long until the next sweep.
    pub fn pause(&self) -> Duration {
        self.pause
    }
}

impl Evictor<'_> {
    /// Begin or end sampling, as somebody asks. What an older sampling knows is of no use to a new one.
    pub(super) fn renew_sampler(&mut self) {
        let samples = &self.serving.samples;
        let session = samples.session().map(|(session, _)| session);
        if self.sampler.as_ref().map(|sampler| sampler.session) != session {
            self.sampler = Sampler::new(samples, self.space.id);
        }
    }

    /// One sweep: see what has come back, and what there is, and move out what is due.
    pub(super) fn sample(&mut self) {
        let Some(mut sampler) = self.sampler.take() else {
            return;
        };
        let began = clock::now();
        let samples = &self.serving.samples;
        sampler.plan.thin(samples.shift());
        self.note_back(&mut sampler);
        self.look(&mut sampler);
        if sampler.plan.is_too_large() {
            samples.thin(sampler.session, sampler.plan.shift());
            sampler.plan.thin(samples.shift());
        }
        let due = sampler.plan.due(samples.now_us());
        for pages in due.chunks(WINDOW_PAGES) {
            if self.space.has_ended() || !self.sample_window(&mut sampler, pages) {
                break;
            }
        }
        let took = clock::now().saturating_duration_since(began);
        sampler.pause = sampler.every.max(took * SWEEP_PARTS);
        self.sampler = Some(sampler);
    }

    /// The space has ended: so have its pages.
    pub(super) fn end_sampling(&mut self) {
        if let Some(mut sampler) = self.sampler.take() {
            let samples = &self.serving.samples;
            self.note_back(&mut sampler);
            samples.note(sampler.session, &sampler.plan.end(samples.now_us()));
        }
    }

    fn note_back(&self, sampler: &mut Sampler) {
        let samples = &self.serving.samples;
        let back = samples.take_back(self.space.id);
        samples.note(sampler.session, &came_back(&mut sampler.plan, back));
    }

    /// What is in memory, and what is out?
    fn look(&self, sampler: &mut Sampler) {
        let (session, plan) = (sampler.session, &mut sampler.plan);
        let samples = &self.serving.samples;
        let registered: Vec<_> = self.space.lock().layout.registered.iter().collect();
        let mut present = Vec::new();
        for range in registered.iter().cloned() {
            // Without an answer the process has ended.
            let found = present::pages_of(self.space, range, &Query::EVICTABLE);
            present.extend(found.unwrap_or_default());
        }
        let present_pages = present.len() as u64;
        let (ran_us, queued_us) = self.ran_and_queued();
        let state = self.space.lock();
        // Those that came back during the scan are in memory too.
        let back = samples.take_back(self.space.id);
        present.extend(back.iter().map(|(page, _)| *page));
        present.sort_unstable();
        samples.note(session, &came_back(plan, back));
        let words = &state.layout.words;
        let (space, shift) = (plan.space(), plan.shift());
        let is_watched = |first| is_chosen(space, first, shift);
        let mut swapped = Vec::new();
        for range in registered {
            swapped.extend(words.swapped_in_blocks(range, BLOCK_PAGES, is_watched));
        }
        let out = |page| words.get(page).is_swapped() || words.get(page).is_claimed();
        let now_us = samples.now_us();
        let events = plan.look(&present, &swapped, now_us, out);
        let look = Look {
            at_us: now_us,
            space: u32::try_from(self.space.id).unwrap_or(u32::MAX),
            present_pages,
            out_pages: words.swapped(),
            run_resident_bytes: self.serving.limit.figures().resident_bytes,
            first_touches: self.serving.stats.faults_first_touch.get(),
            ran_us,
            queued_us,
        };
        drop(state);
        samples.note(session, &events);
        samples.note_look(session, look);
    }

    /// How long all its threads have run and waited for a processor, in microseconds.
    fn ran_and_queued(&self) -> (u64, u64) {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let threads = procfs::threads(self.process.pid).unwrap_or_default();
        let times = threads.into_iter().filter_map(task::ran_and_queued);
        times.fold((0, 0), |(ran, queued), (more_ran, more_queued)| {
            (ran + us(more_ran), queued + us(more_queued))
        })
    }

    /// Move out these pages. False if no more can be moved now.
    fn sample_window(&mut self, sampler: &mut Sampler, pages: &[u64]) -> bool {
        let samples = &self.serving.samples;
        let at_us = samples.now_us();
        let Ok(Window::Moved(_)) = self.window(Choice::Pages(pages.to_vec())) else {
            return false;
        };
        let back = samples.take_back(self.space.id);
        let is_back = |page| back.iter().any(|(back, _)| *back == page);
        let mut tried = Vec::new();
        let mut events = Vec::with_capacity(pages.len());
        {
            let state = self.space.lock();
            for (at, &page) in pages.iter().enumerate() {
                let word = state.layout.words.get(page);
                if word.is_swapped() || is_back(page) {
                    events.extend(sampler.plan.went_out(page, at_us));
                    let is_tried = at % PACK_PART == 0 && sampler.packed_pages < PACK_MAX;
                    // The word holds a reference as long as the space is locked.
                    let entry = word
                        .entry()
                        .filter(|entry| is_tried && self.serving.engine.dup(*entry).is_ok());
                    tried.extend(entry);
                } else {
                    sampler.plan.was_busy(page, at_us);
                }
            }
        }
        for (page, at_us) in back {
            events.extend(sampler.plan.came_back(page, at_us));
        }
        samples.note(sampler.session, &events);
        for entry in tried {
            self.pack(sampler, entry);
        }
        true
    }

    /// Try how a page that is out compresses, and put the reference to its entry.
    fn pack(&self, sampler: &mut Sampler, entry: Entry) {
        let engine = &self.serving.engine;
        let scratch_of = &mut sampler.scratch;
        let packing = self.serving.spare_buffers.with(
            engine,
            &self.serving.stats,
            |buffers: &mut Buffers| {
                let (scratch, pages) = buffers.parts(3);
                let (page, rest) = pages.split_first_mut()?;
                engine.swap_in(entry, page, scratch).ok()?;
                let scratch = scratch_of.get_or_insert_with(|| {
                    let mut scratch = engine.scratch();
                    packing_of(page, rest, &mut scratch);
                    scratch
                });
                Some(packing_of(page, rest, scratch))
            },
        );
        engine.put(entry);
        if let Some(packing) = packing {
            sampler.packed_pages += packing.pages;
            let samples = &self.serving.samples;
            samples.note_packing(sampler.session, &packing);
        }
    }
}

/// The events of pages that have come back.
fn came_back(plan: &mut Plan, back: Vec<(u64, u64)>) -> Vec<Event> {
    let events = back.into_iter();
    events
        .flat_map(|(page, at_us)| plan.came_back(page, at_us))
        .collect()
}

/// How one page compresses with every codec. The rest is room for what comes out.
fn packing_of(page: &Page, rest: &mut [Page], scratch: &mut Scratch) -> Packing {
    if page.0.iter().all(|byte| *byte == 0) {
        return Packing {
            pages: 1,
            zero_pages: 1,
            ..Packing::default()
        };
    }
    Packing {
        pages: 1,
        zero_pages: 0,
        lz4: packed_by(Codec::Lz4, page, rest, scratch),
        zstd: packed_by(Codec::Zstd, page, rest, scratch),
    }
}

fn packed_by(codec: Codec, page: &Page, rest: &mut [Page], scratch: &mut Scratch) -> Packed {
    let since = clock::now();
    let payload = codec.compress(page, scratch);
    let compress_ns = nanoseconds_since(since);
    let (Ok(payload), [packed, back, ..]) = (payload, rest) else {
        return Packed {
            bytes: PAGE_BYTES as u64,
            compress_ns,
            decompress_ns: 0,
        };
    };
    let bytes = payload.len();
    packed.0[..bytes].copy_from_slice(payload);
    let since = clock::now();
    // What was compressed just now comes out again; if not, the time alone is wrong.
    let _ = scratch.decompress(&packed.0[..bytes], back);
    Packed {
        bytes: bytes as u64,
        compress_ns,
        decompress_ns: nanoseconds_since(since),
    }
}

fn nanoseconds_since(since: std::time::Instant) -> u64 {
    let passed = clock::now().saturating_duration_since(since);
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}
