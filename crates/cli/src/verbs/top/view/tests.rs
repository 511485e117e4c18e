//! The view, drawn from two looks that were recorded: a run that swaps with two processes, one that fits, one that is
//! stopped and does not answer, and a daemon.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use crate::verbs::top::act::{Wish, act};
use crate::verbs::top::deeds::Deed;
use crate::verbs::top::input::Input;
use crate::verbs::top::look::{Look, Looker};
use crate::verbs::top::model::{Model, Page, Popup};
use crate::verbs::top::run::Tier;
use crate::verbs::top::view::{Palette, draw};
use crate::watching::rates::AreaRates;

/// The run that swaps, in the recording.
const SWAPS: u32 = 13177;

fn looks() -> Vec<Look> {
    let all: Vec<Vec<Value>> =
        serde_json::from_str(include_str!("recorded.json")).expect("reports");
    let mut looker = Looker::default();
    let began = Instant::now();
    all.iter()
        .zip(0_u32..)
        .map(|(reports, number)| Look {
            time: format!("2026-11-25T18:06:2{number}Z"),
            runs: looker.runs(reports, began + 2 * number * Duration::from_secs(1)),
        })
        .collect()
}

fn model() -> Model {
    let mut model = Model::default();
    let looks = looks();
    let last = looks.last().expect("a look").clone();
    // What went out and came back before, so that there is a history.
    for part in [0.1, 0.2, 0.0, 0.5, 1.0, 0.7, 0.3] {
        let mut before = last.clone();
        for rates in before.runs.iter_mut().flat_map(|run| &mut run.rates) {
            rates.out_bytes *= part;
            rates.in_bytes *= 1.0 - part;
        }
        model.renew(before);
    }
    model.renew(last);
    model
}

fn terminal(model: &Model, size: (u16, u16), has_colours: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a backend");
    let drawn = terminal.draw(|frame| draw(frame, model, Palette::new(has_colours)));
    drawn.expect("drawn");
    terminal
}

