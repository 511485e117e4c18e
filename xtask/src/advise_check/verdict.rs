//! What real runs tell of the advice.
//!
//! Each size has a row of times, as multiples of the run with ample RAM in the same round. The 5 % point is where the
//! median of them comes below 1.05, and it lies somewhere from where the shorter ones of them do to where the longer
//! ones do: those between which the median of endlessly many runs lies 19 times of 20. With fewer than nine rounds
//! these are the shortest and the longest, which is less sure. Where the curve is flat, or the machine is busy, that
//! interval is wide, and a point within it would mean nothing.

use std::fmt::Write as _;

use super::runs::Advice;

/// How many times as long a run may take.
const WANTED: f64 = 1.05;
/// Advice may be so much off.
const OFF_MAX: f64 = 0.10;
const MIB: f64 = 1_048_576.0;

/// A size, and how many times as long each run with it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The size.
    pub ram_bytes: f64,
    /// One by round.
    pub ratios: Vec<f64>,
}

impl Series {
    /// No run yet.
    pub fn new(ram_bytes: f64) -> Series {
        Series {
            ram_bytes,
            ratios: Vec::new(),
        }
    }

    /// The real median is hardly less than this.
    fn least(&self) -> f64 {
        let sorted = sorted(&self.ratios);
        sorted
            .get(left_out(sorted.len()))
            .copied()
            .unwrap_or(f64::INFINITY)
    }

    /// Or more than this.
    fn most(&self) -> f64 {
        let sorted = sorted(&self.ratios);
        let last = sorted.len().checked_sub(1 + left_out(sorted.len()));
        last.map_or(0.0, |last| sorted[last])
    }

    fn median(&self) -> f64 {
        median(&self.ratios)
    }
}

/// All that is known of one program.
#[derive(Debug)]
pub struct Measured {
    /// What was advised, each time.
    pub asked: Vec<Advice>,
    /// Seconds with ample RAM.
    pub natives: Vec<f64>,
    /// By size.
    pub sizes: Vec<Series>,
    /// How busy the machine was.
    pub load: f64,
}

/// Where a curve comes below what is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Point {
    /// Below the least size.
    Less(f64),
    /// There.
    At(f64),
    /// Above the largest size.
    More(f64),
}

/// What is to be said of the advice.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// So much too large or too small, as a part of the real size.
    Off(f64),
    /// It lies in an interval that is wider than what may be off.
    Within,
    /// It lies outside of it.
    Outside,
    /// The sizes do not enclose the point.
    Unknown,
}

impl Measured {
    /// Is the advice as good as it shall be?
    pub fn is_right(&self) -> bool {
        match self.verdict() {
            Verdict::Off(off) => off.abs() <= OFF_MAX,
            Verdict::Within => true,
            Verdict::Outside | Verdict::Unknown => false,
        }
    }

    fn advised(&self) -> f64 {
        let sum: f64 = self.asked.iter().map(|advice| advice.ram_bytes).sum();
        sum / self.asked.len() as f64
    }

    /// Where the least, the median and the most of each size come below what is wanted.
    fn points(&self) -> [Point; 3] {
        [Series::least, Series::median, Series::most].map(|of| point(&self.sizes, of))
    }

    fn verdict(&self) -> Verdict {
        let advised = self.advised();
        match self.points() {
            [Point::At(low), Point::At(real), Point::At(high)]
                if high - low <= 2.0 * OFF_MAX * real =>
            {
                Verdict::Off(advised / real - 1.0)
            }
            [low, real, high] => {
                let above_low = match low {
                    Point::At(low) => Some(advised >= low),
                    // It lies below the least size, and so below what is above that.
                    Point::Less(least) => (advised >= least).then_some(true),
                    Point::More(_) => Some(false),
                };
                let below_high = match high {
                    Point::At(high) => Some(advised <= high),
                    Point::Less(_) => Some(false),
                    Point::More(most) => (advised <= most).then_some(true),
                };
                match (above_low, below_high, real) {
                    (Some(false), _, _) | (_, Some(false), _) => Verdict::Outside,
                    (Some(true), Some(true), Point::At(_)) => Verdict::Within,
                    _ => Verdict::Unknown,
                }
            }
        }
    }
}

