//! What a program sees of the agent, and what the pager gets: starts, descriptors, death, processes without a pager.

mod common;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{
    Agent, Pager, Program, Published, agent, command_with, has_agents, is_emulated, possible,
    program,
};
use vswap_sys::ring::{DOORBELL, Hello, LEFT_ALONE, TURNED_AWAY, hello, op};
use vswap_sys::sock::Wait;

#[test]
fn hello_brings_descriptors_and_commands_are_answered() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    let hello = &agent.hello;
    assert_eq!((hello.flags, hello.uffd_errno), (0, 0));
    assert_eq!(hello.parent_pid.unsigned_abs(), std::process::id());
    assert!(hello.agent_tid > 0 && hello.agent_tid != hello.pid);
    assert!(hello.agent_base < hello.staging);
    assert!(hello.staging < hello.agent_base + hello.agent_bytes);
    // EVENT_REMAP, EVENT_REMOVE, EVENT_UNMAP, MOVE.
    let needed = 1 << 2 | 1 << 3 | 1 << 6 | 1 << 16;
    assert_eq!(hello.uffd_features & needed, needed);
    for _ in 0..1000 {
        assert_eq!(agent.command(op::PING, &[], &[]), 0);
    }
    assert_eq!(agent.command(99, &[], &[]), -38);
    assert!(program.ask("start").starts_with("ok"));
    program.quit();
    assert!(agent.stream.recv::<u8>(Wait::Yes).is_err());
}

#[test]
fn program_sees_no_difference() {
    if !has_agents() {
        return;
    }
    let pager = Pager::new();
    let mut plain = Program::start(command_with(program(), &[]));
    plain.memory();
    let (mut armed, _agent) = pager.start();
    assert_eq!(armed.ask("fds"), plain.ask("fds"));
    let started = armed.ask("start");
    assert!(started.starts_with("ok"), "{started}");
    assert_eq!(armed.ask("system"), "ok");
}

#[test]
fn program_may_close_every_descriptor() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    assert_eq!(program.ask("closeall"), "ok");
    assert_eq!(program.ask("nofile 3"), "ok");
    assert_eq!(agent.command(op::PING, &[], &[]), 0);
    assert_eq!(
        agent.command(op::MOVE_OUT, &[0], &[(program.page(0), 8)]),
        8
    );
}

#[test]
fn exec_arms_again_also_with_an_emptied_environment() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    assert_eq!(program.ask("exec"), "exec");
    program.memory();
    let second = pager.accept();
    assert_eq!(
        (second.hello.kind, second.hello.pid),
        (hello::EXEC, agent.hello.pid)
    );
    assert_eq!(second.command(op::PING, &[], &[]), 0);
    // The old connection has ended.
    assert!(agent.stream.recv::<u8>(Wait::Yes).is_err());

    assert_eq!(program.ask("clearenv"), "ok");
    assert_eq!(program.ask("exec"), "exec");
    program.memory();
    assert_eq!(program.ask("verify 0 256"), "ok");
    assert!(!pager.has_caller(Duration::from_millis(50)));
}

#[test]
fn programs_start_in_silence_where_the_agent_cannot_be_seen() {
    if is_emulated() {
        eprintln!("skipped: what an emulated program starts is of the machine below");
        return;
    }
    for other in ["", "libm.so.6"] {
        let (pager, published) = (Pager::new(), Published::new());
        let agent = published.agent().display().to_string();
        for wanted in [[&agent, other], [other, &agent]] {
            let wanted = wanted.join(":").trim_matches(':').to_owned();
            let start = |is_there: bool| {
                let mut command = published.command(&pager);
                command.env("LD_PRELOAD", &wanted);
                command.env("WANT", if is_there { &wanted } else { other });
                let mut program = Program::start(command);
                program.memory();
                program
            };
            let mut program = start(true);
            assert_eq!(program.ask("starts"), "ok");
            assert_eq!(program.quit_and_errors(), "");
            let mut program = start(false);
            published.hide_agent(true);
            assert_eq!(program.ask("starts"), "ok");
            published.hide_agent(false);
            assert_eq!(program.quit_and_errors(), "");
        }
    }
}

#[test]
fn program_runs_without_a_pager() {
    let nowhere = Path::new("/nowhere/at/all");
    let environment = [("LD_PRELOAD", agent()), ("VSWAP_SOCKET", nowhere)];
    let mut program = Program::start(command_with(program(), &environment));
    program.memory();
    for line in ["verify 0 256", "threadforks 2 3", "system", "thread"] {
        assert!(program.ask(line).starts_with("ok"), "{line}");
    }
    let threads = format!("/proc/{}/task", program.child.id());
    // An emulator has a thread of its own.
    let threads = std::fs::read_dir(threads).unwrap().count();
    assert_eq!(threads, 1 + usize::from(is_emulated()));
    program.quit();
}

#[test]
fn program_runs_without_a_userfaultfd_and_the_pager_is_told() {
    if !has_agents() {
        return;
    }
    if std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|s| s != "0\n")
        || !rustix::process::geteuid().is_root()
    {
        eprintln!("skipped: every user may have a userfaultfd, or this one may not change user");
        return;
    }
    let (pager, published) = (Pager::new(), Published::new());
    let mut command = published.command(&pager);
    command.uid(65534);
    let mut program = Program::start(command);
    // Before it says hello it asks for the pager's device, which this pager does not lend.
    let next = || {
        assert!(pager.has_caller(Duration::from_secs(20)));
        pager.listener.accept().unwrap()
    };
    let (first, asks) = (next(), next());
    let (question, _) = asks.recv::<Hello>(Wait::Yes).unwrap();
    assert_eq!(question.kind, hello::DEVICE);
    asks.send(&TURNED_AWAY, &[], Wait::Yes).unwrap();
    let agent = Agent::from_stream(first);
    assert_ne!(agent.hello.uffd_errno, 0);
    program.memory();
    assert!(agent.stream.recv::<u8>(Wait::Yes).is_err());
    for line in ["verify 0 256", "threadforks 2 3", "thread"] {
        assert!(program.ask(line).starts_with("ok"), "{line}");
    }
    program.quit();
}

