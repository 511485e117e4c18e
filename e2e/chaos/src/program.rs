//! The generated program: reads a plan, runs the part of one actor or of all threads, and checks its memory.
//!
//! It knows nothing of vswap. It writes what it finds wrong into the log, and then the process ends with a special
//! status.

pub(crate) mod access;
pub(crate) mod actor;
pub(crate) mod calls;
pub(crate) mod check;
pub(crate) mod confine;
pub(crate) mod content;
pub(crate) mod family;
pub(crate) mod library;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod open;
pub(crate) mod signals;
pub(crate) mod special;

use std::path::Path;
use std::sync::Arc;

use vswap_arena::Arena;

use crate::plan::Plan;
use crate::step::Step;
use actor::Actor;
use log::Log;

/// Exit status of a program that could not begin.
const CANNOT_STATUS: i32 = 98;

/// What all actors of a process share. It is made once and never changed.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) by_actor: Vec<Vec<usize>>,
    pub(crate) log: Log,
    /// For each actor, the arguments of this program if the actor is started with `posix_spawn`.
    pub(crate) spawns: Vec<Option<family::Words>>,
    /// Leave pauses out. If nothing is evicted, there is nothing to wait for.
    pub(crate) fast: bool,
    /// The library's arena of this process, if a step needs it.
    pub(crate) arena: Option<Arena>,
    /// This process never had another thread of the plan, nor those of an arena.
    pub(crate) alone: bool,
}

/// Runs the plan at `plan`: all its threads, or only the actor `only`.
///
/// # Errors
/// The program could not begin.
pub(crate) fn run(
    plan: &Path,
    log_path: &Path,
    only: Option<u32>,
    fast: bool,
) -> Result<i32, String> {
    let text = std::fs::read_to_string(plan)
        .map_err(|error| format!("cannot read {}: {error}", plan.display()))?;
    let parsed = Plan::parse(&text)?;
    let log = Log::open(log_path, parsed.lines.len())
        .map_err(|error| format!("cannot use {}: {error}", log_path.display()))?;
    // First, because the arena handles a signal too.
    signals::install(log);
    let arena = arena_of(&parsed, only)?;
    let shared = Shared {
        by_actor: parsed.by_actor(),
        log,
        spawns: family::spawns(&parsed, plan, log_path, fast)?,
        fast,
        alone: only.is_some() || (parsed.head.threads == 1 && arena.is_none()),
        arena,
        plan: parsed,
    };
    let shared = Arc::new(shared);
    let first = only.unwrap_or(0);
    let others = if only.is_some() {
        1..1
    } else {
        1..shared.plan.head.threads
    };
    let threads: Vec<_> = others
        .map(|number| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || thread(&shared, number))
        })
        .collect();
    thread(&shared, first);
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked".to_owned())?;
    }
    Ok(0)
}

/// The library's arena, if it is the first process and a step is about one.
fn arena_of(plan: &Plan, only: Option<u32>) -> Result<Option<Arena>, String> {
    let is_used = plan
        .lines
        .iter()
        .any(|line| matches!(line.step, Step::Library { .. }));
    if !is_used || only.is_some() {
        return Ok(None);
    }
    let made = library::arena(plan.head.seed);
    made.map(Some)
        .map_err(|error| format!("cannot make an arena of the library: {error}"))
}

/// One thread, from its empty arena to its last check.
fn thread(shared: &Shared, number: u32) {
    match Actor::new(shared, number) {
        Ok(mut actor) => {
            actor.run();
            actor.finish();
        }
        Err(error) => {
            eprintln!("vswap-chaos: actor {number} cannot begin: {error}");
            std::process::exit(CANNOT_STATUS);
        }
    }
}
