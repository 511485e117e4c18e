//! The engine itself, as one of the variants.

use vswap_engine::{Config, Engine, Entry, GroupId, Lookup, Shadow};

use super::{FRAMES, Variant};
use crate::engine_bench::Failure;
use crate::engine_bench::setup::{self, without_pool};

/// The engine.
#[derive(Debug)]
pub(crate) struct Real {
    engine: Engine,
}

impl Real {
    pub(crate) fn new(cpus: usize) -> Result<Real, Failure> {
        let config = Config {
            cpus,
            ..without_pool(FRAMES as usize)
        };
        let (engine, _) = setup::engine(&config)?;
        Ok(Real { engine })
    }
}

impl Variant for Real {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        let frame = self.engine.frame()?;
        self.engine
            .swap_out(cpu, frame, Shadow::ABSENT, GroupId::ROOT)
            .ok()
            .map(Entry::raw)
    }

    fn lookup(&self, slot: u64) -> bool {
        let found = Entry::from_raw(slot).map(|entry| self.engine.lookup(entry));
        matches!(found, Some(Lookup::Cached(_)))
    }

    fn dup(&self, slot: u64) {
        if let Some(entry) = Entry::from_raw(slot) {
            // Only refused for free slots, and the load does not duplicate those.
            let _ = self.engine.dup(entry);
        }
    }

    fn put(&self, slot: u64) {
        if let Some(entry) = Entry::from_raw(slot) {
            self.engine.put(entry);
        }
    }

    fn table_bytes(&self) -> u64 {
        self.engine.stats().table_bytes
    }

    #[cfg(test)]
    fn used(&self) -> (usize, usize) {
        let stats = self.engine.stats();
        (
            usize::try_from(stats.slots_used).unwrap(),
            usize::try_from(stats.frames_used).unwrap(),
        )
    }
}
