//! The page as a whole: what it says, and what it does not let through.

use serde_json::json;
use vswap_pager::memory_map::Block;
use vswap_pager::{LatencyBucket, MemoryMap, ProcessStatus, TierStatus};

use super::*;

const HOSTILE: &str = "</title></code><script>alert(1)</script><img src=x onerror=\"alert(2)\">&amp;\u{1b}[2J\u{202e}";

fn status(step: u64) -> Status {
    let process = ProcessStatus {
        pid: 7,
        name: HOSTILE.to_owned(),
        managed: true,
        resident_bytes: Some(64 << 20),
        swapped_pages: Some(100 * step),
        ..ProcessStatus::default()
    };
    let bucket = LatencyBucket {
        until_us: Some(20),
        count: step,
    };
    let mut status = Status {
        limit_bytes: 64 << 20,
        wanted_limit_bytes: 64 << 20,
        resident_bytes: 60 << 20,
        swapped_pages: 100 * step,
        compressed_pages: 100 * step,
        pages_out: 200 * step,
        pages_in: 100 * step,
        faults: 300 * step,
        fault_buckets: vec![bucket],
        active: step > 0,
        processes: vec![process],
        ..Status::default()
    };
    status.pressure.some.total_seconds = step as f64 * 0.05;
    status
}

fn record(samples: u64) -> Record {
    let mut record = Record::default();
    for step in 0..samples {
        let status = status(step);
        let seconds = step as f64 / 10.0;
        record.note(&status, seconds);
        let block = Block {
            resident: 5,
            hot: 1,
            out: [1, 0, 0, 2],
        };
        let map = MemoryMap {
            pages_gone: step,
            blocks: [(3, block), (4, block)].into(),
            cut_short: false,
        };
        record
            .maps
            .look(&status.processes, seconds, |_| Some(map.clone()));
    }
    record
}

fn heading() -> Heading {
    Heading::new("run", &[HOSTILE.to_owned(), "--option".to_owned()])
}

fn page(record: Option<&Record>, status: Option<&Status>) -> String {
    let report = json!({"pid": 7, "command": [HOSTILE], "pages_out": 1234, "pool_bytes": 4096,
        "pressure": {"full": {"avg10": 0.5}},
        "areas": [{"name": HOSTILE, "size_bytes": 4096, "used_bytes": 0, "priority": -1, "errors": 0}],
        "groups": [{"name": "/"}, {"name": HOSTILE, "swap_max_bytes": null}],
        "unmanaged": [{"pid": 9, "name": HOSTILE, "why": HOSTILE}]});
    Page {
        heading: &heading(),
        began: "2026-11-25T17:19:47Z",
        ending: "exited with status 0",
        of: Circumstances::default(),
        status,
        report: &report,
        record,
    }
    .html()
}

/// A page of a run that had so many tiers from its second half on, and the last one for a while only.
fn page_with_tiers(count: u64) -> String {
    let tier = |number: u64, step: u64| TierStatus {
        name: format!("tier-{number}").parse().expect("a good name"),
        areas: 1,
        priority_min: 1,
        priority_max: 1,
        size_bytes: 1 << 30,
        used_bytes: ((number + 1) * step) << 20,
        read_bytes: 0,
        written_bytes: 0,
        latency_us: None,
    };
    let mut record = Record::default();
    for step in 0..20 {
        let mut status = status(step);
        let there = if step == 19 {
            count.saturating_sub(1)
        } else {
            count
        };
        let there = if step < 10 { 0 } else { there };
        status.tiers = (0..there).map(|number| tier(number, step)).collect();
        record.note(&status, step as f64);
    }
    let tiers: Vec<Value> = (0..count)
        .map(|number| {
            json!({"name": format!("tier-{number}"), "areas": 2, "priority_min": 1, "priority_max": 1 + number,
                   "size_bytes": 1_u64 << 30, "used_bytes": 8192, "latency_us": 81.25,
                   "read_bytes": 40960, "written_bytes": 4096 * 15_000})
        })
        .collect();
    let report = json!({"wall_seconds": 10.0, "tiers": tiers});
    Page {
        heading: &heading(),
        began: "2026-11-25T17:19:47Z",
        ending: "exited with status 0",
        of: Circumstances::default(),
        status: Some(&status(20)),
        report: &report,
        record: Some(&record),
    }
    .html()
}

