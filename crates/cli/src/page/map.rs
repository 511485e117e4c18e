//! Maps of the memory of processes: addresses from top to bottom, time from left to right, and in each place what most
//! of the block was at that time, by how long ago it was in use. The same with letters, and as a table.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use vswap_pager::memory_map::{AGES, Block};

use crate::output::figures::{PAGE_BYTES, bytes};
use crate::output::tables::printable;
use crate::page::chart::{patch, thin, time};
use crate::page::style::{INK, NOTHING};
use crate::record::maps::{AGE_ENDS_S, Maps};

/// Width, height of a row, and room for the axes, in pixels.
const WIDTH: u32 = 860;
const ROW_PX: u32 = 7;
const LEFT_PX: u32 = 130;
const BELOW_PX: u32 = 30;
const ABOVE_PX: u32 = 8;
const LABEL_PX: u32 = 13;
/// Every so many-th row is labelled, with the address where it begins.
const ROWS_BY_LABEL: usize = 4;

/// What most of a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    letter: char,
    color: RGBColor,
    words: &'static str,
}

/// From what was used last to what was used longest ago. The colours are those of viridis, which get darker in that
/// order and can be told apart without seeing colours.
const KINDS: [Kind; 2 + AGES] = [
    kind(
        'H',
        (253, 231, 37),
        "in memory, and back early the last time",
    ),
    kind('M', (122, 209, 81), "in memory"),
    kind('1', (34, 168, 132), "out for less than 10 s"),
    kind('2', (42, 120, 142), "out for less than 1 min"),
    kind('3', (65, 68, 135), "out for less than 10 min"),
    kind('4', (68, 1, 84), "out for longer"),
];
const _: () = assert!(AGE_ENDS_S[0] == 10 && AGE_ENDS_S[1] == 60 && AGE_ENDS_S[2] == 600);
const EMPTY: char = '.';

type Rows = BTreeSet<u64>;

const fn kind(letter: char, color: (u8, u8, u8), words: &'static str) -> Kind {
    Kind {
        letter,
        color: RGBColor(color.0, color.1, color.2),
        words,
    }
}

/// A map of each process that was looked at.
pub fn maps(maps: &Maps) -> Markup {
    html! {
        h2 id="maps" { "Memory by age" }
        @if maps.looks().is_empty() {
            p { "There is no map: memory was not short for long enough, or the processes had hardly any." }
        } @else {
            p { "Addresses go from top to bottom in blocks of " (bytes(maps.block_pages() * PAGE_BYTES))
                ", addresses without memory left out; time from left to right. Each place says what most of the block \
                 was. Only memory that vswap watches is in it. When a page in memory was last used nobody knows, \
                 unless it was out and came back." }
            ul.key { @for kind in KINDS { li { (patch(kind.color)) " " (kind.letter) ": " (kind.words) } } }
            @for (pid, name) in maps.names() { (of_process(maps, *pid, name)) }
        }
        @if maps.given_up() > 0 {
            p.bad { (maps.given_up()) " looks took too long and were given up." }
        }
    }
}

fn of_process(maps: &Maps, pid: u32, name: &str) -> Markup {
    let looks = looks_at(maps, pid);
    let rows = maps.rows(pid);
    let title = format!("Process {pid} ({})", printable(name));
    html! {
        section {
            h3 { bdi { (title) } }
            figure {
                @match svg(&looks, &rows, maps.block_pages()) {
                    Ok(svg) => div role="img" aria-label=(format!("Map: process {pid}")) { (PreEscaped(svg)) },
                    Err(error) => p.bad { "No map: " (error) },
                }
            }
            details {
                summary { "The same with letters" }
                div.scroll { pre { (letters(&looks, &rows, maps.block_pages())) } }
            }
            details {
                summary { "The whole process as a table" }
                (table(&looks, &title))
            }
        }
    }
}

type Seen<'a> = (f64, &'a BTreeMap<u64, Block>);

fn looks_at(maps: &Maps, pid: u32) -> Vec<Seen<'_>> {
    let looks = maps.looks().iter();
    looks
        .filter_map(|look| Some((look.seconds, look.blocks.get(&pid)?)))
        .collect()
}

/// Pages of each kind.
fn pages(block: &Block) -> [u32; 2 + AGES] {
    let hot = block.hot.min(block.resident);
    let [youngest, young, old, oldest] = block.out;
    [hot, block.resident - hot, youngest, young, old, oldest]
}

/// What most of a block is. Of equals it is what was used last.
fn most(block: &Block) -> Option<Kind> {
    let counted = pages(block).into_iter().zip(KINDS);
    let most = counted.reduce(|most, other| if other.0 > most.0 { other } else { most });
    most.filter(|(pages, _)| *pages > 0).map(|(_, kind)| kind)
}

