//! Sampling this run for somebody who asks: `vswap advise --run`.
//!
//! What was seen goes to the asker bit by bit, and the asker reckons: its memory and its time are not the run's.
//! Sampling ends when its time is over, when the asker closes or reads no more, when the run ends, and when somebody
//! parks it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vswap_pager::Sampled;

use crate::advice::paged::Paged;
use crate::control::Asker;
use crate::host::Host;
use crate::verbs::run::parking::Parking;

/// Pause between two sweeps over the watched pages.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Pause between two answers. A second of events is some hundred KiB at the most.
const ANSWER_EVERY: Duration = Duration::from_millis(500);
/// Pause between two looks at whether to go on.
const PACE: Duration = Duration::from_millis(50);

/// One of the answers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bit {
    /// Seconds since sampling began.
    pub seconds: f64,
    /// The limit of the run.
    pub limit_bytes: u64,
    /// Figures of the run since its start.
    pub paged: Paged,
    /// What was seen since the last answer.
    pub sampled: Sampled,
    /// There will be no more answers, because of this.
    pub end: Option<Reason>,
}

/// Why sampling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The time is over.
    Time,
    /// The run ends, or nobody listens any more.
    Gone,
    /// The run is being parked.
    Parked,
}

/// Samples the run, and sends what is seen. The last bit is the answer.
pub fn sample(
    host: &Host,
    parking: &Parking<'_>,
    seconds: f64,
    asker: &Asker<'_>,
) -> Result<Value, String> {
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| format!("{seconds} is no time to sample for: expected seconds"))?;
    let sampling = host.sample(SAMPLE_EVERY)?;
    let began = Instant::now();
    let mut sent = began;
    let bit = |end: Option<Reason>| {
        let status = host.status().unwrap_or_default();
        let bit = Bit {
            seconds: began.elapsed().as_secs_f64(),
            limit_bytes: status.limit_bytes,
            paged: Paged::of(&status),
            sampled: sampling.take(),
            end,
        };
        serde_json::to_value(&bit).map_err(|error| error.to_string())
    };
    let gone = |_| "nobody listens any more".to_owned();
    asker.send(&Ok(bit(None)?)).map_err(gone)?;
    loop {
        std::thread::sleep(PACE);
        let end = match () {
            () if asker.has_gone() => Some(Reason::Gone),
            () if parking.stops() => Some(Reason::Parked),
            () if began.elapsed() >= time => Some(Reason::Time),
            () => None,
        };
        if end.is_some() {
            return bit(end);
        }
        if sent.elapsed() >= ANSWER_EVERY {
            // Whoever does not read, because it is stopped, is waited for for half a second.
            asker.send(&Ok(bit(None)?)).map_err(gone)?;
            sent = Instant::now();
        }
    }
}
