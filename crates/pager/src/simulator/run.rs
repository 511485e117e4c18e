//! One simulation: a process begins, its plan runs while everything is evicted again and again, and all ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vswap_engine::{Engine, GroupId};

use super::actors::{self, Stage, world};
use super::clock;
use super::memory::{Memory, PROGRAM, World};
use super::plan::{Call, Plan};
use super::program::{self, Thread};
use super::random::Random;
use super::scarce::{Scarce, Shortage};
use super::uffd::Userfaultfd;
use crate::base::rules::Rule;
use crate::layout::Layout;
use crate::life::lifecycle;
use crate::life::run::Run;
use crate::life::store::Store;
use crate::run::leaving::Leaving;
use crate::space::Space;
use crate::space::kin::Kin;
use crate::store::areas::Areas;
use crate::store::config::{Codec, Config, Mapping, RamRange, StoreConfig};

/// Frames of the store. They are few, so that pages are compressed now and then.
const FRAMES: u64 = 128;
const POOL_BYTES: u64 = 64 << 20;
const REAP_PACE: Duration = Duration::from_micros(50);
const FIRST_TID: u32 = 1000;
/// Readers of a run, however many processors the machine has.
const READERS: usize = 2;

/// What simulations share: an engine, which is empty between two of them.
pub struct Lab {
    engine: Arc<Engine>,
    areas: Arc<Areas>,
    shortage: Option<Arc<Shortage>>,
}

impl Lab {
    pub fn new() -> Lab {
        let config = StoreConfig {
            repacks: false,
            frames: FRAMES,
            codec: Codec::Lz4,
            pool_limit_bytes: POOL_BYTES,
            checksums: true,
            shared: false,
        };
        let store = Store::new(&config).expect("memory for a store");
        Lab {
            engine: Arc::clone(&store.engine),
            areas: Arc::clone(&store.areas),
            shortage: None,
        }
    }

    /// A lab whose engine is refused memory in the first part of each simulation.
    pub fn short_of_memory() -> (Lab, Arc<Shortage>) {
        let config = vswap_engine::Config {
            frames: usize::try_from(FRAMES).expect("few"),
            cpus: 1,
            codec: Codec::Lz4,
            pool_limit_bytes: POOL_BYTES,
            checksums: true,
        };
        let source = Arc::new(Scarce::default());
        let engine = Engine::new(&config, source.clone()).expect("memory for an engine");
        let shortage = Arc::new(Shortage::new(source));
        let lab = Lab {
            engine: Arc::new(engine),
            areas: Arc::default(),
            shortage: Some(Arc::clone(&shortage)),
        };
        (lab, shortage)
    }

    /// A run on the store.
    pub fn new_run(&self, seed: u64) -> Run {
        Run::new(
            config(seed),
            &self.engine,
            &self.areas,
            GroupId::ROOT,
            None,
            Leaving::new().expect("a descriptor"),
        )
    }

    /// Run a plan in the schedule of a seed, perhaps without a rule. Returns the number of steps, or what went wrong.
    pub fn run(&mut self, plan: &Plan, seed: u64, broken: Option<Rule>) -> Result<u64, String> {
        let mut run = self.new_run(seed);
        run.cpus = (0..READERS).collect();
        let run = Arc::new(run);
        let plan = plan.clone();
        let mut memory = Memory::default();
        let middle = PROGRAM.start + 24;
        memory.map(PROGRAM.start..middle);
        let kernel = World {
            memories: vec![memory],
            ..World::default()
        };
        let stage = Stage::new(seed, kernel, broken);
        let shortage = self.shortage.clone();
        if let Some(shortage) = &shortage {
            shortage.begin(&self.engine, seed);
        }
        let refused = self.engine.stats().alloc_reject;
        let of_program = Arc::clone(&run);
        let steps = stage.play(move || {
            begin(&of_program, &plan);
            if let Some(shortage) = shortage {
                shortage.end_later(&of_program, seed);
            }
        });
        if let Some(shortage) = &self.shortage {
            shortage.end(&self.engine);
            let refused = self.engine.stats().alloc_reject - refused;
            let seen = &shortage.seen;
            seen.refused.fetch_add(refused, Ordering::Relaxed);
            let out = run.serving.stats.pages_out.get();
            seen.out.fetch_add(out, Ordering::Relaxed);
        }
        let left = self.engine.stats().slots_used;
        let steps = match steps {
            Ok(_) if left > 0 => Err(format!("{left} entries are left in swap")),
            steps => steps,
        };
        if steps.is_err() {
            // Actors that were stopped half-way have left things in disorder.
            *self = Lab::new();
        }
        steps
    }
}

fn config(seed: u64) -> Config {
    let every_us = [5, 40, 300][usize::try_from(Random::new(!seed).below(3)).unwrap_or(0)];
    Config {
        ram: RamRange::fixed(1 << 40),
        pool_limit: None,
        mapping: Mapping::Virtual,
        group: None,
        root_pid: 0,
        run_dir: PathBuf::new(),
        quiet: true,
        pressure_file: None,
        evict_all_every: Some(Duration::from_micros(every_us)),
        sample_every: seed.is_multiple_of(3).then_some(Duration::from_micros(7)),
    }
}

fn begin(run: &Arc<Run>, plan: &Plan) {
    let kin = Arc::new(Kin::default());
    let uffd = Userfaultfd::of(0);
    let space = Space::new(run.listening.spaces.next_id(), uffd, Layout::default(), kin);
    let _ = space.process.set(program::process_of(0));
    run.listening.spaces.add(Arc::clone(&space));
    run.serving.limit.look_now();
    program::start_agent(&space);
    // The filter counts as installed. What it does begins when the threads run.
    space.filtered.store(true, Ordering::Release);
    space.hastened.store(true, Ordering::Release);
    lifecycle::start_evictor(run, &space);
    world(|world| world.memories[0].threads = u32::try_from(plan.threads.len()).unwrap_or(0));
    for (number, calls) in (0..).zip(&plan.threads) {
        let thread = Thread {
            run: Arc::clone(run),
            memory: 0,
            space: Some(Arc::clone(&space)),
            tid: FIRST_TID + number,
        };
        let calls: Vec<Call> = calls.clone();
        actors::spawn(&format!("thread-{number}"), move || thread.run(&calls));
    }
    let run = Arc::clone(run);
    actors::spawn("reaper", move || reap(&run));
}

/// The governor's part in this: give up what ended processes had.
fn reap(run: &Arc<Run>) {
    loop {
        clock::sleep(REAP_PACE);
        let listening = &run.listening;
        let _ = lifecycle::reap(listening, &listening.spaces.all());
        if listening.remains.attend() {
            listening.remains.give_up(&run.serving.references, || ());
        }
        let is_over = world(|world| world.memories.iter().all(|memory| memory.gone));
        if is_over && run.listening.spaces.all().is_empty() {
            world(|world| world.is_over = true);
            return;
        }
    }
}
