//! Forks of quiet and of active processes, from threads and under small limits, and what happens to the children.

#![allow(clippy::cast_possible_truncation, reason = "counts of test pages")]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Agent, PAGE, PAGES, Pager, Program, Server, Store, possible};
use vswap_sys::ring::{
    ACK, CONFINED, INHERITED, NOT_MINE, NOTHING_INHERITED, TURNED_AWAY, hello, op,
};
use vswap_sys::sock::{Stream, Wait};

/// A registered program with half of its pages taken out.
fn active() -> Option<(Pager, Program, Agent, Store, Server)> {
    if !possible() {
        return None;
    }
    let pager = Pager::new();
    let (program, agent) = pager.start();
    let store: Store = Arc::default();
    let server = Server::new(Arc::clone(agent.main.as_ref().unwrap()), Arc::clone(&store));
    agent.register(&program);
    take(&agent, program.memory, &store);
    Some((pager, program, agent, store, server))
}

fn take(agent: &Agent, memory: u64, store: &Store) {
    let half = PAGES / 2;
    assert_eq!(
        agent.command(op::MOVE_OUT, &[0], &[(memory, half)]),
        half.cast_signed()
    );
    let mut address = memory;
    for page in agent.staged(0, half as usize).chunks(PAGE) {
        store.lock().unwrap().insert(address, page.to_vec());
        address += PAGE as u64;
    }
    assert_eq!(agent.command(op::STAGING_FREE, &[0, half], &[]), 0);
}

/// Waits until the parent has counted its forks down. The child may be ahead of it.
fn no_forks(parent: &Agent) {
    let start = Instant::now();
    while parent.ring().forks.load(Ordering::SeqCst) != 0 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "a fork is still counted"
        );
        std::thread::yield_now();
    }
}

/// Takes the pager's part in one fork of an active process. Returns the child's agent and its server.
fn attend(pager: &Pager, server: &Server, store: &Store) -> (Agent, Server) {
    let announcement = pager.accept();
    assert_eq!(announcement.hello.kind, hello::FORK_BEGIN);
    announcement.stream.send(&ACK, &[], Wait::Yes).unwrap();
    let mut child = pager.accept();
    assert_eq!(child.hello.fork, announcement.hello.fork);
    assert_eq!(
        (child.hello.kind, child.hello.flags),
        (hello::FORKED, INHERITED)
    );
    // The parent goes on without being told to.
    assert!(announcement.stream.recv::<u8>(Wait::Yes).is_err());
    let uffd = server.next_fork();
    let child_server = Server::new(Arc::clone(&uffd), Arc::clone(store));
    child.give_inherited(uffd);
    (child, child_server)
}

#[test]
fn child_of_a_quiet_process_is_like_a_fresh_one() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, parent) = pager.start();
    let answer = program.ask("fork");
    let child = pager.accept();
    assert_eq!((child.hello.kind, child.hello.flags), (hello::FORKED, 0));
    assert_eq!(child.hello.parent_pid, parent.hello.pid);
    assert_eq!(answer, format!("child {}", child.hello.pid));
    no_forks(&parent);
    assert_eq!(child.command(op::PING, &[], &[]), 0);
    assert_eq!(parent.command(op::PING, &[], &[]), 0);
    // The child's userfaultfd and ring are its own.
    let store: Store = Arc::default();
    let _server = Server::new(Arc::clone(child.main.as_ref().unwrap()), Arc::clone(&store));
    child.register(&program);
    assert_eq!(
        child.command(op::POPULATE_WRITE, &[], &[(program.memory, PAGES)]),
        1
    );
    take(&child, program.memory, &store);
    assert_eq!(program.ask("verify 0 256"), "ok");
    assert!(program.ask("thread").starts_with("ok"));
    program.say("quit");
    assert_eq!(program.line(), "child ended 0");
    assert_eq!(program.ask("verify 0 256"), "ok");
    program.quit();
}

#[test]
fn child_of_an_active_process_has_its_memory_under_the_pager() {
    let Some((pager, mut program, parent, store, server)) = active() else {
        return;
    };
    program.say("fork");
    let (child, child_server) = attend(&pager, &server, &store);
    assert_eq!(program.line(), format!("child {}", child.hello.pid));
    assert_eq!(program.ask("verify 0 256"), "ok");
    assert_eq!(child.command(op::PING, &[], &[]), 0);
    // A page that came in by a fault is the child's own and goes out again.
    take(&child, program.memory, &store);
    assert_eq!(program.ask("verify 0 256"), "ok");
    assert!(program.ask("thread").starts_with("ok"));
    // A child of the child.
    program.say("fork");
    let (grandchild, _grandchild_server) = attend(&pager, &child_server, &store);
    assert_eq!(program.line(), format!("child {}", grandchild.hello.pid));
    assert_eq!(program.ask("verify 0 256"), "ok");
    program.say("quit");
    assert_eq!(program.line(), "child ended 0");
    program.say("quit");
    assert_eq!(program.line(), "child ended 0");
    assert_eq!(program.ask("verify 0 256"), "ok");
    no_forks(&parent);
    program.quit();
}

