//! The program gets and gives the same as without vswap: status, streams, environment, descriptors, signals.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::{Scratch, output, text, undisturbed};

#[test]
fn exit_status() {
    let scratch = Scratch::new();
    for status in [0, 1, 3, 125, 255] {
        let output = output(scratch.run().args(["sh", "-c", &format!("exit {status}")]));
        assert_eq!(output.status.code(), Some(status));
    }
}

#[test]
fn death_by_a_signal() {
    let scratch = Scratch::new();
    // Rust's runtime ignores SIGPIPE in vswap itself.
    for (name, number) in [
        ("KILL", 9),
        ("TERM", 15),
        ("SEGV", 11),
        ("PIPE", 13),
        ("RTMIN", 34),
    ] {
        let output = output(
            scratch
                .run()
                .args(["bash", "-c", &format!("kill -s {name} $$")]),
        );
        assert_eq!(output.status.signal(), Some(number), "{name}: {output:?}");
        assert!(
            !output.status.core_dumped(),
            "{name}: vswap left a core of its own"
        );
    }
}

#[test]
fn not_found_and_not_executable() {
    let scratch = Scratch::new();
    let plain = scratch.path().join("plain");
    std::fs::write(&plain, "text").expect("file");
    let missing_interpreter = scratch.script("orphan", "#!/nonexistent/interpreter\n");
    for (program, status, expected) in [
        ("vswap-no-such-program", 127, "command not found in PATH"),
        ("/nonexistent/program", 127, "no such file"),
        (plain.to_str().expect("path"), 126, "cannot be executed"),
        ("/tmp", 126, "is a directory"),
        (
            missing_interpreter.to_str().expect("path"),
            127,
            "/nonexistent/interpreter",
        ),
    ] {
        let output = output(scratch.run().arg(program));
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{program}: {message}");
        assert!(message.contains(expected), "{program}: {message}");
    }
}

#[test]
fn standard_streams() {
    let scratch = Scratch::new();
    let mut command = scratch.vswap();
    command.args([
        "run",
        "--ram",
        "256M",
        "--quiet",
        "--",
        "sh",
        "-c",
        "cat; echo problem >&2",
    ]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("vswap starts");
    child
        .stdin
        .take()
        .expect("stdin")
        .write_all(b"through and through")
        .expect("written");
    let output = child.wait_with_output().expect("output");
    assert_eq!(text(&output.stdout), "through and through");
    assert_eq!(text(&output.stderr), "problem\n", "--quiet adds nothing");
}

#[test]
fn summary_line_is_last_on_standard_error() {
    let scratch = Scratch::new();
    let output = output(scratch.run().args(["sh", "-c", "echo first >&2; echo out"]));
    assert_eq!(text(&output.stdout), "out\n");
    let message = text(&output.stderr);
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines.len(), 2, "{message}");
    assert!(lines[1].starts_with("vswap: peak "), "{message}");
    assert!(lines[1].ends_with("nothing was ever evicted"), "{message}");
}

#[test]
fn summary_file() {
    let scratch = Scratch::new();
    let file = scratch.path().join("summary.json");
    let mut command = scratch.vswap();
    command
        .args(["run", "--ram", "256M", "--summary"])
        .arg(&file);
    let output = output(command.args(["--", "sh", "-c", "exit 7"]));
    assert_eq!(output.status.code(), Some(7));
    let json = std::fs::read_to_string(&file).expect("summary");
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["command"], serde_json::json!(["sh", "-c", "exit 7"]));
    assert_eq!(value["exit_status"], 7);
    assert_eq!(value["limit_bytes"], 256 << 20);
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    assert!(value["wall_seconds"].as_f64().expect("seconds") > 0.0);
    assert_eq!(value["pages_out"], 0);
}

