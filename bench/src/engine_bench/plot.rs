//! Results as line charts: throughput and CPU time by number of threads, with the range of the rounds as whiskers.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::colors::COLORS;
use crate::engine_bench::Failure;
use crate::engine_bench::plan::THREADS;
use crate::engine_bench::record::{AreaSample, Results, Sample, distinct, spread};
use crate::spread::Spread;

/// Size of one panel in pixels. Two beside each other are as wide as a page of the documentation shows them.
const PANEL: (u32, u32) = (560, 440);
/// Room above the highest point, for the legend.
const HEADROOM: f64 = 1.6;
/// Height of letters in pixels: the caption's, and all others'.
const CAPTION_PX: u32 = 22;
const LABEL_PX: u32 = 16;
/// Horizontal distance between the lines' points for the same number of threads, so that no whisker hides another.
const BESIDE: f64 = 0.03;

/// One file.
struct Chart {
    title: String,
    panels: Vec<Panel>,
}

/// Lines with one point for each number of threads.
struct Panel {
    unit: &'static str,
    lines: Vec<(String, Vec<Option<Spread>>)>,
}

impl Panel {
    /// One line for each name that `name` returns, through the medians of `figure`.
    fn of<T>(
        unit: &'static str,
        samples: &[&T],
        name: impl Fn(&T) -> &str,
        threads: impl Fn(&T) -> usize,
        figure: impl Fn(&T) -> f64,
    ) -> Panel {
        let line = |of: &str| {
            let at = |count| {
                let rounds = samples.iter().copied();
                spread(
                    rounds.filter(|s| name(s) == of && threads(s) == count),
                    &figure,
                )
            };
            (of.to_owned(), THREADS.map(at).to_vec())
        };
        let names = distinct(samples.iter().map(|sample| name(sample)));
        Panel {
            unit,
            lines: names.into_iter().map(line).collect(),
        }
    }
}

/// Writes a chart for each load and each kind of area to `out`, and returns the files that it made.
pub(crate) fn write(results: &Results, out: &Path) -> Result<Vec<PathBuf>, Failure> {
    std::fs::create_dir_all(out).map_err(Failure::of(&format!(
        "cannot make the directory {}",
        out.display()
    )))?;
    let charts = ablations(results).into_iter().chain(areas(results));
    let mut files = Vec::new();
    for chart in charts {
        let file = out.join(file_name(&chart.title));
        draw(&chart, &file)
            .map_err(|error| Failure::new(format!("cannot draw {}: {error}", file.display())))?;
        files.push(file);
    }
    Ok(files)
}

fn ablations(results: &Results) -> Vec<Chart> {
    let samples = || results.samples.iter().filter(|s| s.is_ablation());
    let chart = |load: &str| {
        let of_load: Vec<&Sample> = samples().filter(|sample| sample.load == load).collect();
        let panel = |unit, figure: fn(&Sample) -> f64| {
            Panel::of(unit, &of_load, |s| &s.variant, |s| s.threads, figure)
        };
        Chart {
            title: load.to_owned(),
            panels: vec![
                panel("million operations a second", Sample::mops),
                panel("ns of CPU time an operation", Sample::cpu_ns),
            ],
        }
    };
    distinct(samples().map(|sample| sample.load.as_str()))
        .into_iter()
        .map(chart)
        .collect()
}

fn areas(results: &Results) -> Vec<Chart> {
    let chart = |storage: &str| {
        let of_storage: Vec<&AreaSample> = results
            .areas
            .iter()
            .filter(|sample| sample.storage == storage)
            .collect();
        let panel = |unit, figure: fn(&AreaSample) -> f64| {
            Panel::of(unit, &of_storage, |s| &s.policy, |s| s.threads, figure)
        };
        Chart {
            title: format!("four areas: {storage}"),
            panels: vec![
                panel("MB written out a second", |sample| sample.out_mb_per_s),
                panel("s of CPU time in all", |sample| sample.cpu_s),
            ],
        }
    };
    let media = distinct(results.areas.iter().map(|sample| sample.storage.as_str()));
    media.into_iter().map(chart).collect()
}

