//! The result as one self-contained page: tables, and plots as inline SVG.

use std::fmt::Write;

use super::plot;
use super::result::{Report, WorkloadResult};
use super::samples::Samples;
use super::table::number;
use super::targets::{Verdict, verdicts};

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>vswap bench</title>
<meta name=\"viewport\" content=\"width=device-width\">
<style>
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin: 2em 0 .3em; border-top: 1px solid #ccc; padding-top: 1em }
table { border-collapse: collapse; margin: .8em 0; font-variant-numeric: tabular-nums }
th, td { padding: .2em .7em; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap }
th:first-child, td:first-child { text-align: left } th { border-bottom: 2px solid #888 }
td.range { color: #777; font-size: .85em } .met { color: #087a3d } .missed { color: #b3261e }
code { background: #f3f3f3; padding: .1em .3em; overflow-wrap: anywhere } svg { display: block; max-width: 100%;
height: auto } .scroll { overflow-x: auto } .note { color: #666 }
</style></head><body>
<h1>vswap and the kernel's swap, at equal memory in all</h1>
";

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut page = String::from(HEAD);
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, report);
    page
}

fn write_page(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(
        out,
        "<p>{}; vswap {}.</p>",
        text(&report.machine.to_string()),
        env!("CARGO_PKG_VERSION")
    )?;
    write_targets(out, &verdicts(report))?;
    for result in &report.workloads {
        write_workload(out, result)?;
    }
    if !report.left_out.is_empty() {
        writeln!(out, "<h2>Left out</h2><ul>")?;
        for left in &report.left_out {
            writeln!(out, "<li>{}</li>", text(&left.to_string()))?;
        }
        writeln!(out, "</ul>")?;
    }
    writeln!(out, "</body></html>")
}

fn write_targets(out: &mut String, verdicts: &[Verdict]) -> std::fmt::Result {
    if verdicts.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Targets</h2><div class=\"scroll\"><table>")?;
    writeln!(
        out,
        "<tr><th>target</th><th>wanted</th><th>measured</th><th></th><th>where</th><th>limited by</th></tr>"
    )?;
    for verdict in verdicts {
        let measured = verdict
            .measured
            .map_or("-".to_owned(), |figure| format!("{figure:.2}"));
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{measured}</td><td class=\"{}\">{}</td>\
             <td class=\"note\">{}</td><td class=\"note\">{}</td></tr>",
            text(verdict.what()),
            text(&verdict.wanted()),
            verdict.word(),
            verdict.word(),
            text(&verdict.place()),
            verdict.because().map_or_else(String::new, text),
        )?;
    }
    writeln!(out, "</table></div>")
}

fn write_workload(out: &mut String, result: &WorkloadResult) -> std::fmt::Result {
    let samples = &result.samples;
    writeln!(out, "<h2 id=\"{0}\">{0}</h2>", text(&result.name))?;
    let (command, limit) = (text(&result.command), result.limit());
    writeln!(
        out,
        "<p><code>{command}</code> <span class=\"note\">{limit}</span></p>"
    )?;
    write_table(out, samples)?;
    for ((side, why), count) in samples.without() {
        writeln!(out, "<p class=\"missed\">{side}: {count} runs {why}.</p>")?;
    }
    let ratios = samples
        .pairs()
        .into_iter()
        .map(|pair| plot::ratios(samples, pair));
    for plot in ratios.chain([plot::rounds(samples)]) {
        match plot {
            Ok(svg) => out.push_str(&svg.unwrap_or_default()),
            Err(error) => writeln!(
                out,
                "<p class=\"note\">no plot: {}</p>",
                text(&error.to_string())
            )?,
        }
    }
    Ok(())
}

fn write_table(out: &mut String, samples: &Samples) -> std::fmt::Result {
    let (sides, pairs) = (samples.sides(), samples.pairs());
    write!(
        out,
        "<div class=\"scroll\"><table><tr><th>median, range</th>"
    )?;
    for side in &sides {
        write!(out, "<th colspan=\"2\">{side}</th>")?;
    }
    for (ours, theirs) in &pairs {
        write!(out, "<th>{ours} / {theirs}</th>")?;
    }
    writeln!(out, "</tr>")?;
    for row in samples.rows() {
        write!(out, "<tr><td>{}</td>", text(&row.name))?;
        for &side in &sides {
            match row.spread(side) {
                Some(spread) => {
                    let of = |figure| number(figure, spread.max);
                    let (median, min, max) = (of(spread.median), of(spread.min), of(spread.max));
                    write!(
                        out,
                        "<td>{median}</td><td class=\"range\">{min}..{max}</td>"
                    )?;
                }
                None => write!(out, "<td>-</td><td></td>")?,
            }
        }
        for &(ours, theirs) in &pairs {
            match row.ratio(ours, theirs) {
                Some(ratio) => write!(out, "<td>{:.2}</td>", ratio.of_medians)?,
                None => write!(out, "<td>-</td>")?,
            }
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></div>")
}

/// `plain` with the characters escaped that have a meaning in HTML.
fn text(plain: &str) -> String {
    plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::one_run_one_left_out;
    use super::*;

    #[test]
    fn the_page_has_tables_plots_and_targets_and_asks_nobody_for_more() {
        let report = one_run_one_left_out("sh -c 'a < b && c'");
        let page = page(&report);
        assert!(page.contains("a &lt; b &amp;&amp; c"), "{page}");
        assert_eq!(page.matches("<svg").count(), 2, "{page}");
        assert!(
            page.contains("10.00</td><td class=\"range\">5.00..15.00"),
            "{page}"
        );
        assert!(
            page.contains("class=\"met\"") && page.contains("build: no compiler"),
            "{page}"
        );
        assert!(
            !page.contains("<script") && !page.contains("src="),
            "{page}"
        );
        assert!(page.ends_with("</body></html>\n"), "{page}");
    }
}
