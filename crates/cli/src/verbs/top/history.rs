//! What has gone out and come back of late, for strips of history.

use std::collections::{HashMap, VecDeque};

use crate::verbs::top::run::Run;

/// Looks that are kept: as many as a wide terminal has columns.
const LOOKS_MAX: usize = 400;
/// Steps of a bar, lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last looks at each run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History(HashMap<u32, VecDeque<Moved>>);

/// Bytes by second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moved {
    pub out_bytes: f64,
    pub in_bytes: f64,
}

impl History {
    /// Notes a look. Who is not in it is forgotten.
    pub fn note(&mut self, runs: &[Run]) {
        self.0
            .retain(|pid, _| runs.iter().any(|run| run.pid == *pid));
        for run in runs {
            let moved = run.rates.map_or_else(Moved::default, |rates| Moved {
                out_bytes: rates.out_bytes,
                in_bytes: rates.in_bytes,
            });
            let looks = self.0.entry(run.pid).or_default();
            looks.push_back(moved);
            if looks.len() > LOOKS_MAX {
                looks.pop_front();
            }
        }
    }

    /// A strip of so many columns, the newest look at the right: bars of a value of each look, the highest of them
    /// full. Empty where there was nothing.
    pub fn strip(&self, pid: u32, columns: usize, value: impl Fn(Moved) -> f64) -> String {
        let Some(looks) = self.0.get(&pid) else {
            return String::new();
        };
        let shown = looks.len().min(columns);
        let values: Vec<f64> = looks
            .iter()
            .skip(looks.len() - shown)
            .map(|moved| value(*moved))
            .collect();
        let highest = values.iter().copied().fold(0.0, f64::max);
        let bars = values.iter().map(|value| bar(*value, highest));
        " ".repeat(columns - shown) + &bars.collect::<String>()
    }

    /// The highest value of all looks that are kept.
    pub fn highest(&self, pid: u32, value: impl Fn(Moved) -> f64) -> f64 {
        let looks = self.0.get(&pid).into_iter().flatten();
        looks.map(|moved| value(*moved)).fold(0.0, f64::max)
    }
}

fn bar(value: f64, highest: f64) -> char {
    if value <= 0.0 || highest <= 0.0 {
        return ' ';
    }
    let part = value / highest;
    let step = BARS
        .iter()
        .zip(1_u8..)
        .find(|(_, step)| part <= f64::from(*step) / 8.0);
    step.map_or('█', |(bar, _)| *bar)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watching::rates::Rates;

    fn run(pid: u32, out_bytes: f64) -> Run {
        let rates = Rates {
            out_bytes,
            in_bytes: 0.0,
            faults: 0.0,
            waiting: 0.0,
            stalled: 0.0,
        };
        Run {
            pid,
            rates: Some(rates),
            ..Run::default()
        }
    }

    #[test]
    fn the_newest_is_at_the_right_and_the_highest_full() {
        let mut history = History::default();
        for out_bytes in [8.0, 0.0, 1.0, 4.0, 2.0] {
            history.note(&[run(7, out_bytes)]);
        }
        let strip = |columns| history.strip(7, columns, |moved| moved.out_bytes);
        assert_eq!(strip(6), " █ ▁▄▂");
        assert_eq!(strip(3), "▂█▄", "the highest of what is shown");
        assert_eq!(strip(0), "");
        assert_eq!(history.strip(8, 3, |moved| moved.out_bytes), "");
        assert_eq!(history.highest(7, |moved| moved.out_bytes), 8.0);
    }

    #[test]
    fn who_has_gone_is_forgotten_and_old_looks_too() {
        let mut history = History::default();
        for _ in 0..2 * LOOKS_MAX {
            history.note(&[run(7, 1.0)]);
        }
        assert_eq!(history.0[&7].len(), LOOKS_MAX);
        history.note(&[run(8, 1.0)]);
        assert_eq!(history.strip(7, 3, |moved| moved.out_bytes), "");
    }
}
