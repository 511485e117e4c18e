//! Plots of one workload as SVG: ratios of vswap's figures to the other side's, and the rounds one after the other.

use plotters::prelude::*;

use crate::colors::COLORS;
use crate::spread::Spread;

use super::samples::{Row, Samples};
use super::side::Side;

/// Width of a plot in pixels, and height of a row of the first one.
const WIDTH: u32 = 860;
const ROW_HEIGHT: u32 = 22;
/// Height of the axis with its description, and height of the second plot.
const AXIS_HEIGHT: u32 = 70;
const ROUNDS_HEIGHT: u32 = 260;
/// Room for the rows' names.
const NAMES_WIDTH: u32 = 190;
const LABEL_PX: u32 = 14;
/// The axis of ratios is logarithmic, so that half and twice are equally far from 1. It reaches at least to the first
/// of these ratios and its inverse, and at most to the second. A ratio beyond that, such as a hit beside a fault, is
/// drawn at the edge.
const RATIO_AT_LEAST: f64 = 4.0;
const RATIO_AT_MOST: f64 = 100.0;
/// Room above the highest round, for the legend.
const HEADROOM: f64 = 1.5;
const GRID: RGBColor = RGBColor(200, 200, 200);

type DrawError = Box<dyn std::error::Error>;

/// The ratios of each row with figures from both `ours` and `theirs`, with the range of the rounds. `None` if there is
/// no such row.
pub(super) fn ratios(
    samples: &Samples,
    (ours, theirs): (Side, Side),
) -> Result<Option<String>, DrawError> {
    let rows = ratio_rows(samples, ours, theirs);
    if rows.is_empty() {
        return Ok(None);
    }
    let height = AXIS_HEIGHT + ROW_HEIGHT * u32::try_from(rows.len())?;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let farthest = |reach: f64, (_, ratio): &(String, Spread)| {
            let below = 1.0 / ratio.min.max(f64::MIN_POSITIVE);
            reach.max(ratio.max).max(below)
        };
        let reach = rows
            .iter()
            .fold(RATIO_AT_LEAST, farthest)
            .min(RATIO_AT_MOST);
        let (first, last) = (1.0 / reach, reach);
        let mut axes = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(NAMES_WIDTH)
            .build_cartesian_2d((first..last).log_scale(), at(rows.len()) - 0.5..-0.5)?;
        axes.configure_mesh()
            .disable_y_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .y_labels(rows.len() * 2 + 1)
            .y_label_formatter(&|y| {
                let index = (0..rows.len()).find(|&index| (at(index) - y).abs() < 0.01);
                index.map_or_else(String::new, |index| rows[index].0.clone())
            })
            .x_label_formatter(&|ratio| format!("{ratio}"))
            .x_desc(format!("{ours} / {theirs}"))
            .label_style(("sans-serif", LABEL_PX))
            .axis_desc_style(("sans-serif", LABEL_PX))
            .draw()?;
        let even = [(1.0, -0.5), (1.0, at(rows.len()) - 0.5)];
        axes.draw_series(LineSeries::new(even, BLACK.stroke_width(2)))?;
        let placed = || {
            rows.iter()
                .enumerate()
                .map(|(index, (_, ratio))| (at(index), ratio))
        };
        axes.draw_series(placed().map(|(y, ratio)| {
            let ends = [
                (ratio.min.clamp(first, last), y),
                (ratio.max.clamp(first, last), y),
            ];
            PathElement::new(ends, COLORS[0].stroke_width(2))
        }))?;
        axes.draw_series(placed().map(|(y, ratio)| {
            Circle::new((ratio.median.clamp(first, last), y), 5, COLORS[0].filled())
        }))?;
        root.present()?;
    }
    Ok(Some(svg))
}

/// Names of rows with the spreads of their ratios around the ratio of the medians.
fn ratio_rows(samples: &Samples, ours: Side, theirs: Side) -> Vec<(String, Spread)> {
    let ratio = |row: &Row| {
        let ratio = row.ratio(ours, theirs)?;
        let median = ratio.of_medians;
        let alone = Spread {
            min: median,
            median,
            max: median,
        };
        let rounds = ratio.of_rounds.unwrap_or(alone);
        Some((row.name.clone(), Spread { median, ..rounds }))
    };
    samples.rows().iter().filter_map(ratio).collect()
}

/// The wall times of all sides, round by round. They show whether the machine drifted.
pub(super) fn rounds(samples: &Samples) -> Result<Option<String>, DrawError> {
    let Some(row) = samples.row("wall s") else {
        return Ok(None);
    };
    let sides = samples.sides();
    let of = |side: Side| {
        row.samples(side)
            .iter()
            .enumerate()
            .map(|(round, &s)| (at(round), s))
    };
    let highest = sides
        .iter()
        .flat_map(|&side| of(side))
        .map(|(_, s)| s)
        .fold(0.0, f64::max);
    let last = sides
        .iter()
        .map(|&side| row.samples(side).len())
        .max()
        .unwrap_or(1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, ROUNDS_HEIGHT)).into_drawing_area();
        let mut axes = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(NAMES_WIDTH)
            .build_cartesian_2d(
                -0.2..at(last) - 0.8,
                0.0..(highest * HEADROOM).max(f64::MIN_POSITIVE),
            )?;
        axes.configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_labels(last)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .x_desc("round")
            .y_desc("wall s")
            .label_style(("sans-serif", LABEL_PX))
            .axis_desc_style(("sans-serif", LABEL_PX))
            .draw()?;
        for (index, &side) in sides.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            axes.draw_series(LineSeries::new(of(side), color.stroke_width(2)).point_size(4))?
                .label(side.name())
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
                });
        }
        axes.configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .label_font(("sans-serif", LABEL_PX))
            .background_style(WHITE.mix(0.8))
            .border_style(GRID)
            .draw()?;
        root.present()?;
    }
    Ok(Some(svg))
}

#[expect(clippy::cast_precision_loss, reason = "a handful of rows and rounds")]
const fn at(index: usize) -> f64 {
    index as f64
}

#[cfg(test)]
mod tests {
    use super::super::samples::tests::{VSWAP, ZRAM, three_rounds};
    use super::*;

    #[test]
    fn plots_name_rows_and_sides() {
        let samples = three_rounds();
        let svg = ratios(&samples, (VSWAP, ZRAM)).unwrap().unwrap();
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert!(
            svg.contains("fill us/op") && svg.contains("vswap / zram"),
            "{svg}"
        );
        let svg = rounds(&samples).unwrap().unwrap();
        assert!(svg.contains("vswap") && svg.contains("zram"), "{svg}");
        assert_eq!(ratios(&Samples::default(), (VSWAP, ZRAM)).unwrap(), None);
    }
}
