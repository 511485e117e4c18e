//! The advice as people read it.

use crate::advice::curve::Point;
use crate::advice::draw::{Band, draw};
use crate::advice::{Advice, RATIOS, Size};
use crate::output::figures::bytes;

impl Advice {
    /// All of it, as lines.
    pub fn text(&self) -> String {
        let mut text = self.head();
        text.push('\n');
        text.push_str(&self.table());
        text.push('\n');
        text.push_str(&self.drawn());
        text.push('\n');
        text.push_str(&self.others());
        for doubt in &self.doubts {
            text.push_str(&format!("note: {doubt}\n"));
        }
        text
    }

    /// What was watched.
    pub fn head(&self) -> String {
        let took = match self.limit_bytes {
            Some(_) => "The run was watched for",
            None => "The program took",
        };
        let limit = self.limit_bytes.map_or_else(String::new, |limit| {
            format!("\nIts limit meanwhile was {}.", bytes(limit))
        });
        format!(
            "{took} {:.1} s.\nWithout watching, and without waiting for a processor: {:.1} s.\n\
             All its memory together, in RAM and in swap, was {} at the most.{limit}\n\
             {} of its pages were watched, one block in {}.\n",
            self.wall_seconds,
            self.native_seconds,
            bytes(self.peak_bytes),
            self.watched_pages,
            self.one_in
        )
    }

    fn table(&self) -> String {
        let mut text = format!("{:<20} {:>9} {:>21}\n", "time", "--ram", "likely between");
        for size in &self.sizes {
            let between = format!("{} .. {}", option(size.low_bytes), option(size.high_bytes));
            let ram = option(size.ram_bytes);
            text.push_str(&format!("{:<20} {ram:>9} {between:>21}\n", words(size)));
        }
        text
    }

    fn drawn(&self) -> String {
        let point = |place: &super::Place| Point {
            ratio: place.ratio,
            ..Point::hopeless(place.ram_bytes as f64)
        };
        let likely: Vec<Point> = self.curve.iter().map(point).collect();
        let between: Vec<_> = self
            .curve
            .iter()
            .map(|place| (place.low, place.high))
            .collect();
        draw(&Band {
            likely: &likely,
            between: &between,
        })
    }

    fn others(&self) -> String {
        let columns = RATIOS
            .map(|ratio| format!("{:>9}", percent(ratio)))
            .concat();
        let mut text = format!("{:<36}{columns}\n", "--ram for a loss of");
        for codec in &self.codecs {
            let name = format!(
                "--codec {} (pages to {:.0} %)",
                codec.codec,
                codec.packed * 100.0
            );
            text.push_str(&format!("{name:<36}{}\n", sizes(&codec.ram_bytes)));
        }
        for area in &self.areas {
            let name = format!("--pool off, an area of {:.0} us", area.latency_us);
            text.push_str(&format!("{name:<36}{}\n", sizes(&area.ram_bytes)));
        }
        text
    }
}

fn sizes(all: &[u64]) -> String {
    all.iter()
        .map(|size| format!("{:>9}", option(*size)))
        .collect()
}

/// A loss in words.
pub fn words(size: &Size) -> String {
    format!("{} or less", percent(size.ratio))
}

/// A ratio as a loss.
pub fn percent(ratio: f64) -> String {
    if ratio < 2.0 {
        format!("+{:.0} %", (ratio - 1.0) * 100.0)
    } else {
        format!("{ratio:.0}x")
    }
}

/// A size as `--ram` takes it, rounded up to whole MiB.
pub fn option(size: u64) -> String {
    format!("{}M", size.div_ceil(1 << 20))
}
