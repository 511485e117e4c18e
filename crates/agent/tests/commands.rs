//! The pager's commands, given to a live program: contents, errors page by page, events, the filter.
//!
//! Unsafe is needed here for the two seccomp ioctls, which rustix does not have.

#![allow(clippy::cast_possible_truncation, reason = "counts of test pages")]

mod common;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{Agent, PAGE, PAGES, Pager, Program, Server, Store, has_message, possible, seeded};
use vswap_sys::ring::{ACK, STAGING_PAGES, op};
use vswap_sys::sock::Wait;

const PATIENCE: Duration = Duration::from_secs(10);
const EAGAIN: i32 = 11;
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;

/// Takes runs of pages out, checks them and puts them into a store.
fn take(agent: &Agent, program: &Program, staging: u64, runs: &[(u64, u64)], store: &Store) {
    let pages: u64 = runs.iter().map(|run| run.1).sum();
    let named: Vec<_> = runs
        .iter()
        .map(|&(first, pages)| (program.page(first), pages))
        .collect();
    assert_eq!(
        agent.command(op::MOVE_OUT, &[staging], &named),
        pages.cast_signed(),
        "{:?}",
        agent.page_errnos(pages as usize)
    );
    assert!(
        agent
            .page_errnos(pages as usize)
            .iter()
            .all(|errno| *errno == 0)
    );
    let staged = agent.staged(staging, pages as usize);
    let indexes = runs.iter().flat_map(|&(first, pages)| first..first + pages);
    for (index, page) in indexes.zip(staged.chunks(PAGE)) {
        for (at, byte) in page.iter().enumerate() {
            assert_eq!(*byte, seeded(index, at), "page {index} byte {at}");
        }
        store
            .lock()
            .unwrap()
            .insert(program.page(index), page.to_vec());
    }
    assert_eq!(agent.command(op::STAGING_FREE, &[staging, pages], &[]), 0);
}

/// Resident pages of a process.
fn resident(agent: &Agent) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", agent.pid())).unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

fn armed() -> Option<(Pager, Program, Agent, Store, Server)> {
    if !possible() {
        return None;
    }
    let pager = Pager::new();
    let (program, agent) = pager.start();
    let store: Store = Arc::default();
    let server = Server::new(Arc::clone(agent.main.as_ref().unwrap()), Arc::clone(&store));
    agent.register(&program);
    Some((pager, program, agent, store, server))
}

#[test]
fn pages_go_out_and_come_back() {
    let Some((_pager, mut program, agent, store, _server)) = armed() else {
        return;
    };
    for lap in 0..4 {
        // First all in single pages, then in runs at changing places of staging.
        take(&agent, &program, 0, &[(0, PAGES)], &store);
        assert_eq!(program.ask("verify 0 256"), "ok");
        let singles: Vec<_> = (0..PAGES / 2).map(|index| (index * 2, 1)).collect();
        take(&agent, &program, 1024 - PAGES / 2, &singles, &store);
        assert_eq!(program.ask("verify 0 256"), "ok");
        take(
            &agent,
            &program,
            17 + lap,
            &[(3, 5), (100, 60), (40, 1)],
            &store,
        );
        assert_eq!(program.ask("verify 0 256"), "ok");
    }
}

#[test]
fn staging_gives_memory_back_without_an_event() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (program, agent) = pager.start();
    agent.register(&program);
    let before = resident(&agent);
    let all = [(program.memory, PAGES)];
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &all), PAGES.cast_signed());
    assert_eq!(agent.command(op::STAGING_FREE, &[0, PAGES], &[]), 0);
    assert!(resident(&agent) + PAGES - 8 < before);
    // Nobody reads events in this test, so with an event the command would not have come back.
    assert!(!has_message(agent.main()));
    // Holes and staging pages that are already free are no error. Ranges outside of staging are.
    assert_eq!(agent.command(op::STAGING_FREE, &[0, 1024], &[]), 0);
    assert_eq!(
        agent.command(op::STAGING_FREE, &[1000, 25], &[]),
        -i64::from(EINVAL)
    );
    assert_eq!(
        agent.command(op::STAGING_FREE, &[u64::MAX, 2], &[]),
        -i64::from(EINVAL)
    );
}

