//! Signals to vswap, and processes that the program leaves behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::{Scratch, eventually, kill, state, text, undisturbed, wait};

/// Starts a shell script under vswap and waits for its first line, which is the script's pid.
fn start(command: &mut Command, script: &str) -> (Child, u32, BufReader<ChildStdout>) {
    let mut child = command
        .args(["bash", "-c", &format!("echo $$; {script}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("vswap starts");
    let mut reader = BufReader::new(child.stdout.take().expect("stdout"));
    let pid = line(&mut reader).parse().expect("a pid");
    (child, pid, reader)
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

#[test]
fn signals_to_vswap_alone_reach_the_program() {
    for signal in [
        "TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "RTMIN",
    ] {
        let scratch = Scratch::new();
        let script =
            format!("trap 'echo got; exit 5' {signal}; echo ready; while :; do sleep 0.05; done");
        let (mut vswap, _, mut reader) = start(&mut scratch.run(), &script);
        assert_eq!(line(&mut reader), "ready");
        kill(signal, vswap.id());
        assert_eq!(line(&mut reader), "got", "{signal}");
        assert_eq!(wait(&mut vswap).code(), Some(5), "{signal}");
    }
}

#[test]
fn a_program_that_ignores_a_signal_goes_on() {
    let scratch = Scratch::new();
    let (mut vswap, _, mut reader) = start(
        &mut scratch.run(),
        "trap '' TERM; echo ready; sleep 0.5; echo still here; exit 4",
    );
    assert_eq!(line(&mut reader), "ready");
    kill("TERM", vswap.id());
    assert_eq!(line(&mut reader), "still here");
    assert_eq!(wait(&mut vswap).code(), Some(4));
}

#[test]
fn a_program_that_dies_of_a_forwarded_signal() {
    let scratch = Scratch::new();
    let (mut vswap, _, _reader) = start(&mut scratch.run(), "exec sleep 100");
    kill("TERM", vswap.id());
    assert_eq!(wait(&mut vswap).signal(), Some(15));
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn signals_of_the_program_to_its_group_are_not_doubled() {
    let scratch = Scratch::new();
    let mut command = undisturbed("setsid");
    command
        .arg("--wait")
        .arg(env!("CARGO_BIN_EXE_vswap"))
        .args(["run", "--ram", "256M", "--"]);
    command
        .env("XDG_RUNTIME_DIR", scratch.path())
        .stdin(Stdio::null());
    let script = "n=0; trap 'n=$((n+1))' USR1; kill -USR1 0; \
                  for i in 1 2 3 4 5 6; do sleep 0.1; done; echo $n";
    let (mut setsid, _, mut reader) = start(&mut command, script);
    assert_eq!(line(&mut reader), "1");
    wait(&mut setsid);
}

#[test]
fn stopping_the_program_by_its_pid_leaves_vswap_at_work() {
    let scratch = Scratch::new();
    let (mut vswap, program, mut reader) =
        start(&mut scratch.run(), "sleep 2; echo continued; exit 6");
    kill("STOP", program);
    eventually("the program is stopped", || {
        (state(program)? == 'T').then_some(())
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_ne!(state(vswap.id()), Some('T'), "nobody does job control here");
    kill("CONT", program);
    assert_eq!(line(&mut reader), "continued");
    assert_eq!(wait(&mut vswap).code(), Some(6));
}

#[test]
fn stop_and_continue_of_vswap_reach_the_program() {
    let scratch = Scratch::new();
    // A process group of its own, with a living parent. In an orphaned group, and the test's may be one, nobody stops
    // at SIGTSTP.
    let (mut vswap, program, mut reader) =
        start(scratch.run().process_group(0), "sleep 2; echo done; exit 6");
    kill("TSTP", vswap.id());
    eventually("the program is stopped", || {
        (state(program)? == 'T').then_some(())
    });
    kill("CONT", vswap.id());
    assert_eq!(line(&mut reader), "done");
    assert_eq!(wait(&mut vswap).code(), Some(6));
}

#[test]
fn orphans_are_waited_for_and_reaped() {
    let scratch = Scratch::new();
    // The middle process ends at once. Its child ends later and must not stay a zombie for ever.
    let script = "(setsid sh -c 'sleep 0.4; echo orphan done' &) ; exit 9";
    let (mut vswap, _, mut reader) = start(&mut scratch.run(), script);
    assert_eq!(wait(&mut vswap).code(), Some(9));
    assert_eq!(
        line(&mut reader),
        "orphan done",
        "it had ended before vswap did"
    );
    assert!(scratch.names().is_empty());
}

#[test]
fn daemons_are_served_until_they_are_told_to_end() {
    let scratch = Scratch::new();
    // It has its name only once it has become sleep.
    let script = "setsid sleep 1000 >/dev/null 2>&1 &
        until grep -q sleep /proc/$!/comm; do sleep 0.01; done; echo $!; exit 3";
    let (mut vswap, _, mut reader) = start(&mut scratch.run(), script);
    let daemon: u32 = line(&mut reader).parse().expect("pid");
    let mut messages = BufReader::new(vswap.stderr.take().expect("stderr"));
    let notice = line(&mut messages);
    assert!(
        notice.contains("the program has ended") && notice.contains("sleep"),
        "{notice}"
    );
    assert!(state(daemon).is_some());
    kill("TERM", vswap.id());
    assert_eq!(wait(&mut vswap).code(), Some(3), "the program's own status");
    assert_eq!(state(daemon), None);
    let mut rest = String::new();
    messages.read_to_string(&mut rest).expect("the rest");
    assert!(rest.starts_with("vswap: peak"), "{rest}");
}

#[test]
fn stubborn_daemons_are_killed_at_the_second_request() {
    let scratch = Scratch::new();
    let script = "setsid bash -c 'trap \"\" TERM; echo $$; while :; do sleep 0.2; done' 2>/dev/null & exit 3";
    let (mut vswap, _, mut reader) = start(&mut scratch.run(), script);
    let daemon: u32 = line(&mut reader).parse().expect("pid");
    let mut messages = BufReader::new(vswap.stderr.take().expect("stderr"));
    assert!(text(line(&mut messages).as_bytes()).contains("the program has ended"));
    kill("TERM", vswap.id());
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(state(daemon).is_some(), "it ignores SIGTERM");
    kill("TERM", vswap.id());
    assert_eq!(wait(&mut vswap).code(), Some(3));
    assert_eq!(state(daemon), None);
}
