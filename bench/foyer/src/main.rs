//! Pages of 4 KiB in foyer's hybrid cache, as a program would keep them that has no arena: beside `vswap-workload
//! fill-read-write --arena`, with the same content, order and phases.
//!
//! A cache may lose what it was given. A page that it has lost is made and inserted anew, and counted: a store that
//! used it would have to read it from elsewhere.
//!
//! A workspace of its own, because nothing else of vswap needs foyer and its 150 dependencies.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use foyer::{
    BlockEngineConfig, Compression, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
};
use tokio::runtime::Runtime;
use vswap_bench::content::{Content, Kind, PageWords};
use vswap_bench::measure::{Latencies, Stage};
use vswap_bench::random::{Random, Zipf};
use vswap_bench::region::{PAGE_BYTES, PAGE_WORDS};
use vswap_bench::size::parse_bytes;

const USAGE: &str = "usage: vswap-bench-foyer SIZE MEMORY DIRECTORY none|lz4\n\
                     SIZE of all pages, MEMORY that the cache may hold, DIRECTORY for four times SIZE";
const SEED: u64 = 1;
const EXPONENT: f64 = 0.99;
const WRITE_PERCENT: usize = 20;
/// The cache writes pages again that it evicts again, and gives room back in whole blocks.
const DISK_SHARE: usize = 4;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Store {
    runtime: Runtime,
    cache: HybridCache<u64, Vec<u8>>,
    content: Content,
    versions: Vec<AtomicU32>,
    lost: AtomicU64,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [size, memory, directory, compression] = &arguments[..] else {
        return Err(USAGE.into());
    };
    let (size, memory) = (parse_bytes(size)?, parse_bytes(memory)?);
    let compression = match &compression[..] {
        "none" => Compression::None,
        "lz4" => Compression::Lz4,
        other => return Err(format!("no compression {other}\n{USAGE}").into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let device = FsDeviceBuilder::new(directory)
        .with_capacity(size * DISK_SHARE)
        .build()?;
    let cache = HybridCacheBuilder::new()
        .memory(memory)
        .with_weighter(|_, page: &Vec<u8>| page.len())
        .storage()
        .with_engine_config(BlockEngineConfig::new(device))
        .with_compression(compression);
    let store = Store {
        cache: runtime.block_on(cache.build())?,
        runtime,
        content: Content::new(SEED, Kind::Mixed),
        versions: (0..size / PAGE_BYTES).map(|_| AtomicU32::new(0)).collect(),
        lost: AtomicU64::new(0),
    };
    store.all()
}

impl Store {
    fn all(&self) -> Result<(), Failure> {
        let pages = self.versions.len();
        self.phase("fill", |latencies| {
            (0..pages).try_for_each(|page| {
                latencies.time(|| self.write(page));
                Ok(())
            })
        })?;
        self.phase("seq_read", |latencies| {
            (0..pages).try_for_each(|page| latencies.time(|| self.read(page)))
        })?;
        let mut random = Random::new(SEED ^ 1 << 32);
        self.phase("random_read", |latencies| {
            (0..pages).try_for_each(|_| latencies.time(|| self.read(random.below(pages))))
        })?;
        self.phase("random_write", |latencies| {
            (0..pages).try_for_each(|_| latencies.time(|| self.rewrite(random.below(pages))))
        })?;
        let zipf = Zipf::new(pages, EXPONENT);
        self.phase("zipf", |latencies| {
            (0..pages).try_for_each(|_| {
                let page = zipf.sample(&mut random);
                latencies.time(|| match random.below(100) < WRITE_PERCENT {
                    true => self.rewrite(page),
                    false => self.read(page),
                })
            })
        })?;
        println!("lost={}", self.lost.load(Ordering::Relaxed));
        Ok(())
    }

    fn phase(
        &self,
        name: &str,
        mut work: impl FnMut(&mut Latencies) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let phase = Stage::new(1).run_alone(name, |latencies| work(latencies))?;
        println!("{phase}");
        Ok(())
    }

    /// The page, made by its version.
    fn made(&self, page: usize) -> Vec<u8> {
        let mut words: PageWords = [0; PAGE_WORDS];
        let version = self.versions[page].load(Ordering::Relaxed);
        self.content.generate(page, version, &mut words);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn write(&self, page: usize) {
        self.cache.insert(page as u64, self.made(page));
    }

    /// Finds the page and looks at one word of it.
    fn read(&self, page: usize) -> Result<(), Failure> {
        let found = self.runtime.block_on(self.cache.get(&(page as u64)))?;
        let Some(entry) = found else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.write(page);
            return Ok(());
        };
        let at = self.content.stamp_word(page) * size_of::<u64>();
        let version = self.versions[page].load(Ordering::Relaxed);
        let stamp = entry.value()[at..at + size_of::<u64>()]
            == self.content.stamp(page, version).to_ne_bytes();
        match stamp {
            true => Ok(()),
            false => Err(format!("page {page} has a wrong word").into()),
        }
    }

    /// A store has to read a page before it changes a word of it.
    fn rewrite(&self, page: usize) -> Result<(), Failure> {
        self.read(page)?;
        self.versions[page].fetch_add(1, Ordering::Relaxed);
        self.write(page);
        Ok(())
    }
}