#[test]
fn summary_on_standard_output() {
    let scratch = Scratch::new();
    let mut command = scratch.vswap();
    // The program closes the stream, and vswap still writes to it.
    let words = ["run", "--ram", "256M", "--quiet", "--summary", "-", "--"];
    command
        .args(words)
        .args(["sh", "-c", "echo first; exec >&-"]);
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    let json = said.strip_prefix("first\n").expect("the program's line");
    let summary: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(summary["exit_status"], 0, "{summary}");
    assert!(!scratch.path().join("-").exists());
}

#[test]
fn environment_and_directory() {
    let scratch = Scratch::new();
    let own = ["LD_PRELOAD=", "VSWAP_SOCKET=", "_="];
    let seen = |command: &mut Command| -> Vec<String> {
        let command = command
            .current_dir("/usr")
            .env("B_LAST", "x")
            // vswap ignores this variable.
            .env("RUST_BACKTRACE", "1")
            .env("A_FIRST", "y=z");
        text(
            &output(
                command
                    .env("XDG_RUNTIME_DIR", scratch.path())
                    .stdin(Stdio::null()),
            )
            .stdout,
        )
        .lines()
        .filter(|line| !own.iter().any(|name| line.starts_with(name)))
        .map(str::to_owned)
        .collect()
    };
    let print = ["-c", "pwd; env -0 | tr '\\0' '\\n'"];
    let native = seen(Command::new("sh").args(print));
    let under = seen(scratch.run().arg("sh").args(print));
    assert!(native.contains(&"A_FIRST=y=z".to_owned()));
    assert!(under.contains(&"RUST_BACKTRACE=1".to_owned()));
    assert_eq!(
        native, under,
        "same variables in the same order, same directory"
    );
}

#[test]
fn preloads_of_the_user_stay() {
    let scratch = Scratch::new();
    let output = output(
        scratch
            .run()
            .args(["sh", "-c", "echo $LD_PRELOAD"])
            .env("LD_PRELOAD", "libm.so.6"),
    );
    let list = text(&output.stdout);
    assert!(list.trim_end().ends_with("libm.so.6"), "{list}");
    assert!(list.contains("agent.so"), "{list}");
}

#[test]
fn name_of_the_program() {
    let scratch = Scratch::new();
    // argv[0] is the name as typed, not the path where the program was found.
    let output = output(
        scratch
            .run()
            .args(["sh", "-c", "tr '\\0' ' ' < /proc/$$/cmdline"]),
    );
    assert!(text(&output.stdout).starts_with("sh -c"), "{output:?}");
}

