//! PAGEMAP_SCAN and pagemap words against the running kernel.

mod support;

use support::{PAGE, PAGE_U64, address, fill, memory, page, read};
use vswap_sys::memory::pagemap::{Pagemap, PagemapError, Query, Region, Word, category};
use vswap_sys::uffd::{copy_mode, feature, mode};

#[test]
fn a_scan_finds_exactly_the_pages_that_are_present() {
    let _alone = support::alone();
    let mapping = memory(64);
    for index in [0, 1, 2, 10, 12, 13, 63] {
        fill(&mapping, 1, index);
    }
    assert!(read(&mapping, 20) == [0; PAGE]);
    let pagemap = Pagemap::open(std::process::id()).unwrap();
    let (start, end) = (mapping.address(), address(&mapping, 64));
    let mut regions = [Region::default(); 16];
    let scan = match pagemap.scan(start, end, &Query::EVICTABLE, &mut regions) {
        Err(PagemapError::NoScan) => return support::skip("the kernel has no PAGEMAP_SCAN"),
        scan => scan.unwrap(),
    };
    let runs = |regions: &[Region]| -> Vec<(u64, u64)> {
        let index = |at: u64| (at - start) / PAGE_U64;
        regions
            .iter()
            .map(|region| (index(region.start), index(region.end)))
            .collect()
    };
    assert_eq!(scan.walk_end, end);
    assert_eq!(
        runs(&regions[..scan.regions]),
        [(0, 3), (10, 11), (12, 14), (63, 64)]
    );
    // A buffer that is too small: the next scan goes on where the walk ended.
    let (mut from, mut all) = (start, Vec::new());
    while from < end {
        let scan = pagemap
            .scan(from, end, &Query::EVICTABLE, &mut regions[..1])
            .unwrap();
        all.extend_from_slice(&regions[..scan.regions]);
        assert!(scan.walk_end > from);
        from = scan.walk_end;
    }
    assert_eq!(runs(&all), [(0, 3), (10, 11), (12, 14), (63, 64)]);
    let bounded = Query {
        pages_max: 2,
        ..Query::EVICTABLE
    };
    let scan = pagemap.scan(start, end, &bounded, &mut regions).unwrap();
    assert_eq!(
        (runs(&regions[..scan.regions]), scan.walk_end),
        (vec![(0, 2)], start + 2 * PAGE_U64)
    );
    let zero = Query {
        all_of: category::PFNZERO,
        report: category::PFNZERO,
        ..Query::default()
    };
    let scan = pagemap.scan(start, end, &zero, &mut regions).unwrap();
    assert_eq!(runs(&regions[..scan.regions]), [(20, 21)]);
    assert!(matches!(
        pagemap.scan(start + 1, end, &zero, &mut regions),
        Err(PagemapError::Other(_))
    ));
}

#[test]
fn words_tell_present_protected_and_exclusive() {
    let _alone = support::alone();
    let Some(uffd) = support::uffd(feature::PAGEFAULT_FLAG_WP) else {
        return;
    };
    let mapping = memory(4);
    // SAFETY: the mapping is the test's own.
    unsafe { uffd.register(mapping.address(), 4 * PAGE_U64, mode::MISSING | mode::WP) }.unwrap();
    uffd.copy(mapping.address(), page(1, 0).as_ptr(), PAGE_U64, 0)
        .unwrap();
    uffd.copy(
        address(&mapping, 1),
        page(1, 1).as_ptr(),
        PAGE_U64,
        copy_mode::WP,
    )
    .unwrap();
    let pagemap = Pagemap::open(std::process::id()).unwrap();
    let mut words = [Word(u64::MAX); 4];
    assert_eq!(pagemap.words(mapping.address(), &mut words).unwrap(), 4);
    assert!(words[0].present() && !words[0].uffd_wp() && words[0].exclusive());
    assert!(words[1].present() && words[1].uffd_wp() && !words[1].file());
    assert_eq!((words[2], words[3]), (Word(0), Word(0)));
    uffd.unregister(mapping.address(), 4 * PAGE_U64).unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let child = support::fork(|| {
        // Waits until the parent has looked.
        i32::from(rustix::io::read(&reader, &mut [0u8; 1]) != Ok(1))
    });
    assert_eq!(pagemap.words(mapping.address(), &mut words).unwrap(), 4);
    assert!(
        words[0].present() && !words[0].exclusive(),
        "shared with the child"
    );
    rustix::io::write(&writer, b"x").unwrap();
    assert_eq!(support::wait(child), 0);
}

#[test]
fn a_process_that_has_exited_is_gone() {
    let _alone = support::alone();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pagemap = Pagemap::open(child.id()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut regions = [Region::default(); 4];
    let scan = pagemap.scan(0, 1 << 40, &Query::EVICTABLE, &mut regions);
    // Which of the two depends on whether somebody, like a reader of /proc, still holds the address space.
    let found = scan.map(|scan| scan.regions);
    assert!(
        matches!(found, Ok(0) | Err(PagemapError::Gone)),
        "nothing is there: {found:?}"
    );
    assert_eq!(
        pagemap.words(0x1000, &mut [Word(0); 2]),
        Err(PagemapError::Gone)
    );
    assert_eq!(Pagemap::open(child.id()).err(), Some(PagemapError::Gone));
}
