//! Wrong arguments: the message says what was wrong and what was expected, and the exit status is 125.

use crate::{Scratch, output, text};

/// Status and standard error of a call that must not start anything.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let scratch = Scratch::new();
    let output = output(scratch.vswap().args(arguments));
    assert_eq!(text(&output.stdout), "");
    assert!(
        scratch.names().is_empty(),
        "{arguments:?} left {:?}",
        scratch.names()
    );
    (output.status.code(), text(&output.stderr))
}

#[test]
fn sizes_are_explained() {
    for (size, expected) in [
        ("5X", "\"X\" is no unit of size"),
        ("1M", "a run needs at least 16 MiB"),
        ("512", "a number without a unit is in bytes"),
        ("200%", "between 0% and 100%"),
        ("much", "for example: 512M, 1.5GiB, 50%, auto"),
    ] {
        let (status, message) = refused(&["run", "--ram", size, "--", "true"]);
        assert_eq!(status, Some(125), "{size}");
        assert!(message.contains(expected), "{size}: {message}");
        assert!(!message.contains("panicked"), "{message}");
    }
}

#[test]
fn missing_parts_are_named() {
    for (arguments, expected) in [
        (&["run", "--", "true"][..], "--ram"),
        (&["run", "--ram", "64M"][..], "<CMD>"),
        (
            &["run", "--ram", "64M", "--codec", "rar", "--", "true"][..],
            "lz4, zstd, none",
        ),
        (
            &["run", "--ram", "64M", "--codec", "zstd:0", "--", "true"][..],
            "'0' is no level of zstd: expected a whole number from -7 to -1 or from 1 to 19",
        ),
        (&["swim"][..], "swim"),
        (&["run", "--quite", "--", "true"][..], "'--quiet'"),
        (
            &["run", "--rma", "64M", "--", "true"][..],
            "exists: '--ram'",
        ),
        (&["run", "--rma=64M", "--", "true"][..], "exists: '--ram'"),
        (&["attach", "--rma", "64M", "1"][..], "exists: '--ram'"),
        (&["swapoff", "--lal"][..], "exists: '--all'"),
        (
            &["advise", "--quiet", "--", "true"][..],
            "--json or --report",
        ),
        (
            &["advise", "--report", "/nonexistent/a.html", "--", "true"][..],
            "cannot write the report to /nonexistent/a.html",
        ),
        (&["run", "--zzz", "--", "true"][..], "'--zzz'"),
        (
            &["run", "--ram", "64M", "--siwap", "--", "true"][..],
            "'--swap'",
        ),
        (&[][..], "Usage"),
    ] {
        let (status, message) = refused(arguments);
        assert_eq!(status, Some(125), "{arguments:?}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

/// The tip how to pass it on to nobody is left out where the option was meant for vswap.
#[test]
fn an_option_that_is_nearly_one_gets_one_tip() {
    for wrong in ["--rma", "--swp"] {
        let (_, message) = refused(&["run", wrong, "64M", "--", "true"]);
        assert_eq!(message.matches("tip:").count(), 1, "{message}");
    }
    let (_, message) = refused(&["run", "--zzz", "--", "true"]);
    assert!(!message.contains("exists"), "{message}");
}

#[test]
fn a_summary_that_cannot_be_written_is_found_out_first() {
    let (status, message) = refused(&[
        "run",
        "--ram",
        "64M",
        "--summary",
        "/nonexistent/s.json",
        "--",
        "echo",
        "started",
    ]);
    assert_eq!(status, Some(125));
    assert!(message.contains("/nonexistent/s.json"), "{message}");
}

#[test]
fn an_area_that_cannot_hold_what_is_asked_is_said() {
    let scratch = Scratch::new();
    let swap = |area: String| {
        let area = ["run", "--ram", "64M", "--swap", &area, "--", "true"];
        let output = output(scratch.vswap().args(area));
        (output.status.code(), text(&output.stderr))
    };
    let (status, said) = swap(format!("{}:15T", scratch.path().display()));
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("may grow to 15 TiB, and only ") && said.contains("free there"),
        "{said}"
    );
    let (_, said) = swap(format!("{}:1M", scratch.path().display()));
    assert!(!said.contains("may grow"), "{said}");

    let empty = scratch.path().join("empty");
    std::fs::write(&empty, "").expect("an empty file");
    let (status, said) = swap(empty.display().to_string());
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("it is empty, and no swap area yet; do: vswap mkswap"),
        "{said}"
    );
    assert!(!said.contains("chmod"), "{said}");
}

#[test]
fn help_is_no_error_and_has_examples() {
    let scratch = Scratch::new();
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["help", "run"],
        &["mkswap", "--help"],
        &["doctor", "--help"],
        &["advise", "--help"],
        &["--version"],
    ] {
        let output = output(scratch.vswap().args(arguments));
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty());
    }
    let help = text(&output(scratch.vswap().args(["run", "--help"])).stdout);
    assert!(
        help.contains("vswap run --ram 512M -- redis-server"),
        "{help}"
    );
    assert!(
        help.contains("vswap run --ram <SIZE> [OPTIONS] -- <CMD> [ARG]..."),
        "{help}"
    );
    assert!(
        !help.contains("--debug"),
        "debugging options are hidden: {help}"
    );
}

