//! The tables of the page: events, processes, areas, groups, and all figures.

use maud::{Markup, html};
use serde_json::Value;

use crate::output::figures::{PAGE_BYTES, bytes, count, microseconds};
use crate::output::tables::{printable, tier_priorities};
use crate::page::chart::time;
use crate::page::charts::whole;
use crate::record::events::Events;
use crate::record::processes::Processes;

/// What happened.
pub fn events(events: &Events) -> Markup {
    html! {
        @if events.list().is_empty() {
            p { "Nothing of note." }
        } @else {
            table {
                caption { "What happened" }
                thead { tr { th scope="col" { "number" } th scope="col" { "time" } th.words scope="col" { "what" } } }
                tbody { @for (event, number) in events.list().iter().zip(1..) { tr {
                    th scope="row" { (number) } td { (time(event.seconds)) }
                    td.words { bdi { (printable(&event.what.to_string())) } }
                } } }
            }
        }
        @if events.more() > 0 { p { "And " (events.more()) " more." } }
    }
}

/// Which processes there were.
pub fn processes(processes: &Processes) -> Markup {
    let largest = processes.largest();
    html! {
        @if largest.is_empty() {
            p { "None was seen: the run ended too soon." }
        } @else {
            div.scroll { table {
                caption { "The largest processes that were seen, with the most that each of them had" }
                thead { tr { th scope="col" { "process" } th.name scope="col" { "name" }
                    th scope="col" { "in memory" } th scope="col" { "in swap" } th scope="col" { "faults" } } }
                tbody { @for seen in &largest { tr {
                    th scope="row" { (seen.pid) } td.name { bdi { (printable(&seen.name)) } }
                    @if seen.managed {
                        td { (bytes(seen.resident_bytes)) } td { (bytes(seen.swapped_bytes)) }
                        td { (count(seen.faults)) }
                    } @else {
                        td.words colspan="3" { "has no agent: counted, not managed" }
                    }
                } } }
            } }
        }
        @if processes.others() > 0 { p { "And " (processes.others()) " more." } }
        p { "One that came and went between two looks is not among them." }
    }
}

/// Which processes could not be managed, and why.
pub fn unmanaged(report: &Value) -> Markup {
    let unmanaged = list(report, "unmanaged");
    html! { @if !unmanaged.is_empty() {
        div.scroll { table {
            caption { "Processes that could not be managed" }
            thead { tr { th scope="col" { "process" } th.name scope="col" { "name" } th.words scope="col" { "why" } } }
            tbody { @for process in unmanaged { tr {
                th scope="row" { (text(&process["pid"])) } td.name { bdi { (text(&process["name"])) } }
                td.words { bdi { (text(&process["why"])) } }
            } } }
        } }
    } }
}

/// Areas as they were at the end, if the run had any of its own.
pub fn areas(report: &Value) -> Markup {
    let areas = list(report, "areas");
    html! { @if !areas.is_empty() {
        h2 { "Swap areas" }
        div.scroll { table {
            caption { "As they were at the end" }
            thead { tr { th.name scope="col" { "name" } th scope="col" { "size" } th scope="col" { "in use" }
                th scope="col" { "priority" } th scope="col" { "written" } th scope="col" { "read" }
                th scope="col" { "failed requests" } th scope="col" { "encrypted" } } }
            tbody { @for area in areas { tr {
                th.name scope="row" { bdi { (text(&area["name"])) } }
                td { (size(&area["size_bytes"])) } td { (size(&area["used_bytes"])) } td { (text(&area["priority"])) }
                td { (size(&area["written_bytes"])) } td { (size(&area["read_bytes"])) } td { (text(&area["errors"])) }
                td { @if area["encrypted"] == true { "yes" } @else { "no" } }
            } } }
        } }
    } }
}

/// Tiers as they were at the end, if the run had more than one.
pub fn tiers(report: &Value) -> Markup {
    let tiers = list(report, "tiers");
    let seconds = report["wall_seconds"].as_f64().unwrap_or_default();
    html! { @if tiers.len() > 1 {
        h2 { "Tiers" }
        div.scroll { table {
            caption { "Tiers as they were at the end, and pages by the second of the whole run" }
            thead { tr { th.name scope="col" { "name" } th scope="col" { "areas" } th scope="col" { "priority" }
                th scope="col" { "size" } th scope="col" { "in use" } th scope="col" { "down a second" }
                th scope="col" { "up a second" } th scope="col" { "a lone page takes" } } }
            tbody { @for tier in tiers { tr {
                th.name scope="row" { bdi { (text(&tier["name"])) } }
                td { (text(&tier["areas"])) } td { (tier_priorities(tier)) }
                td { (size(&tier["size_bytes"])) } td { (size(&tier["used_bytes"])) }
                td { (pages_by_second(&tier["written_bytes"], seconds)) }
                td { (pages_by_second(&tier["read_bytes"], seconds)) }
                td { (tier["latency_us"].as_f64().map_or_else(|| "-".to_owned(), microseconds)) }
            } } }
        } }
    } }
}

fn pages_by_second(bytes: &Value, seconds: f64) -> String {
    match bytes.as_f64() {
        Some(bytes) if seconds > 0.0 => count(whole(bytes / PAGE_BYTES as f64 / seconds)),
        _ => "-".to_owned(),
    }
}

/// Groups, if there are more than the root.
pub fn groups(report: &Value) -> Markup {
    let groups = list(report, "groups");
    html! { @if groups.len() > 1 {
        h2 { "Groups" }
        div.scroll { table {
            caption { "As they were at the end" }
            thead { tr { th.name scope="col" { "name" } th scope="col" { "in areas" } th scope="col" { "at most" }
                th scope="col" { "in the pool" } th scope="col" { "at most" } } }
            tbody { @for group in groups { tr {
                th.name scope="row" { bdi { (text(&group["name"])) } }
                td { (size(&group["swap_bytes"])) } td { (size(&group["swap_max_bytes"])) }
                td { (size(&group["pool_bytes"])) } td { (size(&group["pool_max_bytes"])) }
            } } }
        } }
    } }
}

/// Every single figure of the report, by its name in `--summary`.
pub fn all_figures(report: &Value) -> Markup {
    let mut figures = Vec::new();
    flatten("", report, &mut figures);
    html! {
        p { "With the names of " code { "--summary" } " and " code { "vswap status --json" } "." }
        div.scroll { table id="figures" {
            caption { "Figures at the end of the run" }
            thead { tr { th.name scope="col" { "name" } th scope="col" { "figure" } } }
            tbody { @for (name, figure) in &figures { tr {
                th.name scope="row" { (name) } td { data value=(figure) { (shown(name, figure)) } }
            } } }
        } }
    }
}

/// Figures in objects have the names of both; lists have tables of their own.
fn flatten(prefix: &str, value: &Value, figures: &mut Vec<(String, String)>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(_) => flatten(&format!("{name}."), value, figures),
            Value::Array(_) => {}
            value => figures.push((name, text(value))),
        }
    }
}

/// Sizes get a unit beside them.
fn shown(name: &str, figure: &str) -> String {
    match figure.parse() {
        Ok(size) if name.ends_with("_bytes") => format!("{figure} ({})", bytes(size)),
        _ => figure.to_owned(),
    }
}

fn list<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    report[name].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    }
}

fn size(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), bytes)
}
