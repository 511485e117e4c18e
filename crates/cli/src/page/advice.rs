//! The page of `vswap advise --report`: the curve of time against RAM, and the sizes that follow from it.

use maud::{Markup, html};

use crate::advice::text::{option, percent, words};
use crate::advice::{Advice, Place, RATIOS};
use crate::page::chart::{Along, Chart, Scale, Series};
use crate::page::{Heading, document};

/// The highest ratio that is drawn: what is above is more than anybody would wait for.
const TOP: f64 = 3.0;
const MIB: f64 = (1 << 20) as f64;
const GIB: f64 = (1 << 30) as f64;
/// From here on the axis of RAM is in GiB.
const GIB_FROM: u64 = 8 << 30;

/// The page as HTML.
pub fn html(heading: &Heading, advice: &Advice) -> String {
    let body = html! {
        (heading.markup())
        p id="head" { (advice.head()) }
        (sizes(advice))
        (curve(&advice.curve).markup(&[]))
        (others(advice))
        @if !advice.doubts.is_empty() {
            h2 { "Why this may be wrong" }
            ul id="doubts" { @for doubt in &advice.doubts { li { (doubt) } } }
        }
        footer { "Made by vswap " (env!("CARGO_PKG_VERSION")) ". All figures are in what --json writes." }
    };
    document(&heading.title(), &body)
}

fn sizes(advice: &Advice) -> Markup {
    html! {
        table {
            caption { "How much memory it needs" }
            thead { tr { th.words scope="col" { "time" } th scope="col" { "--ram" }
                th scope="col" { "likely between" } } }
            tbody { @for size in &advice.sizes { tr {
                th scope="row" { (words(size)) }
                td { (option(size.ram_bytes)) }
                td { (option(size.low_bytes)) " and " (option(size.high_bytes)) }
            } } }
        }
    }
}

fn curve(places: &[Place]) -> Chart {
    let in_gib = places
        .last()
        .is_some_and(|place| place.ram_bytes >= GIB_FROM);
    let unit = if in_gib { GIB } else { MIB };
    let line = |name: &'static str, ratio: fn(&Place) -> Option<f64>| Series {
        name: name.into(),
        points: places
            .iter()
            .map(|place| {
                let ratio = ratio(place).filter(|ratio| *ratio <= TOP);
                (place.ram_bytes as f64 / unit, ratio)
            })
            .collect(),
    };
    Chart {
        id: "curve",
        title: "Time against RAM",
        note: "How many times as long the program takes with less --ram, as with all that it wants. It lies between \
               the two other lines 19 times of 20, as far as the samples go.",
        along: Along {
            name: "--ram",
            show: if in_gib {
                |size| format!("{size:.1} GiB")
            } else {
                |size| format!("{size:.0} MiB")
            },
        },
        scale: Scale::Within(1.0, TOP),
        show: |ratio| format!("{ratio:.2}x"),
        series: vec![
            line("likely", |place| place.ratio),
            line("at the least", |place| place.low),
            line("at the most", |place| place.high),
        ],
    }
}

