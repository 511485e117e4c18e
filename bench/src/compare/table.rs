//! The table of one workload: medians, spreads and ratios.

use std::fmt;

use super::samples::Samples;

/// Figures from this size on are written without decimals.
const WHOLE: f64 = 1000.0;

/// `figure` with the decimals of a column whose largest figure is `largest`.
pub(super) fn number(figure: f64, largest: f64) -> String {
    if largest >= WHOLE {
        format!("{figure:.0}")
    } else {
        format!("{figure:.2}")
    }
}

/// Writes the table with columns as wide as their content.
pub(super) fn write(f: &mut fmt::Formatter<'_>, samples: &Samples) -> fmt::Result {
    let lines = lines(samples);
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for line in &lines {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            if column == 0 {
                write!(f, "{cell:<width$}")?;
            } else {
                write!(f, "  {cell:>width$}")?;
            }
        }
        writeln!(f)?;
    }
    for ((side, why), count) in samples.without() {
        writeln!(f, "{side}: {count} runs {why}")?;
    }
    Ok(())
}

fn lines(samples: &Samples) -> Vec<Vec<String>> {
    let (sides, pairs) = (samples.sides(), samples.pairs());
    let mut head = vec!["median (min..max)".to_owned()];
    head.extend(sides.iter().map(ToString::to_string));
    head.extend(
        pairs
            .iter()
            .map(|(ours, theirs)| format!("{ours}/{theirs}")),
    );
    let mut lines = vec![head];
    for row in samples.rows() {
        let mut line = vec![row.name.clone()];
        line.extend(sides.iter().map(|&side| match row.spread(side) {
            Some(spread) if spread.max >= WHOLE => format!("{spread:.0}"),
            Some(spread) => spread.to_string(),
            None => "-".to_owned(),
        }));
        line.extend(pairs.iter().map(|&(ours, theirs)| {
            let ratio = row.ratio(ours, theirs);
            ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.of_medians))
        }));
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::samples::Without;
    use super::super::samples::tests::{ZRAM, three_rounds};
    use super::*;

    struct Shown(Samples);

    impl fmt::Display for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write(f, &self.0)
        }
    }

    #[test]
    fn ratios_come_from_medians_and_what_is_missing_is_a_dash() {
        let mut samples = three_rounds();
        samples.add_without(ZRAM, Without::Failed);
        samples.add_without(ZRAM, Without::Killed);
        let text = Shown(samples).to_string();
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(line("median").ends_with("vswap/zram"), "{text}");
        let fill = line("fill us/op");
        assert!(fill.contains("20.00 (10.00..30.00)"), "{text}");
        assert!(fill.contains("10.00 (5.00..15.00)"), "{text}");
        assert!(fill.ends_with(" 0.50"), "{text}");
        assert!(line("vswap fault").ends_with('-'), "{text}");
        assert!(
            text.ends_with(
                "zram: 1 runs failed and have no figures\n\
                 zram: 1 runs were killed by the kernel for memory and have no figures\n"
            ),
            "{text}"
        );
    }
}
