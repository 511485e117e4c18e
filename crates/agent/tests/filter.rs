//! How the filter comes to the threads of a live program: the agent's first, then the others; or not, and then the
//! program runs on.

mod common;

use std::os::fd::OwnedFd;

use common::{Agent, Pager, Program, possible};
use vswap_sys::process::task::filters_of;
use vswap_sys::ring::{ACK, FILTERS, op};
use vswap_sys::sock::Wait;

const ESRCH: i64 = -3;
const EBUSY: i64 = -16;
const EEXIST: i64 = -17;

fn install(agent: &Agent) -> i64 {
    agent.command(op::INSTALL_FILTER, &[], &[])
}

/// The listener that the agent has sent. Once it is dropped, the kernel takes another one.
fn listener(agent: &Agent) -> Option<OwnedFd> {
    let (byte, mut descriptors) = agent.stream.recv::<u8>(Wait::No).ok()?;
    assert_eq!(byte, ACK);
    descriptors.take(0)
}

/// How many filters each thread has.
fn filters(program: &Program) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", program.child.id())).unwrap();
    let tids = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap());
    tids.map(|tid| filters_of(tid.parse().unwrap()).unwrap())
        .collect()
}

#[test]
fn all_threads_have_the_filter_in_the_end() {
    if !possible() {
        return;
    }
    let (program, agent) = Pager::new().start();
    let before = filters(&program);
    assert!(before.len() > 1, "there is no thread of the agent");
    assert_eq!(install(&agent), 0);
    let _listener = listener(&agent).unwrap();
    let wanted: Vec<_> = before.iter().map(|filters| filters + FILTERS).collect();
    assert_eq!(filters(&program), wanted);
    // The second time it is known to be vswap's.
    assert_eq!(install(&agent), EEXIST);
    assert!(listener(&agent).is_none());
}

#[test]
fn a_thread_with_a_filter_of_its_own_keeps_it_from_all_threads() {
    if !possible() {
        return;
    }
    let (mut program, agent) = Pager::new().start();
    assert_eq!(program.ask("threadfilter"), "ok");
    assert_eq!(install(&agent), ESRCH);
    // The agent has the filter alone. It must not take that for all of it.
    let _listener = listener(&agent).unwrap();
    assert_eq!(install(&agent), EBUSY);
    // Nobody answers the listener: calls of the program must not stop, or fail, there.
    assert!(program.ask("remap 64 64 96").starts_with("ok"));
    assert!(program.ask("thread").starts_with("ok"));
    assert_eq!(agent.command(op::PING, &[], &[]), 0);
    program.quit();
}

#[test]
fn somebody_elses_listener_is_not_taken_for_vswaps() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    assert!(program.ask("listen").starts_with("ok"));
    assert_eq!(program.ask("exec"), "exec");
    program.memory();
    drop(agent);
    let agent = pager.accept();
    assert_eq!(install(&agent), EBUSY);
    assert!(listener(&agent).is_none());
    assert!(program.ask("remap 64 64 96").starts_with("ok"));
    program.quit();
}