/// What another codec, or an area in place of the pool, would do.
fn others(advice: &Advice) -> Markup {
    let row = |name: String, ram_bytes: [u64; RATIOS.len()]| {
        html! { tr { th scope="row" { (name) } @for bytes in ram_bytes { td { (option(bytes)) } } } }
    };
    html! {
        table {
            caption { "The least --ram with something else" }
            thead { tr { th.words scope="col" { "with" }
                @for ratio in RATIOS { th scope="col" { (percent(ratio)) } } } }
            tbody {
                @for codec in &advice.codecs {
                    (row(format!("--codec {} (pages to {:.0} %)", codec.codec, codec.packed * 100.0), codec.ram_bytes))
                }
                @for area in &advice.areas {
                    (row(format!("--pool off, an area of {:.0} us", area.latency_us), area.ram_bytes))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{AreaAdvice, CodecAdvice, Size};

    fn place(mib: u64, ratio: Option<f64>) -> Place {
        Place {
            ram_bytes: mib << 20,
            ratio,
            low: ratio.map(|ratio| (ratio - 0.1).max(1.0)),
            high: ratio.map(|ratio| ratio + 0.1),
            pages_in: 0,
            pages_out: 0,
        }
    }

    fn advice() -> Advice {
        Advice {
            wall_seconds: 12.0,
            limit_bytes: None,
            native_seconds: 11.5,
            peak_bytes: 200 << 20,
            watched_pages: 5000,
            one_in: 4,
            sizes: vec![Size {
                ratio: 1.05,
                ram_bytes: 100 << 20,
                low_bytes: 90 << 20,
                high_bytes: 110 << 20,
            }],
            curve: vec![
                place(50, None),
                place(75, Some(40.0)),
                place(100, Some(1.05)),
                place(200, Some(1.0)),
            ],
            codecs: vec![CodecAdvice {
                codec: "zstd",
                packed: 0.25,
                compress_us: 30.0,
                decompress_us: 5.0,
                ram_bytes: [80 << 20, 70 << 20, 60 << 20],
            }],
            areas: vec![AreaAdvice {
                latency_us: 100.0,
                ram_bytes: [180 << 20, 170 << 20, 160 << 20],
            }],
            doubts: vec!["the run took only <1 s".to_owned()],
        }
    }

    #[test]
    fn the_page_says_in_words_and_tables_what_the_curve_shows() {
        let command = ["<script>alert(1)</script>".to_owned()];
        let page = html(&Heading::new("advise", &command), &advice());
        assert!(!page.contains("<script>"), "{page}");
        for part in [
            "+5 % or less",
            "<td>100M</td>",
            "90M and 110M",
            "<svg",
            "--codec zstd (pages to 25 %)",
            "<td>80M</td>",
            "an area of 100 us",
            "<td>160M</td>",
            "the run took only &lt;1 s",
            // What takes 40 times as long is not drawn.
            "likely: highest 1.05x at 100 MiB, last 1.00x",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn a_run_that_was_joined_is_named_in_the_heading() {
        let command = ["redis-server".to_owned(), "--save".to_owned()];
        let heading = Heading::of_run("advise", &command, 4711);
        for page in [
            html(&heading, &advice()),
            crate::page::placeholder(&heading, "not yet"),
        ] {
            assert!(page.contains("<title>vswap advise: redis-server --save (run 4711)</title>"));
            assert!(page.contains("<bdi>redis-server --save (run 4711)</bdi>"));
        }
    }

    #[test]
    fn what_was_watched_is_said_in_sentences() {
        let joined = Advice {
            limit_bytes: Some(32 << 20),
            ..advice()
        };
        let head = joined.head();
        assert!(
            head.contains("watched for 12.0 s.\nWithout watching"),
            "{head}"
        );
        assert!(
            head.contains(
                "in RAM and in swap, was 200 MiB at the most.\nIts limit meanwhile was 32 MiB."
            ),
            "{head}"
        );
        assert!(
            head.lines().all(|line| line.chars().count() <= 80),
            "{head}"
        );
        let head = advice().head();
        assert!(
            head.starts_with("The program took 12.0 s") && !head.contains("limit"),
            "{head}"
        );
    }

    #[test]
    fn much_memory_is_shown_in_gib() {
        let places = [place(4 << 10, Some(1.5)), place(16 << 10, Some(1.0))];
        let page = curve(&places).markup(&[]).into_string();
        assert!(page.contains("highest 1.50x at 4.0 GiB"), "{page}");
    }

    #[test]
    fn a_curve_of_nothing_is_no_failure() {
        let page = curve(&[place(50, None)]).markup(&[]).into_string();
        assert!(page.contains("There was nothing of it."), "{page}");
    }
}
