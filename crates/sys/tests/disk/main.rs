//! Disks against the running kernel: files, tmpfs and loop devices, with io_uring and without, byte for byte.
//!
//! Loop devices and mounts need root; without it those parts are skipped and say so.

mod content;
mod guards;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use content::{PAGE, STORM_BYTES, page, read, read_runs, storm, verify, write};
use guards::{Loop, Mounted, Open, Scratch, skip, told};
use vswap_sys::disk::area_file::{AreaError, AreaFile, Kind};
use vswap_sys::disk::{Disk, DiskError, LANE_PAGES, Options, PrivateError};

const MIB: u64 = 1 << 20;

/// With io_uring and without.
const ENGINES: [Options; 2] = [
    Options {
        io_uring: true,
        direct: true,
        encrypt: true,
        keep_free_bytes: 0,
    },
    Options {
        io_uring: false,
        direct: true,
        encrypt: true,
        keep_free_bytes: 0,
    },
];

/// The same through the page cache.
fn cached(options: Options) -> Options {
    Options {
        direct: false,
        ..options
    }
}

/// A file with room for `bytes` of pages. Its last page is spare.
fn file_for(scratch: &Scratch, name: &str, bytes: u64) -> PathBuf {
    scratch.file(name, usize::try_from(bytes + PAGE).unwrap())
}

/// Fills a disk from its start, in runs as long as a request, until a write is refused. Returns how many pages it took.
fn fill(disk: &Disk) -> (u64, DiskError) {
    let run = LANE_PAGES as u64;
    let mut first = 0;
    loop {
        match write(disk, first, run, 1) {
            Ok(()) => first += run,
            Err(error) => return (first, error),
        }
    }
}

#[test]
fn a_private_file_keeps_its_content() {
    let scratch = Scratch::new();
    for options in ENGINES.iter().copied().chain(ENGINES.map(cached)) {
        let disk = Open::private(&scratch.0, STORM_BYTES, options);
        assert_eq!(
            (disk.bytes(), disk.kind()),
            (STORM_BYTES, Kind::RegularFile)
        );
        storm(&disk, 1);
        eprintln!("{disk:?}");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    }
}

#[test]
fn the_file_of_an_area_keeps_its_content() {
    let scratch = Scratch::new();
    let path = file_for(&scratch, "area", STORM_BYTES);
    for options in ENGINES {
        let disk = Open::area(&path, options);
        assert_eq!(disk.bytes(), STORM_BYTES);
        storm(&disk, 2);
        assert_eq!(fs::metadata(&path).unwrap().len(), STORM_BYTES + PAGE);
        // Its blocks are reserved and stay so.
        disk.discard(0..STORM_BYTES).unwrap();
        assert!(!disk.discards());
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= STORM_BYTES);
    }
}

#[test]
fn files_in_memory_keep_their_content() {
    let scratch = Scratch::new();
    for kind in ["tmpfs", "ramfs"] {
        let Some(mounted) = Mounted::memory(&scratch, kind, "size=16M") else {
            return;
        };
        for options in ENGINES {
            let disk = Open::private(&mounted.point, STORM_BYTES, options);
            storm(&disk, 3);
            eprintln!("{kind}: {disk:?}");
        }
        mounted.unmount();
    }
}

#[test]
fn a_device_keeps_its_content_and_has_one_user() {
    let scratch = Scratch::new();
    for sector in ["512", "4096"] {
        let file = scratch.file(sector, usize::try_from(STORM_BYTES).unwrap());
        let Some(device) = Loop::with(&file, &["--sector-size", sector]) else {
            return;
        };
        for options in ENGINES {
            let disk = Open::area(&device.0, options);
            assert_eq!(
                (disk.bytes(), disk.kind()),
                (STORM_BYTES, Kind::BlockDevice)
            );
            assert!(disk.is_direct());
            storm(&disk, 4);
            assert!(matches!(AreaFile::open(&device.0), Err(AreaError::Busy)));
        }
    }
}

#[test]
fn of_several_runs_each_has_its_own_end() {
    const PAGES: u64 = 64;
    let scratch = Scratch::new();
    for (name, options) in ["one", "other"].into_iter().zip(ENGINES) {
        let path = file_for(&scratch, name, PAGES * PAGE);
        let disk = Open::area(&path, options);
        write(&disk, 0, PAGES, 5).unwrap();
        let asked = [
            (40, 3),
            (PAGES - 1, 2),
            (7, 1),
            (63, 1),
            (u64::MAX >> 12, 1),
        ];
        let read = read_runs(&disk, &asked);
        for (run, (first, count)) in read.into_iter().zip(asked) {
            let expected: Vec<_> = (first..first.saturating_add(count))
                .map(|at| page(at, 5))
                .collect();
            let is_there = first + count <= PAGES;
            assert!(
                run == if is_there {
                    Ok(expected)
                } else {
                    Err(DiskError::Short)
                }
            );
        }
        // The file is cut under the disk: what is left can be read, and what is gone is short.
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(32 * PAGE)
            .unwrap();
        let read = read_runs(&disk, &[(31, 1), (31, 2), (32, 1), (0, 4)]);
        assert!(
            read[0] == Ok(vec![page(31, 5)]) && read[3].as_ref().is_ok_and(|run| run.len() == 4)
        );
        assert_eq!(
            (&read[1], &read[2]),
            (&Err(DiskError::Short), &Err(DiskError::Short))
        );
    }
}

