//! userfaultfd against the running kernel: every call and every message, contents compared byte for byte.
//!
//! Unsafe is needed here because the tests register, move and discard their own memory, which they reach by address.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::{FEATURES, PAGE, PAGE_U64, address, fill, in_child, memory, page, pointer, read};
use vswap_sys::eventfd::EventFd;
use vswap_sys::memory::Mapping;
use vswap_sys::uffd::{
    Message, Messages, Ready, Registered, UffdError, Userfaultfd, Waiter, copy_mode, mode,
    move_mode,
};

const SEED: u64 = 0x5EED;
/// The key of the userfaultfd in tests that wait for only one.
const KEY: u64 = 7;
// The mapping is made before the userfaultfd that watches it. Locals are dropped in reverse order, and unmapping
// watched memory would wait for a reader.
const PATIENCE: Duration = Duration::from_secs(10);

fn register(uffd: &Userfaultfd, mapping: &Mapping, modes: u64) {
    // SAFETY: the mapping is the test's own and is reached only through raw pointers.
    unsafe { uffd.register(mapping.address(), mapping.bytes() as u64, modes) }.unwrap();
}

fn move_pages(
    uffd: &Userfaultfd,
    to: u64,
    from: u64,
    pages: u64,
    modes: u64,
) -> Result<(), UffdError> {
    // SAFETY: the tests move pages of their own mappings and expect their loss.
    unsafe { uffd.move_pages(to, from, pages * PAGE_U64, modes) }
}

fn wait(
    uffd: &Userfaultfd,
    stop: &EventFd,
    timeout: Option<Duration>,
) -> Result<Ready, std::io::Error> {
    let waiter = Waiter::new(stop)?;
    waiter.watch(uffd, KEY)?;
    Ok(waiter.wait(timeout)?)
}

/// The next message, or a panic after some seconds.
fn next(uffd: &Userfaultfd) -> Message {
    let (mut messages, idle) = (Messages::new(), EventFd::new().unwrap());
    let ready = wait(uffd, &idle, Some(PATIENCE)).unwrap();
    assert_eq!(ready, Ready::Messages(KEY), "no message came");
    assert_eq!(uffd.read(&mut messages, 1).unwrap(), 1);
    messages.next().unwrap()
}

fn settle(uffd: &Userfaultfd) {
    let start = Instant::now();
    while uffd.events_pending() {
        assert!(start.elapsed() < PATIENCE, "EAGAIN for ever");
        std::thread::yield_now();
    }
}

