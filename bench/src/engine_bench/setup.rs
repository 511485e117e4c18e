//! Setup of measurements: an engine, an area behind it, pages that are swapped out.

use std::sync::Arc;

use vswap_engine::{
    Codec, Config, Discard, Engine, Entry, GroupId, NewArea, Page, Scratch, Shadow, Storage,
    TierId, Written,
};

use crate::engine_bench::Failure;
use crate::engine_bench::cell::cpus;
use crate::engine_bench::pages::MappedPages;

/// An engine that keeps pages in frames, as zeros and in areas, and compresses nothing.
pub(crate) fn without_pool(frames: usize) -> Config {
    Config {
        frames,
        cpus: cpus(),
        codec: Codec::None,
        pool_limit_bytes: 0,
        checksums: false,
    }
}

/// An engine on mapped memory, and that memory.
pub(crate) fn engine(config: &Config) -> Result<(Engine, Arc<MappedPages>), Failure> {
    let pages = Arc::new(MappedPages::new()?);
    let engine = Engine::new(config, Arc::clone(&pages) as _);
    Ok((engine.map_err(Failure::of("cannot make an engine"))?, pages))
}

/// Starts to use an area of `slots` slots.
pub(crate) fn swap_on(
    engine: &Engine,
    slots: u64,
    priority: i16,
    storage: Box<dyn Storage>,
) -> Result<(), Failure> {
    let area = engine.swap_on(NewArea {
        slots,
        bad: Vec::new(),
        priority,
        tier: TierId::default(),
        discard: Discard::None,
        rotating: false,
        storage,
    });
    area.map(|_| ()).map_err(Failure::of("cannot use an area"))
}

/// Swaps out a page. `fill` gives it its content, because a new frame holds old bytes.
#[inline]
pub(crate) fn swap_out(
    engine: &Engine,
    cpu: usize,
    fill: impl FnOnce(&mut Page),
) -> Result<Entry, Failure> {
    swap_out_of(engine, cpu, GroupId::ROOT, fill)
}

/// The same for a page of a group.
#[inline]
pub(crate) fn swap_out_of(
    engine: &Engine,
    cpu: usize,
    group: GroupId,
    fill: impl FnOnce(&mut Page),
) -> Result<Entry, Failure> {
    let frame = engine.frame();
    let mut frame =
        frame.ok_or_else(|| Failure::new("frames ran out: a load holds more than there are"))?;
    fill(&mut frame);
    let entry = engine.swap_out(cpu, frame, Shadow::ABSENT, group);
    entry.map_err(|(_, error)| Failure::new(error.to_string()))
}

/// Writes pages out together. All of them have to go to `expected`.
pub(crate) fn write_out(
    engine: &Engine,
    cpu: usize,
    entries: &[Entry],
    scratch: &mut Scratch,
    expected: Written,
) -> Result<(), Failure> {
    let mut other = None;
    engine.write_out_all(cpu, entries, scratch, |_, outcome| {
        if outcome != Ok(expected) {
            other = Some(outcome);
        }
    });
    other.map_or(Ok(()), |outcome| {
        Err(Failure::new(format!(
            "a page was written out with {outcome:?}, expected {expected:?}"
        )))
    })
}
