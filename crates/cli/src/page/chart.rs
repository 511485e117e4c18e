//! A plot of lines over time or over RAM, as SVG, and the same as words and as a table.

use std::borrow::Cow;

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;

use crate::page::style::{GRID, INK, LINES, hex};
use crate::record::events::Event;

/// Width and height of a plot in its own pixels; it shrinks with the page.
const SIZE: (u32, u32) = (860, 260);
/// Room for the figures of the axes.
const LEFT_PX: u32 = 80;
const BELOW_PX: u32 = 30;
const LABEL_PX: u32 = 13;
/// Room above the highest point, as part of it.
const HEADROOM: f64 = 1.1;
/// Events that get a line in each plot, the first ones.
const EVENTS_MAX: usize = 24;
/// Most rows of a table. Of more samples every so many-th is in it, and the last one.
const ROWS_MAX: usize = 60;

/// How a figure is written.
pub type Show = fn(f64) -> String;

/// A line: points in order, None where there is no figure.
#[derive(Debug, Clone)]
pub struct Series {
    pub name: Cow<'static, str>,
    pub points: Vec<(f64, Option<f64>)>,
}

/// How the axis of figures runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// From 0 to a little above the highest point.
    Linear,
    /// The same for bytes: labels are even in KiB, MiB and so on.
    Bytes,
    /// From this to that.
    Within(f64, f64),
    /// Powers of ten.
    Log,
}

/// What the lines of a plot run along.
#[derive(Debug, Clone, Copy)]
pub struct Along {
    pub name: &'static str,
    pub show: Show,
}

/// Seconds since the start of the program.
pub const TIME: Along = Along {
    name: "time",
    show: time,
};

/// A plot.
#[derive(Debug)]
pub struct Chart {
    /// Unique in the page, without spaces.
    pub id: &'static str,
    pub title: &'static str,
    /// What there is to know about it.
    pub note: &'static str,
    pub along: Along,
    pub scale: Scale,
    pub show: Show,
    pub series: Vec<Series>,
}

type DrawError = Box<dyn std::error::Error>;

impl Chart {
    /// The plot with its title, words and table.
    pub fn markup(&self, events: &[Event]) -> Markup {
        html! {
            section aria-labelledby=(self.id) {
                h2 id=(self.id) { (self.title) }
                p { (self.note) }
                @if self.highest().is_none() {
                    p { "There was nothing of it." }
                } @else {
                    figure {
                        @match self.svg(events) {
                            // Not read out piece by piece: the words below it say what it shows.
                            Ok(svg) => div.lines role="img" aria-label=(format!("Plot: {}", self.title)) {
                                (PreEscaped(svg))
                            },
                            Err(error) => p.bad { "No plot: " (error) },
                        }
                        figcaption { ul { @for (series, line) in self.series.iter().zip(LINES) {
                            li { (sample(line.light)) " " (self.words(series)) }
                        } } }
                    }
                    (self.table())
                }
            }
        }
    }