/// Answers missing faults on `mapping` with seeded pages until `stop`. Returns how many it answered.
fn serve(uffd: &Userfaultfd, base: u64, stop: &EventFd) -> usize {
    let (mut messages, mut served) = (Messages::new(), 0);
    loop {
        let ready = wait(uffd, stop, Some(PATIENCE)).unwrap();
        if ready != Ready::Messages(KEY) {
            return served;
        }
        uffd.read(&mut messages, 8).unwrap();
        for message in messages.by_ref() {
            let Message::Fault {
                address,
                wp: false,
                minor: false,
                tid,
                ..
            } = message
            else {
                panic!("{message:?}")
            };
            assert_ne!(tid, 0);
            let at = address & !(PAGE_U64 - 1);
            let content = page(SEED, (at - base) / PAGE_U64);
            match uffd.copy(at, content.as_ptr(), PAGE_U64, 0) {
                Ok(()) => served += 1,
                Err(UffdError::Exists { .. }) => uffd.wake(at, PAGE_U64).unwrap(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn faults_of_several_threads_are_answered_with_their_pages() {
    let _alone = support::alone();
    let (mapping, stop) = (memory(256), EventFd::new().unwrap());
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING | mode::WP);
    std::thread::scope(|scope| {
        let servers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| serve(&uffd, mapping.address(), &stop)))
            .collect();
        let readers: Vec<_> = (0..3)
            .map(|start| {
                let mapping = &mapping;
                scope.spawn(move || {
                    for step in 0..256 {
                        let index = (start * 85 + step * 101) % 256;
                        assert!(
                            read(mapping, index) == page(SEED, index as u64),
                            "page {index}"
                        );
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().unwrap();
        }
        stop.signal().unwrap();
        let served: usize = servers
            .into_iter()
            .map(|server| server.join().unwrap())
            .sum();
        assert_eq!(served, 256);
    });
}

#[test]
fn errors_mean_what_they_say_and_count_bytes() {
    let _alone = support::alone();
    let (mapping, other) = (memory(16), memory(1));
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING | mode::WP);
    let source = page(SEED, 0);
    let at = |index| address(&mapping, index);
    let copy = |index: usize| uffd.copy(at(index), source.as_ptr(), PAGE_U64, 0);
    copy(4).unwrap();
    assert_eq!(copy(4), Err(UffdError::Exists { done_bytes: 0 }));
    // Four pages come before the one that is there already.
    let partial = uffd.zeropage(at(0), 8 * PAGE_U64, false);
    assert_eq!(
        partial,
        Err(UffdError::Again {
            done_bytes: 4 * PAGE_U64
        })
    );
    let rest = uffd.zeropage(at(4), 4 * PAGE_U64, false);
    assert_eq!(rest, Err(UffdError::Exists { done_bytes: 0 }));
    assert!(read(&mapping, 3) == [0; PAGE] && read(&mapping, 4) == source);
    let elsewhere = uffd.copy(other.address(), source.as_ptr(), PAGE_U64, 0);
    assert_eq!(elsewhere, Err(UffdError::NoEntry { done_bytes: 0 }));
    assert_eq!(
        uffd.write_protect(other.address(), PAGE_U64),
        Err(UffdError::NoEntry { done_bytes: 0 })
    );
    let crooked = uffd.copy(at(5) + 1, source.as_ptr(), PAGE_U64, 0);
    assert_eq!(crooked, Err(UffdError::Invalid { done_bytes: 0 }));
    let nowhere = uffd.copy(at(5), std::ptr::without_provenance(0x1000), PAGE_U64, 0);
    assert_eq!(
        nowhere,
        Err(UffdError::Other {
            errno: libc::EFAULT,
            done_bytes: 0
        })
    );
    assert_eq!(uffd.wake(1, 1), Err(UffdError::Invalid { done_bytes: 0 }));
    // A second userfaultfd may not watch the same range.
    let second = support::uffd(FEATURES).unwrap();
    // SAFETY: the kernel refuses the call.
    let twice = unsafe { second.register(at(0), PAGE_U64, mode::MISSING) };
    assert_eq!(twice, Err(UffdError::Busy { done_bytes: 0 }));
    uffd.unregister(at(0), mapping.bytes() as u64).unwrap();
    assert_eq!(copy(9), Err(UffdError::NoEntry { done_bytes: 0 }));
    assert!(read(&mapping, 9) == [0; PAGE]);
}

#[test]
fn a_layout_event_makes_calls_wait_until_it_is_read() {
    let _alone = support::alone();
    let (mapping, staging) = (memory(16), memory(16));
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING | mode::WP);
    register(&uffd, &staging, mode::MISSING);
    let source = page(SEED, 1);
    for index in 0..4 {
        uffd.copy(address(&mapping, index), source.as_ptr(), PAGE_U64, 0)
            .unwrap();
    }
    assert!(!uffd.events_pending());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: nothing else uses these pages.
            unsafe { mapping.discard(0, 2 * PAGE) }.unwrap();
            done.store(true, Ordering::Release);
        });
        let start = Instant::now();
        while !uffd.events_pending() {
            assert!(start.elapsed() < PATIENCE, "no event was raised");
        }
        let again = Err(UffdError::Again { done_bytes: 0 });
        for _ in 0..100 {
            assert!(uffd.events_pending());
        }
        assert_eq!(
            uffd.copy(address(&mapping, 8), source.as_ptr(), PAGE_U64, 0),
            again
        );
        assert_eq!(uffd.zeropage(address(&mapping, 8), PAGE_U64, false), again);
        assert_eq!(uffd.write_protect(address(&mapping, 2), PAGE_U64), again);
        assert_eq!(
            move_pages(&uffd, staging.address(), address(&mapping, 2), 1, 0),
            again
        );
        assert!(
            !done.load(Ordering::Acquire),
            "the discard must wait for the reader"
        );
        let (first, second) = (address(&mapping, 0), address(&mapping, 2));
        let message = next(&uffd);
        assert!(
            matches!(message, Message::Remove { start, end } if (start, end) == (first, second))
        );
    });
    settle(&uffd);
    assert!(!uffd.events_pending(), "asking does not make it so");
    assert!(
        read(&mapping, 2) == source,
        "the bogus call must change nothing"
    );
}