#[test]
fn what_was_open_is_free_at_once() {
    let scratch = Scratch::new();
    let path = scratch.file("area", 65_536);
    let Some(device) = Loop::new(&scratch.file("backing", 65_536)) else {
        return;
    };
    for round in 0..30 {
        for path in [&path, &device.0] {
            let disk = Open::area(path, Options::default());
            write(&disk, 1, 4, round).unwrap();
        }
    }
    for _ in 0..10 {
        let Some(mounted) = Mounted::memory(&scratch, "tmpfs", "size=1M") else {
            return;
        };
        write(
            &Open::private(&mounted.point, MIB, Options::default()),
            0,
            4,
            1,
        )
        .unwrap();
        mounted.unmount();
    }
}

#[test]
fn a_file_that_was_cut_is_short_and_does_not_grow_again() {
    let scratch = Scratch::new();
    for options in ENGINES.iter().copied().chain(ENGINES.map(cached)) {
        let path = file_for(&scratch, "area", MIB);
        let disk = Open::area(&path, options);
        write(&disk, 1, 255, 1).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(100 * PAGE + 100).unwrap();
        verify(&disk, 1, 99, 1);
        for (first, count) in [(100, 1), (101, 1), (255, 1), (60, 64), (1, 255)] {
            assert_eq!(read(&disk, first, count), Err(DiskError::Short), "{first}");
        }
        for (first, count) in [(100, 1), (255, 1), (60, 64)] {
            assert_eq!(
                write(&disk, first, count, 2),
                Err(DiskError::Short),
                "{first}"
            );
        }
        assert_eq!(file.metadata().unwrap().len(), 100 * PAGE + 100);
        verify(&disk, 1, 99, 1);
    }
}

#[test]
fn a_file_that_is_cut_under_way_is_short_and_nothing_else() {
    let scratch = Scratch::new();
    for options in ENGINES {
        let path = file_for(&scratch, "area", 4 * MIB);
        let disk = Open::area(&path, options);
        write(&disk, 0, 1024, 1).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let disk = &disk;
                scope.spawn(move || {
                    for first in (thread * 8..1024).step_by(32) {
                        match read(disk, first, 8) {
                            Ok(pages) => {
                                assert!((first..).zip(&pages).all(|(i, p)| *p == page(i, 1)));
                            }
                            Err(error) => assert_eq!(error, DiskError::Short),
                        }
                    }
                });
            }
            file.set_len(300 * PAGE).unwrap();
        });
        verify(&disk, 0, 300, 1);
        assert_eq!(read(&disk, 300, 1), Err(DiskError::Short));
    }
}

#[test]
fn a_full_file_system_says_so_and_loses_nothing() {
    for options in ENGINES.iter().copied().chain(ENGINES.map(cached)) {
        let scratch = Scratch::new();
        let Some(mounted) = Mounted::ext4(&scratch, 6 * MIB) else {
            return;
        };
        let disk = Open::private(&mounted.point.join("pages"), 64 * MIB, options);
        let (full, error) = fill(&disk);
        assert_eq!(error, DiskError::Full, "{disk:?}");
        assert!((256..1536).contains(&full), "{full} pages of {disk:?}");
        verify(&disk, 0, full, 1);
        assert_eq!(write(&disk, full + 512, 64, 1), Err(DiskError::Full));
        disk.discard(0..MIB).unwrap();
        write(&disk, 8192, 128, 1).unwrap();
        verify(&disk, 8192, 128, 1);
        verify(&disk, 256, full - 256, 1);
        drop(disk);
        mounted.unmount();
    }
}

#[test]
fn a_full_file_system_in_memory_says_so() {
    let scratch = Scratch::new();
    for options in ENGINES {
        let Some(mounted) = Mounted::memory(&scratch, "tmpfs", "size=2M") else {
            return;
        };
        let disk = Open::private(&mounted.point, 64 * MIB, options);
        let (full, error) = fill(&disk);
        assert_eq!((full, error), (512, DiskError::Full));
        verify(&disk, 0, full, 1);
        drop(disk);
        mounted.unmount();
    }
}

#[test]
fn a_device_that_shrinks_is_short() {
    let scratch = Scratch::new();
    for (options, name) in ENGINES.into_iter().zip(["one", "other"]) {
        let path = scratch.file(name, 1 << 20);
        let Some(device) = Loop::new(&path) else {
            return;
        };
        let disk = Open::area(&device.0, options);
        write(&disk, 0, 256, 1).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(100 * PAGE)
            .unwrap();
        let Some(()) = device.resize() else {
            return;
        };
        verify(&disk, 0, 100, 1);
        for (first, count) in [(100, 1), (200, 1), (60, 64)] {
            assert_eq!(
                read(&disk, first, count),
                Err(DiskError::Short),
                "{first}: {disk:?}"
            );
            assert_eq!(
                write(&disk, first, count, 1),
                Err(DiskError::Short),
                "{first}: {disk:?}"
            );
        }
        verify(&disk, 0, 100, 1);
    }
}

