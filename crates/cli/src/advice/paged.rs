//! What a run has paged so far, as far as advice needs it.

use serde::{Deserialize, Serialize};
use vswap_pager::Status;

/// Figures since a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Paged {
    /// Pages that came in.
    pub pages_in: u64,
    /// Pages that went out.
    pub pages_out: u64,
    /// First touches of registered memory.
    pub first_touches: u64,
    /// Faults that waited for memory.
    pub deferred: u64,
    /// Pages that could not be moved.
    pub busy: u64,
    /// How long a swap-in took at the median, in microseconds, 0 if there was none.
    pub swap_in_us: f64,
}

impl Paged {
    /// Those since the start of a run.
    pub fn of(status: &Status) -> Paged {
        Paged {
            pages_in: status.pages_in,
            pages_out: status.pages_out,
            first_touches: status.faults_first_touch,
            deferred: status.faults_deferred,
            busy: status.pages_busy,
            swap_in_us: status.fault_us_p50,
        }
    }

    /// Those since an earlier moment. The median stays that of the whole run.
    pub fn since(&self, earlier: &Paged) -> Paged {
        Paged {
            pages_in: self.pages_in.saturating_sub(earlier.pages_in),
            pages_out: self.pages_out.saturating_sub(earlier.pages_out),
            first_touches: self.first_touches.saturating_sub(earlier.first_touches),
            deferred: self.deferred.saturating_sub(earlier.deferred),
            busy: self.busy.saturating_sub(earlier.busy),
            swap_in_us: self.swap_in_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_is_taken_off() {
        let all = Paged {
            pages_in: 9,
            pages_out: 8,
            swap_in_us: 5.0,
            ..Paged::default()
        };
        let before = Paged {
            pages_in: 4,
            pages_out: 9,
            swap_in_us: 7.0,
            ..Paged::default()
        };
        let since = all.since(&before);
        assert_eq!((since.pages_in, since.pages_out), (5, 0));
        assert!((since.swap_in_us - 5.0).abs() < 1e-9);
    }
}