/// A size that has to be tried before the point is known: below all others, or above them.
pub fn next_size(sizes: &[Series], step: f64) -> Option<f64> {
    let mut sizes = sizes.to_vec();
    sizes.sort_by(|a, b| a.ram_bytes.total_cmp(&b.ram_bytes));
    match point(&sizes, Series::median) {
        Point::At(_) => None,
        Point::Less(least) => Some(least - step).filter(|next| *next > 24.0 * MIB),
        Point::More(most) => Some(most + step),
    }
}

/// Where a curve comes below what is wanted and stays there, going up from the least size.
fn point(sizes: &[Series], of: impl Fn(&Series) -> f64) -> Point {
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else {
        return Point::Less(0.0);
    };
    let above = sizes.iter().rposition(|size| of(size) > WANTED);
    let Some(above) = above else {
        return Point::Less(first.ram_bytes);
    };
    let Some(next) = sizes.get(above + 1) else {
        return Point::More(last.ram_bytes);
    };
    let (here, there) = (&sizes[above], next);
    let (high, low) = (of(here), of(there));
    if !high.is_finite() {
        return Point::At(there.ram_bytes);
    }
    let part = (high - WANTED) / (high - low);
    Point::At(here.ram_bytes + (there.ram_bytes - here.ram_bytes) * part)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// How many of so many values can be left out at either end, if the median of what they were drawn from is to lie
/// between the others 19 times of 20: each value lies below it or above it as a coin falls.
fn left_out(count: usize) -> usize {
    let mut beyond = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut ways, mut left) = (beyond, 0);
    // `beyond` is the chance that no more than `left` of them lie below.
    while left < count / 2 {
        ways *= (count - left) as f64 / (left + 1) as f64;
        if beyond + ways > 0.025 {
            break;
        }
        beyond += ways;
        left += 1;
    }
    left
}

fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Two tables: what was advised and what is so, and the runs.
pub fn markdown(all: &[(&str, Result<Measured, String>)]) -> String {
    let mut text =
        "| program | advised for 5 % | real 5 % point, and where it may lie | off | load |\n\
                    |---|---|---|---|---|\n"
            .to_owned();
    for (about, measured) in all {
        // Writing to a string does not fail.
        let _ = match measured {
            Ok(measured) => writeln!(text, "| {about} | {} |", compared(measured)),
            Err(why) => writeln!(text, "| {about} | not measured: {why} | | | |"),
        };
    }
    text += "\n| program | seconds with ample RAM: median (where it may lie) | --ram and time: the same |\n\
             |---|---|---|\n";
    for (about, measured) in all {
        let Ok(measured) = measured else { continue };
        let natives = Series {
            ram_bytes: 0.0,
            ratios: measured.natives.clone(),
        };
        let sizes: Vec<String> = measured.sizes.iter().map(shown).collect();
        let _ = writeln!(
            text,
            "| {about} | {:.2} ({:.2} to {:.2}) | {} |",
            natives.median(),
            natives.least(),
            natives.most(),
            sizes.join(", ")
        );
    }
    text
}

fn compared(measured: &Measured) -> String {
    let each: Vec<String> = measured
        .asked
        .iter()
        .map(|advice| {
            let (low, high) = advice.between;
            format!("{} ({} to {})", mib(advice.ram_bytes), mib(low), mib(high))
        })
        .collect();
    let [low, real, high] = measured.points().map(|point| match point {
        Point::Less(size) => format!("below {}", mib(size)),
        Point::At(size) => mib(size),
        Point::More(size) => format!("above {}", mib(size)),
    });
    let off = match measured.verdict() {
        Verdict::Off(off) => format!("{:+.0} %", off * 100.0),
        Verdict::Within => "flat: it lies within".to_owned(),
        Verdict::Outside => "it lies outside".to_owned(),
        Verdict::Unknown => "not known".to_owned(),
    };
    format!(
        "{} | {real} ({low} to {high}) | {off} | {:.1}",
        each.join(", "),
        measured.load
    )
}

