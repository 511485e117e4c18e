//! Results as line charts: throughput by number of threads, with the range of the rounds as whiskers.

use std::path::{Path, PathBuf};

use plotters::prelude::*;
use vswap_bench::spread::Spread;

use crate::Failure;
use crate::plan::THREADS;
use crate::record::{Results, distinct, spread};

/// Size of a chart in pixels: as wide as a page of documentation shows it.
const SIZE: (u32, u32) = (760, 440);
/// Room above the highest point, for the legend.
const HEADROOM: f64 = 1.6;
/// Height of letters in pixels: of the caption, and of all others.
const CAPTION_PX: u32 = 22;
const LABEL_PX: u32 = 16;
/// How far beside each other the lines' points stand at one number of threads, so that no whisker hides another.
const BESIDE: f64 = 0.03;
/// Distinguishable also for those who see few colours, on white and on grey.
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(0, 140, 110),
    RGBColor(150, 90, 200),
    RGBColor(200, 130, 0),
    RGBColor(90, 90, 90),
];

/// A chart with a point for each number of threads.
struct Chart {
    file: String,
    title: String,
    unit: &'static str,
    lines: Vec<(String, Vec<Option<Spread>>)>,
}

/// Writes a chart for each load and each kind of area to `out`, and says which files it made.
pub(crate) fn write(results: &Results, out: &Path) -> Result<Vec<PathBuf>, Failure> {
    std::fs::create_dir_all(out).map_err(Failure::of(&format!(
        "cannot make the directory {}",
        out.display()
    )))?;
    let charts = ablations(results).into_iter().chain(areas(results));
    let mut files = Vec::new();
    for chart in charts {
        let file = out.join(&chart.file);
        draw(&chart, &file)
            .map_err(|error| Failure::new(format!("cannot draw {}: {error}", file.display())))?;
        files.push(file);
    }
    Ok(files)
}

fn ablations(results: &Results) -> Vec<Chart> {
    let samples = || {
        results
            .samples
            .iter()
            .filter(|s| s.load.starts_with("ablation"))
    };
    let chart = |load: &str| {
        let of_load = || samples().filter(move |sample| sample.load == load);
        let line = |variant: &str| {
            let point = |threads| {
                let rounds = of_load().filter(|s| s.variant == variant && s.threads == threads);
                spread(rounds, |sample| sample.mops())
            };
            (variant.to_owned(), THREADS.map(point).to_vec())
        };
        let variants = distinct(of_load().map(|sample| sample.variant.as_str()));
        Chart {
            file: file_name(load),
            title: load.to_owned(),
            unit: "million operations a second",
            lines: variants.into_iter().map(line).collect(),
        }
    };
    distinct(samples().map(|sample| sample.load.as_str()))
        .into_iter()
        .map(chart)
        .collect()
}

fn areas(results: &Results) -> Vec<Chart> {
    let samples = || results.areas.iter();
    let chart = |storage: &str| {
        let line = |policy: &str| {
            let point = |threads| {
                let rounds = samples()
                    .filter(|s| s.storage == storage && s.policy == policy && s.threads == threads);
                spread(rounds, |sample| sample.out_mb_per_s)
            };
            (policy.to_owned(), THREADS.map(point).to_vec())
        };
        let policies = distinct(samples().map(|sample| sample.policy.as_str()));
        Chart {
            file: file_name(&format!("areas {storage}")),
            title: format!("four areas: {storage}"),
            unit: "MB written out a second",
            lines: policies.into_iter().map(line).collect(),
        }
    };
    distinct(samples().map(|sample| sample.storage.as_str()))
        .into_iter()
        .map(chart)
        .collect()
}

/// `title` in lower case, with a dash for all that is neither letter nor digit.
fn file_name(title: &str) -> String {
    let words = title.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("engine-{}.svg", words.join("-").to_lowercase())
}

type DrawError = Box<dyn std::error::Error>;

fn draw(chart: &Chart, file: &Path) -> Result<(), DrawError> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let points = chart
        .lines
        .iter()
        .flat_map(|(_, points)| points.iter().flatten());
    let highest = points.fold(0.0_f64, |highest, point| highest.max(point.max));
    let last = THREADS.len() - 1;
    let mut axes = ChartBuilder::on(&root)
        .caption(&chart.title, ("sans-serif", CAPTION_PX))
        .margin(10)
        .x_label_area_size(45)
        .y_label_area_size(70)
        .build_cartesian_2d(
            -0.2..at(last) + 0.2,
            0.0..(highest * HEADROOM).max(f64::MIN_POSITIVE),
        )?;
    axes.configure_mesh()
        .disable_x_mesh()
        .x_labels(THREADS.len())
        .x_label_formatter(&|x| threads_at(*x))
        .x_desc("threads")
        .y_desc(chart.unit)
        .label_style(("sans-serif", LABEL_PX))
        .axis_desc_style(("sans-serif", LABEL_PX))
        .draw()?;
    for (index, (name, points)) in chart.lines.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let beside = (at(index) - at(chart.lines.len() - 1) / 2.0) * BESIDE;
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
    root.present()?;
    Ok(())
}

/// Where on the axis the `index`-th number of threads stands: they are as far apart as each other.
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
    use crate::record::AreaSample;

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
        assert!(files[0].ends_with("engine-areas-memory.svg"));
        assert!(
            svg.contains("turns") && svg.contains("one") && svg.contains("32"),
            "{svg}"
        );
    }
}
