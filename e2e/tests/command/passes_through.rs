//! What the program sees and gives is the same with and without vswap: streams, arguments, environment, directory,
//! limits, descriptors, terminal, and the exit status.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use vswap_e2e::failure::During;
use vswap_e2e::records::mix;
use vswap_e2e::{Context, Ended, Failure, Job, Launcher, MIB, Outcome, ensure, require_program};

/// Far more than these programs need: nothing is swapped.
const AMPLE_BYTES: u64 = 256 * MIB;
/// Far less than `streams_through_swap` holds.
const TIGHT_BYTES: u64 = 48 * MIB;
/// Bytes that go through a pipe.
const STREAM_BYTES: usize = 24 << 20;
/// The agent's two variables.
const OWN_VARIABLES: [&str; 2] = ["LD_PRELOAD=", "VSWAP_SOCKET="];

fn said(ended: &Ended) -> Outcome<Vec<u8>> {
    fs::read(&ended.stdout).during(|| "read standard output".to_owned())
}

fn run(launcher: &Launcher, job: &Job) -> Outcome<Ended> {
    let ended = launcher.start(job)?.wait()?;
    ended.must_leave_nothing()?;
    Ok(ended)
}

/// Runs the job both ways and returns both outputs.
fn both(context: &Context, job: &Job) -> Outcome<(String, String)> {
    let native = run(&context.native()?, job)?;
    let limited = run(&context.limited(AMPLE_BYTES)?, job)?;
    native.must_succeed()?;
    limited.must_succeed()?;
    let text =
        |ended: &Ended| Ok::<_, Failure>(String::from_utf8_lossy(&said(ended)?).into_owned());
    Ok((text(&native)?, text(&limited)?))
}

pub fn exit_statuses(context: &Context) -> Outcome {
    let launcher = context.limited(AMPLE_BYTES)?;
    for code in [0, 1, 42, 124, 125, 255] {
        run(&launcher, &Job::shell(format!("exit {code}")))?.must_exit_with(code)?;
    }
    for signal in [
        Signal::TERM,
        Signal::KILL,
        Signal::USR1,
        Signal::SEGV,
        Signal::ABORT,
    ] {
        let script = format!("ulimit -c 0; kill -{} $$; sleep 5", signal.as_raw());
        run(&launcher, &Job::shell(script))?.must_be_ended_by(signal)?;
    }
    Ok(())
}

/// Bytes of all values in irregular order.
fn noise(path: &Path) -> Outcome<Vec<u8>> {
    let words = (0..STREAM_BYTES as u64 / 8).flat_map(|number| mix(number).to_le_bytes());
    let bytes: Vec<u8> = words.collect();
    fs::write(path, &bytes).during(|| format!("write {}", path.display()))?;
    Ok(bytes)
}

pub fn streams(context: &Context) -> Outcome {
    let input = context.place().join("noise");
    let bytes = noise(&input)?;
    let launcher = context.limited(AMPLE_BYTES)?;
    let ended = run(
        &launcher,
        &Job::new("/bin/cat")
            .stdin(&input)
            .vswap_options(["--quiet"]),
    )?;
    ended.must_succeed()?;
    ensure!(
        said(&ended)? == bytes,
        "standard output is not standard input"
    );
    let script = "printf 'out\\0put'; printf 'err\\0or\\377' >&2";
    let ended = run(&launcher, &Job::shell(script).vswap_options(["--quiet"]))?;
    ensure!(
        said(&ended)? == b"out\0put",
        "standard output is {:?}",
        said(&ended)?
    );
    let errors = fs::read(&ended.stderr).during(|| "read standard error".to_owned())?;
    ensure!(errors == b"err\0or\xff", "standard error is {errors:?}");
    Ok(())
}

/// The stream is held in swapped memory, so `read` and `write` meet pages that are not there.
pub fn streams_through_swap(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let input = context.place().join("noise");
    let bytes = noise(&input)?;
    let script = "import os, sys
ballast = bytearray(160 << 20)
for at in range(0, len(ballast), 4096):
    ballast[at : at + 8] = at.to_bytes(8, 'little')
taken = bytearray(24 << 20)
view, got = memoryview(taken), 0
while True:
    count = os.readv(0, [view[got : got + 1000003]])
    if not count:
        break
    got += count
for at in range(0, len(ballast), 4096):
    assert ballast[at : at + 9] == at.to_bytes(8, 'little') + b'\\0', at
sent = 0
while sent < got:
    sent += os.write(1, view[sent:got])
";
    let ended = {
        let launcher = context.limited(TIGHT_BYTES)?;
        let job = Job::new(python).args(["-c", script]).stdin(&input);
        launcher.start(&job)?.wait()?
    };
    ended.must_succeed()?;
    ensure!(said(&ended)? == bytes, "what came out is not what went in");
    ended.must_hold_limit()
}

