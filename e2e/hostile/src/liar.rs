//! One process that lies as its own agent: it does a few lies of the table, one after the other, until its time is
//! over or somebody ends it.

mod wire;
mod messages;
mod descriptors;
mod filters;
mod truth;
mod hellos;
mod replies;
mod beside;
mod session;
mod theft;
mod lies;
mod endings;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use vswap_drive::random::Random;
use vswap_sys::ring::{AGENT_NAME, SOCKET_ENV};

use crate::process;
use crate::secret;
use lies::{LIES, Lie};
use truth::Arena;
use wire::Connection;

/// What is asked for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wishes {
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 4)]
    steps: u32,
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only these lies.
    #[arg(long)]
    lie: Vec<String>,
    /// A file that takes a line for each lie, before it is told.
    #[arg(long)]
    log: Option<PathBuf>,
}

/// What a lie works with.
pub(crate) struct Liar {
    pub(crate) random: Random,
    pub(crate) until: Instant,
    pub(crate) socket: PathBuf,
    pub(crate) arena: Arena,
    pub(crate) log: Log,
    seed: u64,
    /// Connections and descriptors that stay open until the process ends.
    pub(crate) kept: Vec<Connection>,
    pub(crate) kept_fds: Vec<OwnedFd>,
}

impl Liar {
    pub(crate) fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    pub(crate) fn connect(&mut self) -> Option<Connection> {
        let is_abstract = self.random.chance(25);
        Connection::new(&self.socket, is_abstract)
    }
}

/// Where lies are written down before they are told: afterwards may be too late.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    path: Option<PathBuf>,
    seed: u64,
}

impl Log {
    pub(crate) fn note(&self, what: &str) {
        let Some(path) = &self.path else { return };
        let file = OpenOptions::new().create(true).append(true).open(path);
        if let Ok(mut file) = file {
            let line = format!("{} seed {}: {what}\n", std::process::id(), self.seed);
            // The log is for people.
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Another program's memory has come here.
    pub(crate) fn tell_theft(&self) {
        self.note("HAS STOLEN another program's memory");
        if let Some(path) = &self.path {
            // The driver looks for this file.
            let _ = std::fs::write(path.with_file_name(secret::STOLEN), b"");
        }
    }
}

/// The names of all lies.
pub(crate) fn names() -> Vec<&'static str> {
    LIES.iter().map(|lie| lie.name).collect()
}

/// Lies.
///
/// # Errors
/// There is no vswap to lie to, no such lie, or no memory.
pub(crate) fn run(wishes: &Wishes) -> Result<bool, String> {
    process::leave_no_core();
    process::take_heap_at_once();
    let socket = std::env::var_os(SOCKET_ENV)
        .ok_or_else(|| format!("{SOCKET_ENV} is not set: nobody is there to be lied to"))?;
    let mut random = Random::new(wishes.seed);
    let lies: Vec<&Lie> = LIES
        .iter()
        .filter(|lie| wishes.lie.is_empty() || wishes.lie.iter().any(|name| name == lie.name))
        .collect();
    let total: u32 = lies.iter().map(|lie| lie.weight).sum();
    if total == 0 {
        return Err(format!("no lie has one of the names {:?}", wishes.lie));
    }
    // Whoever is named so seems to have an agent. No other is attached to it.
    if random.chance(60) {
        // Without the name the lies are told beside a true agent.
        let _ = rustix::thread::set_name(AGENT_NAME);
    }
    let mut liar = Liar {
        until: Instant::now() + Duration::from_secs_f64(wishes.seconds),
        socket: socket.into(),
        arena: Arena::new(&mut random).ok_or("no memory for an arena")?,
        log: Log {
            path: wishes.log.clone(),
            seed: wishes.seed,
        },
        seed: wishes.seed,
        kept: Vec::new(),
        kept_fds: Vec::new(),
        random,
    };
    for _ in 0..wishes.steps {
        if !liar.has_time() {
            break;
        }
        let mut at = liar.random.below(total);
        let chosen = lies.iter().find(|lie| {
            let is_it = at < lie.weight;
            at = at.saturating_sub(lie.weight);
            is_it
        });
        if let Some(lie) = chosen {
            liar.log.note(lie.name);
            (lie.tell)(&mut liar);
        }
    }
    endings::end(&mut liar)
}