/// `title` in lower case, with a dash for everything that is neither letter nor digit.
fn file_name(title: &str) -> String {
    let words = title.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("engine-{}.svg", words.join("-").to_lowercase())
}

type DrawError = Box<dyn std::error::Error>;

fn draw(chart: &Chart, file: &Path) -> Result<(), DrawError> {
    let width = PANEL.0 * u32::try_from(chart.panels.len())?;
    let root = SVGBackend::new(file, (width, PANEL.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let titled = root.titled(&chart.title, ("sans-serif", CAPTION_PX))?;
    let areas = titled.split_evenly((1, chart.panels.len()));
    for (panel, area) in chart.panels.iter().zip(&areas) {
        draw_panel(panel, area)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(
    panel: &Panel,
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), DrawError> {
    let points = panel
        .lines
        .iter()
        .flat_map(|(_, points)| points.iter().flatten());
    let highest = points.fold(0.0_f64, |highest, point| highest.max(point.max));
    let last = at(THREADS.len() - 1);
    let mut axes = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(45)
        .y_label_area_size(70)
        .build_cartesian_2d(
            -0.2..last + 0.2,
            0.0..(highest * HEADROOM).max(f64::MIN_POSITIVE),
        )?;
    axes.configure_mesh()
        .disable_x_mesh()
        .x_labels(THREADS.len())
        .x_label_formatter(&|x| threads_at(*x))
        .x_desc("threads")
        .y_desc(panel.unit)
        .label_style(("sans-serif", LABEL_PX))
        .axis_desc_style(("sans-serif", LABEL_PX))
        .draw()?;
    for (index, (name, points)) in panel.lines.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let beside = (at(index) - at(panel.lines.len() - 1) / 2.0) * BESIDE;
        let known = || {
            let placed = points.iter().enumerate();
            placed.filter_map(|(x, point)| Some((at(x) + beside, (*point)?)))
        };
        let medians = known().map(|(x, point)| (x, point.median));
        let stroke = color.stroke_width(2);
        axes.draw_series(LineSeries::new(medians, stroke))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], stroke));
        let whisker = |(x, point): (f64, Spread)| {
            ErrorBar::new_vertical(x, point.min, point.median, point.max, color.filled(), 8)
        };
        axes.draw_series(known().map(whisker))?;
    }
    axes.configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", LABEL_PX))
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(180, 180, 180))
        .draw()?;
    Ok(())
}

/// The position of the `index`-th number of threads on the axis. Positions are evenly spaced.
#[expect(clippy::cast_precision_loss, reason = "a handful of indexes")]
const fn at(index: usize) -> f64 {
    index as f64
}

fn threads_at(x: f64) -> String {
    let nearest = (0..THREADS.len()).find(|&index| (at(index) - x).abs() < 0.01);
    nearest.map_or_else(String::new, |index| THREADS[index].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_area_gets_a_chart_that_names_its_lines() {
        let sample = |policy: &str, threads| AreaSample {
            storage: "memory".to_owned(),
            policy: policy.to_owned(),
            threads,
            out_mb_per_s: 100.0,
            thread_mb_per_s: 50.0,
            cpu_s: 0.1,
            free_us: 1.0,
            used_percent: vec![41.0; 4],
        };
        let results = Results {
            areas: THREADS
                .iter()
                .flat_map(|&t| [sample("turns", t), sample("one", t)])
                .collect(),
            ..Results::default()
        };
        let out = std::env::temp_dir().join(format!("engine-plots-{}", std::process::id()));
        let files = write(&results, &out).unwrap();
        let svg = std::fs::read_to_string(&files[0]).unwrap();
        std::fs::remove_dir_all(&out).unwrap();
        assert_eq!(files.len(), 1);
        assert!(files[0].ends_with("engine-four-areas-memory.svg"));
        assert!(
            svg.contains("turns") && svg.contains("one") && svg.contains("32"),
            "{svg}"
        );
    }
}