#[test]
fn pages_that_cannot_move_keep_their_errno() {
    let Some((_pager, mut program, agent, store, _server)) = armed() else {
        return;
    };
    const PROT_READ: u32 = 1;
    // A hole in the middle, a read-only part, and a part that is not mapped.
    take(&agent, &program, 0, &[(10, 1)], &store);
    assert_eq!(program.ask(&format!("protect 20 4 {PROT_READ}")), "0");
    assert_eq!(program.ask("unmap 40 4"), "0");
    let run = [(program.page(8), 36), (program.page(50), 2)];
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &run), 29);
    let errnos = agent.page_errnos(38);
    for (index, errno) in (8..44).chain(50..52).zip(&errnos) {
        let expected = match index {
            10 | 40..44 => ENOENT,
            20..24 => EINVAL,
            _ => 0,
        };
        assert_eq!(*errno, expected, "page {index}");
    }
    // Pages keep their place in staging.
    assert_eq!(agent.staged(24 - 8, 1)[5], seeded(24, 5));
}

#[test]
fn bounds_of_the_ring_are_checked() {
    let Some((_pager, mut program, agent, _store, _server)) = armed() else {
        return;
    };
    let refused = -i64::from(EINVAL);
    let page = program.memory;
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &[(page, 513)]), refused);
    assert_eq!(
        agent.command(op::MOVE_OUT, &[0], &[(page, u64::MAX), (page, 2)]),
        refused
    );
    assert_eq!(agent.command(op::MOVE_OUT, &[1023], &[(page, 2)]), refused);
    assert_eq!(
        agent.command(op::MOVE_OUT, &[u64::MAX], &[(page, 2)]),
        refused
    );
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &[]), 0);
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &[(page + 1, 1)]), 0);
    assert_eq!(agent.page_errnos(1), [EINVAL]);
    assert_eq!(program.ask("verify 0 256"), "ok");
}

#[test]
fn an_unread_event_stops_everything() {
    if !possible() {
        return;
    }
    let pager = Pager::new();
    let (mut program, agent) = pager.start();
    agent.register(&program);
    program.say("advise 0 1 4");
    while !has_message(agent.main()) {
        std::thread::yield_now();
    }
    let runs = [(program.page(8), 4), (program.page(100), 2)];
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &runs), 0);
    assert_eq!(agent.page_errnos(6), [EAGAIN; 6]);
    let server = Server::new(Arc::clone(agent.main.as_ref().unwrap()), Arc::default());
    assert_eq!(program.line(), "0");
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &runs), 6);
    // The program runs on as soon as the event is read. The server may not have noted it yet.
    while server.events.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn populate_write_makes_pages_movable_after_a_fork() {
    let Some((_pager, mut program, agent, store, _server)) = armed() else {
        return;
    };
    // A fork without the hooks, so that the pager is not asked. The children are gone when the answer comes.
    assert_eq!(program.ask("barefork"), "ok");
    let run = [(program.page(30), 8)];
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &run), 0);
    assert_eq!(agent.page_errnos(8), [EBUSY; 8]);
    let runs = [(program.page(30), 8), (16, 1)];
    assert_eq!(agent.command(op::POPULATE_WRITE, &[], &runs), 1);
    take(&agent, &program, 0, &[(30, 8)], &store);
    assert_eq!(program.ask("verify 0 256"), "ok");
}

#[test]
fn agent_steps_aside_for_calls_that_want_one_thread() {
    const CLONE_THREAD: &str = "65536";
    let Some((_pager, mut program, agent, store, _server)) = armed() else {
        return;
    };
    let tid = |agent: &Agent| agent.ring().agent_tid.load(Ordering::SeqCst);
    let descriptors = program.ask("fds");
    let mut last = tid(&agent);
    assert_eq!(last, 0);
    for round in 0..20 {
        take(&agent, &program, 0, &[(0, 16)], &store);
        assert_eq!(program.ask(&format!("unshare {CLONE_THREAD}")), "ok 0");
        assert_ne!(tid(&agent), last, "round {round}");
        last = tid(&agent);
        assert_eq!(agent.command(op::PING, &[], &[]), 0);
        assert_eq!(program.ask("verify 0 256"), "ok");
    }
    assert_eq!(program.ask("fds"), descriptors);
    // The thread that takes over carries out commands that have come meanwhile.
    for _ in 0..200 {
        program.say(&format!("unshare {CLONE_THREAD}"));
        for _ in 0..5 {
            assert_eq!(agent.command(op::PING, &[], &[]), 0);
        }
        assert_eq!(program.line(), "ok 0");
    }
    last = tid(&agent);
    // With threads of the program's own, or for wrong calls, the kernel refuses and nobody leaves.
    for refused in ["threadedunshare 65536", "unshare 1", "threadedunshare 1"] {
        assert_eq!(program.ask(refused), "ok 22", "{refused}");
    }
    assert_eq!(tid(&agent), last);
    assert_eq!(program.ask("threadforks 0 0"), "ok");
    program.quit();
}

