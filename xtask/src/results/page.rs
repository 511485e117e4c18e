//! A page of docs/results, made from a stored run and nothing else.

use std::fmt::{self, Write};

use super::list::Page;
use super::stored::{Outcome, Row, Spread, Stored, Table, Workload};

/// How the first line of every page begins that is made here.
pub const MARK: &str = "<!-- Made by `cargo xtask results`";
/// Figures from this size on are written without decimals.
const WHOLE: f64 = 1000.0;

/// The page.
///
/// # Errors
/// The stored run holds something else than expected.
pub fn render(page: &Page, stored: &Stored) -> Result<String, String> {
    let outcome = stored.outcome()?;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut text, page, stored, &outcome);
    Ok(text)
}

fn write_page(out: &mut String, page: &Page, stored: &Stored, outcome: &Outcome) -> fmt::Result {
    let made = &stored.made;
    writeln!(
        out,
        "{MARK} from json/{}.json. Changes by hand are refused. -->\n",
        page.name
    )?;
    writeln!(out, "# Results: {}\n\n{}\n", page.heading, page.about)?;
    writeln!(out, "```sh\n{}\n```\n", made.command)?;
    writeln!(
        out,
        "Measured on {} with Linux {} on {} processors, load average {} before.",
        made.date, made.kernel, made.processors, made.load_average
    )?;
    writeln!(
        out,
        "Cells with a range are median (min..max) of the rounds. [How it is measured](../benchmarks.md).\n"
    )?;
    for workload in &outcome.workloads {
        write_workload(out, workload, outcome.rounds, &made.commit)?;
    }
    for table in &outcome.tables {
        writeln!(out, "Commit {}.\n", made.commit)?;
        write_table(out, table)?;
    }
    if !outcome.targets.is_empty() {
        writeln!(out, "The targets, commit {}.\n", made.commit)?;
        write_table(out, &targets(outcome))?;
    }
    if !outcome.left_out.is_empty() {
        // In a table, because a reason may be longer than a line.
        let heads = vec!["left out".to_owned()];
        let rows = outcome.left_out.iter().map(|left| vec![left.line()]);
        let rows = rows.collect();
        write_table(out, &Table { heads, rows })?;
    }
    out.truncate(out.trim_end().len());
    writeln!(out)
}

fn write_workload(
    out: &mut String,
    workload: &Workload,
    rounds: usize,
    commit: &str,
) -> fmt::Result {
    let name = &workload.workload;
    let mib = workload.ram_bytes >> 20;
    writeln!(out, "## {name}\n")?;
    writeln!(out, "Commit {commit}, limit {mib} MiB, rounds: {rounds}.\n")?;
    write_table(out, &figures(workload))?;
    let why = [
        (&workload.failed, "failed"),
        (&workload.killed, "were killed by the kernel for memory"),
    ];
    for (counts, why) in why {
        for (side, count) in counts {
            writeln!(
                out,
                "{side}: {count} of {rounds} runs {why} and have no figures.\n"
            )?;
        }
    }
    Ok(())
}

/// A row for each figure, a column for each side, and one for each ratio of sides.
fn figures(workload: &Workload) -> Table {
    let rows = &workload.rows;
    let sides = distinct(
        rows.iter()
            .flat_map(|row| &row.sides)
            .map(|of| of.side.clone()),
    );
    let ratios = rows.iter().flat_map(|row| &row.ratios);
    let pairs = distinct(ratios.map(|ratio| (ratio.ours.clone(), ratio.theirs.clone())));
    let mut heads = vec!["phase".to_owned()];
    heads.extend(sides.iter().map(|side| head(side)));
    heads.extend(
        pairs
            .iter()
            .map(|(ours, theirs)| format!("{ours}/{theirs}")),
    );
    let cells = |row: &Row| {
        let mut cells = vec![row.row.clone()];
        cells.extend(sides.iter().map(|side| {
            let found = row.sides.iter().find(|of| of.side == *side);
            found.map_or_else(|| "-".to_owned(), |of| spread(of.spread))
        }));
        cells.extend(pairs.iter().map(|(ours, theirs)| {
            let mut ratios = row.ratios.iter();
            let found = ratios.find(|ratio| ratio.ours == *ours && ratio.theirs == *theirs);
            found.map_or_else(
                || "-".to_owned(),
                |ratio| format!("{:.2}", ratio.of_medians),
            )
        }));
        cells
    };
    let rows = rows.iter().map(cells).collect();
    Table { heads, rows }
}

