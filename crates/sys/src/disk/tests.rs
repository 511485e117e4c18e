//! Tests of disks that need to see the file behind them. What needs the kernel's devices is in `tests/disk`.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::disk::area_file::AreaFile;
use crate::disk::area_file::tests::Scratch;

const PLAIN: Options = Options {
    io_uring: false,
    direct: false,
    encrypt: true,
    keep_free_bytes: 0,
};

fn pages(disk: &Disk, at: u64, count: usize) -> Result<Vec<PageBytes>, DiskError> {
    let mut pages = vec![[0xEE; PAGE_BYTES]; count];
    disk.read(at, &mut pages.iter_mut().collect::<Vec<_>>())?;
    Ok(pages)
}

#[test]
fn what_is_not_there_is_short_before_anything_is_asked() {
    let scratch = Scratch::new();
    let disk = Disk::private(&scratch.0, 1 << 20, PLAIN).unwrap();
    let page = [1; PAGE_BYTES];
    for at in [
        1 << 20,
        (1 << 20) - PAGE_BYTES_64,
        u64::MAX - PAGE_BYTES_64 + 1,
    ] {
        assert_eq!(
            disk.write(at, &[&page, &page]),
            Err(DiskError::Short),
            "{at}"
        );
        assert_eq!(pages(&disk, at, 2), Err(DiskError::Short), "{at}");
    }
    let refused = Err(explain(Errno::INVAL));
    assert_eq!(disk.write(100, &[&page]), refused);
    assert_eq!(disk.discard(100..PAGE_BYTES_64 + 100), refused);
    assert_eq!(disk.discard(0..100), refused);
    assert_eq!(disk.discard(0..(2 << 20)), Err(DiskError::Short));
    assert_eq!(disk.discard(4096..4096), Ok(()));
    assert_eq!(disk.write(0, &[]), Ok(()));
    let spare = PAGE_BYTES_64;
    assert_eq!(disk.file.metadata().unwrap().len(), (1 << 20) + spare);
}

#[test]
fn nobody_reads_what_a_cut_took_away() {
    let scratch = Scratch::new();
    let private = || Disk::private(&scratch.0, 1 << 20, PLAIN).unwrap();
    for disk in [area(&scratch, PLAIN), private()] {
        let written = [7; PAGE_BYTES];
        let places = disk.bytes() / PAGE_BYTES_64;
        for place in 1..places {
            disk.write(place * PAGE_BYTES_64, &[&written]).unwrap();
        }
        disk.file.set_len(100 * PAGE_BYTES_64).unwrap();
        let refused = disk.write(99 * PAGE_BYTES_64, &[&written]);
        assert_eq!(refused, Err(DiskError::Short));
        for place in 1..places {
            let there = (place < 100).then(|| vec![written]);
            let read = pages(&disk, place * PAGE_BYTES_64, 1);
            assert_eq!(read, there.ok_or(DiskError::Short), "{place}");
        }
        let mut read = [[0; PAGE_BYTES]; 4];
        let (before, behind) = read.split_at_mut(2);
        let mut runs = [
            run(98 * PAGE_BYTES_64, before),
            run(99 * PAGE_BYTES_64, behind),
        ];
        disk.read_runs(&mut runs);
        let outcomes: Vec<_> = runs.iter().map(|run| run.outcome).collect();
        assert_eq!(outcomes, [Ok(()), Err(DiskError::Short)]);
    }
}

/// A write makes a file that is cut below it grow again. What was lost reads as zeros then, or as noise.
#[test]
fn nobody_reads_what_a_cut_took_away_from_below_a_write() {
    let scratch = Scratch::new();
    let mut lost = 0;
    for turn in 0..100 {
        let disk = area(&scratch, PLAIN);
        let written = [turn; PAGE_BYTES];
        let places = 1..disk.bytes() / PAGE_BYTES_64;
        for place in places.clone() {
            disk.write(place * PAGE_BYTES_64, &[&written]).unwrap();
        }
        std::thread::scope(|scope| {
            let (begins, has_begun) = std::sync::mpsc::channel();
            let high = places.clone().rev().cycle().take(100_000);
            let mut writes = high.map(|place| disk.write(place * PAGE_BYTES_64, &[&written]));
            let writer = scope.spawn(move || {
                begins.send(()).unwrap();
                writes.any(|wrote| wrote == Err(DiskError::Short))
            });
            has_begun.recv().unwrap();
            disk.file.set_len(8 * PAGE_BYTES_64).unwrap();
            assert!(writer.join().unwrap(), "it wrote to a file that was cut");
        });
        let now_bytes = disk.file.metadata().unwrap().len();
        assert!(now_bytes < 1 << 20, "the cut can no longer be seen");
        for place in places {
            match pages(&disk, place * PAGE_BYTES_64, 1) {
                Ok(read) => assert!(read == [written], "turn {turn}, place {place}"),
                Err(error) => {
                    assert_eq!(error, DiskError::Short);
                    lost += 1;
                }
            }
        }
    }
    assert!(lost > 0);
}

