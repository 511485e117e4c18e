//! `vswap status --watch` into a pipe: what it prints, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::pty::{INTERRUPT, SUSPEND, Terminal};
use crate::{Scratch, eventually, kill, output, text, wait};

/// A run, and `vswap status --watch` of it.
struct Watched {
    run: Child,
    status: Child,
    out: Option<BufReader<ChildStdout>>,
}

impl Watched {
    fn start(scratch: &Scratch, options: &[&str]) -> Watched {
        let run = scratch.sleeper();
        let pid = run.id().to_string();
        eventually("the run", || {
            let one = output(scratch.vswap().args(["status", "--run", &pid]));
            text(&one.stdout).contains("running").then_some(())
        });
        let mut status = Command::new(env!("CARGO_BIN_EXE_vswap"))
            .env("XDG_RUNTIME_DIR", scratch.path())
            .args(["status", "--run", &pid, "--watch", "0.1"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("vswap starts");
        let out = status.stdout.take().expect("a pipe");
        Watched {
            run,
            status,
            out: Some(BufReader::new(out)),
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.out.as_mut().expect("a reader");
        out.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn end_run(&mut self) {
        kill("TERM", self.run.id());
        wait(&mut self.run);
    }

    /// It has ended well and complained of nothing.
    fn must_have_ended(mut self) {
        let ended = wait(&mut self.status);
        let mut errors = String::new();
        let mut stderr = self.status.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut errors).expect("read");
        assert_eq!((ended.code(), errors.as_str()), (Some(0), ""));
    }
}

#[test]
fn blocks_have_the_time_and_rates_until_the_run_ends() {
    let scratch = Scratch::new();
    let mut watched = Watched::start(&scratch, &[]);
    for look in 0..3 {
        let time = watched.line();
        assert!(
            time.len() == 20 && time.ends_with('Z') && time.starts_with("20"),
            "{time}"
        );
        let heading = watched.line();
        for column in ["PID", "OUT/s", "IN/s", "FAULTS/s", "LOST"] {
            assert!(heading.contains(column), "{heading}");
        }
        let row = watched.line();
        assert!(row.contains("sleep 1000") && !row.contains('\x1b'), "{row}");
        // The first look has nothing to compare with.
        assert_eq!(row.contains(" % "), look > 0, "{row}");
        assert_eq!(watched.line(), "");
    }
    watched.end_run();
    let mut rest = String::new();
    let out = watched.out.as_mut().expect("a reader");
    out.read_to_string(&mut rest).expect("read");
    assert!(!rest.contains("no runs"), "{rest}");
    watched.must_have_ended();
}

#[test]
fn json_is_one_object_a_line() {
    let scratch = Scratch::new();
    let mut watched = Watched::start(&scratch, &["--json"]);
    let lines = [watched.line(), watched.line()];
    let looks = lines.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    assert_eq!(looks[0]["runs"][0]["rates"], Value::Null);
    assert_eq!(looks[1]["runs"][0]["rates"]["faults"], 0.0);
    assert_eq!(looks[1]["runs"][0]["pid"], watched.run.id());
    assert_eq!(looks[1]["time"].as_str().map(str::len), Some(20));
    watched.end_run();
    watched.must_have_ended();
}

#[test]
fn it_ends_at_a_signal() {
    let scratch = Scratch::new();
    for signal in ["INT", "TERM", "HUP"] {
        let mut watched = Watched::start(&scratch, &["--pressure"]);
        watched.line();
        kill(signal, watched.status.id());
        // The run is alive meanwhile.
        wait(&mut watched.status);
        watched.end_run();
        watched.must_have_ended();
    }
}

#[test]
fn it_ends_with_its_reader() {
    let scratch = Scratch::new();
    let mut watched = Watched::start(&scratch, &["--areas"]);
    watched.line();
    watched.out = None;
    wait(&mut watched.status);
    watched.end_run();
    watched.must_have_ended();
}

#[test]
fn what_is_not_there_cannot_be_watched() {
    let scratch = Scratch::new();
    for (options, words) in [
        (&["--watch", "0"][..], "for example: 2, 0.5"),
        (&["--watch", "soon"], "for example: 2, 0.5"),
        (&["--watch", "--run", "4294967295"], "no run of yours"),
        (&["--run", "4294967295"], "no run of yours"),
    ] {
        let refused = output(scratch.vswap().arg("status").args(options));
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{options:?}: {message}");
        assert!(message.contains(words), "{options:?}: {message}");
    }
}

#[test]
fn on_a_terminal_each_look_takes_the_place_of_the_last() {
    let mut terminal = Terminal::new();
    terminal.type_line(
        "stty rows 10 cols 60; $V sleep 1000 2>/dev/null & V=$V; sleep 0.5; echo star''ted",
    );
    terminal.expect("started");
    terminal.type_line("TERM=xterm $S status --run $! --watch 0.1; echo sta''tus $?");
    terminal.expect("\x1b[H\x1b[2Jvswap status, every 0.1 s");
    terminal.expect("sleep 1000");
    terminal.expect("\x1b[J\x1b[H");
    let shown = terminal.shown();
    let frame = shown.rsplit("\x1b[2J").next().unwrap_or_default();
    let line = frame
        .lines()
        .find(|line| line.contains("PID"))
        .expect("a heading");
    assert_eq!(
        line.trim_end().trim_end_matches("\x1b[K").chars().count(),
        60,
        "{line:?}"
    );
    terminal.type_keys(SUSPEND);
    terminal.expect("Stopped");
    terminal.type_line("fg");
    terminal.expect("\x1b[J");
    terminal.type_keys(INTERRUPT);
    terminal.type_line("echo sta''tus $?");
    terminal.expect("status 0");
    terminal.type_line("$S status --run $! --watch 0.1; echo sta''tus $?");
    terminal.expect("Z\r\n");
    terminal.type_line("");
    terminal.type_keys(INTERRUPT);
    terminal.expect("status 0");
}