/// Reads one notification of the filter: id, pid, number of the call, arguments.
fn notification(listener: &OwnedFd) -> [u64; 10] {
    const SECCOMP_IOCTL_NOTIF_RECV: u64 = 0xc050_2100;
    let mut record = [0_u64; 10];
    // SAFETY: the record has the size and alignment of seccomp_notif.
    let got = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            SECCOMP_IOCTL_NOTIF_RECV,
            record.as_mut_ptr(),
        )
    };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    record
}

/// Answers a notification with a value.
fn answer(listener: &OwnedFd, id: u64, value: i64) {
    send(listener, [id, value.cast_unsigned(), 0]);
}

/// Sends id, value, error and flags.
fn send(listener: &OwnedFd, mut record: [u64; 3]) {
    const SECCOMP_IOCTL_NOTIF_SEND: u64 = 0xc018_2101;
    // SAFETY: the record has the size and alignment of seccomp_notif_resp.
    let sent = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            SECCOMP_IOCTL_NOTIF_SEND,
            record.as_mut_ptr(),
        )
    };
    assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
}

/// Lets the call run as it is.
fn go_on(listener: &OwnedFd, id: u64) {
    const FLAG_CONTINUE: u64 = 1 << 32;
    send(listener, [id, 0, FLAG_CONTINUE]);
}

/// Lets the program's own brk and mmap run and counts them. Lets set_tid_address run too, which each program calls as
/// it starts, and rt_sigaction, which libc calls for itself. Hands everything else over.
fn without_allocations(listener: &Arc<OwnedFd>) -> (mpsc::Receiver<[u64; 10]>, Arc<AtomicUsize>) {
    let (hand_over, others) = mpsc::channel();
    let allocations = Arc::new(AtomicUsize::new(0));
    let (listener, count) = (Arc::clone(listener), Arc::clone(&allocations));
    // The thread ends with the test's process: it receives until the last program under the filter is gone.
    std::thread::spawn(move || {
        loop {
            let record = notification(&listener);
            if matches!(record[2] as u32, 9 | 12) {
                count.fetch_add(1, Ordering::SeqCst);
                go_on(&listener, record[0]);
            } else if matches!(record[2] as u32, 13 | 218) {
                go_on(&listener, record[0]);
            } else if hand_over.send(record).is_err() {
                return;
            }
        }
    });
    (others, allocations)
}

#[test]
fn the_filter_brings_what_it_should_to_the_pager_and_nothing_else() {
    let Some((pager, mut program, agent, store, server)) = armed() else {
        return;
    };
    assert_eq!(agent.command(op::INSTALL_FILTER, &[], &[]), 0);
    let (byte, mut descriptors) = agent.stream.recv::<u8>(Wait::Yes).unwrap();
    let listener = Arc::new(descriptors.take(0).unwrap());
    let (calls, allocations) = without_allocations(&listener);
    let next = || calls.recv_timeout(PATIENCE).unwrap();
    assert_eq!(byte, ACK);
    // There can be only one listener.
    assert_eq!(
        agent.command(op::INSTALL_FILTER, &[], &[]),
        -i64::from(EEXIST)
    );

    take(&agent, &program, 0, &[(64, 64)], &store);
    program.say("remap 64 64 96");
    let record = next();
    assert_eq!(record[1] as u32, agent.pid());
    assert_eq!(record[2] as u32, 25);
    let arguments = &record[4..9];
    assert_eq!(
        arguments[..3],
        [program.page(64), 64 * PAGE as u64, 96 * PAGE as u64]
    );
    let moved: HashMap<_, _> = {
        let pages = store.lock().unwrap();
        pages
            .iter()
            .map(|(address, page)| (address - program.page(64), page.clone()))
            .collect()
    };
    let address = agent.command(op::MREMAP, arguments, &[]);
    assert!(address > 0);
    for (offset, page) in moved {
        store
            .lock()
            .unwrap()
            .insert(address.cast_unsigned() + offset, page);
    }
    answer(&listener, record[0], address);
    assert_eq!(program.line(), format!("ok {address:#x}"));
    let events = Mutex::lock(&server.events).unwrap().join(" ");
    assert!(
        events.starts_with("Remap") && events.contains("Unmap"),
        "{events}"
    );

    // MADV_FREE stops, MADV_DONTNEED does not.
    assert_eq!(program.ask("advise 0 1 4"), "0");
    program.say("advise 1 2 8");
    let record = next();
    assert_eq!((record[2] as u32, record[6]), (28, 8));
    // As the pager does it: first the kernel agrees, then the pages go at once.
    let advise = |advice| agent.command(op::ADVISE, &[record[4], record[5], advice, 0], &[]);
    assert_eq!([8, 4].map(advise), [0, 0]);
    answer(&listener, record[0], 0);
    assert_eq!(program.line(), "0");
    assert_eq!(program.ask("verify 3 64"), "ok");
    assert_eq!(program.ask("verify 1 3"), "wrong page 1");

    // The next image inherits the filter. Its agent's own calls pass it all the same.
    let before = allocations.load(Ordering::SeqCst);
    assert_eq!(program.ask("exec"), "exec");
    program.memory();
    let allocated = allocations.load(Ordering::SeqCst) - before;
    assert!(allocated > 0, "its 1 MiB of memory was mapped unasked");
    let agent = pager.accept();
    assert_eq!(
        agent.command(op::INSTALL_FILTER, &[], &[]),
        -i64::from(EEXIST)
    );
    let size = 16 * PAGE as u64;
    let address = agent.command(op::MREMAP, &[program.memory, size, 2 * size, 0, 0], &[]);
    assert_eq!(address, -12);
    assert_eq!(program.ask("verify 0 256"), "ok");
    makes_mappings_and_moves_the_break(&agent);
}

