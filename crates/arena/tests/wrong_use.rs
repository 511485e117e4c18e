//! What a program does wrong, and what others do to it: typed errors, SIGBUS that is not the arena's, forks, system
//! calls.

mod support;

use std::alloc::Layout;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use allocator_api2::vec::Vec as ArenaVec;
use support::{PAGE, content, wait_for, write_page};
use vswap_arena::{Advice, Arena, ArenaError, Passed, Region};

/// Forks copy the memory of a process: no other test of this file is in the middle of something then.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn arena() -> Arena {
    Arena::builder()
        .ram("16M")
        .capacity("64M")
        .build()
        .expect("an arena")
}

/// A region of pages with content, all of them out.
fn out(arena: &Arena, pages: usize) -> Region {
    let mut region = arena.allocate(pages * PAGE).expect("addresses");
    (0..pages).for_each(|number| write_page(&mut region, number, 1));
    region.advise(.., Advice::Cold).expect("advice");
    wait_for(arena, "it is out", |stats| stats.resident_bytes == 0);
    region
}

#[test]
fn wrong_arguments_have_errors_of_their_own() {
    let _alone = alone();
    let built = |builder: vswap_arena::Builder| builder.build().expect_err("refused");
    assert!(matches!(
        built(Arena::builder()),
        ArenaError::TooLittleRam { .. }
    ));
    assert!(matches!(
        built(Arena::builder().ram("lots")),
        ArenaError::Size(_)
    ));
    for nowhere in ["/nowhere/at/all", "/nowhere-in-a-directory-that-is-there"] {
        let error = built(Arena::builder().ram("16M").swap(nowhere, "1G"));
        assert!(matches!(error, ArenaError::Area(_)), "{error}");
    }
    let none = Arena::builder()
        .ram("16M")
        .swap(std::env::temp_dir(), 0_u64);
    assert!(matches!(
        built(none),
        ArenaError::SwapOn { .. } | ArenaError::Area(_)
    ));

    let arena = arena();
    assert!(matches!(arena.allocate(0), Err(ArenaError::Empty)));
    assert!(matches!(
        arena.allocate(1 << 30),
        Err(ArenaError::NoAddresses { .. })
    ));
    assert!(matches!(
        arena.allocate(usize::MAX),
        Err(ArenaError::NoAddresses { .. })
    ));
    assert!(matches!(arena.pin(&[1_u8, 2, 3]), Err(ArenaError::NotOurs)));
    assert!(matches!(
        arena.advise(&[1_u8], Advice::Cold),
        Err(ArenaError::NotOurs)
    ));
    let mut region = arena.allocate(32 << 20).expect("addresses");
    assert!(matches!(region.pin(5..=32 << 20), Err(ArenaError::NotOurs)));
    assert!(matches!(
        region.drop_content(0..usize::MAX),
        Err(ArenaError::NotOurs)
    ));
    assert!(matches!(
        region.pin(..),
        Err(ArenaError::TooMuchPinned { .. })
    ));
    assert!(matches!(
        region.advise(.., Advice::NeverSwap),
        Err(ArenaError::TooMuchPinned { .. })
    ));
    let aligned = Layout::from_size_align(10 * PAGE, 16 * PAGE).expect("a layout");
    if let Ok(region) = arena.allocate_layout(aligned) {
        assert!(region.as_ptr().addr().get().is_multiple_of(16 * PAGE));
    }
    assert_eq!(arena.stats().pinned_bytes, 0);
}

#[test]
fn pinned_memory_stays_while_more_than_fits_passes_by() {
    let _alone = alone();
    let arena = arena();
    let held = out(&arena, 256);
    let pin = held.pin(..).expect("it fits");
    let second = held.pin(..PAGE).expect("pins nest");
    let faults = || {
        let stats = arena.stats();
        stats.pool_faults + stats.area_faults
    };
    let mut other = arena.allocate(40 << 20).expect("addresses");
    (0..other.len() / PAGE).for_each(|number| write_page(&mut other, number, 9));
    held.advise(.., Advice::Cold).expect("advice");
    let before = faults();
    (0..256).for_each(|number| support::check_page(&held, number, 1));
    assert_eq!(faults(), before);
    drop((pin, second));
    assert_eq!(arena.stats().pinned_bytes, 0);
}