#[test]
fn discarding_gives_a_private_files_room_back() {
    let scratch = Scratch::new();
    let options = Options {
        encrypt: false,
        ..Options::default()
    };
    let disk = Disk::private(&scratch.0, 1 << 24, options).unwrap();
    let page = [7; PAGE_BYTES];
    disk.write(0, &vec![&page; 512]).unwrap();
    disk.file.sync_all().unwrap();
    let blocks = || disk.file.metadata().unwrap().blocks() * 512;
    let before = blocks();
    disk.discard(1 << 20..2 << 20).unwrap();
    if disk.discards() {
        assert!(
            blocks() + (1 << 20) <= before,
            "{before}, then {}",
            blocks()
        );
        assert!(
            pages(&disk, 1 << 20, 256)
                .unwrap()
                .iter()
                .flatten()
                .all(|byte| *byte == 0)
        );
    }
    assert!(
        pages(&disk, 0, 256)
            .unwrap()
            .iter()
            .flatten()
            .all(|byte| *byte == 7)
    );
}

fn run(at: u64, pages: &mut [PageBytes]) -> ReadRun<'_> {
    ReadRun {
        at,
        pages: pages.iter_mut().collect(),
        outcome: Ok(()),
    }
}

fn area(scratch: &Scratch, options: Options) -> Disk {
    let path = scratch.file("area", &vec![0; 1 << 20]);
    Disk::of_area(AreaFile::open(&path).unwrap(), options).unwrap()
}

#[test]
fn what_lies_on_a_disk_cannot_be_read_from_outside() {
    use std::os::unix::fs::FileExt;
    let scratch = Scratch::new();
    let page = [7; PAGE_BYTES];
    for (is_private, encrypt) in [(true, true), (true, false), (false, true), (false, false)] {
        let options = Options { encrypt, ..PLAIN };
        let disk = if is_private {
            Disk::private(&scratch.0, 1 << 20, options).unwrap()
        } else {
            area(&scratch, options)
        };
        assert_eq!(disk.is_encrypted(), encrypt);
        // More than a request takes, so that places go on from one to the next.
        disk.write(8192, &[&page; 100]).unwrap();
        let mut found = [0; PAGE_BYTES];
        disk.file.read_exact_at(&mut found, 8192).unwrap();
        assert_eq!(found == page, !encrypt);
        assert!(pages(&disk, 8192, 100).unwrap() == vec![page; 100]);
        assert!(pages(&disk, 8192 + 70 * PAGE_BYTES_64, 1).unwrap() == [page]);
        let mut read = vec![[0; PAGE_BYTES]; 5];
        let (first, second) = read.split_at_mut(2);
        let mut runs = [
            run(8192 + 4096, first),
            run(8192 + 409_600 - 12_288, second),
        ];
        disk.read_runs(&mut runs);
        assert!(runs.iter().all(|run| run.outcome == Ok(())));
        assert!(read == vec![page; 5]);
    }
}

#[test]
fn what_an_earlier_disk_wrote_is_noise_to_the_next() {
    let scratch = Scratch::new();
    let page = [7; PAGE_BYTES];
    let earlier = area(&scratch, PLAIN);
    earlier.write(8192, &[&page]).unwrap();
    assert!(pages(&earlier, 8192, 1).unwrap() == [page]);
    drop(earlier);
    let file = AreaFile::open(&scratch.0.join("area")).unwrap();
    let next = Disk::of_area(file, PLAIN).unwrap();
    assert!(pages(&next, 8192, 1).unwrap() != [page]);
}

