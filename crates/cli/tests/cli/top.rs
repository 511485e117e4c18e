//! `vswap top` on a pseudo-terminal, with a real run.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::pty::{INTERRUPT, SUSPEND, Terminal};
use crate::terminal::session_leader;
use crate::{PATIENCE, eventually, kill, output, state};

const ESCAPE: &str = "\x1b";
const ENTER: &str = "\r";
/// Runs `vswap top` in a shell that does not mend the terminal, and says how the terminal is afterwards.
const TOP: &str = "sh -c 'sh -c \"echo \\$\\$ > $XDG_RUNTIME_DIR/top.pid; \
                   TERM=xterm exec $S top --every 0.2 $OPTIONS\"; \
                   echo en''ded $?; stty -a | grep -o \"[- ]icanon\"'";

/// Waits until some line of the screen has all of these words.
#[track_caller]
fn must_show(terminal: &Terminal, words: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let grid = terminal.grid();
        let has_all = |line: &String| words.iter().all(|word| line.contains(word));
        if grid.iter().any(has_all) {
            return;
        }
        let shown = grid.join("\n");
        assert!(Instant::now() < deadline, "no {words:?} on:\n{shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A run that a shell has started. It ends with the test, also with one that fails.
struct Run(u32);

impl Drop for Run {
    fn drop(&mut self) {
        let pid = self.0.to_string();
        let _ended = Command::new("kill").arg(pid).stderr(Stdio::null()).status();
    }
}

/// A terminal with a run in the background.
fn with_run() -> (Terminal, Run) {
    with_run_of("$V")
}

/// The same with a run that is started by this command.
fn with_run_of(command: &str) -> (Terminal, Run) {
    let mut terminal = Terminal::new();
    terminal.resize(24, 80);
    terminal.type_line(&format!(
        "{command} sleep 1000 2>/dev/null & echo $! > $XDG_RUNTIME_DIR/run.pid; echo star''ted"
    ));
    terminal.expect("started");
    let run = Run(pid(&terminal, "run.pid"));
    eventually("the run", || report(&terminal, run.0));
    (terminal, run)
}

/// A process id that a shell has written down.
fn pid(terminal: &Terminal, name: &str) -> u32 {
    eventually(name, || {
        let text = fs::read_to_string(terminal.scratch.path().join(name)).ok()?;
        text.trim().parse().ok()
    })
}

fn report(terminal: &Terminal, run: u32) -> Option<Value> {
    let run = run.to_string();
    let mut status = terminal.scratch.vswap();
    let output = output(status.args(["status", "--json", "--run", &run]));
    let reports: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
    reports
        .into_iter()
        .find(|report| report["limit_bytes"].is_u64())
}

/// Starts it and narrows it to the run: others may be alive on this machine.
fn open(terminal: &mut Terminal, run: u32) {
    terminal.type_line(TOP);
    let run = run.to_string();
    must_show(terminal, &[&run, "sleep 1000", "running"]);
    terminal.type_keys(&format!("/{run}"));
    must_show(terminal, &[&format!("filter: {run}_")]);
    terminal.type_keys(ENTER);
    must_show(terminal, &[&format!("/{run}")]);
}

#[test]
fn keys_drive_it() {
    let (mut terminal, run) = with_run();
    open(&mut terminal, run.0);
    must_show(&terminal, &["of 256 MiB: resident"]);
    terminal.type_keys("h");
    must_show(&terminal, &["Help"]);
    terminal.type_keys("x");
    must_show(&terminal, &["sleep 1000", "running"]);
    terminal.type_keys(ENTER);
    must_show(&terminal, &["sleep", "managed"]);
    terminal.type_keys(ESCAPE);
    must_show(&terminal, &["COMMAND", "OUT+IN"]);

    terminal.type_keys("l");
    must_show(&terminal, &["--ram _"]);
    terminal.type_keys("1x");
    terminal.type_keys(ENTER);
    must_show(&terminal, &["is no unit of size"]);
    terminal.type_keys("\x7f28M");
    terminal.type_keys(ENTER);
    must_show(&terminal, &["y yes"]);
    terminal.type_keys("y");
    must_show(&terminal, &["may use 128 MiB now"]);
    let limit = report(&terminal, run.0).map(|report| report["wanted_limit_bytes"].clone());
    assert_eq!(limit, Some((128 << 20).into()));

    terminal.resize(8, 30);
    must_show(&terminal, &["too small: 30x8"]);
    terminal.resize(24, 80);
    must_show(&terminal, &["sleep 1000", "running"]);

    terminal.type_keys("k");
    must_show(&terminal, &[&format!("End run {}", run.0)]);
    terminal.type_keys("n");
    must_show(&terminal, &["nothing was done"]);
    terminal.type_keys("k");
    must_show(&terminal, &["y yes"]);
    terminal.type_keys("y");
    eventually("the end of the run", || {
        report(&terminal, run.0).is_none().then_some(())
    });
    must_show(&terminal, &["no run"]);
    terminal.type_keys("q");
    terminal.expect("\x1b[?1049l");
    terminal.expect("ended 0");
    terminal.expect(" icanon");
}

#[test]
fn a_run_is_parked_and_woken() {
    let (mut terminal, run) = with_run();
    open(&mut terminal, run.0);
    let state = |terminal: &Terminal| report(terminal, run.0).map(|report| report["state"].clone());
    terminal.type_keys("w");
    must_show(&terminal, &["is not parked: there is nothing to wake"]);
    terminal.type_keys("p");
    must_show(&terminal, &["y yes"]);
    terminal.type_keys("y");
    must_show(
        &terminal,
        &[&format!("run {} is parked:", run.0), "left of"],
    );
    assert_eq!(state(&terminal), Some("parked".into()));
    must_show(&terminal, &["sleep 1000", "parked"]);
    terminal.type_keys("p");
    must_show(&terminal, &["is parked already: w lets it go on"]);
    terminal.type_keys("w");
    must_show(&terminal, &[&format!("run {} goes on", run.0)]);
    must_show(&terminal, &["sleep 1000", "running"]);
    terminal.type_keys("q");
    terminal.expect("ended 0");
}

#[test]
fn a_run_without_areas_is_not_parked() {
    let (mut terminal, run) = with_run_of("$S run --ram 256M --swap none");
    open(&mut terminal, run.0);
    terminal.type_keys("p");
    must_show(&terminal, &["y yes"]);
    terminal.type_keys("y");
    must_show(&terminal, &["goes on: it has no swap area"]);
    must_show(&terminal, &["sleep 1000", "running"]);
}

#[test]
fn the_terminal_is_given_back_at_a_signal() {
    let (mut terminal, run) = with_run();
    for (signal, status) in [
        ("TERM", "ended 143"),
        ("HUP", "ended 129"),
        ("INT", "ended 130"),
    ] {
        let _ = fs::remove_file(terminal.scratch.path().join("top.pid"));
        open(&mut terminal, run.0);
        kill(signal, pid(&terminal, "top.pid"));
        terminal.expect("\x1b[?25h");
        terminal.expect("\x1b[?1049l");
        terminal.expect(status);
        terminal.expect(" icanon");
    }
    open(&mut terminal, run.0);
    terminal.type_keys(INTERRUPT);
    terminal.expect("\x1b[?1049l");
    terminal.expect("ended 0");
}

#[test]
fn the_terminal_is_given_back_at_a_panic() {
    let (mut terminal, _run) = with_run();
    terminal.type_line(&format!("export OPTIONS=--debug-panic; {TOP}"));
    terminal.expect("\x1b[?1049h");
    terminal.expect("\x1b[?1049l");
    terminal.expect("--debug-panic");
    // By abort as it is installed, and with 101 where panics unwind.
    terminal.expect("ended 1");
    terminal.expect(" icanon");
}

#[test]
fn it_stops_and_goes_on() {
    let (mut terminal, run) = with_run();
    for _ in 0..2 {
        open(&mut terminal, run.0);
        let top = pid(&terminal, "top.pid");
        terminal.type_keys(SUSPEND);
        terminal.expect("\x1b[?1049l");
        terminal.expect("Stopped");
        assert_eq!(state(top), Some('T'));
        terminal.type_line("stty -a | grep -o '[- ]icanon'; echo in be''tween");
        terminal.expect(" icanon");
        terminal.expect("in between");
        terminal.type_line("fg");
        terminal.expect("\x1b[?1049h");
        must_show(&terminal, &["sleep 1000", "running"]);
        // Stopped from outside, with nobody who asks.
        kill("STOP", top);
        eventually("it has stopped", || (state(top) == Some('T')).then_some(()));
        kill("CONT", top);
        terminal.expect("\x1b[?1049h");
        must_show(&terminal, &["sleep 1000", "running"]);
        terminal.type_keys("q");
        terminal.expect("ended 0");
    }
}

#[test]
fn where_there_is_no_screen_it_says_what_there_is() {
    let mut terminal = Terminal::new();
    for command in [
        "TERM=xterm $S top | cat",
        "TERM=dumb $S top",
        "TERM=xterm $S top < /dev/null",
    ] {
        terminal.type_line(&format!("{command}; echo sta''tus ${{PIPESTATUS[0]}}"));
        terminal.expect("use `vswap status --watch`");
        terminal.expect("status 125");
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let (mut terminal, run) = with_run();
    open(&mut terminal, run.0);
    let top = pid(&terminal, "top.pid");
    // When the session's leader ends, the terminal hangs up.
    kill("KILL", session_leader(top));
    eventually("the end of it", || state(top).is_none().then_some(()));
}
