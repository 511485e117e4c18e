//! Signals sent to vswap reach the program unchanged and only once.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use vswap_e2e::compile::{GCC, MUSL, compile};
use vswap_e2e::failure::{During, Failure};
use vswap_e2e::launch::signal_pid;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, procfs, require_program};

const AMPLE_BYTES: u64 = 256 * MIB;
/// Half of what `interrupted.c` fills.
const TIGHT_BYTES: u64 = 48 * MIB;

/// Writes each signal to a file. Ends at the second SIGTERM.
const NOTES: &str = "import os, signal, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
terms = 0
def note(number, frame):
    global terms
    os.write(log, f'got {number}\\n'.encode())
    terms += number == signal.SIGTERM
    if terms == 2:
        sys.exit(17)
for name in ('HUP', 'INT', 'QUIT', 'USR1', 'USR2', 'ALRM', 'TERM', 'WINCH'):
    signal.signal(getattr(signal, 'SIG' + name), note)
os.write(log, b'ready\\n')
while True:
    signal.pause()
";

/// Signals come while calls wait in the filter.
/// With hooks, where the agent was attached from outside, in a static program, and with another C library.
pub fn interrupt_no_call_of_memory(context: &Context) -> Outcome {
    let text = include_str!("../../inputs/interrupted.c");
    let dynamic = compile(context, GCC, text, "dynamic", &["-O2"])?;
    let fixed = compile(context, GCC, text, "static", &["-O2", "-static"])?;
    let other = compile(context, MUSL, text, "musl", &["-O2", "-static"])?;
    let sizes = ["96", "6000"];
    let attached = |program| Job::new(program).args(sizes).arg("attached");
    let jobs = [
        Job::new(&dynamic).args(sizes),
        Job::new("/usr/bin/env")
            .arg("-i")
            .append(&attached(dynamic)),
        attached(fixed),
        attached(other),
    ];
    for job in jobs {
        let ended = context.limited(TIGHT_BYTES)?.start(&job)?.wait()?;
        ended.must_succeed()?;
        let said = fs::read_to_string(&ended.stdout).during(|| "read its output".to_owned())?;
        ensure!(said == "right\n", "{job:?} says {said:?}");
        ensure!(
            ended.figure("pages_out")? > 0,
            "nothing of {job:?} was swapped, so no call was stopped"
        );
    }
    Ok(())
}

/// Children in pid namespaces of their own, by `clone` and by `unshare`, and children killed by their seccomp filters.
pub fn children_end_as_natively(context: &Context) -> Outcome {
    let text = include_str!("../../inputs/namespaces.c");
    let program = compile(context, GCC, text, "namespaces", &["-O2"])?;
    let natively = Command::new(&program)
        .args(["4", "1"])
        .output()
        .during(|| "run it natively".to_owned())?;
    if !natively.status.success() {
        return Err(Failure::Skip(
            "new pid and user namespaces are not permitted: run as root, outside of a sandbox"
                .to_owned(),
        ));
    }
    let job = Job::new(&program).args(["4", "6"]);
    let job = job.vswap_options(["--debug-evict-every", "5ms"]);
    let ended = context.limited(AMPLE_BYTES)?.start(&job)?.wait()?;
    ended.must_succeed()?;
    let said = fs::read_to_string(&ended.stdout).during(|| "read its output".to_owned())?;
    ensure!(said == "right\n", "it says {said:?}");
    ensure!(ended.figure("pages_out")? > 0, "nothing was swapped");
    ended.must_leave_nothing()
}

pub fn reach_the_program(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let log = context.place().join("signals.log");
    let launcher = context.limited(AMPLE_BYTES)?;
    let running = launcher.start(&Job::new(python).args(["-c", NOTES]).arg(&log).own_group())?;
    let text = || fs::read_to_string(&log).unwrap_or_default();
    running.until("the program to be ready", || {
        Ok(text().contains("ready").then_some(()))
    })?;
    let signals = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::TERM,
        Signal::WINCH,
    ];
    let mut expected = "ready\n".to_owned();
    for signal in signals {
        running.signal(signal)?;
        expected += &format!("got {}\n", signal.as_raw());
        running.until(&format!("{signal:?} to arrive"), || {
            Ok((text() == expected).then_some(()))
        })?;
    }
    running.signal(Signal::TERM)?;
    let ended = running.wait()?;
    let found = fs::read_to_string(&log).during(|| "read the log".to_owned())?;
    ensure!(
        found == expected + "got 15\n",
        "the program noted {found:?}"
    );
    ended.must_exit_with(17)?;
    ended.must_leave_nothing()
}

/// A stopped program stays stopped and is served when it goes on. vswap ends with it.
pub fn stop_and_continue(context: &Context) -> Outcome {
    let launcher = context.limited(AMPLE_BYTES)?;
    let running = launcher.start(&Job::shell("sleep 1; exit 5").own_group())?;
    let program = running.program_pid()?;
    let state = |letter: u8| {
        move || {
            Ok(procfs::stat(program)
                .filter(|stat| stat.state == letter)
                .map(drop))
        }
    };
    signal_pid(program, Signal::STOP)?;
    running.until("the program to stop", state(b'T'))?;
    std::thread::sleep(std::time::Duration::from_millis(1500));
    ensure!(procfs::is_alive(program), "the stopped program has gone");
    running.signal(Signal::CONT)?;
    let ended = running.wait()?;
    ended.must_exit_with(5)?;
    ended.must_leave_nothing()
}
