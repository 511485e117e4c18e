//! Engines, pages and storage for the tests.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use vswap_engine::{
    Codec, Config, Discard, Engine, Entry, GroupId, HeapPages, NewArea, PAGE_BYTES,
    PRIORITY_DEFAULT, Page, PageSource, RamStorage, Shadow, Storage, StorageError, SwapIn,
    SwapInError, TierId,
};

/// Content of a seed: zeros for 0, else a page that compresses and starts with its seed.
pub fn fill(page: &mut Page, seed: u64) {
    page.0.fill(0);
    let mut state = seed;
    for chunk in page.0.chunks_mut(64).filter(|_| seed != 0) {
        chunk[..8].copy_from_slice(&state.to_le_bytes());
        state = state.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The seed of a page. Checks that the whole page is of that seed.
pub fn seed_of(page: &Page) -> u64 {
    let seed = u64::from_le_bytes(page.0[..8].try_into().expect("eight bytes"));
    let mut expected = Box::new(Page([0; PAGE_BYTES]));
    fill(&mut expected, seed);
    assert!(page.0 == expected.0, "torn: not the page of seed {seed}");
    seed
}

pub fn engine(frames: usize, pool_limit_bytes: u64) -> Arc<Engine> {
    engine_from(Arc::new(HeapPages::new()), frames, pool_limit_bytes)
}

pub fn engine_from(
    pages: Arc<dyn PageSource>,
    frames: usize,
    pool_limit_bytes: u64,
) -> Arc<Engine> {
    let config = Config {
        frames,
        cpus: 1,
        codec: Codec::Lz4,
        pool_limit_bytes,
        checksums: true,
    };
    Arc::new(Engine::new(&config, pages).expect("memory"))
}

/// An engine without a pool, with an area of `slots` slots. Those in `bad` are bad.
pub fn engine_with_area(frames: usize, slots: u64, bad: &[u64]) -> (Arc<Engine>, Probe) {
    let engine = engine(frames, 0);
    let (area, probe) = area(slots, bad);
    engine.swap_on(area).expect("a good area");
    (engine, probe)
}

/// An area to be swapped on, and its storage.
pub fn area(slots: u64, bad: &[u64]) -> (NewArea, Probe) {
    let probe = Probe::new(slots);
    let area = NewArea {
        slots,
        bad: bad.to_vec(),
        priority: PRIORITY_DEFAULT,
        tier: TierId::default(),
        discard: Discard::None,
        rotating: false,
        storage: Box::new(probe.clone()),
    };
    (area, probe)
}

pub fn out(engine: &Engine, seed: u64) -> Entry {
    out_of(engine, GroupId::ROOT, seed)
}

pub fn out_of(engine: &Engine, group: GroupId, seed: u64) -> Entry {
    let mut frame = engine.frame().expect("a free frame");
    fill(&mut frame, seed);
    engine
        .swap_out(0, frame, Shadow::truncated(seed), group)
        .expect("a slot")
}

/// Where the entry's page is, and its seed.
pub fn read(engine: &Engine, entry: Entry) -> Result<(SwapIn, u64), SwapInError> {
    let mut page = Box::new(Page([0xee; PAGE_BYTES]));
    let from = engine.swap_in(entry, &mut page, &mut engine.scratch())?;
    Ok((from, seed_of(&page)))
}

/// Checks that nothing is in use any more.
pub fn assert_empty(engine: &Engine) {
    let stats = engine.stats();
    assert_eq!((stats.slots_used, stats.zero, stats.frames_used), (0, 0, 0));
    assert_eq!((stats.compressed, stats.raw, stats.pool_bytes), (0, 0, 0));
    assert_eq!((stats.physical, stats.damaged), (0, 0));
}

type Hook = Box<dyn FnOnce() + Send>;

/// Storage in memory that can be broken. A test can put a hook into its next request: it runs when no lock is held and
/// the page is on its way.
#[derive(Clone)]
pub struct Probe(Arc<Inner>);

struct Inner {
    ram: RamStorage,
    is_broken: AtomicBool,
    /// Requests are refused from this slot on.
    ends_at: Mutex<u64>,
    on_read: Mutex<Option<Hook>>,
    on_write: Mutex<Option<Hook>>,
}

impl Probe {
    fn new(slots: u64) -> Probe {
        Probe(Arc::new(Inner {
            ram: RamStorage::new(usize::try_from(slots).expect("few")),
            is_broken: AtomicBool::new(false),
            ends_at: Mutex::new(u64::MAX),
            on_read: Mutex::new(None),
            on_write: Mutex::new(None),
        }))
    }

    pub fn broken(&self, is_broken: bool) {
        self.0.is_broken.store(is_broken, Ordering::Relaxed);
    }

    pub fn ends_at(&self, slot: u64) {
        *self.0.ends_at.lock().expect("no panic") = slot;
    }

    pub fn on_read(&self, hook: impl FnOnce() + Send + 'static) {
        *self.0.on_read.lock().expect("no panic") = Some(Box::new(hook));
    }

    pub fn on_write(&self, hook: impl FnOnce() + Send + 'static) {
        *self.0.on_write.lock().expect("no panic") = Some(Box::new(hook));
    }

    fn begin(&self, slot: u64, hook: &Mutex<Option<Hook>>) -> Result<(), StorageError> {
        let hook = hook.lock().expect("no panic").take();
        if let Some(hook) = hook {
            hook();
        }
        let ends_at = *self.0.ends_at.lock().expect("no panic");
        if self.0.is_broken.load(Ordering::Relaxed) || slot >= ends_at {
            return Err(StorageError::Failed { errno: 5 });
        }
        Ok(())
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

impl Storage for Probe {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        self.begin(slot, &self.0.on_read)?;
        self.0.ram.read(slot, pages)
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        self.begin(slot, &self.0.on_write)?;
        self.0.ram.write(slot, pages)
    }
}
