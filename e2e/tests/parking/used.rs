//! `--park-after`, and what wakes a run that is parked until it is used.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::{Context, Failure, Job, MIB, Outcome, Running, ensure, procfs, require_program};

use crate::program::{Program, Size};

const LIMIT_BYTES: u64 = 256 * MIB;
/// How long a server may take to answer that has to be woken.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Answers each connection with a checksum of its memory, and looks around ten times a second.
const SERVER: &str = "import hashlib, os, select, socket, sys
memory = bytearray(os.urandom(1 << 20) * 64)
right = hashlib.sha256(memory).hexdigest()
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    if select.select([listener], [], [], 0.1)[0]:
        connection = listener.accept()[0]
        connection.sendall(b'right' if hashlib.sha256(memory).hexdigest() == right else b'wrong')
        connection.close()
";

fn state(context: &Context, running: &Running) -> Outcome<Option<String>> {
    let run = running.pid().to_string();
    let output = context.vswap(&["status", "--json", "--run", &run])?;
    let all: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let report = all.into_iter().next().unwrap_or_default();
    Ok(report["state"].as_str().map(str::to_owned))
}

fn until(context: &Context, running: &Running, wanted: &str) -> Outcome {
    running.until(wanted, || {
        Ok((state(context, running)?.as_deref() == Some(wanted)).then_some(()))
    })
}

/// An idle server is parked, a client wakes it, and it is parked again.
pub fn server(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let socket = launcher.place().join("server");
    let job = Job::new(python)
        .args(["-c", SERVER])
        .arg(&socket)
        .vswap_options(["--park-after", "2s"]);
    let running = launcher.start(&job)?;
    for _ in 0..2 {
        until(context, &running, "parked")?;
        let anon = procfs::anon_bytes(running.program_pid()?);
        ensure!(anon < 8 * MIB, "{anon} bytes are left");
        // Nothing comes, so it stays.
        std::thread::sleep(Duration::from_secs(1));
        ensure!(
            state(context, &running)?.as_deref() == Some("parked"),
            "it was woken by nothing"
        );
        let began = Instant::now();
        let mut answer = String::new();
        UnixStream::connect(&socket)
            .and_then(|mut client| client.read_to_string(&mut answer))
            .map_err(|error| Failure::wrong(format!("the server does not answer: {error}")))?;
        context.say(format!("answers after {:?}", began.elapsed()));
        ensure!(answer == "right", "it answers {answer}");
        ensure!(
            began.elapsed() < ANSWER_WITHIN,
            "it took {:?}",
            began.elapsed()
        );
    }
    running.signal(Signal::TERM)?;
    running.wait()?.must_leave_nothing()
}

/// Input at a pipe, and a signal to a process, wake a run that is parked until it is used; neither wakes another.
pub fn input_and_signals(context: &Context) -> Outcome {
    let size = Size {
        mib: 32,
        threads: 0,
        children: 1,
    };
    let mut program = Program::start(context, &context.limited(LIMIT_BYTES)?, size, &[])?;
    program.must(&["park"])?;
    program.tell("check")?;
    std::thread::sleep(Duration::from_secs(1));
    program.is_in("parked")?;
    program.wakes()?;
    program.hear("done check")?;
    for _ in 0..2 {
        program.must(&["park", "--until-used"])?;
        std::thread::sleep(Duration::from_secs(1));
        program.is_in("parked")?;
        program.does("check")?;
    }
    program.must(&["park", "--until-used"])?;
    signal_pid(program.running.program_pid()?, Signal::TERM)?;
    let ended = program.running.wait()?;
    ended.must_be_ended_by(Signal::TERM)?;
    ended.must_leave_nothing()
}