#[test]
fn unmap_and_remap_are_reported_with_their_ranges() {
    let _alone = support::alone();
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    let bytes = 4 * PAGE;
    // SAFETY: new memory, which only this test uses, unmapped and moved below.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(place, libc::MAP_FAILED);
    let from = place.addr() as u64;
    // SAFETY: the memory is the test's own, as above.
    unsafe { uffd.register(from, bytes as u64, mode::MISSING) }.unwrap();
    uffd.copy(from, page(SEED, 3).as_ptr(), PAGE_U64, 0)
        .unwrap();
    let target = memory(4);
    let to = target.address();
    std::thread::scope(|scope| {
        let target = &target;
        let place = place.expose_provenance();
        scope.spawn(move || {
            let old = std::ptr::with_exposed_provenance_mut(place);
            // SAFETY: moves one mapping of the test over another of the test.
            let moved = unsafe {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                libc::mremap(old, bytes, bytes, flags, target.pointer().as_ptr())
            };
            assert_eq!(moved.addr() as u64, to);
        });
        let message = next(&uffd);
        assert!(
            matches!(message, Message::Remap { from: f, to: t, bytes: b } if (f, t, b) == (from, to, bytes as u64)),
            "{message:?}"
        );
        let message = next(&uffd);
        assert!(
            matches!(message, Message::Unmap { start, end } if (start, end) == (from, from + bytes as u64)),
            "{message:?}"
        );
    });
    assert!(read(&target, 0) == page(SEED, 3), "the page moved along");
    std::thread::scope(|scope| {
        scope.spawn(move || drop(target));
        let message = next(&uffd);
        assert!(
            matches!(message, Message::Unmap { start, end } if (start, end) == (to, to + bytes as u64))
        );
    });
}

#[test]
fn moved_pages_arrive_whole_and_leave_holes() {
    let _alone = support::alone();
    let (program, staging) = (memory(64), memory(64));
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    for index in 0..64 {
        fill(&program, SEED, index);
    }
    register(&uffd, &program, mode::MISSING | mode::WP);
    register(&uffd, &staging, mode::MISSING);
    let (from, to) = (
        |index| address(&program, index),
        |index| address(&staging, index),
    );
    move_pages(&uffd, to(0), from(0), 32, 0).unwrap();
    for index in 0..32 {
        assert!(
            read(&staging, index) == page(SEED, index as u64),
            "page {index}"
        );
    }
    // 24..32 have left. The move stops at the hole and tells how far it came.
    assert_eq!(
        move_pages(&uffd, to(32), from(31), 1, 0),
        Err(UffdError::NoEntry { done_bytes: 0 })
    );
    uffd.copy(from(30), page(SEED, 30).as_ptr(), PAGE_U64, 0)
        .unwrap();
    let partial = move_pages(&uffd, to(32), from(30), 4, 0);
    assert_eq!(
        partial,
        Err(UffdError::Again {
            done_bytes: PAGE_U64
        })
    );
    move_pages(&uffd, to(33), from(31), 4, move_mode::ALLOW_SRC_HOLES).unwrap();
    assert!(read(&staging, 34) == page(SEED, 32) && read(&staging, 36) == page(SEED, 34));
    assert_eq!(
        move_pages(&uffd, to(32), from(40), 1, 0),
        Err(UffdError::Exists { done_bytes: 0 })
    );
    // The holes fault, and are filled with what was moved.
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&program, 5));
        let Message::Fault {
            address,
            write: false,
            ..
        } = next(&uffd)
        else {
            panic!()
        };
        assert_eq!(address & !(PAGE_U64 - 1), from(5));
        uffd.copy(from(5), pointer(&staging, 5), PAGE_U64, 0)
            .unwrap();
        assert!(reader.join().unwrap() == page(SEED, 5));
    });
}

