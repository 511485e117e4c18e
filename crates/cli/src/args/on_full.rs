//! What `--on-full` is told: `wait`, `kill[:SECONDS]` or `fail[:SECONDS]`.

use std::str::FromStr;
use std::time::Duration;

/// How long a run waits for room unless told otherwise: time for a person to give it some, and no night lost.
const WAIT: Duration = Duration::from_secs(60);

/// What becomes of a run in which everything is full while its program waits for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// It waits until there is room.
    Wait,
    /// It waits so long, and is then ended, with the status of a program that the kernel killed for memory.
    Kill(Duration),
    /// The same, with the status of vswap's own errors.
    Fail(Duration),
}

impl Default for OnFull {
    fn default() -> OnFull {
        OnFull::Kill(WAIT)
    }
}

impl OnFull {
    /// How long the program may wait; none is for ever.
    pub fn patience(self) -> Option<Duration> {
        match self {
            OnFull::Wait => None,
            OnFull::Kill(patience) | OnFull::Fail(patience) => Some(patience),
        }
    }
}

impl FromStr for OnFull {
    type Err = String;

    fn from_str(text: &str) -> Result<OnFull, String> {
        let (word, seconds) = match text.split_once(':') {
            Some((word, seconds)) => (word, Some(seconds)),
            None => (text, None),
        };
        let patience = match seconds.map(str::parse) {
            None => WAIT,
            Some(Ok(seconds)) => Duration::from_secs(u64::from(seconds)),
            Some(Err::<u32, _>(_)) => {
                return Err(format!(
                    "{} is no number of seconds: expected a whole one, for example: {word}:60",
                    seconds.unwrap_or_default()
                ));
            }
        };
        match (word, seconds) {
            ("wait", None) => Ok(OnFull::Wait),
            ("wait", Some(_)) => Err(
                "wait waits for ever: to end the run after some seconds say kill:SECONDS or fail:SECONDS".to_owned(),
            ),
            ("kill", _) => Ok(OnFull::Kill(patience)),
            ("fail", _) => Ok(OnFull::Fail(patience)),
            _ => Err(format!(
                "\"{word}\" is unknown: expected wait, kill[:SECONDS] or fail[:SECONDS]"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_seconds() {
        for (text, expected) in [
            ("wait", OnFull::Wait),
            ("kill", OnFull::default()),
            ("kill:5", OnFull::Kill(Duration::from_secs(5))),
            ("fail", OnFull::Fail(WAIT)),
            ("fail:0", OnFull::Fail(Duration::ZERO)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        assert_eq!(OnFull::Wait.patience(), None);
        assert_eq!(OnFull::default().patience(), Some(WAIT));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_was_expected() {
        for (text, expected) in [
            ("", "expected wait, kill[:SECONDS]"),
            ("stop", "\"stop\" is unknown"),
            ("kill:", "no number of seconds"),
            ("fail:-1", "no number of seconds"),
            ("kill:1m", "kill:60"),
            ("wait:5", "kill:SECONDS"),
        ] {
            let error = text.parse::<OnFull>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