#[test]
fn system_calls_fail_on_what_is_out_and_work_on_what_is_pinned() {
    let _alone = alone();
    let arena = arena();
    let mut region = out(&arena, 8);
    let mut file = tempfile::tempfile().expect("a file");
    let refused = file.write(&region[..PAGE]).expect_err("it is out");
    assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
    let pin = region.pin(..).expect("it fits");
    file.write_all(&region).expect("it is pinned");
    drop(pin);
    region.advise(.., Advice::Cold).expect("advice");
    wait_for(&arena, "it is out again", |stats| stats.resident_bytes == 0);
    file.rewind().expect("a file");
    let refused = file.read(&mut region[..PAGE]).expect_err("it is out");
    assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
    let mut never_touched = arena.allocate(8 * PAGE).expect("addresses");
    let mut pinned = never_touched.pin_mut().expect("it fits");
    file.read_exact(&mut pinned).expect("it is pinned");
    drop(pinned);
    for number in 0..8 {
        assert!(never_touched[number * PAGE..][..PAGE] == content(number, 1));
    }
}

static STRANGE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_strange(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the arena's handler passes on what the kernel gave it, and a fault has its address there.
    let address = unsafe { (*info).si_addr() }.addr();
    STRANGE.store(address, Ordering::SeqCst);
    let page = std::ptr::with_exposed_provenance_mut(address / PAGE * PAGE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the page that was touched lies behind the end of a file that the test has mapped.
    unsafe { libc::mmap(page, PAGE, protection, flags, -1, 0) };
}

/// In a process of its own, because handlers are a process's: `child` runs there, and returns its status.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs what is given to it and leaves without cleaning up.
    match unsafe { libc::fork() } {
        0 => {
            let code = child();
            // SAFETY: as above.
            unsafe { libc::_exit(code) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: the status lives here.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            status
        }
    }
}

#[test]
fn faults_that_are_not_the_arenas_reach_the_programs_handler() {
    let _alone = alone();
    // The arena's handler comes once in a process, so it finds the program's in this one only if it comes after it.
    let executable = std::env::current_exe().expect("a path");
    let output = std::process::Command::new(executable)
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "stranger_in_a_process_of_its_own",
        ])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said} {output:?}"
    );
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn stranger_in_a_process_of_its_own() {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_strange;
    // SAFETY: all of a sigaction may be zero, and the handler has the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let arena = arena();
    let region = out(&arena, 8);
    support::check_page(&region, 3, 1);
    assert_eq!(
        STRANGE.load(Ordering::SeqCst),
        0,
        "the arena's own are not passed on"
    );
    let file = tempfile::tempfile().expect("a file");
    file.set_len(100).expect("a length");
    // SAFETY: the mapping is new and read only through this pointer. What lies behind the end of the file is mapped
    // anew by the handler.
    unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let mapped = libc::mmap(
            std::ptr::null_mut(),
            2 * PAGE,
            protection,
            flags,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(mapped, libc::MAP_FAILED);
        let behind = mapped.cast::<u8>().add(PAGE + 5);
        assert_eq!(behind.read_volatile(), 0);
        assert_eq!(STRANGE.load(Ordering::SeqCst), behind.addr());
    }
    support::check_page(&region, 4, 1);
}

#[test]
fn without_a_handler_of_the_program_such_a_fault_is_deadly() {
    let _alone = alone();
    let arena = arena();
    let _region = out(&arena, 8);
    let file = tempfile::tempfile().expect("a file");
    file.set_len(0).expect("a length");
    let status = in_child(|| {
        // SAFETY: the mapping is new, and to read behind the end of the file is what kills the child.
        unsafe {
            let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
            let mapped = libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                protection,
                flags,
                file.as_raw_fd(),
                0,
            );
            i32::from(mapped.cast::<u8>().read_volatile())
        }
    });
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS,
        "{status:#x}"
    );
}

#[test]
fn a_child_never_reads_zeros() {
    let _alone = alone();
    let arena = arena();
    let region = out(&arena, 8);
    // One page is in memory, the others are out.
    support::check_page(&region, 0, 1);
    for number in [0, 5] {
        let byte = &raw const region[number * PAGE];
        let status = in_child(|| {
            // SAFETY: in the parent this is a byte of the region. The child does not have it, which kills it.
            let _ = unsafe { byte.read_volatile() };
            0
        });
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV;
        assert!(killed, "page {number}: {status:#x}");
    }
    let mut numbers = ArenaVec::new_in(arena.allocator());
    numbers.extend(0..1000_u32);
    let limits = vswap_arena::Limits::new();
    let group = arena.group("a", &limits).expect("a group");
    let status = in_child(|| {
        let refused = matches!(arena.allocate(1), Err(ArenaError::Forked))
            && matches!(region.pin(..), Err(ArenaError::Forked))
            && matches!(arena.group("b", &limits), Err(ArenaError::Forked))
            && group.group_stats().is_none()
            && arena.stats() == vswap_arena::Stats::default();
        // To drop is to leave it to the parent.
        drop((numbers, arena.clone()));
        i32::from(!refused)
    });
    assert_eq!(status, 0);
    // An arena of the child's own, which the kernel may put where the parent's is.
    let status = in_child(|| {
        let own = self::arena();
        let mut region = own.allocate(40 << 20).expect("addresses");
        let pages = region.len() / PAGE;
        (0..pages).for_each(|number| write_page(&mut region, number, 5));
        (0..pages).for_each(|number| support::check_page(&region, number, 5));
        i32::from(Passed::new(own_addresses(&region)).is_err())
    });
    assert_eq!(status, 0);
    (0..8).for_each(|number| support::check_page(&region, number, 1));
}