#[test]
fn help_fits_a_screen_and_all_of_it_is_there() {
    const ROWS: usize = 50;
    const COLUMNS: usize = 100;
    let scratch = Scratch::new();
    let said = |words: &[&str]| text(&output(scratch.vswap().args(words)).stdout);
    let verbs = said(&["--help"]);
    let verbs = verbs
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1);
    let verbs = verbs.map_while(|line| line.split_whitespace().next());
    for verb in verbs.filter(|verb| *verb != "help") {
        let help = said(&[verb, "--help"]);
        assert_eq!(help, said(&[verb, "-h"]));
        let rows = |line: &str| line.chars().count().div_ceil(COLUMNS).max(1);
        let rows: usize = help.lines().map(rows).sum();
        assert!(rows <= ROWS, "{verb} has {rows} rows: {help}");
    }
    let all = said(&["help", "run"]);
    for option in ["--no-virtual", "--swap-max", "--far-copies", "--ram"] {
        assert!(all.contains(option), "{option}: {all}");
    }
    assert!(all.contains("When everything is full"), "{all}");
}

#[test]
fn options_after_the_command_belong_to_it() {
    let scratch = Scratch::new();
    let output = output(scratch.vswap().args([
        "run", "--ram", "64M", "--quiet", "echo", "--ram", "1", "--help",
    ]));
    assert_eq!(text(&output.stdout), "--ram 1 --help\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_run_inside_a_run_is_refused() {
    let scratch = Scratch::new();
    let inner = env!("CARGO_BIN_EXE_vswap");
    let output = output(
        scratch
            .run()
            .args([inner, "run", "--ram", "64M", "--", "echo", "inner"]),
    );
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("already running under vswap"));
}

#[test]
fn groups_are_named_and_limited_as_was_expected() {
    let run = |options: &[&str]| {
        let arguments = [&["run", "--ram", "64M"], options, &["--", "true"]].concat();
        refused(&arguments)
    };
    let long = "x".repeat(256);
    for (options, expected) in [
        (&["--group", ""][..], "empty part"),
        (&["--group", "a//b"][..], "empty part"),
        (&["--group", "/a"][..], "empty part"),
        (&["--group", "a/../b"][..], "a part \"..\""),
        (&["--group", "a\u{1b}[2J"][..], "control character"),
        (&["--group", &long][..], "256 bytes"),
        (&["--group", "a/b/c/d/e/f/g/h/i"][..], "9 parts"),
        (&["--swap-max", "1G"][..], "--group"),
        (&["--no-writeback"][..], "--group"),
        (&["--group", "a", "--swap-max", "50%"][..], "no unit"),
        (
            &["--group", "a", "--pool-max", "lots"][..],
            "expected a number",
        ),
    ] {
        let (status, message) = run(options);
        assert_eq!(status, Some(125), "{options:?}: {message}");
        assert!(message.contains(expected), "{options:?}: {message}");
        assert!(!message.contains("\u{1b}[2J"), "{message:?}");
    }
}
