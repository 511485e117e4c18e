//! A lie that wants another program's memory: staging is said to lie where that has a secret, and a thread of it is
//! said to be the agent's. Then the pager would read the secret in place of what has moved, and bring it here.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vswap_sys::ring::Hello;

use crate::liar::Liar;
use crate::liar::replies::Manner;
use crate::liar::session::Session;
use crate::liar::truth::Truth;
use crate::secret;

/// How long it is tried.
const TIME: Duration = Duration::from_millis(800);
const PACE: Duration = Duration::from_millis(5);

/// Steals, if it can.
pub(crate) fn steal(liar: &mut Liar) {
    let (Some(truth), Some(victim)) = (Truth::new(false), rustix::process::getppid()) else {
        return;
    };
    let victim = victim.as_raw_nonzero().get();
    let is_early = liar.random.chance(50);
    let honest = truth.hello();
    let end = honest.agent_base + honest.agent_bytes;
    let hello = Hello {
        agent_base: secret::START,
        agent_bytes: end - secret::START,
        staging: secret::START,
        agent_tid: if is_early && liar.random.chance(30) {
            victim
        } else {
            honest.agent_tid
        },
        ..honest
    };
    let session = Session::start(liar, truth, Manner::default());
    let Some(connection) = liar.connect() else {
        return;
    };
    let agent = &session.truth.ring().agent_tid;
    let name_victim = || agent.store(victim.cast_unsigned(), Ordering::SeqCst);
    if is_early {
        name_victim();
    }
    connection.hello(&hello, &session.truth.descriptors());
    session.connect(connection);
    let until = Instant::now() + TIME;
    while Instant::now() < until.min(liar.until) {
        std::thread::sleep(PACE);
        name_victim();
        if (0..liar.arena.touched_pages()).any(|page| liar.arena.read(page) == secret::WORD) {
            liar.log.tell_theft();
            return;
        }
    }
}