#[test]
fn equal_pages_lie_differently_in_every_place_and_area() {
    use std::os::unix::fs::FileExt;
    let (one, other) = (Scratch::new(), Scratch::new());
    let disks = [area(&one, PLAIN), area(&other, PLAIN)];
    let mut found = Vec::new();
    for disk in &disks {
        disk.write(4096, &[&[7; PAGE_BYTES]; 80]).unwrap();
        for number in 1..81 {
            let mut bytes = [0; PAGE_BYTES];
            let at = number * PAGE_BYTES_64;
            disk.file.read_exact_at(&mut bytes, at).unwrap();
            found.push(bytes);
        }
        // Nothing was written over the header.
        let mut header = [1; PAGE_BYTES];
        disk.file.read_exact_at(&mut header, 0).unwrap();
        assert_eq!(header, [0; PAGE_BYTES]);
    }
    // Not even two of their blocks are equal.
    let mut blocks: Vec<&[u8]> = found.iter().flat_map(|page| page.chunks(16)).collect();
    let all = blocks.len();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), all);
}

#[test]
fn a_private_file_leaves_others_the_room_that_it_is_told_to() {
    let scratch = Scratch::new();
    let with = |keep_free_bytes| {
        let options = Options {
            keep_free_bytes,
            ..PLAIN
        };
        let disk = Disk::private(&scratch.0, 1 << 20, options).unwrap();
        disk.write(0, &[&[1; PAGE_BYTES]])
    };
    assert_eq!(with(4096), Ok(()));
    assert_eq!(with(u64::MAX), Err(DiskError::Full));
}

#[test]
fn what_cannot_be_direct_goes_through_the_page_cache() {
    let scratch = Scratch::new();
    let disk = Disk::private(&scratch.0, 1 << 20, Options::default()).unwrap();
    let page = [9; PAGE_BYTES];
    disk.use_cache().unwrap();
    disk.use_cache().unwrap();
    assert!(!disk.is_direct());
    assert!(!fcntl_getfl(&*disk.file).unwrap().contains(OFlags::DIRECT));
    disk.write(8192, &[&page; 3]).unwrap();
    assert_eq!(pages(&disk, 8192, 3), Ok(vec![page; 3]));
}

#[test]
fn the_systems_errors_are_told_apart() {
    for (errno, error) in [
        (Errno::NOSPC, DiskError::Full),
        (Errno::DQUOT, DiskError::Full),
        (Errno::NXIO, DiskError::Short),
        (Errno::NODEV, DiskError::Short),
        (Errno::IO, DiskError::Failed { errno: 5 }),
    ] {
        assert_eq!(explain(errno), error);
    }
}

#[test]
fn requests_begin_where_the_last_one_ended() {
    let starts: Vec<u64> = request_starts(8192).take(3).collect();
    assert_eq!(starts, [8192, 8192 + (256 << 10), 8192 + (512 << 10)]);
    assert_eq!(
        request_starts(u64::MAX - 4095).next(),
        Some(u64::MAX - 4095)
    );
}

/// Makes the kernel refuse a system call to this thread from now on, as the filters of container runtimes do.
fn refuse(call: libc::c_long) {
    /// Offset of the call's number in what the kernel shows to a filter.
    const NR: u32 = 0;
    const _: () = assert!(std::mem::offset_of!(libc::seccomp_data, nr) == 0);
    fn step(code: u32, k: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: u16::try_from(code).unwrap(),
            jt: 0,
            jf: 0,
            k,
        }
    }
    let load = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NR);
    let is_it = libc::sock_filter {
        jf: 1,
        ..step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            u32::try_from(call).unwrap(),
        )
    };
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, value);
    let permission = Errno::PERM.raw_os_error().cast_unsigned();
    let mut steps = [
        load,
        is_it,
        answer(libc::SECCOMP_RET_ERRNO | permission),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program is valid during the call, which copies it. It only takes one call away from this thread.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &program,
            ) == 0
    };
    assert!(installed, "{}", io::Error::last_os_error());
}

#[test]
fn where_io_uring_is_refused_calls_do_the_same() {
    let filtered = std::thread::spawn(|| {
        refuse(libc::SYS_io_uring_setup);
        let scratch = Scratch::new();
        let disk = Disk::private(&scratch.0, 1 << 20, Options::default()).unwrap();
        assert_eq!(disk.engine(), "pread");
        let written: Vec<PageBytes> = (0..100).map(|byte| [byte; PAGE_BYTES]).collect();
        let refs: Vec<&PageBytes> = written.iter().collect();
        disk.write(PAGE_BYTES_64, &refs).unwrap();
        assert!(pages(&disk, PAGE_BYTES_64, 100).unwrap() == written);
    });
    filtered.join().unwrap();
}