#[test]
fn fork_needs_no_descriptor_of_the_program() {
    let Some((pager, mut program, _parent, store, server)) = active() else {
        return;
    };
    assert_eq!(program.ask("closeall"), "ok");
    let before = program.ask("fds");
    program.say("fork");
    let (_child, _child_server) = attend(&pager, &server, &store);
    assert!(program.line().starts_with("child"));
    assert_eq!(program.ask("fds"), before);
    assert_eq!(program.ask("verify 0 256"), "ok");
    program.say("quit");
    assert_eq!(program.line(), "child ended 0");
}

/// The child may see that it has an agent only when the agent has left again.
#[test]
fn a_child_lives_that_is_let_go_of_at_once() {
    let Some((pager, mut program, _parent, store, server)) = active() else {
        return;
    };
    for _ in 0..30 {
        program.say("fork");
        let announcement = pager.accept();
        announcement.stream.send(&ACK, &[], Wait::Yes).unwrap();
        let child = pager.accept();
        let uffd = server.next_fork();
        let _child_server = Server::new(Arc::clone(&uffd), Arc::clone(&store));
        assert_eq!(child.offer(&uffd), ACK);
        child.ring().active.store(CONFINED, Ordering::SeqCst);
        for word in [ACK, TURNED_AWAY] {
            child.stream.send(&word, &[], Wait::Yes).unwrap();
        }
        assert!(child.stream.recv::<u8>(Wait::Yes).is_err(), "it stays");
        assert!(program.line().starts_with("child"));
        assert_eq!(program.ask("verify 0 256"), "ok");
        program.say("quit");
        assert_eq!(program.line(), "child ended 0");
    }
}

#[test]
fn fork_works_behind_a_changed_root_by_the_abstract_name() {
    let Some((pager, mut program, _parent, store, server)) = active() else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may change its root");
        return;
    }
    assert_eq!(program.ask("chroot"), "0");
    let name = pager.listener.path().as_os_str().as_encoded_bytes();
    let address = rustix::net::SocketAddrUnix::new_abstract_name(name).unwrap();
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    let accept = || Stream::from_fd(rustix::net::accept(&socket).unwrap());
    program.say("fork");
    let announcement = Agent::from_stream(accept());
    assert_eq!(announcement.hello.kind, hello::FORK_BEGIN);
    announcement.stream.send(&ACK, &[], Wait::Yes).unwrap();
    let mut child = Agent::from_stream(accept());
    let uffd = server.next_fork();
    let _child_server = Server::new(Arc::clone(&uffd), Arc::clone(&store));
    child.give_inherited(uffd);
    assert!(program.line().starts_with("child"));
    assert_eq!(program.ask("verify 0 256"), "ok");
}

#[test]
fn several_threads_fork_at_once() {
    let Some((pager, mut program, _parent, store, server)) = active() else {
        return;
    };
    const THREADS: usize = 3;
    const FORKS: usize = 6;
    program.say(&format!("threadforks {THREADS} {FORKS}"));
    let (mut children, mut begun) = (Vec::new(), Vec::new());
    for _ in 0..THREADS * FORKS {
        // Forks come one after the other, but a child may say Hello after the next fork has begun.
        let mut left = 2;
        while left > 0 {
            let mut caller = pager.accept();
            if caller.hello.kind == hello::FORK_BEGIN {
                begun.push(caller.hello.fork);
                caller.stream.send(&ACK, &[], Wait::Yes).unwrap();
            } else {
                let uffd = server.fork(
                    begun
                        .iter()
                        .position(|fork| *fork == caller.hello.fork)
                        .unwrap(),
                );
                let child_server = Server::new(Arc::clone(&uffd), Arc::clone(&store));
                caller.give_inherited(uffd);
                children.push((caller, child_server));
            }
            left -= 1;
        }
    }
    assert_eq!(program.line(), "ok");
    assert_eq!(children.len(), THREADS * FORKS);
    assert_eq!(program.ask("verify 0 256"), "ok");
}

#[test]
fn threads_of_a_quiet_process_fork_at_once() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    program.say("threadforks 4 10");
    let mut children = Vec::new();
    while pager.has_caller(Duration::from_millis(300)) {
        // A child may end before it has said anything.
        children.push(pager.listener.accept().unwrap());
    }
    assert_eq!(program.line(), "ok");
    assert!(children.len() <= 40);
    no_forks(&agent);
    program.quit();
}