#[test]
fn a_device_that_fails_is_an_error_and_the_rest_is_right() {
    for options in ENGINES {
        let scratch = Scratch::new();
        let Some(mounted) = Mounted::memory(&scratch, "tmpfs", "size=2M") else {
            return;
        };
        // A device that offers more room than there is behind it.
        let backing = mounted.point.join("backing");
        File::create_new(&backing)
            .unwrap()
            .set_len(8 * MIB)
            .unwrap();
        let Some(device) = Loop::new(&backing) else {
            return;
        };
        let disk = Open::area(&device.0, options);
        let (failed, error) = fill(&disk);
        eprintln!("{failed} pages, then: {error}");
        assert!(
            matches!(error, DiskError::Full | DiskError::Failed { .. }),
            "{error:?}"
        );
        assert!(failed >= 256);
        verify(&disk, 0, failed, 1);
        drop((disk, device));
        mounted.unmount();
    }
}

#[test]
fn a_device_that_is_detached_under_way_stays_until_it_is_closed() {
    let scratch = Scratch::new();
    for (options, name) in ENGINES.into_iter().zip(["one", "other"]) {
        let path = scratch.file(name, usize::try_from(STORM_BYTES).unwrap());
        let Some(device) = Loop::new(&path) else {
            return;
        };
        let disk = Open::area(&device.0, options);
        std::thread::scope(|scope| {
            scope.spawn(|| storm(&disk, 5));
            device.detach();
        });
        drop(disk);
        // Its number may have been given to another meanwhile, but not with this file.
        let holder = told(&["losetup", "--associated", path.to_str().unwrap()]);
        assert_eq!(holder.as_deref(), Some(""));
    }
}

#[test]
fn discarding_gives_a_devices_room_back() {
    let scratch = Scratch::new();
    let path = scratch.file("backing", 8 << 20);
    let Some(device) = Loop::new(&path) else {
        return;
    };
    // Zeros are noise to a cipher.
    let plain = Options {
        encrypt: false,
        ..Options::default()
    };
    let disk = Open::area(&device.0, plain);
    write(&disk, 0, 2048, 1).unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    disk.discard(4 * MIB..8 * MIB).unwrap();
    if !disk.discards() {
        return skip("this device discards nothing");
    }
    let after = fs::metadata(&path).unwrap().blocks();
    assert!(
        after * 512 + 4 * MIB <= before * 512,
        "{before} blocks, then {after}"
    );
    verify(&disk, 0, 1024, 1);
    assert!(
        read(&disk, 1024, 1024)
            .unwrap()
            .iter()
            .flatten()
            .all(|byte| *byte == 0)
    );
    write(&disk, 1024, 1024, 2).unwrap();
    verify(&disk, 1024, 1024, 2);
}

#[test]
fn blocks_larger_than_a_page_and_holes_are_refused() {
    let scratch = Scratch::new();
    let sparse = scratch.sparse("sparse", MIB);
    let refused = Disk::of_area(AreaFile::open(&sparse).unwrap(), Options::default()).unwrap_err();
    assert!(
        matches!(refused, AreaError::Holes { bytes: MIB }),
        "{refused}"
    );
    let Some(device) = Loop::with(&scratch.file("large", 1 << 20), &["--sector-size", "8192"])
    else {
        return;
    };
    let refused =
        Disk::of_area(AreaFile::open(&device.0).unwrap(), Options::default()).unwrap_err();
    let message = refused.to_string();
    assert!(
        message.starts_with("its logical blocks have 8192 bytes"),
        "{message}"
    );
}

#[test]
fn a_limit_on_files_is_told_and_does_not_kill() {
    /// Set for this test when it runs itself under a limit.
    const LIMITED: &str = "VSWAP_TEST_LIMITED";
    let scratch = Scratch::new();
    if std::env::var_os(LIMITED).is_some() {
        let refused = Disk::private(&scratch.0, MIB, Options::default()).unwrap_err();
        assert!(
            matches!(refused, PrivateError::FileLimit { bytes, .. } if bytes == MIB + PAGE),
            "{refused}"
        );
        return;
    }
    let path = scratch.file("area", 65_536);
    let program = std::env::current_exe().unwrap();
    let again = format!(
        "ulimit -f 8; {LIMITED}=1 exec {} --exact a_limit_on_files_is_told_and_does_not_kill",
        program.display()
    );
    assert!(told(&["sh", "-c", &again]).is_some());
    assert!(Disk::of_area(AreaFile::open(&path).unwrap(), Options::default()).is_ok());
}
