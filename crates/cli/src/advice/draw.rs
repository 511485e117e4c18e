//! The curve in letters, for a terminal of 80 columns.

use crate::advice::curve::{Point, whole};
use crate::output::figures::bytes;

const WIDTH: usize = 66;
const HEIGHT: usize = 12;
/// The highest ratio that is drawn.
const TOP: f64 = 3.0;
const MARKS: [f64; 5] = [3.0, 2.0, 1.5, 1.2, 1.05];

/// A curve with what it might be at the least and at the most.
#[derive(Debug)]
pub struct Band<'a> {
    /// What is most likely.
    pub likely: &'a [Point],
    /// The least and the most at each of its points.
    pub between: &'a [(Option<f64>, Option<f64>)],
}

/// Draws it. The upper part of the scale is closer together, because what matters is at the bottom.
pub fn draw(band: &Band<'_>) -> String {
    let mut grid = vec![vec![' '; WIDTH]; HEIGHT];
    let least = band.likely.first().map_or(0.0, |point| point.ram_bytes);
    let most = band.likely.last().map_or(1.0, |point| point.ram_bytes);
    for column in 0..WIDTH {
        let ram = least + (most - least) * column as f64 / (WIDTH - 1) as f64;
        let Some((at, part)) = between(band.likely, ram) else {
            continue;
        };
        let mix = |low: Option<f64>, high: Option<f64>| Some(low? + (high? - low?) * part);
        let next = (at + 1).min(band.likely.len() - 1);
        let low = mix(band.between[at].0, band.between[next].0);
        let high = mix(band.between[at].1, band.between[next].1);
        let top = row(high.unwrap_or(TOP));
        if let Some(bottom) = low.map(row) {
            for line in grid.iter_mut().take(bottom + 1).skip(top) {
                line[column] = '.';
            }
        }
        if let Some(likely) = mix(band.likely[at].ratio, band.likely[next].ratio)
            && likely <= TOP
        {
            grid[row(likely)][column] = '*';
        }
    }
    let mut text = String::new();
    for (number, line) in grid.iter().enumerate() {
        let mark = MARKS.iter().find(|mark| row(**mark) == number);
        let label = mark.map_or(String::new(), |mark| format!("{mark}x"));
        let line: String = line.iter().collect();
        text.push_str(&format!("{label:>6} |{}\n", line.trim_end()));
    }
    text.push_str(&format!("{:>6} +{}\n", "1x", "-".repeat(WIDTH)));
    let (left, right) = (bytes(whole(least)), bytes(whole(most)));
    let gap = WIDTH.saturating_sub(left.len() + right.len());
    text.push_str(&format!(
        "{:>7} {left}{}{right}\n",
        "--ram",
        " ".repeat(gap)
    ));
    text
}

/// The line of a ratio, 0 at the top.
fn row(ratio: f64) -> usize {
    let height = ((ratio.clamp(1.0, TOP) - 1.0) / (TOP - 1.0)).sqrt();
    let line = (1.0 - height) * HEIGHT as f64;
    usize::try_from(whole(line)).unwrap_or(0).min(HEIGHT - 1)
}

/// The point at or before a limit, and how far on the way to the next one it is.
fn between(points: &[Point], ram: f64) -> Option<(usize, f64)> {
    let at = points.iter().rposition(|point| point.ram_bytes <= ram)?;
    let here = points[at].ram_bytes;
    let next = points
        .get(at + 1)
        .map_or(here + 1.0, |point| point.ram_bytes);
    Some((at, (ram - here) / (next - here)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_falls_from_left_to_right() {
        let likely: Vec<Point> = (1..=10)
            .map(|step| Point {
                ratio: (step > 2).then(|| 1.0 + 4.0 / f64::from(step * step)),
                ..Point::hopeless(f64::from(step) * 1e8)
            })
            .collect();
        let between: Vec<_> = likely
            .iter()
            .map(|p| (p.ratio.map(|r| r - 0.02), p.ratio.map(|r| r + 0.05)))
            .collect();
        let text = draw(&Band {
            likely: &likely,
            between: &between,
        });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), HEIGHT + 2);
        assert!(lines.iter().all(|line| line.len() <= 80), "{text}");
        let columns: Vec<usize> = lines.iter().filter_map(|line| line.find('*')).collect();
        assert!(columns.len() > 4 && columns.is_sorted(), "{text}");
        assert!(lines[HEIGHT + 1].contains("95.4 MiB"), "{text}");
    }

    #[test]
    fn nothing_is_drawn_of_what_is_hopeless() {
        let likely = [1e8, 2e8].map(Point::hopeless);
        let text = draw(&Band {
            likely: &likely,
            between: &[(None, None); 2],
        });
        assert!(
            !text.contains(['*', '.']) || text.matches('.').count() < 12,
            "{text}"
        );
    }
}