/// The head of a side's column.
fn head(side: &str) -> String {
    match side {
        "zram" | "zswap" | "file" => format!("kernel, {side}"),
        other => other.to_owned(),
    }
}

fn spread(of: Spread) -> String {
    let decimals = if of.max >= WHOLE { 0 } else { 2 };
    let Spread { min, median, max } = of;
    format!("{median:.decimals$} ({min:.decimals$}..{max:.decimals$})")
}

fn targets(outcome: &Outcome) -> Table {
    let heads = ["target", "wanted", "measured", "", "limited by"];
    let cells = |target: &super::stored::Target| {
        let because = target.because.clone().unwrap_or_default();
        let (name, wanted) = (target.target.clone(), target.wanted.clone());
        vec![
            name,
            wanted,
            target.figure(),
            target.word().to_owned(),
            because,
        ]
    };
    Table {
        heads: heads.map(str::to_owned).to_vec(),
        rows: outcome.targets.iter().map(cells).collect(),
    }
}

/// Writes the table, and an empty line after it.
pub fn write_table(out: &mut String, table: &Table) -> fmt::Result {
    writeln!(out, "{}", line(&table.heads))?;
    writeln!(out, "|{}", "---|".repeat(table.heads.len()))?;
    for row in &table.rows {
        writeln!(out, "{}", line(row))?;
    }
    writeln!(out)
}

/// A line of a table.
pub fn line(cells: &[String]) -> String {
    let cell = |cell: &String| match cell.replace('|', "\\|") {
        empty if empty.is_empty() => " |".to_owned(),
        text => format!(" {text} |"),
    };
    let cells: String = cells.iter().map(cell).collect();
    format!("|{cells}")
}

/// The distinct values, in order of first appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::list::PAGES;
    use super::super::stored::tests::one_workload;
    use super::*;
    use serde_json::json;

    fn page(name: &str) -> &'static Page {
        PAGES.iter().find(|page| page.name == name).unwrap()
    }

    #[test]
    fn a_comparison_becomes_this_page() {
        let expected = "\
<!-- Made by `cargo xtask results` from json/memhog.json. Changes by hand are refused. -->

# Results: memhog

A program fills three times its limit as fast as it can, rewrites it and verifies it.

```sh
target/release/vswap bench memhog
```

Measured on 2026-11-24 with Linux 6.18 on 2 processors, load average 0.31 before.
Cells with a range are median (min..max) of the rounds. [How it is measured](../benchmarks.md).

## memhog

Commit abc1234, limit 256 MiB, rounds: 5.

| phase | kernel, zram | vswap | vswap/zram |
|---|---|---|---|
| fill us/op | 1200 (600..2400) | 6.00 (3.00..12.00) | 0.01 |
| vswap fault p50 us | - | 5.00 (2.50..10.00) | - |

zram: 1 of 5 runs were killed by the kernel for memory and have no figures.

The targets, commit abc1234.

| target | wanted | measured | | limited by |
|---|---|---|---|---|
| fill, 1 task | <= 0.6 | 0.70 | missed | a \\| b |

| left out |
|---|
| redis: no program redis-server |
";
        assert_eq!(render(page("memhog"), &one_workload()).unwrap(), expected);
    }

    #[test]
    fn tables_of_a_program_are_shown_as_they_are() {
        let mut stored = one_workload();
        stored.result = json!({"tables": [{"heads": ["operation", "ns"], "rows": [["lookup", "3.8 (3.7..3.9)"]]}]});
        let text = render(page("engine-operations"), &stored).unwrap();
        let end =
            "\nCommit abc1234.\n\n| operation | ns |\n|---|---|\n| lookup | 3.8 (3.7..3.9) |\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_run_without_figures_has_no_page() {
        let mut stored = one_workload();
        stored.result = json!({});
        assert!(
            render(page("memhog"), &stored)
                .unwrap_err()
                .contains("no figures")
        );
    }
}