#[test]
fn death_of_the_pager_kills_the_program_before_it_reads_zeros() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    agent.register(&program);
    assert_eq!(
        agent.command(op::MOVE_OUT, &[0], &[(program.page(0), 16)]),
        16
    );
    program.say("verify 0 256");
    std::thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    drop(agent);
    let status = program.ended(Duration::from_secs(5)).expect("lives on");
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(status.signal(), Some(9));
    // Nothing was verified, and the reason was printed.
    assert_eq!(program.line(), "");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut program.child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "vswap-agent: vswap is gone, process killed\n");
}

#[test]
fn program_that_is_turned_away_runs_on() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    agent.stream.send(&TURNED_AWAY, &[], Wait::Yes).unwrap();
    assert!(agent.stream.recv::<u8>(Wait::Yes).is_err());
    drop(agent);
    for line in ["verify 0 256", "threadforks 2 3", "thread"] {
        assert!(program.ask(line).starts_with("ok"), "{line}");
    }
    program.quit();
}

/// A doorbell that another thread of the pager rings meanwhile must not be taken for the status.
#[test]
fn agent_that_is_left_alone_ends_with_the_status_of_the_program() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    program.say("rawexit 14");
    assert!(program.ended(Duration::from_millis(200)).is_none());
    agent.stream.send(&DOORBELL, &[], Wait::Yes).unwrap();
    let word = [LEFT_ALONE, 0, 14];
    agent.stream.send(&word, &[], Wait::Yes).unwrap();
    // The agent may have gone by then.
    let _ = agent.stream.send(&DOORBELL, &[], Wait::Yes);
    let status = program.ended(Duration::from_secs(20)).expect("lives on");
    assert_eq!(status.code(), Some(14));
}

#[test]
fn program_whose_hello_nobody_has_read_runs_on() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let mut program = pager.run();
    assert!(pager.has_caller(Duration::from_secs(20)));
    drop(pager.listener.accept().unwrap());
    program.memory();
    for line in ["verify 0 256", "threadforks 2 3", "thread"] {
        assert!(program.ask(line).starts_with("ok"), "{line}");
    }
    program.quit();
}

#[test]
fn only_interposed_symbols_are_exported_and_nothing_can_panic() {
    let listed = |args: &[&str]| {
        let output = Command::new(args[0])
            .args(&args[1..])
            .arg(agent())
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let exported = listed(&["nm", "-D", "--defined-only"]);
    let names = exported
        .lines()
        .filter_map(|line| line.split(' ').next_back());
    let expected = [
        "_Fork",
        "__clone",
        "__sigaction",
        "__sysv_signal",
        "clone",
        "dl_iterate_phdr",
        "execl",
        "execle",
        "execlp",
        "execv",
        "execve",
        "execveat",
        "execvp",
        "execvpe",
        "fexecve",
        "posix_spawn",
        "posix_spawnp",
        "prctl",
        "setns",
        "sigaction",
        "siginterrupt",
        "signal",
        "syscall",
        "unshare",
        "vswap_arenas_1",
        "vswap_attached",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let imported = listed(&["nm", "-D", "--undefined-only"]);
    for line in imported.lines() {
        let weak = line.trim_start().starts_with(['w', 'v']);
        let plain = [
            "memcpy@", "memset@", "memcmp@", "memmove@", "strlen@", "bcmp@",
        ];
        assert!(
            weak || plain.iter().any(|name| line.contains(name)),
            "{line}"
        );
    }
    assert!(
        !listed(&["nm"]).contains("panicking"),
        "something can panic"
    );
    // .bss would be memory that could be evicted.
    assert!(!listed(&["readelf", "-SW"]).contains(" .bss "));
}

#[test]
fn constructor_is_cheap() {
    if !possible() {
        return;
    }
    const RUNS: u32 = 300;
    let pager = Arc::new(Pager::new());
    let accepting = Arc::clone(&pager);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        // If a connection were closed, the agent would take that for the death of the pager.
        let mut kept = Vec::new();
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            if accepting.has_caller(Duration::from_millis(10)) {
                kept.push(accepting.listener.accept());
            }
        }
    });
    let run = |command: &mut Command| {
        let start = Instant::now();
        assert!(command.stdin(Stdio::null()).status().unwrap().success());
        start.elapsed()
    };
    let (mut plain, mut armed) = (Vec::new(), Vec::new());
    // The agent of a program that ends at once may find its connection closed. That must not matter.
    for _ in 0..RUNS {
        plain.push(run(&mut Command::new("/bin/true")));
        armed.push(run(&mut pager.command(Path::new("/bin/true"))));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    thread.join().unwrap();
    plain.sort();
    armed.sort();
    let (plain, armed) = (plain[RUNS as usize / 2], armed[RUNS as usize / 2]);
    eprintln!("exec of /bin/true, median of {RUNS}: {plain:?}, with the agent {armed:?}");
    // Ten times the cost on a quiet machine. More is a mistake, not noise.
    assert!(armed < plain + Duration::from_micros(2500));
}