    fn points(&self) -> impl Iterator<Item = f64> + '_ {
        let all = self.series.iter().flat_map(|series| &series.points);
        all.filter_map(|(_, value)| *value)
    }

    fn highest(&self) -> Option<f64> {
        self.points().reduce(f64::max)
    }

    /// Where the longest line ends.
    fn end(&self) -> f64 {
        let all = self.series.iter().flat_map(|series| &series.points);
        all.map(|(at, _)| *at).fold(0.0, f64::max)
    }

    /// Where a figure lies on the axis, and back.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Bytes => value / self.unit(),
            Scale::Linear | Scale::Within(..) => value,
        }
    }

    fn at(&self, place: f64) -> String {
        match self.scale {
            Scale::Log => (self.show)(10_f64.powf(place)),
            Scale::Bytes => (self.show)(place * self.unit()),
            Scale::Linear | Scale::Within(..) => (self.show)(place),
        }
    }

    /// The largest power of 1024 that is not above the highest point.
    fn unit(&self) -> f64 {
        let highest = self.highest().unwrap_or_default();
        let units = (0..6).map(|power| 1024_f64.powi(power));
        units
            .take_while(|unit| *unit <= highest)
            .last()
            .unwrap_or(1.0)
    }

    fn axis(&self) -> (f64, f64) {
        let highest = self.highest().unwrap_or_default();
        match self.scale {
            Scale::Linear | Scale::Bytes if highest > 0.0 => (0.0, self.place(highest) * HEADROOM),
            Scale::Linear | Scale::Bytes => (0.0, 1.0),
            Scale::Within(first, last) => (first, last),
            Scale::Log => {
                let lowest = self.points().fold(highest, f64::min);
                let first = self.place(lowest).floor();
                (first, self.place(highest).ceil().max(first + 1.0))
            }
        }
    }

    fn svg(&self, events: &[Event]) -> Result<String, DrawError> {
        let (end, (first, last)) = (self.end(), self.axis());
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut axes = ChartBuilder::on(&root)
                .margin(8)
                .margin_top(18)
                .x_label_area_size(BELOW_PX)
                .y_label_area_size(LEFT_PX)
                .build_cartesian_2d(0.0..end.max(f64::MIN_POSITIVE), first..last)?;
            let label = ("sans-serif", LABEL_PX).into_font().color(&INK);
            let along = |at: &f64| (self.along.show)(*at);
            let mut mesh = axes.configure_mesh();
            mesh.light_line_style(TRANSPARENT)
                .bold_line_style(GRID)
                .axis_style(INK)
                .x_labels(8)
                .x_label_formatter(&along)
                .y_labels(6)
                .label_style(label.clone());
            if self.scale == Scale::Log {
                mesh.y_labels(powers(first, last));
            }
            mesh.y_label_formatter(&|place| self.at(*place)).draw()?;
            for (event, number) in events.iter().zip(1..=EVENTS_MAX) {
                let at = event.seconds.min(end);
                let ends = [(at, first), (at, last)];
                axes.draw_series([PathElement::new(ends, INK.stroke_width(1))])?;
                let (x, y) = axes.backend_coord(&(at, last));
                root.draw(&Text::new(
                    number.to_string(),
                    (x - 3, y - 14),
                    label.clone(),
                ))?;
            }
            for (series, line) in self.series.iter().zip(LINES) {
                for piece in pieces(&series.points) {
                    let points = piece.iter();
                    let placed =
                        |(at, value): &(f64, f64)| (*at, self.place(*value).clamp(first, last));
                    let placed: Vec<(f64, f64)> = points.map(placed).collect();
                    if let [lone] = placed[..] {
                        axes.draw_series([Circle::new(lone, 2, line.light.filled())])?;
                    }
                    axes.draw_series(LineSeries::new(placed, line.light.stroke_width(2)))?;
                }
            }
            root.present()?;
        }
        Ok(svg)
    }

    /// What a line shows, for whom a plot shows nothing.
    fn words(&self, series: &Series) -> String {
        let points = || {
            let points = series.points.iter();
            points.filter_map(|(at, value)| Some((*at, (*value)?)))
        };
        let highest = points().reduce(|a, b| if b.1 > a.1 { b } else { a });
        match (highest, points().next_back()) {
            (Some((at, highest)), Some((_, last))) => format!(
                "{}: highest {} at {}, last {}",
                series.name,
                (self.show)(highest),
                (self.along.show)(at),
                (self.show)(last)
            ),
            _ => format!("{}: nothing", series.name),
        }
    }

    fn table(&self) -> Markup {
        let count = self.series.iter().map(|series| series.points.len()).max();
        let rows = thin(count.unwrap_or_default());
        let cell = |series: &Series, row: usize| {
            let value = series.points.get(row).and_then(|(_, value)| *value);
            html! {
                @match value {
                    Some(value) => td { data value=(value) { ((self.show)(value)) } },
                    None => td { "-" },
                }
            }
        };
        html! {
            details {
                summary { "The same as a table" }
                div.scroll { table {
                    caption { (self.title) }
                    thead { tr { th scope="col" { (self.along.name) } @for series in &self.series {
                        th scope="col" { (series.name) } } } }
                    tbody { @for row in rows { tr {
                        th scope="row" { @if let Some((at, _)) = self.series.first().and_then(|s| s.points.get(row)) {
                            data value=(at) { ((self.along.show)(*at)) } } }
                        @for series in &self.series { (cell(series, row)) }
                    } } }
                } }
            }
        }
    }
}

/// Which of so many rows are in a table.
pub fn thin(count: usize) -> Vec<usize> {
    let step = count.div_ceil(ROWS_MAX).max(1);
    let mut rows: Vec<usize> = (0..count).step_by(step).collect();
    if count > 0 && rows.last() != Some(&(count - 1)) {
        rows.push(count - 1);
    }
    rows
}

/// How many powers of ten a log axis has.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "logarithms of times are a few tens"
)]
fn powers(first: f64, last: f64) -> usize {
    (last - first) as usize + 1
}

/// Stretches without a gap.
fn pieces(points: &[(f64, Option<f64>)]) -> Vec<Vec<(f64, f64)>> {
    let is_gap = |point: &(f64, Option<f64>)| point.1.is_none();
    let pieces = points.split(is_gap).map(|piece| {
        let known = piece.iter();
        known
            .filter_map(|(at, value)| Some((*at, (*value)?)))
            .collect()
    });
    pieces.filter(|piece: &Vec<_>| !piece.is_empty()).collect()
}