#[test]
fn death_of_the_pager_kills_children_too() {
    let Some((pager, mut program, parent, store, server)) = active() else {
        return;
    };
    program.say("fork");
    let (child, child_server) = attend(&pager, &server, &store);
    assert!(program.line().starts_with("child"));
    let child_pid = child.hello.pid;
    let start = Instant::now();
    drop((child, child_server, parent, server, pager));
    let status = program.ended(Duration::from_secs(5)).expect("lives on");
    assert_eq!(status.signal(), Some(9));
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{child_pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while alive() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn child_that_the_pager_does_not_answer_is_killed() {
    let Some((pager, mut program, _parent, _store, _server)) = active() else {
        return;
    };
    program.say("fork");
    // The announcement is refused: the child must not live, the parent must.
    drop(pager.accept());
    assert_eq!(program.line(), "child ended 9");
    assert_eq!(program.ask("verify 0 256"), "ok");
    // The announcement is answered, but the child is not taken over.
    program.say("fork");
    pager.accept().stream.send(&ACK, &[], Wait::Yes).unwrap();
    drop(pager.accept());
    assert_eq!(program.line(), "child ended 9");
    assert_eq!(program.ask("verify 0 256"), "ok");
}

#[test]
fn child_of_an_announced_fork_that_inherited_nothing_begins_anew() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, parent) = pager.start();
    // The pager was about to register memory, and did not.
    parent.ring().active.store(1, Ordering::SeqCst);
    program.say("fork");
    pager.accept().stream.send(&ACK, &[], Wait::Yes).unwrap();
    let first = pager.accept();
    assert_eq!(
        (first.hello.kind, first.hello.flags),
        (hello::FORKED, INHERITED)
    );
    first
        .stream
        .send(&NOTHING_INHERITED, &[], Wait::Yes)
        .unwrap();
    let child = pager.accept();
    assert_eq!(
        (child.hello.kind, child.hello.flags, child.hello.fork),
        (hello::FORKED, 0, 0)
    );
    assert_eq!(child.ring().active.load(Ordering::SeqCst), 0);
    assert!(program.line().starts_with("child"));
    assert!(first.stream.recv::<u8>(Wait::Yes).is_err());
    let store: Store = Arc::default();
    let _server = Server::new(Arc::clone(child.main.as_ref().unwrap()), Arc::clone(&store));
    child.register(&program);
    assert_eq!(
        child.command(op::POPULATE_WRITE, &[], &[(program.memory, PAGES)]),
        1
    );
    take(&child, program.memory, &store);
    assert_eq!(program.ask("verify 0 256"), "ok");
    program.say("quit");
    assert_eq!(program.line(), "child ended 0");
}

#[test]
fn child_names_the_parent_that_has_exited_already() {
    let Some((pager, mut program, parent, store, server)) = active() else {
        return;
    };
    program.say("daemon");
    let announcement = pager.accept();
    announcement.stream.send(&ACK, &[], Wait::Yes).unwrap();
    // The child waits for the answer to its Hello, so the parent ends first.
    assert!(program.ended(Duration::from_secs(20)).is_some());
    let mut child = pager.accept();
    assert_eq!(child.hello.parent_pid, parent.hello.pid);
    assert_eq!(child.hello.fork, announcement.hello.fork);
    let uffd = server.next_fork();
    let _child_server = Server::new(Arc::clone(&uffd), Arc::clone(&store));
    child.give_inherited(uffd);
    assert_eq!(program.line(), format!("child {}", child.hello.pid));
    assert_eq!(program.ask("verify 0 256"), "ok");
    program.say("quit");
}

#[test]
fn copy_of_an_agent_that_is_starting_may_fork() {
    if !possible() {
        return;
    }
    // When the copy is made, the agent's thread may not have run yet or may be anywhere in its setup.
    const RUNS: u32 = 40;
    let pager = Pager::new();
    for run in 0..RUNS {
        let mut command = pager.command(common::program());
        command.arg("copy");
        let mut program = Program::start(command);
        let mut agents = Vec::new();
        let ended = loop {
            if pager.has_caller(Duration::ZERO) {
                agents.push(pager.listener.accept().unwrap());
            }
            if let Some(status) = program.ended(Duration::from_millis(1)) {
                break status;
            }
        };
        assert_eq!(ended.code(), Some(0), "run {run}: {ended:?}");
    }
}

#[test]
fn child_finds_its_own_userfaultfd_among_those_of_other_children() {
    let Some((pager, mut program, _parent, store, server)) = active() else {
        return;
    };
    program.say("forkandclone");
    let announcement = pager.accept();
    assert_eq!(announcement.hello.kind, hello::FORK_BEGIN);
    // Its fork waits. Meanwhile another thread is cloned.
    assert_eq!(program.line(), "bare");
    let bare = server.fork(0);
    announcement.stream.send(&ACK, &[], Wait::Yes).unwrap();
    let mut child = pager.accept();
    let own = server.fork(1);
    assert_eq!(child.offer(&bare), NOT_MINE);
    let _child_server = Server::new(Arc::clone(&own), Arc::clone(&store));
    child.give_inherited(own);
    assert_eq!(program.line(), "ok");
    assert_eq!(program.ask("verify 0 256"), "ok");
}