#[test]
fn writes_to_protected_pages_wait() {
    let _alone = support::alone();
    let mapping = memory(4);
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING | mode::WP);
    let at = |index| address(&mapping, index);
    uffd.copy(at(0), page(SEED, 0).as_ptr(), PAGE_U64, copy_mode::WP)
        .unwrap();
    uffd.copy(at(1), page(SEED, 1).as_ptr(), PAGE_U64, 0)
        .unwrap();
    uffd.write_protect(at(1), PAGE_U64).unwrap();
    assert!(read(&mapping, 0) == page(SEED, 0), "reading does not wait");
    for index in 0..2 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the page is the test's own, and nobody reads it meanwhile.
                unsafe { pointer(&mapping, index).write_volatile(0x77) }
            });
            let message = next(&uffd);
            assert!(
                matches!(message, Message::Fault { wp: true, write: true, address, .. } if address == at(index)),
                "{message:?}"
            );
            uffd.write_unprotect(at(index), PAGE_U64, false).unwrap();
        });
        let mut expected = page(SEED, index as u64);
        expected[0] = 0x77;
        assert!(read(&mapping, index) == expected);
    }
}

#[test]
fn a_forked_childs_faults_come_on_its_own_userfaultfd() {
    let _alone = support::alone();
    let (mapping, stop) = (memory(8), EventFd::new().unwrap());
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING | mode::WP);
    uffd.copy(address(&mapping, 0), page(SEED, 0).as_ptr(), PAGE_U64, 0)
        .unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let Message::Fork { uffd: child } = next(&uffd) else {
                panic!("no fork message")
            };
            let served = serve(&child, mapping.address(), &stop);
            assert!(!child.events_pending());
            (
                served,
                child.copy(mapping.address(), page(SEED, 0).as_ptr(), PAGE_U64, 0),
            )
        });
        let code = in_child(|| {
            let whole = (0..8).all(|index| read(&mapping, index) == page(SEED, index as u64));
            i32::from(!whole)
        });
        assert_eq!(code, 0);
        stop.signal().unwrap();
        let (served, after) = server.join().unwrap();
        assert_eq!(served, 7);
        assert_eq!(after, Err(UffdError::Gone));
    });
}

#[test]
fn what_is_poisoned_in_a_child_ends_the_child_and_nobody_else() {
    let _alone = support::alone();
    let mapping = memory(3);
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING | mode::WP);
    for index in [0, 2] {
        let content = page(SEED, index as u64);
        uffd.copy(address(&mapping, index), content.as_ptr(), PAGE_U64, 0)
            .unwrap();
    }
    let first_of = |index: u64| page(SEED, index)[0];
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let Message::Fork { uffd: child } = next(&uffd) else {
                panic!("no fork message")
            };
            child.poison(address(&mapping, 1), PAGE_U64, false).unwrap();
            child
        });
        let code = in_child(|| {
            let whole = read(&mapping, 0)[0] == first_of(0) && read(&mapping, 2)[0] == first_of(2);
            // SAFETY: the page is the test's own. Reading it raises SIGBUS, which ends the child.
            let lost = unsafe { pointer(&mapping, 1).read_volatile() };
            i32::from(whole) + i32::from(lost)
        });
        assert_eq!(code, 128 + libc::SIGBUS);
        drop(server.join().unwrap());
    });
    uffd.copy(address(&mapping, 1), page(SEED, 1).as_ptr(), PAGE_U64, 0)
        .unwrap();
    assert!((0..3).all(|index| read(&mapping, index) == page(SEED, index as u64)));
}