/// Seconds as people read them.
pub fn time(seconds: f64) -> String {
    if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else if seconds < 600.0 {
        format!("{seconds:.0} s")
    } else if seconds < 36_000.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// A piece of a line for the legend. Not read out: the words beside it say which line it is.
fn sample(color: RGBColor) -> Markup {
    html! {
        svg.lines aria-hidden="true" width="36" height="8" viewBox="0 0 36 8" {
            line x1="0" y1="4" x2="36" y2="4" stroke=(hex(color)) stroke-width="2" {}
        }
    }
}

/// A patch of a colour for a legend in HTML.
pub fn patch(color: RGBColor) -> Markup {
    html! { span style=(format!("background: {}", hex(color))) {} }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: Vec<(f64, Option<f64>)>) -> Chart {
        Chart {
            id: "c",
            title: "A chart",
            note: "",
            along: TIME,
            scale,
            show: |value| format!("{value} u"),
            series: vec![Series {
                name: "line".into(),
                points,
            }],
        }
    }

    #[test]
    fn a_plot_has_words_and_a_table_with_the_same_figures() {
        let chart = chart(
            Scale::Linear,
            vec![(0.0, Some(1.0)), (1.5, Some(4.0)), (3.0, Some(2.0))],
        );
        let page = chart.markup(&[]).into_string();
        assert!(page.contains("<svg") && page.contains("</svg>"), "{page}");
        assert!(
            page.contains("line: highest 4 u at 1.5 s, last 2 u"),
            "{page}"
        );
        assert!(page.contains("<data value=\"4\">4 u</data>"), "{page}");
        assert_eq!(page.matches("<tr>").count(), 4);
    }

    #[test]
    fn lines_have_gaps_where_nothing_is_known() {
        let points = [
            (0.0, None),
            (1.0, Some(5.0)),
            (2.0, Some(6.0)),
            (3.0, None),
            (4.0, Some(7.0)),
        ];
        let expected = [vec![(1.0, 5.0), (2.0, 6.0)], vec![(4.0, 7.0)]];
        assert_eq!(pieces(&points), expected);
        for scale in [Scale::Linear, Scale::Within(0.0, 100.0), Scale::Log] {
            let chart = chart(scale, points.to_vec());
            assert!(chart.svg(&[]).is_ok(), "{scale:?}");
        }
    }

    #[test]
    fn a_plot_of_nothing_and_one_of_zeros_are_no_failure() {
        let nothing = chart(Scale::Log, vec![(0.0, None), (1.0, None)]);
        assert!(nothing.markup(&[]).into_string().contains("nothing of it"));
        for scale in [
            Scale::Linear,
            Scale::Bytes,
            Scale::Within(0.0, 100.0),
            Scale::Log,
        ] {
            let chart = chart(scale, vec![(0.0, Some(0.0)), (0.0, Some(0.0))]);
            assert!(chart.svg(&[]).is_ok(), "{scale:?}");
        }
    }

    #[test]
    fn a_log_axis_goes_by_powers_of_ten() {
        let chart = chart(Scale::Log, vec![(0.0, Some(5.0)), (1.0, Some(2000.0))]);
        assert_eq!(chart.axis(), (0.0, 4.0));
        let svg = chart.svg(&[]).expect("drawn");
        for label in ["1 u", "10 u", "100 u", "1000 u", "10000 u"] {
            assert!(svg.contains(&format!("\n{label}\n")), "{label}: {svg}");
        }
        assert!(!svg.contains("3.16"), "{svg}");
    }

    #[test]
    fn an_axis_of_bytes_is_even_in_its_unit() {
        let points = vec![(0.0, Some(0.0)), (1.0, Some(200.0 * 1024.0 * 1024.0))];
        let mut chart = chart(Scale::Bytes, points);
        chart.show = |value| format!("{} MiB", value / 1024.0 / 1024.0);
        let svg = chart.svg(&[]).expect("drawn");
        assert!(
            svg.contains("\n50 MiB\n") && svg.contains("\n200 MiB\n"),
            "{svg}"
        );
    }

    #[test]
    fn tables_are_short_and_have_the_last_row() {
        assert!(thin(0).is_empty());
        assert_eq!(thin(3), [0, 1, 2]);
        for count in [1, 59, 60, 61, 511, 512] {
            let rows = thin(count);
            assert!(
                rows.len() <= ROWS_MAX + 1 && rows.last() == Some(&(count - 1)),
                "{count}"
            );
        }
    }

    #[test]
    fn times_read_well() {
        let shown = [0.0, 9.96, 12.3, 599.0, 3600.0, 90_000.0].map(time);
        assert_eq!(
            shown,
            ["0.0 s", "10.0 s", "12 s", "599 s", "60 min", "25.0 h"]
        );
    }
}