/// The lines of the screen, without the blanks at their ends.
fn shown(model: &Model, size: (u16, u16)) -> String {
    let terminal = terminal(model, size, false);
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(size.0.into());
    let lines = rows.map(|row| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

fn press(model: &mut Model, inputs: &[Input]) -> Option<Wish> {
    let wishes: Vec<Option<Wish>> = inputs.iter().map(|input| act(model, *input)).collect();
    wishes.into_iter().next_back().flatten()
}

fn typed(text: &str) -> Vec<Input> {
    text.chars().map(Input::Letter).collect()
}

#[track_caller]
fn must_show(model: &Model, size: (u16, u16), expected: &str) {
    let shown = shown(model, size);
    assert_eq!(shown, expected, "it shows:\n{shown}");
}

#[test]
fn eighty_by_twenty_four() {
    must_show(&model(), (80, 24), include_str!("shown/80x24.txt"));
}

#[test]
fn a_wide_terminal_has_more_columns() {
    must_show(&model(), (120, 40), include_str!("shown/120x40.txt"));
}

#[test]
fn a_small_terminal_has_less() {
    must_show(&model(), (40, 10), include_str!("shown/40x10.txt"));
}

#[test]
fn too_small_a_terminal_is_told_so() {
    for size in [(39, 24), (80, 9), (1, 1)] {
        let shown = shown(&model(), size);
        assert!(
            "too small".starts_with(shown.trim().get(..9).unwrap_or(shown.trim())),
            "{shown}"
        );
    }
}

#[test]
fn a_run_opens_into_its_processes() {
    let mut model = model();
    choose(&mut model, SWAPS);
    press(&mut model, &[Input::Enter]);
    assert_eq!(model.page, Page::Processes(SWAPS));
    must_show(&model, (80, 24), include_str!("shown/processes.txt"));
    press(&mut model, &[Input::Back]);
    assert_eq!(model.page, Page::Runs);
}

/// Goes down to a run.
fn choose(model: &mut Model, pid: u32) {
    press(model, &[Input::Step(isize::MIN)]);
    while model.run().map(|run| run.pid) != Some(pid) {
        press(model, &[Input::Step(1)]);
    }
}

/// A model in which the run that swaps has tiers with these names, each half as large as the one before.
fn with_tiers(names: &[&str]) -> Model {
    let mut model = model();
    choose(&mut model, SWAPS);
    let mut last = looks().pop().expect("a look");
    let run = last.runs.iter_mut().find(|run| run.pid == SWAPS);
    let tiers = names.iter().zip(0_u32..).map(|(name, number)| Tier {
        name: (*name).to_owned(),
        size_bytes: (64 << 30) >> number,
        used_bytes: (3 << 30) >> number,
        latency_us: (number > 0).then(|| 8.25 * 40_f64.powf(f64::from(number))),
        rates: (number != 2).then_some(AreaRates {
            read_bytes: 4096.0 * f64::from(number),
            written_bytes: 4096.0 * 1500.0,
        }),
    });
    run.expect("the run").tiers = tiers.collect();
    model.renew(last);
    model
}

#[test]
fn tiers_have_a_table_from_the_second_on() {
    let model = with_tiers(&["fast", "ssd", "far-away_in-another_rack"]);
    must_show(&model, (80, 24), include_str!("shown/tiers.txt"));
    let one = shown(&with_tiers(&["default"]), (80, 24));
    assert_eq!(one, shown(&with_tiers(&[]), (80, 24)));
    assert!(!one.contains("LATENCY"), "{one}");
}

#[test]
fn of_many_tiers_as_many_are_shown_as_leave_the_list_its_room() {
    let names: Vec<String> = (0..8).map(|number| format!("tier-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let model = with_tiers(&names);
    for (size, label, count) in [
        ((80, 24), "6 of 8 ", 6),
        ((80, 20), "2 of 8 ", 2),
        ((80, 40), "tiers ", 8),
        ((40, 24), "6 of 8 ", 6),
    ] {
        let shown = shown(&model, size);
        let heading = shown.lines().find(|line| line.contains("LATENCY"));
        assert!(heading.is_some_and(|line| line.contains(label)), "{shown}");
        assert_eq!(shown.matches("tier-").count(), count, "{shown}");
        // All runs and the strips are still there, and no figure is cut off.
        assert_eq!(shown.matches(" python3").count(), 3, "{shown}");
        assert!(shown.contains("│in "), "{shown}");
        assert!(
            shown.contains("330 us│") || shown.contains("330 us "),
            "{shown}"
        );
        assert_eq!(shown.contains("SIZE"), size.0 == 80, "{shown}");
    }
    assert!(!shown(&model, (80, 19)).contains("LATENCY"));
}

#[test]
fn tiers_come_from_reports_with_what_has_moved_since_the_look_before() {
    let report = |seconds: f64, pages: u64| {
        json!([{"pid": 1}, {"pid": 7, "wall_seconds": seconds, "tiers": [
            {"name": "fast\u{1b}[2J", "size_bytes": 8192, "used_bytes": 4096, "latency_us": 81.25,
             "read_bytes": 4096 * pages, "written_bytes": 8192 * pages},
            {"name": "slow", "latency_us": null}]}])
    };
    let mut looker = Looker::default();
    let mut look = |report: &Value| {
        let reports = report.as_array().expect("reports");
        let mut runs = looker.runs(reports, Instant::now());
        runs.pop().expect("a run").tiers
    };
    let first = look(&report(10.0, 100));
    assert_eq!(first.len(), 2);
    assert!(!first[0].name.contains('\u{1b}'), "{}", first[0].name);
    assert_eq!((first[0].size_bytes, first[0].used_bytes), (8192, 4096));
    assert_eq!(
        (first[0].latency_us, first[1].latency_us),
        (Some(81.25), None)
    );
    assert_eq!(first[0].rates, None, "nothing to compare with");
    let second = look(&report(12.0, 300));
    let rates = AreaRates {
        read_bytes: 100.0 * 4096.0,
        written_bytes: 200.0 * 4096.0,
    };
    assert_eq!(second[0].rates, Some(rates));
    assert_eq!(second[1].rates.map(|rates| rates.read_bytes), Some(0.0));
}

#[test]
fn lists_are_sorted_and_narrowed() {
    let mut model = model();
    let first = |model: &Model| model.runs.lines(model.all())[0].pid;
    assert_eq!(first(&model), 13178, "by resident memory");
    press(&mut model, &[Input::Sort]);
    assert_eq!(first(&model), SWAPS, "by what goes out");
    press(&mut model, &[Input::Reverse]);
    assert_ne!(first(&model), SWAPS);
    press(&mut model, &[Input::Filter]);
    press(&mut model, &typed("LOAD.py 80"));
    assert!(shown(&model, (80, 24)).contains("filter: LOAD.py 80_"));
    press(&mut model, &[Input::Enter]);
    let shown = shown(&model, (80, 24));
    assert!(
        shown.contains("13178 python3") && !shown.contains("13177"),
        "{shown}"
    );
    press(
        &mut model,
        &[Input::Filter, Input::Letter('x'), Input::Back],
    );
    assert_eq!(model.filter(), "LOAD.py 80");
    press(&mut model, &[Input::Back]);
    assert_eq!(model.filter(), "");
}

#[test]
fn the_choice_stays_with_its_run() {
    let mut model = model();
    choose(&mut model, SWAPS);
    press(&mut model, &[Input::Sort, Input::Reverse]);
    assert_eq!(model.run().map(|run| run.pid), Some(SWAPS));
    let mut last = looks().pop().expect("a look");
    last.runs.retain(|run| run.pid != SWAPS);
    press(&mut model, &[Input::Enter]);
    model.renew(last);
    assert_eq!(model.page, Page::Runs);
    assert!(shown(&model, (80, 24)).contains("run 13177 has ended"));
}

#[test]
fn frozen_is_frozen() {
    let mut model = model();
    press(&mut model, &[Input::Freeze]);
    model.renew(Look::default());
    let frozen = shown(&model, (80, 24));
    assert!(
        frozen.contains("FROZEN") && frozen.contains("4 runs"),
        "{frozen}"
    );
    press(&mut model, &[Input::Freeze]);
    model.renew(Look::default());
    assert!(shown(&model, (80, 24)).contains("no runs"));
}

#[test]
fn a_limit_is_asked_for_and_asked_about() {
    let mut model = model();
    choose(&mut model, SWAPS);
    press(&mut model, &[Input::Limit]);
    press(&mut model, &typed("1M"));
    press(&mut model, &[Input::Enter]);
    let wrong = shown(&model, (80, 24));
    assert!(wrong.contains("at least 16 MiB"), "{wrong}");
    press(&mut model, &[Input::Erase]);
    press(&mut model, &typed("28M"));
    press(&mut model, &[Input::Enter]);
    let question = shown(&model, (80, 24));
    assert!(question.contains("use 128 MiB"), "{question}");
    assert!(
        press(&mut model, &[Input::Enter, Input::Step(1)]).is_none(),
        "only y is yes"
    );
    let wish = press(&mut model, &[Input::Letter('y')]);
    let is_limit = matches!(&wish, Some(Wish::Do(Deed::Limit { run: SWAPS, ram })) if ram.most_bytes == 128 << 20);
    assert!(is_limit, "{wish:?}");
    assert_eq!(model.popup, None);
}

#[test]
fn nothing_is_ended_without_a_question() {
    let mut model = model();
    choose(&mut model, SWAPS);
    for (input, words) in [
        (Input::End, "End run 13177"),
        (Input::Kill, "Kill run 13177"),
    ] {
        press(&mut model, &[input]);
        assert!(shown(&model, (80, 24)).contains(words));
        assert!(press(&mut model, &[Input::Letter('n')]).is_none());
        assert!(shown(&model, (80, 24)).contains("nothing was done"));
    }
    press(&mut model, &[Input::Enter, Input::End]);
    assert!(shown(&model, (80, 24)).contains("Send SIGTERM to process 13"));
    let wish = press(&mut model, &[Input::Letter('y')]);
    assert!(
        matches!(wish, Some(Wish::Do(Deed::Signal { .. }))),
        "{wish:?}"
    );
    press(&mut model, &[Input::Back]);
    choose(&mut model, 13100);
    press(&mut model, &[Input::Limit]);
    assert!(shown(&model, (80, 24)).contains("the daemon has no limit"));
    press(&mut model, &[Input::End]);
    assert!(shown(&model, (80, 24)).contains("End the daemon 13100?"));
}

#[test]
fn a_run_is_parked_after_a_question_and_woken_without() {
    let mut model = model();
    choose(&mut model, SWAPS);
    press(&mut model, &[Input::Park]);
    let question = shown(&model, (80, 24));
    assert!(question.contains("Park run 13177"), "{question}");
    assert!(press(&mut model, &[Input::Letter('n')]).is_none());
    // Also on the page of its processes it is about the run.
    press(&mut model, &[Input::Enter, Input::Park]);
    let parks = press(&mut model, &[Input::Letter('y')]);
    assert_eq!(parks, Some(Wish::Do(Deed::Park { run: SWAPS })));
    let wakes = press(&mut model, &[Input::Wake]);
    assert_eq!(wakes, Some(Wish::Do(Deed::Wake { run: SWAPS })));
}

#[test]
fn what_cannot_be_parked_is_refused_with_words() {
    let mut model = model();
    let mut last = looks().pop().expect("a look");
    for run in last.runs.iter_mut().filter(|run| run.pid == SWAPS) {
        "parked".clone_into(&mut run.state);
    }
    model.renew(last);
    for (pid, words) in [
        (SWAPS, "run 13177 is parked already: w lets it go on"),
        (13179, "does not answer"),
        (13100, "the daemon cannot be parked"),
    ] {
        choose(&mut model, pid);
        press(&mut model, &[Input::Park]);
        let shown = shown(&model, (80, 24));
        assert!(shown.contains(words), "{shown}");
        assert_eq!(model.popup, None);
    }
    assert!(press(&mut model, &[Input::Wake]).is_none());
    assert!(shown(&model, (80, 24)).contains("the daemon is never parked"));
}

#[test]
fn help_fits_also_where_there_is_little_room() {
    let mut model = model();
    press(&mut model, &[Input::Help]);
    for size in [(80, 24), (40, 10)] {
        let shown = shown(&model, size);
        assert!(shown.contains("Help: any key goes back"), "{shown}");
    }
    press(&mut model, &[Input::Sort]);
    assert_eq!(model.popup, None);
}

#[test]
fn every_size_can_be_drawn() {
    let mut open = model();
    press(&mut open, &[Input::Enter]);
    let tiers = with_tiers(&["fast", "ssd", "far", "farther"]);
    let mut asked = open.clone();
    press(&mut asked, &[Input::End]);
    assert!(matches!(asked.popup, Some(Popup::Sure(..))));
    for columns in (1..200).step_by(13) {
        for rows in (1..60).step_by(5) {
            for model in [&Model::default(), &open, &asked, &tiers] {
                shown(model, (columns, rows));
            }
        }
    }
}

#[test]
fn without_colours_there_are_none() {
    let colours = |has_colours| {
        let terminal = terminal(&model(), (80, 24), has_colours);
        let cells = terminal.backend().buffer().content().to_vec();
        cells.iter().filter(|cell| cell.fg != Color::Reset).count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 0);
    // What is chosen shows all the same.
    let terminal = terminal(&model(), (80, 24), false);
    let reversed = terminal.backend().buffer()[(0, 2)].modifier;
    assert!(reversed.contains(Modifier::REVERSED));
}
