//! The curve of time against memory, and the least memory for a given loss.

use crate::advice::costs::{Costs, registered_from, room};
use crate::advice::model::{Model, Outcome};

/// Points of the curve.
const POINTS: usize = 36;
/// The curve begins at this share of all memory, and ends at this one.
const SHARES: (f64, f64) = (0.1, 1.14);
/// A run that takes longer than so many times is not looked at any closer.
pub const RATIO_MAX: f64 = 3.2;
/// How exactly a size is found, as a part of itself.
const EXACT_PART: f64 = 200.0;

/// How a run is to be reckoned: with which codec, or with an area.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// What each thing costs.
    pub costs: Costs,
    /// What a page that is out takes in memory, as a share of a page.
    pub packed: f64,
    /// Seconds that the program takes with all its memory.
    pub seconds: f64,
}

/// One point of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The limit.
    pub ram_bytes: f64,
    /// How many times as long it takes, if it is no more than [`RATIO_MAX`].
    pub ratio: Option<f64>,
    /// Pages that come in and go out, where there is a ratio.
    pub pages_in: f64,
    /// See `pages_in`.
    pub pages_out: f64,
}

impl Point {
    /// A limit with which nobody would wait for the end.
    pub fn hopeless(ram_bytes: f64) -> Point {
        Point {
            ram_bytes,
            ratio: None,
            pages_in: 0.0,
            pages_out: 0.0,
        }
    }

    /// The one of two with the same limit that takes less time.
    pub fn quicker((one, other): (&Point, &Point)) -> Point {
        let ratio = |point: &Point| point.ratio.unwrap_or(f64::INFINITY);
        if ratio(other) < ratio(one) {
            *other
        } else {
            *one
        }
    }
}

impl Setup {
    /// What happens with this limit. There is no ratio if it is more than `most`, or not everything finds room.
    pub fn point(&self, model: &Model, ram_bytes: f64, most: f64) -> Point {
        let touches = model.touches_above(registered_from(ram_bytes));
        let ratio = |outcome: &Outcome| 1.0 + self.costs.seconds(outcome, touches) / self.seconds;
        let room = room(ram_bytes, self.packed);
        let outcome = model.play(&room, |outcome| ratio(outcome) > most);
        let is_there = !outcome.is_hopeless && !outcome.is_overfull;
        Point {
            ram_bytes,
            ratio: Some(ratio(&outcome)).filter(|ratio| is_there && *ratio <= most),
            pages_in: outcome.lone + outcome.streamed,
            pages_out: outcome.out,
        }
    }

    /// The curve up to the ratio `most`, ending at the limit `enough`. It never rises with memory: where the model says
    /// so, it is taken for chance.
    pub fn curve(&self, model: &Model, enough: f64, most: f64) -> Vec<Point> {
        let mut points = Vec::with_capacity(POINTS);
        let mut highest = Some(1.0);
        for number in (0..POINTS).rev() {
            let share = SHARES.0 + (SHARES.1 - SHARES.0) * number as f64 / (POINTS - 1) as f64;
            let ram_bytes = enough * share;
            let mut point = Point::hopeless(ram_bytes);
            if let Some(least) = highest {
                point = self.point(model, ram_bytes, most);
                point.ratio = point.ratio.map(|ratio| f64::max(least, ratio));
            }
            highest = point.ratio;
            points.push(point);
        }
        points.reverse();
        points
    }

    /// A limit with which nothing leaves.
    pub fn enough_bytes(&self, model: &Model) -> f64 {
        let peak = model.peak_bytes();
        let mut ram = peak;
        // What is left free grows with the limit, up to a bound.
        while room(ram, self.packed).own_bytes + peak > ram {
            ram += (peak / EXACT_PART).max(1_048_576.0);
        }
        ram
    }
}

/// A number of bytes or pages, without its fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and figures of a model need not be exact"
)]
pub fn whole(value: f64) -> u64 {
    value as u64
}

/// The least limit of a curve with which it takes no more than `ratio` times as long.
pub fn least_bytes(curve: &[Point], ratio: f64) -> f64 {
    let is_enough = |point: &Point| point.ratio.is_some_and(|found| found <= ratio);
    let last = curve.last().map_or(0.0, |point| point.ram_bytes);
    let Some(at) = curve.iter().position(is_enough) else {
        return last;
    };
    let here = curve[at];
    let before = at.checked_sub(1).map(|before| curve[before]);
    match (
        before.and_then(|point| Some((point.ram_bytes, point.ratio?))),
        here.ratio,
    ) {
        (Some((ram, above)), Some(below)) if above > below => {
            ram + (here.ram_bytes - ram) * (above - ratio) / (above - below)
        }
        _ => here.ram_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quicker_of_two_points_has_a_ratio_if_one_has() {
        let point = |ratio| Point {
            ratio,
            ..Point::hopeless(100.0)
        };
        let quicker = |one, other| Point::quicker((&point(one), &point(other))).ratio;
        assert_eq!(quicker(Some(1.5), Some(1.2)), Some(1.2));
        assert_eq!(quicker(None, Some(2.0)), Some(2.0));
        assert_eq!(quicker(Some(2.0), None), Some(2.0));
        assert_eq!(quicker(None, None), None);
    }

    #[test]
    fn a_size_is_found_between_two_points() {
        let point = |ram_bytes, ratio| Point {
            ratio,
            ..Point::hopeless(ram_bytes)
        };
        let curve = [
            point(100.0, None),
            point(200.0, Some(2.0)),
            point(300.0, Some(1.2)),
            point(400.0, Some(1.0)),
        ];
        assert!((least_bytes(&curve, 2.0) - 200.0).abs() < 1e-6);
        assert!((least_bytes(&curve, 1.6) - 250.0).abs() < 1e-6);
        assert!((least_bytes(&curve, 1.05) - 375.0).abs() < 1e-6);
        assert!(
            (least_bytes(&curve, 3.0) - 200.0).abs() < 1e-6,
            "it is unknown below"
        );
        assert!(
            (least_bytes(&curve, 0.9) - 400.0).abs() < 1e-6,
            "no size suffices"
        );
    }
}
