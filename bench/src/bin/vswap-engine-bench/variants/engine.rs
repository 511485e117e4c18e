//! The engine itself, as one of the variants.

use std::sync::Arc;

use vswap_engine::{Codec, Config, Engine, Entry, Lookup, Shadow};

use super::{FRAMES, Variant};
use crate::Failure;
use crate::pages::MappedPages;

/// The engine.
#[derive(Debug)]
pub(crate) struct Real {
    engine: Engine,
}

impl Real {
    pub(crate) fn new(cpus: usize) -> Result<Real, Failure> {
        let config = Config {
            frames: FRAMES as usize,
            cpus,
            codec: Codec::None,
            pool_limit_bytes: 0,
            checksums: false,
        };
        let engine = Engine::new(&config, Arc::new(MappedPages::new()?));
        Ok(Real {
            engine: engine.map_err(Failure::of("cannot make an engine"))?,
        })
    }
}

impl Variant for Real {
    fn alloc(&self, cpu: usize) -> Option<u64> {
        let frame = self.engine.frame()?;
        self.engine
            .swap_out(cpu, frame, Shadow::ABSENT)
            .ok()
            .map(Entry::raw)
    }

    fn lookup(&self, slot: u64) -> bool {
        let found = Entry::from_raw(slot).map(|entry| self.engine.lookup(entry));
        matches!(found, Some(Lookup::Cached(_)))
    }

    fn dup(&self, slot: u64) {
        if let Some(entry) = Entry::from_raw(slot) {
            // Refused only for slots that are free, which the load does not duplicate.
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