#[test]
fn unread_fork_messages_close_their_descriptor() {
    let _alone = support::alone();
    let mapping = memory(1);
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING);
    let userfaultfds = || {
        std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|link| link.to_string_lossy().contains("userfaultfd"))
            .count()
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let idle = EventFd::new().unwrap();
            let ready = wait(&uffd, &idle, Some(PATIENCE)).unwrap();
            assert_eq!(ready, Ready::Messages(KEY));
            let mut messages = Messages::new();
            assert_eq!(uffd.read(&mut messages, 64).unwrap(), 1);
            assert_eq!((messages.len(), userfaultfds()), (1, 2));
            drop(messages);
            assert_eq!(userfaultfds(), 1);
        });
        assert_eq!(in_child(|| 0), 0);
        server.join().unwrap();
    });
}

#[test]
fn poisoned_pages_cannot_be_read() {
    let _alone = support::alone();
    let mapping = memory(2);
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING);
    uffd.poison(mapping.address(), PAGE_U64, false).unwrap();
    uffd.zeropage(address(&mapping, 1), PAGE_U64, false)
        .unwrap();
    let mut into = [1u8; 8];
    let local = [vswap_sys::process::LocalSpan {
        pointer: into.as_mut_ptr(),
        bytes: into.len(),
    }];
    let remote = |index| {
        [vswap_sys::process::RemoteSpan {
            address: address(&mapping, index),
            bytes: 8,
        }]
    };
    let pid = std::process::id();
    // SAFETY: `into` is the test's own.
    unsafe {
        let poisoned = vswap_sys::process::read_memory(pid, &remote(0), &local);
        assert_eq!(poisoned, Err(vswap_sys::process::ReadError::Fault));
        assert_eq!(
            vswap_sys::process::read_memory(pid, &remote(1), &local),
            Ok(8)
        );
    }
    assert_eq!(into, [0; 8]);
    assert_eq!(
        uffd.poison(address(&mapping, 1), PAGE_U64, true),
        Err(UffdError::Exists { done_bytes: 0 })
    );
}

#[test]
fn waiting_ends_by_time_and_by_signal_and_clones_see_the_same() {
    let _alone = support::alone();
    let (mapping, stop) = (memory(1), EventFd::new().unwrap());
    let Some(uffd) = support::uffd(FEATURES) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING);
    let short = Some(Duration::from_millis(1));
    assert_eq!(wait(&uffd, &stop, short).unwrap(), Ready::Nothing);
    assert_eq!(uffd.read(&mut Messages::new(), 64).unwrap(), 0);
    stop.signal().unwrap();
    let clone = uffd.try_clone().unwrap();
    assert_eq!(wait(&clone, &stop, None).unwrap(), Ready::Stop);
    std::thread::scope(|scope| {
        scope.spawn(|| read(&mapping, 0));
        assert!(matches!(next(&clone), Message::Fault { .. }));
        clone.zeropage(mapping.address(), PAGE_U64, false).unwrap();
    });
    uffd.set_nonblocking(false).unwrap();
    let idle = EventFd::new().unwrap();
    assert_eq!(
        wait(&clone, &idle, short).unwrap(),
        Ready::Broken(KEY),
        "blocking ones cannot be polled"
    );
}

