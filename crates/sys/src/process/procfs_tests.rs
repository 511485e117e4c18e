//! Tests of the /proc parsers and readers.

use super::*;
use proptest::prelude::*;

#[test]
fn a_name_may_hold_brackets_and_blanks() {
    let text = b"42 (a) b (c)) S 7 42 42 0 -1 4194304 1 0 0 0 5 6 7 8 20 0 3 0 98765 10 5\n";
    let stat = parse_stat(text).unwrap();
    assert_eq!(
        (stat.pid, stat.comm.as_str(), stat.state),
        (42, "a) b (c)", b'S')
    );
    assert_eq!((stat.parent, stat.threads, stat.start_ticks), (7, 3, 98765));
    assert_eq!((stat.cpu_ticks, stat.children_cpu_ticks), (11, 15));
    assert!(stat.alive() && !stat.stopped() && !stat.is_exiting);
    let text = b"42 (a) R 7 42 42 0 -1 4194308 1 0 0 0 5 6 7 8 20 0 1 0 98765 0 0\n";
    assert!(parse_stat(text).unwrap().is_exiting);
}

#[test]
fn texts_of_another_form_are_refused() {
    for bad in [
        &b""[..],
        b"1",
        b"1 (",
        b")1(",
        b"1 (a) S",
        b"x (a) S 1",
        b"1 2\n",
        b"-1 (a) S 2",
    ] {
        assert!(parse_stat(bad).is_err());
    }
    for bad in [&b""[..], b"1 2", b"1 +2 3", b"a b c"] {
        assert!(parse_statm(bad).is_err());
    }
    assert!(parse_meminfo(b"MemFree: 1 kB\n").is_err());
    assert_eq!(parse_ids(b"Uid:\t1\t2\t3\n", b"Uid:"), None);
}

#[test]
fn sizes_are_bytes() {
    let sizes = parse_statm(b"100 30 10 1 0 5 0\n").unwrap();
    assert_eq!(
        (sizes.virtual_bytes, sizes.resident_bytes),
        (409_600, 122_880)
    );
    assert_eq!(sizes.anonymous_bytes(), 20 * 4096);
    let memory = parse_meminfo(b"MemTotal:       1000 kB\nMemAvailable:    500 kB\n").unwrap();
    assert_eq!(
        (memory.total_bytes, memory.available_bytes),
        (1_024_000, 512_000)
    );
    assert_eq!(
        parse_ids(b"Name:\tx\nUid:\t1\t2\t3\t4\n", b"Uid:"),
        Some([1, 2, 3, 4])
    );
}

#[test]
fn descendants_survive_loops_and_come_in_order() {
    let stat = |pid, parent| Stat {
        pid,
        comm: String::new(),
        state: b'S',
        parent,
        is_exiting: false,
        minor_faults: 0,
        cpu_ticks: 0,
        children_cpu_ticks: 0,
        threads: 1,
        start_ticks: 0,
    };
    let all = [
        stat(5, 3),
        stat(2, 1),
        stat(3, 2),
        stat(4, 9),
        stat(9, 4),
        stat(6, 2),
    ];
    assert_eq!(descendants_among(&all, &[1]), [2, 3, 6, 5]);
    assert_eq!(descendants_among(&all, &[4]), [9]);
    assert!(descendants_among(&all, &[77]).is_empty());
}

#[test]
fn descendants_by_lists_are_each_asked_once_and_come_in_order() {
    let mut asked = Vec::new();
    let found = descendants_by(1, |pid| {
        asked.push(pid);
        match pid {
            1 => Ok(vec![2, 3, 4]),
            2 => Ok(vec![5, 6]),
            // It was handed to another parent between two looks.
            3 => Ok(vec![5, 7]),
            4 => Err(ProcError::Gone),
            // A number was given out again.
            7 => Ok(vec![2]),
            _ => Ok(Vec::new()),
        }
    });
    assert_eq!(found.unwrap(), [2, 3, 4, 5, 6, 7]);
    assert_eq!(asked, [1, 2, 3, 4, 5, 6, 7]);
    assert!(descendants_by(1, |_| Err(ProcError::Gone)).is_err());
}

#[test]
fn the_own_process_and_a_child_are_found() {
    let pid = std::process::id();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    assert!(children(pid).unwrap().contains(&child.id()));
    assert!(descendants(pid).unwrap().contains(&child.id()));
    if let Ok(listed) = descendants_listed(pid) {
        assert!(listed.contains(&child.id()));
    }
    let ticks = stat(child.id()).unwrap().start_ticks;
    assert!(is_alive(child.id(), None) && is_alive(child.id(), Some(ticks)));
    assert!(!is_alive(child.id(), Some(ticks + 1)));
    let statm = Statm::open(child.id()).unwrap();
    assert!(statm.sizes().unwrap().resident_bytes > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_alive(child.id(), None));
    assert!(matches!(statm.sizes(), Err(ProcError::Gone)));
    assert!(matches!(Statm::open(child.id()), Err(ProcError::Gone)));
    assert_eq!(uids(pid).unwrap()[1], rustix::process::geteuid().as_raw());
    let total = meminfo().unwrap().total_bytes;
    assert!(own_resident_bytes().unwrap() < total);
}

#[test]
fn active_swaps_are_named_as_they_are() {
    let header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
    let text = format!(
        "{header}/dev/dm-1                               partition\t2097148\t\t0\t\t-2\n\
         /a\\040b\\011c\\134d\\012e                     file\t\t36\t\t12\t\t5\n\
         /gone\\040(deleted) file\t\t36\t\t12\t\t-3\n"
    );
    let paths = parse_swaps(text.as_bytes()).unwrap();
    let expected = ["/dev/dm-1", "/a b\tc\\d\ne", "/gone (deleted)"];
    assert_eq!(paths, expected.map(PathBuf::from));
    assert!(parse_swaps(header.as_bytes()).unwrap().is_empty());
    for bad in ["", "/dev/dm-1 partition 1 0 -2\n", "Filename\n/swap\n"] {
        assert!(parse_swaps(bad.as_bytes()).is_err(), "{bad}");
    }
    swaps().unwrap();
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_stat(&bytes);
        let _ = parse_statm(&bytes);
        let _ = parse_meminfo(&bytes);
        let _ = parse_ids(&bytes, b"Uid:");
        let _ = parse_swaps(&[b"Filename\n", &bytes[..]].concat());
    }

    #[test]
    fn no_near_miss_panics(text in "[0-9]{0,3} ?\\({0,2}[a-z)( ]{0,9}\\){0,2}( [0-9SZ-]{0,21}){0,25}") {
        let _ = parse_stat(text.as_bytes());
        let _ = parse_statm(text.as_bytes());
    }
}

#[test]
fn whoever_is_started_is_noticed() {
    assert_eq!(
        parse_last_pid(b"0.20 0.18 0.12 1/80 11206\n").ok(),
        Some(11206)
    );
    for text in [
        "",
        "0.20 0.18 0.12 1/80",
        "0.20 0.18 0.12 1/80 x",
        "1 2 3 4 5 6",
    ] {
        assert!(parse_last_pid(text.as_bytes()).is_err(), "{text}");
    }
    let mut births = Births::default();
    assert!(births.any(), "the first time");
    let child = std::process::Command::new("true").spawn();
    let waited = child.and_then(|mut child| child.wait());
    assert!(waited.is_ok_and(|status| status.success()));
    assert!(births.any());
    // Others may be starting processes all the time.
    let quiet = (0..10_000).any(|_| !births.any());
    assert!(quiet, "nothing was ever quiet");
}