fn shown(size: &Series) -> String {
    let times = |ratio: f64| match ratio.is_finite() {
        true => format!("{ratio:.2}"),
        false => "too long".to_owned(),
    };
    let (least, median, most) = (size.least(), size.median(), size.most());
    format!(
        "{} {} ({} to {})",
        mib(size.ram_bytes),
        times(median),
        times(least),
        times(most)
    )
}

fn mib(bytes: f64) -> String {
    format!("{:.0}M", bytes / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(advised: f64, sizes: &[(f64, [f64; 3])]) -> Measured {
        let size = |(ram, ratios): &(f64, [f64; 3])| Series {
            ram_bytes: ram * MIB,
            ratios: ratios.to_vec(),
        };
        Measured {
            asked: vec![Advice {
                ram_bytes: advised * MIB,
                between: (advised * MIB, advised * MIB),
                peak_bytes: 0.0,
            }],
            natives: vec![1.0],
            sizes: sizes.iter().map(size).collect(),
            load: 0.0,
        }
    }

    #[test]
    fn more_rounds_leave_more_of_the_extremes_out() {
        // What tables of the sign test have.
        for (count, left) in [
            (0, 0),
            (3, 0),
            (8, 0),
            (9, 1),
            (11, 1),
            (12, 2),
            (15, 3),
            (20, 5),
        ] {
            assert_eq!(left_out(count), left, "of {count}");
        }
        let series = Series {
            ram_bytes: 0.0,
            ratios: vec![1.0, 9.0, 1.1, 1.2, 0.1, 1.3, 1.1, 1.2, 1.0],
        };
        assert_eq!((series.least(), series.most()), (1.0, 1.3));
    }

    #[test]
    fn a_steep_curve_has_a_point() {
        let sizes = [
            (90.0, [1.24, 1.25, 1.26]),
            (100.0, [1.04, 1.05, 1.06]),
            (110.0, [1.0, 1.0, 1.01]),
        ];
        let right = measured(104.0, &sizes);
        assert!(matches!(right.verdict(), Verdict::Off(off) if (off - 0.04).abs() < 0.001));
        assert!(right.is_right());
        assert!(!measured(120.0, &sizes).is_right());
        assert!(markdown(&[("it", Ok(right))]).contains("| 100M (100M to 102M) | +4 % |"));
    }

    #[test]
    fn a_flat_curve_has_an_interval() {
        let flat = [
            (80.0, [1.06, 1.08, 1.1]),
            (100.0, [1.03, 1.06, 1.07]),
            (120.0, [1.0, 1.04, 1.04]),
        ];
        assert_eq!(measured(100.0, &flat).verdict(), Verdict::Within);
        assert_eq!(measured(119.0, &flat).verdict(), Verdict::Outside);
        let open = [
            (80.0, [0.9, 1.1, 1.2]),
            (100.0, [0.9, 1.0, 1.1]),
            (120.0, [0.9, 1.0, 1.0]),
        ];
        assert_eq!(measured(100.0, &open).verdict(), Verdict::Within);
        assert_eq!(measured(70.0, &open).verdict(), Verdict::Unknown);
    }

    #[test]
    fn sizes_that_do_not_enclose_the_point_say_so_and_ask_for_more() {
        let below = measured(90.0, &[(90.0, [1.0, 1.0, 1.01]), (100.0, [1.0; 3])]);
        assert_eq!(next_size(&below.sizes, 10.0 * MIB), Some(80.0 * MIB));
        assert!(!below.is_right());
        let above = measured(90.0, &[(90.0, [1.2, 1.3, 1.4]), (100.0, [1.1; 3])]);
        assert_eq!(next_size(&above.sizes, 10.0 * MIB), Some(110.0 * MIB));
        assert_eq!(
            above.verdict(),
            Verdict::Outside,
            "it is too small in any case"
        );
        let hopeless = [(90.0, [f64::INFINITY; 3]), (100.0, [1.0; 3])];
        assert_eq!(
            measured(100.0, &hopeless).points(),
            [Point::At(100.0 * MIB); 3]
        );
    }
}