#[test]
fn a_waiter_hears_of_all_that_it_watches_and_of_nothing_that_it_has_forgotten() {
    let _alone = support::alone();
    let (mappings, stop) = ([memory(1), memory(1)], EventFd::new().unwrap());
    let [Some(first), Some(second)] = [support::uffd(FEATURES), support::uffd(FEATURES)] else {
        return;
    };
    register(&first, &mappings[0], mode::MISSING);
    register(&second, &mappings[1], mode::MISSING);
    let (waiter, short) = (Waiter::new(&stop).unwrap(), Some(Duration::from_millis(50)));
    waiter.watch(&first, 1).unwrap();
    waiter.watch(&second, 2).unwrap();
    waiter.watch(&second, 2).unwrap();
    std::thread::scope(|scope| {
        for mapping in &mappings {
            scope.spawn(move || read(mapping, 0));
        }
        let hear = || match waiter.wait(Some(PATIENCE)).unwrap() {
            Ready::Messages(key) => usize::try_from(key).unwrap(),
            other => panic!("{other:?}"),
        };
        // A thread may begin late, so nothing is counted until both wait for their pages.
        let began = Instant::now();
        let mut first_heard = [false; 3];
        while !(first_heard[1] && first_heard[2]) && began.elapsed() < PATIENCE {
            first_heard[hear()] = true;
        }
        let mut heard = [0; 3];
        (0..20).for_each(|_| heard[hear()] += 1);
        // Userfaultfds that are ready take turns, although nobody reads them.
        assert!(heard[1] >= 5 && heard[2] >= 5, "{heard:?}");
        waiter.forget(&first);
        waiter.forget(&first);
        assert_eq!(waiter.wait(short).unwrap(), Ready::Messages(2));
        waiter.forget(&second);
        assert_eq!(waiter.wait(short).unwrap(), Ready::Nothing);
        // A waiter that begins late hears of messages that are still unread.
        waiter.step_back(&first, 1).unwrap();
        assert_eq!(waiter.wait(short).unwrap(), Ready::Messages(1));
        for (uffd, mapping) in [&first, &second].into_iter().zip(&mappings) {
            uffd.zeropage(mapping.address(), PAGE_U64, false).unwrap();
        }
    });
}

#[test]
fn whether_memory_is_registered_can_be_asked_for_while_an_event_is_unread() {
    let _alone = support::alone();
    let (mapping, other) = (memory(8), memory(8));
    let (Some(uffd), Some(quiet)) = (support::uffd(FEATURES), support::uffd(0)) else {
        return;
    };
    register(&uffd, &mapping, mode::MISSING | mode::WP);
    let start = mapping.address();
    let ask = |uffd: &Userfaultfd, first: u64, pages: u64| {
        uffd.is_registered(start + first * PAGE_U64, pages * PAGE_U64)
    };
    assert_eq!(ask(&quiet, 0, 8), Registered::Yes);
    assert_eq!(ask(&uffd, 0, 8), Registered::Yes);
    assert_eq!(
        quiet.is_registered(other.address(), PAGE_U64),
        Registered::No
    );
    std::thread::scope(|scope| {
        let discard = scope.spawn(|| {
            // SAFETY: discards a page of the test's mapping, which nobody reads.
            unsafe { libc::madvise(pointer(&mapping, 0).cast(), PAGE, libc::MADV_DONTNEED) }
        });
        let began = Instant::now();
        while ask(&uffd, 0, 1) != Registered::Unknown {
            assert!(began.elapsed() < PATIENCE, "no event came");
        }
        assert_eq!(ask(&quiet, 0, 1), Registered::Yes);
        assert!(matches!(next(&uffd), Message::Remove { .. }));
        assert_eq!(discard.join().unwrap(), 0);
    });
    // A different protection splits one mapping into three. Each is registered, but no range over two of them is
    // "one".
    // SAFETY: changes the protection of a page of the test's mapping, which nobody touches.
    let split = unsafe { libc::mprotect(pointer(&mapping, 4).cast(), PAGE, libc::PROT_NONE) };
    assert_eq!(split, 0);
    assert_eq!(ask(&quiet, 0, 8), Registered::No);
    assert_eq!(ask(&quiet, 0, 4), Registered::Yes);
    assert_eq!(ask(&quiet, 4, 1), Registered::Yes);
}
