//! The storage itself: what the engine is given.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vswap_engine::{Codec, Page, ReadRun, Storage, StorageError};

use crate::area::Area;
use crate::backup::Backup;
use crate::cipher::{Cipher, Plain};
use crate::event::Listener;
use crate::exchange::Exchange;
use crate::figures::{FarFigures, FarWatch, HasFigures as _};
use crate::keys::{AreaId, RunId};
use crate::lease::Keeper;
use crate::probe::{Demand, Probe, probed};
use crate::spec::FarSpec;
use crate::store::{FarError, Patience, connect, connect_over};
use crate::wire::Network;

/// How long keys live that nobody renews.
const LEASE: Duration = Duration::from_secs(600);
/// Connections to each node.
const LANES: usize = 4;
/// Copies of a page at most.
const COPIES_MAX: usize = 2;

/// What an area in a store is to be like.
pub struct FarOptions {
    /// Whose area it is.
    pub id: AreaId,
    /// How many pages it has.
    pub slots: u64,
    /// How pages are packed that come as they are. What comes packed says by itself how.
    pub codec: Codec,
    /// On how many nodes each page is kept: 1 or 2.
    pub copies: usize,
    /// How long its keys live when nobody renews them any longer.
    pub lease: Duration,
    /// How long things may take.
    pub patience: Patience,
    /// Connections to each node, at most: as many requests are under way at once.
    pub lanes: usize,
    /// A storage with as many slots, which is written in the background and read when the store has lost a page.
    pub backup: Option<Box<dyn Storage>>,
    /// Who is told that a node is waited for. The log is told in any case.
    pub listener: Option<Listener>,
}

impl FarOptions {
    /// One copy of each page, no backup, and the usual times.
    #[must_use]
    pub fn new(id: AreaId, slots: u64, codec: Codec) -> FarOptions {
        FarOptions {
            id,
            slots,
            codec,
            copies: 1,
            lease: LEASE,
            patience: Patience::default(),
            lanes: LANES,
            backup: None,
            listener: None,
        }
    }
}

impl fmt::Debug for FarOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FarOptions");
        shown.field("id", &self.id).field("slots", &self.slots);
        shown.field("copies", &self.copies).finish_non_exhaustive()
    }
}

/// An area in a store. When it is dropped, its keys are deleted, which takes some seconds if the store does not answer.
pub struct FarStorage {
    area: Arc<Area>,
    // Dropped in this order: nothing is written behind any longer when the keys go.
    backup: Option<Backup>,
    keeper: Keeper,
    /// Nobody needs it any more, and its keys go.
    is_retired: AtomicBool,
    probe: Probe,
    name: String,
}

impl FarStorage {
    /// Connects, asks whether the store is fit, and registers the run. Blocks.
    ///
    /// # Errors
    /// [`FarError`] says what is wrong and what mends it.
    pub fn open(spec: &FarSpec, options: FarOptions) -> Result<FarStorage, FarError> {
        let lanes = options.lanes;
        let exchange = connect(spec, &options.patience, lanes, options.listener.clone())?;
        FarStorage::over(exchange, spec, options)
    }

    /// The same over another network: one that is simulated.
    ///
    /// # Errors
    /// [`FarError`].
    pub fn open_over(
        network: Arc<dyn Network>,
        spec: &FarSpec,
        options: FarOptions,
    ) -> Result<FarStorage, FarError> {
        let (lanes, listener) = (options.lanes, options.listener.clone());
        let exchange = connect_over(network, spec, &options.patience, lanes, listener)?;
        FarStorage::over(exchange, spec, options)
    }

    fn over(
        exchange: Exchange,
        spec: &FarSpec,
        options: FarOptions,
    ) -> Result<FarStorage, FarError> {
        let FarOptions {
            id,
            slots,
            codec,
            copies,
            lease,
            patience,
            backup,
            ..
        } = options;
        let copies = copies.clamp(1, COPIES_MAX);
        let probe = probed(&exchange, spec, Demand { slots, copies }, id)?;
        let cipher = Cipher::random(id.run.number(), id.area).ok_or(FarError::NoKey)?;
        let times = (lease, patience.bound);
        let area = Area::new(id, exchange, cipher, slots, (codec, copies), times);
        let area = Arc::new(area);
        let keeper = Keeper::start(Arc::clone(&area)).ok_or(FarError::NoThread)?;
        let backup = match backup {
            None => None,
            Some(storage) => {
                let backup = Backup::start(storage, Arc::clone(&area));
                Some(backup.ok_or(FarError::NoThread)?)
            }
        };
        Ok(FarStorage {
            area,
            backup,
            keeper,
            is_retired: AtomicBool::new(false),
            probe,
            name: spec.to_string(),
        })
    }

    /// What the store was like when it was opened, with what whoever uses it should know.
    #[must_use]
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// What it has done.
    #[must_use]
    pub fn figures(&self) -> FarFigures {
        self.area.figures()
    }

    /// A way to ask for the same once the engine has the storage.
    #[must_use]
    pub fn watch(&self) -> FarWatch {
        FarWatch::new(&self.area)
    }

    /// Whose keys these are.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.area.id.run
    }

    /// Waits until the backup has all that was written, but not longer than this.
    pub fn flush_backup(&self, time: Duration) {
        if let Some(backup) = &self.backup {
            backup.flush(time);
        }
    }
}

impl fmt::Debug for FarStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FarStorage");
        shown.field("name", &self.name).field("id", &self.area.id);
        shown.finish_non_exhaustive()
    }
}

impl Storage for FarStorage {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        ReadRun::alone(self, slot, pages)
    }

    fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        self.area.read_all(runs, self.backup.as_ref());
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        let packed: Vec<Plain> = self.area.with_scratch(|scratch| {
            let pack = |page: &&Page| self.area.packed(page, scratch);
            pages.iter().map(pack).collect()
        });
        let packed: Vec<&[u8]> = packed.iter().map(|page| page.as_slice()).collect();
        self.write_packed(slot, &packed)
    }

    fn is_far(&self) -> bool {
        true
    }

    fn keeps_packed(&self) -> bool {
        true
    }

    fn write_packed(&self, slot: u64, payloads: &[&[u8]]) -> Result<(), StorageError> {
        if self.is_retired.load(Ordering::Relaxed) {
            return Err(StorageError::Short);
        }
        let written = self.area.write_payloads(slot, payloads)?;
        if let Some(backup) = &self.backup {
            backup.write(slot, payloads, written);
        }
        Ok(())
    }

    /// What is being written meanwhile goes with its lease.
    fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.keeper.end();
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        if let Some(backup) = &self.backup {
            backup.discard(slots.clone());
        }
        self.area.discard_slots(slots)
    }
}