#[test]
fn the_filter_brings_beginnings_and_ends_of_threads_to_the_pager() {
    let Some((_pager, mut program, agent, _store, _server)) = armed() else {
        return;
    };
    assert_eq!(agent.command(op::INSTALL_FILTER, &[], &[]), 0);
    let (_, mut descriptors) = agent.stream.recv::<u8>(Wait::Yes).unwrap();
    let listener = Arc::new(descriptors.take(0).unwrap());
    let (calls, _) = without_allocations(&listener);
    program.say("thread");
    for call in [435, 60] {
        let record = calls.recv_timeout(PATIENCE).unwrap();
        assert_eq!(record[2] as u32, call);
        go_on(&listener, record[0]);
    }
    assert!(program.line().starts_with("ok"));
}

/// The agent's own mmap and brk pass the filter too. Otherwise nobody would answer them here.
fn makes_mappings_and_moves_the_break(agent: &Agent) {
    const READ_WRITE: u64 = 3;
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    let bytes = 4 << 20;
    let mapped = agent.command(op::MMAP, &[0, bytes, READ_WRITE, PRIVATE_ANONYMOUS], &[]);
    assert!(
        mapped > 0 && mapped.cast_unsigned().is_multiple_of(PAGE as u64),
        "{mapped}"
    );
    assert_eq!(
        agent.command(op::MMAP, &[0, 0, READ_WRITE, PRIVATE_ANONYMOUS], &[]),
        -22
    );
    let now = agent.command(op::BRK, &[0], &[]);
    let grown = agent.command(op::BRK, &[now.cast_unsigned() + bytes], &[]);
    assert_eq!(grown - now, bytes.cast_signed());
    let ring = agent.ring.as_ref().unwrap();
    assert_eq!(ring.before.load(Ordering::SeqCst), now.cast_unsigned());
}

#[test]
fn locking_all_memory_does_not_hang_in_staging() {
    let Some((_pager, mut program, agent, store, _server)) = armed() else {
        return;
    };
    // The server answers for missing pages of staging A like any others. For staging B nobody has to answer.
    assert_eq!(program.ask("lockall"), "0");
    // Pages that were put into staging are in the way until they are freed.
    assert_eq!(agent.command(op::STAGING_FREE, &[0, 1024], &[]), 0);
    take(&agent, &program, 0, &[(0, PAGES)], &store);
    assert_eq!(program.ask("verify 0 256"), "ok");
}

#[test]
fn staging_is_freed_though_one_of_its_two_ranges_is_locked() {
    let Some((_pager, mut program, agent, _store, _server)) = armed() else {
        return;
    };
    let page = program.page(0);
    assert_eq!(agent.command(op::MOVE_OUT, &[0], &[(page, 1)]), 1);
    // The program locks all its memory while the other range has just been unlocked.
    let staging = agent.hello.staging;
    let locked = program.ask(&format!("lock {staging} {}", STAGING_PAGES * PAGE));
    assert_eq!(locked, "0");
    assert_eq!(agent.command(op::STAGING_FREE, &[0, 1], &[]), 0);
}
