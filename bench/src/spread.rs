//! Median and range of repeated measurements.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Median and range of a row of samples.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The one in the middle, or the mean of the two in the middle.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of `samples`; `None` if there are none.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => return None,
            len if len % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Some(Self {
            min: sorted[0],
            median,
            max: *sorted.last()?,
        })
    }
}

impl fmt::Display for Spread {
    /// `median (min..max)`, with two decimals unless a precision is given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, median, max } = self;
        let decimals = f.precision().unwrap_or(2);
        let text = format!("{median:.decimals$} ({min:.decimals$}..{max:.decimals$})");
        // Not `f.pad`, which would cut the text at the precision.
        let width = f.width().unwrap_or(0);
        write!(f, "{text:>width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        let even = Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((even.min, even.median, even.max), (1.0, 2.5, 4.0));
    }

    #[test]
    fn decimals_and_width_are_the_callers_choice() {
        let spread = Spread::of(&[1.25, 2.0]).unwrap();
        assert_eq!(format!("{spread:>18}"), " 1.62 (1.25..2.00)");
        assert_eq!(format!("{spread:.0}"), "2 (1..2)");
    }
}