/// Is every element closed where it should be? Elements that have no end are left out.
fn assert_well_formed(page: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().expect("it ends");
        let name = tag
            .split([' ', '/'])
            .find(|word| !word.is_empty())
            .expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !VOID.contains(&name) && !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn no_name_of_anything_gets_through_as_markup() {
    let record = record(20);
    let page = page(Some(&record), Some(&status(20)));
    assert_well_formed(&page);
    for hostile in ["<script", "<img", "\u{1b}", "&amp;&amp;"] {
        assert!(!page.contains(hostile), "{hostile}: {page}");
    }
    // The title, the heading, the process, its map twice, the area, the group and one without an agent twice.
    assert_eq!(page.matches("&lt;script&gt;").count(), 9);
    assert!(placeholder(&heading(), "words").contains("&lt;script&gt;"));
}

#[test]
fn a_page_needs_nothing_from_elsewhere() {
    let record = record(20);
    let page = page(Some(&record), Some(&status(20)));
    let namespace = "http://www.w3.org/2000/svg";
    let page = page.replace(namespace, "");
    for word in ["http:", "https:", "src=", "@import", "url("] {
        assert!(
            !page
                .replace("onerror", "")
                .replace("src=x", "")
                .contains(word),
            "{word}"
        );
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn everything_that_was_seen_is_there() {
    let record = record(20);
    let page = page(Some(&record), Some(&status(20)));
    for title in [
        "What was where",
        "What counts against the limit",
        "Moved by the second",
        "Faults by the second",
        "How long faults took",
        "Time lost to paging",
        "Events",
        "Memory by age",
        "Processes",
        "Swap areas",
        "Groups",
        "All figures at the end",
    ] {
        assert!(page.contains(title), "{title}");
    }
    assert_eq!(
        page.matches("role=\"img\"").count(),
        7,
        "six plots and a map"
    );
    assert!(page.contains("<data value=\"1234\">1234</data>"));
    assert!(page.contains("4096 (4 KiB)") && page.contains("pressure.full.avg10"));
    assert!(page.contains("memory became short"));
    // 200 pages in a tenth of a second.
    assert!(page.contains("out: highest 7.81 MiB/s"), "{page}");
    assert!(page.contains("half: highest 20 us"));
    assert!(page.contains("some: highest 50 %"));
}

#[test]
fn tiers_have_a_plot_and_a_table_where_there_are_several() {
    let page = page_with_tiers(2);
    assert_well_formed(&page);
    // By the words and figures alone, without colours and dashes.
    for words in [
        "What was in which tier",
        "the pool: highest 7.42 MiB at 19 s, last 7.42 MiB",
        "tier-0: highest 19 MiB at 19 s, last 19 MiB",
        // It was gone at the last look.
        "tier-1: highest 36 MiB at 18 s, last 36 MiB",
        "<th class=\"name\" scope=\"row\"><bdi>tier-1</bdi></th><td>2</td><td>1..2</td><td>1 GiB</td>\
         <td>8 KiB</td><td>1.5k</td><td>1</td><td>81.2 us</td>",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert_eq!(page.matches("role=\"img\"").count(), 7, "seven plots");
    for count in [0, 1] {
        let page = page_with_tiers(count);
        assert!(!page.contains("tier"), "{page}");
    }
}

#[test]
fn as_many_tiers_as_there_can_be_share_the_lines() {
    // Three have lines of their own beside the pool; the other five are one line together.
    let page = page_with_tiers(8);
    assert_well_formed(&page);
    assert!(page.contains("tier-2: highest 57 MiB"), "{page}");
    assert!(!page.contains("tier-3: highest"), "{page}");
    assert!(
        page.contains("other tiers: highest 540 MiB at 18 s, last 418 MiB"),
        "{page}"
    );
    let all = page_with_tiers(4);
    assert!(
        all.contains("tier-3: highest 72 MiB") && !all.contains("other tiers"),
        "{all}"
    );
}

#[test]
fn a_run_that_ended_at_once_has_a_page_without_plots() {
    for samples in [0, 1] {
        let record = record(samples);
        let page = page(Some(&record), Some(&Status::default()));
        assert_well_formed(&page);
        assert!(page.contains("id=\"no-plots\""), "{page}");
        assert!(page.contains("nothing was ever evicted") && page.contains("exited with status 0"));
    }
}

#[test]
fn what_is_missing_is_said() {
    let without_record = page(None, Some(&Status::default()));
    assert_well_formed(&without_record);
    assert!(without_record.contains("no thread for looks"));
    let record = record(3);
    let without_figures = page(Some(&record), None);
    assert!(without_figures.contains("the daemon has ended before the run"));
}

#[test]
fn the_largest_page_is_not_too_large() {
    let record = record(2000);
    assert!(record.samples.items().len() <= crate::record::SAMPLES_MAX);
    let page = page(Some(&record), Some(&status(2000)));
    assert_well_formed(&page);
    assert!(page.len() < 1 << 20, "{}", page.len());
}