#[test]
fn scripts_with_and_without_an_interpreter_line() {
    let scratch = Scratch::new();
    for (name, content) in [
        ("with", "#!/bin/sh\necho ran $1\n"),
        ("without", "echo ran $1\n"),
    ] {
        let script = scratch.script(name, content);
        let output = output(scratch.run().arg(script).arg("it"));
        assert_eq!(text(&output.stdout), "ran it\n", "{name}: {output:?}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn signal_mask_and_dispositions() {
    let scratch = Scratch::new();
    let show = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let vswap = env!("CARGO_BIN_EXE_vswap");
    for given in [
        "",
        "trap '' PIPE;",
        "trap '' HUP CHLD INT;",
        "trap '' HUP PIPE USR1 RTMIN;",
    ] {
        let seen = |prefix: &str| {
            let line = format!("{given} exec {prefix} {show}");
            let mut command = Command::new("bash");
            command
                .args(["-c", &line])
                .env("XDG_RUNTIME_DIR", scratch.path());
            text(&output(command.stdin(Stdio::null())).stdout)
        };
        let native = seen("");
        assert_eq!(native.lines().count(), 2);
        assert_eq!(
            native,
            seen(&format!("{vswap} run --ram 256M --")),
            "after: {given}"
        );
    }
}

/// Signals 32 and 33. env(1) cannot change them, because the C library keeps them for itself.
const OF_THE_C_LIBRARY: u64 = 0x1_8000_0000;

/// nohup and background jobs hand on ignored signals. The program must find exactly those ignored, natively and under
/// vswap.
#[test]
fn ignored_signals_stay_ignored() {
    let scratch = Scratch::new();
    for (given, expected) in [
        ("", 0_u64),
        ("HUP", 0x1),
        ("HUP,INT,QUIT", 0x7),
        ("HUP,INT,QUIT,TERM,CHLD,WINCH", 0x0801_4007),
    ] {
        let seen = |prefix: &[&str]| {
            let mut command = undisturbed("/usr/bin/env");
            if !given.is_empty() {
                command.arg(format!("--ignore-signal={given}"));
            }
            command
                .args(prefix)
                .args(["grep", "^SigIgn", "/proc/self/status"])
                .env("XDG_RUNTIME_DIR", scratch.path());
            text(&output(command.stdin(Stdio::null())).stdout)
        };
        let native = seen(&[]);
        let mask = native.trim().trim_start_matches("SigIgn:\t");
        let mask = u64::from_str_radix(mask, 16).expect("a mask");
        assert_eq!(mask & !OF_THE_C_LIBRARY, expected, "{given}");
        let vswap = [env!("CARGO_BIN_EXE_vswap"), "run", "--ram", "256M", "--"];
        assert_eq!(native, seen(&vswap), "{given}");
    }
}

#[test]
fn blocked_signals_stay_blocked() {
    let scratch = Scratch::new();
    let python = "import os, signal, sys\n\
                  signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR1, signal.SIGCHLD])\n\
                  os.execvp(sys.argv[1], sys.argv[1:])";
    let seen = |prefix: &[&str]| {
        let mut command = Command::new("python3");
        command
            .args(["-c", python])
            .args(prefix)
            .args(["grep", "^SigBlk", "/proc/self/status"]);
        text(&output(command.env("XDG_RUNTIME_DIR", scratch.path())).stdout)
    };
    let native = seen(&[]);
    assert!(native.contains("10200"), "{native}");
    assert_eq!(
        native,
        seen(&[env!("CARGO_BIN_EXE_vswap"), "run", "--ram", "256M", "--"])
    );
}

#[test]
fn descriptors() {
    let scratch = Scratch::new();
    let vswap = env!("CARGO_BIN_EXE_vswap");
    let seen = |prefix: &str| {
        let line = format!("exec 7</etc/passwd 9>/dev/null; exec {prefix} ls /proc/self/fd");
        let mut command = Command::new("bash");
        command
            .args(["-c", &line])
            .env("XDG_RUNTIME_DIR", scratch.path());
        text(&output(command.stdin(Stdio::null())).stdout)
    };
    assert_eq!(
        seen(""),
        seen(&format!("{vswap} run --ram 256M --quiet --"))
    );
}

#[test]
fn closed_streams_are_closed_for_the_reader() {
    let scratch = Scratch::new();
    // The program closes its output and goes on: whoever reads it must see the end at once.
    let vswap = env!("CARGO_BIN_EXE_vswap");
    let line = format!(
        "exec 5> >(cat >/dev/null; echo five ended); \
         {vswap} run --ram 256M --quiet -- bash -c 'exec >&- 5>&-; sleep 3; echo program ends >&2' \
         | (cat; echo reader ended) & exec 5>&-; wait"
    );
    let mut command = Command::new("bash");
    command
        .args(["-c", &format!("({line}) 2>&1")])
        .env("XDG_RUNTIME_DIR", scratch.path());
    let all = text(&output(command.stdin(Stdio::null())).stdout);
    let position = |what: &str| all.find(what).unwrap_or_else(|| panic!("{what} in {all}"));
    assert!(position("reader ended") < position("program ends"), "{all}");
    assert!(position("five ended") < position("program ends"), "{all}");
}

#[test]
fn group_and_session_are_the_callers() {
    let scratch = Scratch::new();
    // Fields 5 and 6 of stat are the process group and the session.
    let ids = "cut -d' ' -f5,6 /proc/self/stat";
    let native = output(Command::new("sh").args(["-c", ids]));
    let under = output(scratch.run().args(["sh", "-c", ids]));
    assert_eq!(text(&native.stdout), text(&under.stdout));
}
