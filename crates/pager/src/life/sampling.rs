//! Sampling of a run that is under way: switched on for a while because somebody asks, and off again in any case.

use std::time::Duration;

use crate::life::run::Run;
use crate::run::samples::Sampled;

/// Sampling that was asked for. It ends when this is dropped.
#[derive(Debug)]
pub struct Sampling<'a> {
    run: &'a Run,
    session: u64,
}

/// The run cannot be sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSampled {
    /// There is one asker already.
    #[error(
        "somebody samples this run already: wait until that is over, or end the other `vswap advise`"
    )]
    Already,
    /// Nothing of it moves.
    #[error("the run is parked, so nobody uses its memory: `vswap wake` lets it go on")]
    Parked,
}

/// Begin to sample.
pub(crate) fn begin(run: &Run, every: Duration) -> Result<Sampling<'_>, NotSampled> {
    if !run.serving.parking.is_awake() {
        return Err(NotSampled::Parked);
    }
    let session = run.serving.samples.begin(every);
    let session = session.ok_or(NotSampled::Already)?;
    // Evictors sleep for a second at a time while nothing is asked of them, and the governor has all memory watched.
    for space in run.listening.spaces.all() {
        space.mailbox.ask(|wanted| wanted.rescan = true);
    }
    run.serving.limit.look_now();
    Ok(Sampling { run, session })
}

impl Sampling<'_> {
    /// What was seen since the last call.
    pub fn take(&self) -> Sampled {
        self.run.serving.samples.take(self.session)
    }
}

impl Drop for Sampling<'_> {
    fn drop(&mut self) {
        self.run.serving.samples.end(self.session);
    }
}