fn svg(
    looks: &[Seen<'_>],
    rows: &Rows,
    block_pages: u64,
) -> Result<String, Box<dyn std::error::Error>> {
    let places: Vec<u64> = rows.iter().copied().collect();
    let count = u32::try_from(places.len())?.max(1);
    let height = count * ROW_PX + ABOVE_PX + BELOW_PX;
    // Each look counts until the next one; the last one as long as the one before.
    let mut bounds: Vec<f64> = looks.iter().map(|(seconds, _)| *seconds).collect();
    let last = bounds.last().copied().unwrap_or_default();
    let before = bounds.iter().rev().nth(1).copied();
    bounds.push(before.map_or(last + 1.0, |before| 2.0 * last - before));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height.max(60))).into_drawing_area();
        let (first, end) = (bounds[0], bounds[bounds.len() - 1]);
        let mut axes = ChartBuilder::on(&root)
            .margin_top(ABOVE_PX)
            .margin_right(8)
            .x_label_area_size(BELOW_PX)
            .y_label_area_size(LEFT_PX)
            .build_cartesian_2d(first..end.max(first + f64::MIN_POSITIVE), count..0)?;
        axes.plotting_area().fill(&NOTHING)?;
        axes.configure_mesh()
            .disable_mesh()
            .axis_style(INK)
            .x_labels(8)
            .x_label_formatter(&|at| time(*at))
            .y_labels(places.len().div_ceil(ROWS_BY_LABEL) + 1)
            .y_label_formatter(&|row| {
                let place = usize::try_from(*row).ok().and_then(|row| places.get(row));
                place.map_or_else(String::new, |place| address(*place, block_pages))
            })
            .label_style(("sans-serif", LABEL_PX).into_font().color(&INK))
            .draw()?;
        for (place, row) in places.iter().zip(0..) {
            for (from, until, kind) in stretches(looks, &bounds, *place) {
                let corners = [(from, row), (until, row + 1)];
                axes.draw_series([Rectangle::new(corners, kind.color.filled())])?;
            }
        }
        root.present()?;
    }
    Ok(svg)
}

/// Times in which most of a block was the same.
fn stretches(looks: &[Seen<'_>], bounds: &[f64], place: u64) -> Vec<(f64, f64, Kind)> {
    let mut found: Vec<(f64, f64, Kind)> = Vec::new();
    for ((_, blocks), bounds) in looks.iter().zip(bounds.windows(2)) {
        let Some(kind) = blocks.get(&place).and_then(most) else {
            continue;
        };
        match found.last_mut() {
            Some((_, until, last)) if *until == bounds[0] && *last == kind => *until = bounds[1],
            _ => found.push((bounds[0], bounds[1], kind)),
        }
    }
    found
}

fn address(place: u64, block_pages: u64) -> String {
    format!(
        "{:#x}",
        place.saturating_mul(block_pages).saturating_mul(PAGE_BYTES)
    )
}

fn letters(looks: &[Seen<'_>], rows: &Rows, block_pages: u64) -> String {
    let mut text = String::new();
    for place in rows {
        let letters = looks.iter().map(|(_, blocks)| {
            let kind = blocks.get(place).and_then(most);
            kind.map_or(EMPTY, |kind| kind.letter)
        });
        let letters: String = letters.collect();
        text += &format!("{:>18} {letters}\n", address(*place, block_pages));
    }
    text
}

fn table(looks: &[Seen<'_>], title: &str) -> Markup {
    let cells = |blocks: &BTreeMap<u64, Block>| {
        let mut all = [0_u64; 2 + AGES];
        for block in blocks.values() {
            for (sum, pages) in all.iter_mut().zip(pages(block)) {
                *sum += u64::from(pages) * PAGE_BYTES;
            }
        }
        all
    };
    html! {
        div.scroll { table {
            caption { bdi { (title) } }
            thead { tr { th scope="col" { "time" } @for kind in KINDS { th scope="col" { (kind.words) } } } }
            tbody { @for (seconds, blocks) in thin(looks.len()).into_iter().filter_map(|row| looks.get(row)) { tr {
                th scope="row" { data value=(seconds) { (time(*seconds)) } }
                @for sum in cells(blocks) { td { data value=(sum) { (bytes(sum)) } } }
            } } }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(resident: u32, hot: u32, out: [u32; AGES]) -> Block {
        Block { resident, hot, out }
    }

    #[test]
    fn a_place_says_what_most_of_it_is() {
        let letter = |block| most(&block).map(|kind| kind.letter);
        assert_eq!(letter(block(0, 0, [0; 4])), None);
        assert_eq!(letter(block(10, 2, [0, 0, 9, 0])), Some('3'));
        assert_eq!(letter(block(10, 2, [1, 2, 3, 4])), Some('M'));
        assert_eq!(
            letter(block(10, 99, [9; 4])),
            Some('H'),
            "seen at different moments"
        );
        assert_eq!(letter(block(0, 0, [0, 0, 0, 1])), Some('4'));
    }

    #[test]
    fn what_stays_the_same_is_one_stretch() {
        let (old, new) = (block(0, 0, [0, 0, 0, 5]), block(5, 0, [0; 4]));
        let seen: Vec<BTreeMap<u64, Block>> = [Some(old), Some(old), None, Some(new)]
            .map(|block| block.map(|block| (7, block)).into_iter().collect())
            .into();
        let looks: Vec<Seen<'_>> = seen
            .iter()
            .zip([1.0, 2.0, 3.0, 4.0])
            .map(|(b, t)| (t, b))
            .collect();
        let found = stretches(&looks, &[1.0, 2.0, 3.0, 4.0, 5.0], 7);
        let found: Vec<(f64, f64, char)> = found
            .into_iter()
            .map(|(a, b, kind)| (a, b, kind.letter))
            .collect();
        assert_eq!(found, [(1.0, 3.0, '4'), (4.0, 5.0, 'M')]);
        let rows = [7].into();
        assert_eq!(letters(&looks, &rows, 512), "          0xe00000 44.M\n");
        let svg = svg(&looks, &rows, 512).expect("drawn");
        assert!(svg.contains("0xe00000"), "{svg}");
    }

    #[test]
    fn one_look_is_a_map_too() {
        let blocks = [(7, block(5, 0, [0; 4]))].into();
        assert!(svg(&[(1.0, &blocks)], &[7].into(), 512).is_ok());
    }
}