#[test]
fn what_the_child_of_a_fork_maps_does_not_lie_where_the_memory_was() {
    let _alone = alone();
    let arena = arena();
    let region = out(&arena, 8);
    let at = region.as_ptr().as_ptr();
    // Would the kernel give this place to who asks for it? It does so where nothing is mapped.
    let child = move || {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED the place is a wish, and nothing that is mapped is replaced.
        let mapped = unsafe { libc::mmap(at.cast(), 8 * PAGE, protection, flags, -1, 0) };
        i32::from(mapped == libc::MAP_FAILED || mapped.cast() == at)
    };
    assert_eq!(in_child(child), 0);
    // And in the child of a child, whose own handler finds the place reserved already.
    assert_eq!(in_child(|| in_child(child)), 0);
    support::check_page(&region, 3, 1);
    // What comes after the arena may lie there.
    drop((region, arena));
    let status = in_child(move || {
        let (protection, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: as above.
        let mapped = unsafe { libc::mmap(at.cast(), 8 * PAGE, protection, flags, -1, 0) };
        i32::from(mapped.cast() != at)
    });
    assert_eq!(status, 0);
}

/// Of the first pages, which can be pinned.
fn own_addresses(region: &Region) -> std::ops::Range<usize> {
    let start = region.as_ptr().addr().get();
    start..start + 8 * PAGE
}

#[test]
fn what_is_passed_stays_and_what_is_elsewhere_is_left_alone() {
    let _alone = alone();
    let arena = arena();
    let region = out(&arena, 8);
    let local = [0_u8; 10];
    let here = local.as_ptr().addr();
    assert!(!Passed::concerns(&(here..here + 10)));
    drop(Passed::new(here..here + 10).expect("nothing is pinned"));
    let passed = Passed::new(own_addresses(&region)).expect("it fits");
    assert_eq!(arena.stats().pinned_bytes, 8 * PAGE as u64);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&region).expect("it is pinned");
    drop(passed);
    assert_eq!(arena.stats().pinned_bytes, 0);
}

#[test]
fn a_full_arena_refuses_and_can_be_emptied() {
    let _alone = alone();
    let arena = Arena::builder()
        .ram("8M")
        .pool("1M")
        .build()
        .expect("an arena");
    let mut held = Vec::new();
    let mut random = support::Random(3);
    // Noise, so that nothing is gained by compressing it. Slowly, so that the arena says that it is full in time.
    let full = (0..10_000).any(|_| {
        let Ok(mut region) = arena.allocate(2 * PAGE) else {
            return true;
        };
        for word in region.as_chunks_mut::<8>().0 {
            *word = random.next().to_ne_bytes();
        }
        held.push(region);
        if held.len() > 900 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        false
    });
    assert!(full, "{:?}", arena.stats());
    assert!(arena.stats().used_bytes < 9 << 20, "{:?}", arena.stats());
    held.clear();
    let mut region = arena.allocate(PAGE).expect("there is room again");
    region[0] = 1;
}

/// Inside of a run too: what the arena has of the run's memory is not there in a child.
#[test]
fn a_child_may_drop_the_arena() {
    let _alone = alone();
    let arena = Arena::builder().ram("16M").build().expect("an arena");
    let mut region = arena.allocate(1 << 20).expect("room");
    region.fill(7);
    let status = in_child(|| {
        // SAFETY: the child leaves without using them again: these are its own copies of the handles.
        unsafe {
            drop(std::ptr::read(&raw const region));
            drop(std::ptr::read(&raw const arena));
        }
        3
    });
    assert_eq!(libc::WEXITSTATUS(status), 3, "{status:x}");
    assert!(region.iter().all(|byte| *byte == 7));
}