pub fn arguments(context: &Context) -> Outcome {
    let odd = [
        "",
        " ",
        "two words",
        "new\nline",
        "--ram",
        "--",
        "-x",
        "'\"$HOME`",
        "\u{e4}\u{20ac}",
    ];
    let launcher = context.limited(AMPLE_BYTES)?;
    let ended = run(
        &launcher,
        &Job::new("/usr/bin/printf").arg("%s\\0").args(odd),
    )?;
    let expected: String = odd.iter().map(|word| format!("{word}\0")).collect();
    let found = said(&ended)?;
    ensure!(
        found == expected.as_bytes(),
        "the arguments came as {}",
        String::from_utf8_lossy(&found)
    );
    Ok(())
}

pub fn environment(context: &Context) -> Outcome {
    let job = Job::new("/usr/bin/env")
        .arg("-0")
        .env("ODD", "two words\nand = a line")
        .env("EMPTY", "");
    let lines = |text: &str| -> Vec<String> {
        let all = text
            .split('\0')
            .filter(|line| !OWN_VARIABLES.iter().any(|own| line.starts_with(own)));
        // The temporary directory is different for each way of running.
        let mut kept: Vec<String> = all
            .filter(|line| !line.starts_with("TMPDIR="))
            .map(str::to_owned)
            .collect();
        kept.sort();
        kept
    };
    let (native, limited) = both(context, &job.clone().cwd("/"))?;
    ensure!(
        lines(&native) == lines(&limited),
        "natively {native:?}, under vswap {limited:?}"
    );

    let libc = "/lib/x86_64-linux-gnu/libm.so.6";
    vswap_e2e::need::require_file(libc, "apt package libc6")?;
    let ended = run(&context.limited(AMPLE_BYTES)?, &job.env("LD_PRELOAD", libc))?;
    let text = String::from_utf8_lossy(&said(&ended)?).into_owned();
    let preload = text
        .split('\0')
        .find_map(|line| line.strip_prefix("LD_PRELOAD="))
        .unwrap_or("");
    let kept = preload.ends_with(libc) && preload.len() > libc.len();
    ensure!(
        kept,
        "what was preloaded before is not behind the agent: {preload}"
    );
    Ok(())
}

/// Working directory, descriptors, limits, umask, priority, signal dispositions, session.
pub fn surroundings(context: &Context) -> Outcome {
    let questions = [
        "pwd",
        "ls /proc/self/fd",
        "ulimit -a",
        "umask",
        "nice",
        "grep -E '^(SigBlk|SigIgn|Uid|Gid|Groups|CapEff|CapAmb|Cpus_allowed):' /proc/self/status",
        "cat /proc/self/oom_score_adj",
        "ps -o sid= -p $$ | wc -l",
    ];
    for question in questions {
        let job = Job::shell(question).cwd(context.place());
        let (native, limited) = both(context, &job)?;
        ensure!(
            native == limited,
            "{question}: natively {native:?}, under vswap {limited:?}"
        );
    }
    Ok(())
}

pub fn terminal(context: &Context) -> Outcome {
    let script = require_program("script", "apt package bsdutils")?;
    let vswap = context.require_vswap()?;
    let inner = "test -t 0 && test -t 1 && test -t 2 && stty size && exit 9";
    let command = format!(
        "stty cols 123 rows 45; {} run --ram 256M -- sh -c '{inner}'",
        vswap.display()
    );
    let job = Job::new(script).args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let ended = context.native()?.start(&job)?.wait()?;
    let text = String::from_utf8_lossy(&said(&ended)?).into_owned();
    ensure!(
        text.contains("45 123"),
        "the program's terminal is {text:?}"
    );
    ensure!(
        text.contains("vswap: "),
        "there is no summary line on the terminal: {text:?}"
    );
    ended.must_exit_with(9)
}
