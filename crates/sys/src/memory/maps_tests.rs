//! Tests of the parsers: real samples, hostile input, random input.

use super::*;
use proptest::prelude::*;

const SAMPLE: &[u8] = b"\
55d0c1c00000-55d0c1c05000 r--p 00000000 fe:00 12345                      /usr/bin/a b\n\
55d0c2000000-55d0c2100000 rw-p 00000000 00:00 0                          [heap]\n\
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n\
7f0010000000-7f0010001000 rw-s 00000000 00:01 2048                       /dev/zero (deleted)\n\
7f0010001000-7f0010002000 rw-p 00000000 00:00 0                          [anon:glibc: malloc]\n\
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n\
7ffc00100000-7ffc00104000 r--p 00000000 00:00 0                          [vvar]\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

#[test]
fn a_real_file_parses() {
    let all: Vec<Mapping<'_>> = parse(SAMPLE).map(Result::unwrap).collect();
    assert_eq!(all.len(), 9);
    assert_eq!(all[0].name, Name::File(b"/usr/bin/a b"));
    assert_eq!(
        (all[0].inode, all[0].write, all[0].read),
        (12345, false, true)
    );
    assert_eq!((all[1].name, all[1].bytes()), (Name::Heap, 0x10_0000));
    assert_eq!(all[2].name, Name::Anonymous);
    assert!(all[4].shared && all[4].name == Name::File(b"/dev/zero (deleted)"));
    assert_eq!(all[5].name, Name::Named(b"glibc: malloc"));
    assert_eq!(
        (all[6].name, all[7].name),
        (Name::Stack, Name::Special(b"vvar"))
    );
    assert_eq!(all[8].start, 0xffff_ffff_ff60_0000);
    let anonymous: Vec<u64> = all
        .iter()
        .filter(|m| m.private_anonymous())
        .map(|m| m.start)
        .collect();
    assert_eq!(
        anonymous,
        [
            0x55d0_c200_0000,
            0x7f00_0000_0000,
            0x7f00_0002_1000,
            0x7f00_1000_1000
        ]
    );
    assert!(consistent(SAMPLE).unwrap());
}

#[test]
fn malformed_lines_are_named_and_end_the_iteration() {
    for bad in [
        &b"x"[..],
        b"1000-2000",
        b"2000-1000 rw-p 00000000 00:00 0",
        b"1000-1000 rw-p 00000000 00:00 0",
        b"1000-2000 rw-q 00000000 00:00 0",
        b"1000-2000 rw-pp 00000000 00:00 0",
        b"1000-2000 rw-p zz 00:00 0",
        b"1000-2000 rw-p 00000000 0000 0",
        b"1000-2000 rw-p 00000000 00:00 +1",
        b"10000000000000000-20000000000000000 rw-p 00000000 00:00 0",
        b"-2000 rw-p 00000000 00:00 0",
        b"\xff\xfe-2000 rw-p 00000000 00:00 0",
    ] {
        let mut text = b"1-2 rw-p 0 0:0 0\n".to_vec();
        text.extend_from_slice(bad);
        text.extend_from_slice(b"\n3-4 rw-p 0 0:0 0\n");
        let parsed: Vec<_> = parse(&text).collect();
        assert_eq!(parsed.len(), 2, "{}", String::from_utf8_lossy(bad));
        assert!(matches!(parsed[1], Err(MapsError::Malformed { line: 2 })));
    }
}

#[test]
fn overlapping_lines_are_torn() {
    let text = b"1000-3000 rw-p 0 0:0 0\n2000-4000 rw-p 0 0:0 0\n";
    assert!(!consistent(text).unwrap());
}

fn flagged_in(text: &[u8], flags: &'static [&'static str]) -> Flagged {
    let mut flagged = Flagged::new(flags);
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        flagged.take(line.strip_suffix(b"\n").unwrap_or(line));
    }
    flagged
}

#[test]
fn vm_flags_are_found_per_mapping() {
    let text = b"\
1000-2000 rw-p 00000000 00:00 0 \nSize:                  4 kB\nVmFlags: rd wr mr mw me lo ac sd um uw \n\
3000-4000 rw-p 00000000 00:00 0                [stack]\nVmFlags: rd wr gd dc\n";
    assert_eq!(
        flagged_in(text, &["um", "uw"]).found,
        vec![0x1000..0x2000; 1]
    );
    assert_eq!(flagged_in(text, &["gd"]).found, vec![0x3000..0x4000; 1]);
    let both = [0x1000..0x2000, 0x3000..0x4000];
    assert_eq!(flagged_in(text, &["lo", "dc"]).found, both);
    let none = flagged_in(text, &["wf"]);
    assert_eq!((none.found, none.lines, none.malformed), (vec![], 5, None));
    assert_eq!(flagged_in(b"VmFlags: rd\n", &[]).malformed, Some(1));
    assert_eq!(flagged_in(b"garbage\n", &[]).malformed, Some(1));
}

#[test]
fn rollup_sums_are_bytes() {
    let text = b"\
55d0c1c00000-7ffc00021000 ---p 00000000 00:00 0                          [rollup]\n\
Rss:                1024 kB\nPss:                 512 kB\nPss_Anon:            256 kB\n\
Anonymous:           300 kB\nLazyFree:              4 kB\nSwap:                  8 kB\n";
    let sums = parse_rollup(text).unwrap();
    assert_eq!(sums.rss_bytes, 1 << 20);
    assert_eq!(
        (sums.pss_bytes, sums.pss_anonymous_bytes),
        (512 << 10, 256 << 10)
    );
    assert_eq!(
        (sums.anonymous_bytes, sums.lazy_free_bytes),
        (300 << 10, 4 << 10)
    );
    assert_eq!(sums.swap_bytes, 8 << 10);
    assert!(parse_rollup(b"Rss: many kB\n").is_err());
    assert_eq!(
        parse_rollup(b"Rss: 18446744073709551615 kB\n")
            .unwrap()
            .rss_bytes,
        u64::MAX
    );
}

#[test]
fn the_own_process_reads_and_parses() {
    let pid = std::process::id();
    let mut buffer = Vec::new();
    read(pid, &mut buffer).unwrap();
    let here = core::ptr::from_ref(&buffer).addr() as u64;
    let mine = parse(&buffer)
        .map(Result::unwrap)
        .find(|m| (m.start..m.end).contains(&here));
    assert!(mine.is_some_and(|mapping| mapping.write && mapping.private_anonymous()));
    let maps = parse(&buffer).count();
    // All mappings that may be read.
    let flags = flagged(pid, &["rd"]).unwrap().len();
    assert!(
        flags > 0 && flags.abs_diff(maps) < maps,
        "{flags} flags of {maps} mappings"
    );
    assert!(rollup(pid).unwrap().anonymous_bytes > 0);
}

#[test]
fn a_process_that_is_not_there_is_gone() {
    // Above the kernel's largest pid, 2^22.
    assert!(matches!(
        read(1 << 23, &mut Vec::new()),
        Err(MapsError::Gone)
    ));
    assert!(matches!(rollup(1 << 23), Err(MapsError::Gone)));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes).count();
        let _ = consistent(&bytes);
        let _ = flagged_in(&bytes, &["rd"]);
        let _ = parse_rollup(&bytes);
    }

    #[test]
    fn no_near_miss_panics(text in "[0-9a-f \\-:\n]{0,40}(rw-p|r-xs|VmFlags:|Rss:|\\[|\\]| |\n|[0-9a-f\\-]){0,20}") {
        let _ = parse(text.as_bytes()).count();
        let _ = flagged_in(text.as_bytes(), &["rd"]);
        let _ = parse_rollup(text.as_bytes());
    }

    #[test]
    fn what_is_written_is_read(start in 0u64..u64::MAX / 2, bytes in 1u64..u64::MAX / 2, offset: u64, inode: u64) {
        let end = start + bytes;
        let line = format!("{start:08x}-{end:08x} r-xs {offset:08x} fe:01 {inode}      /a path\n");
        let mapping = parse(line.as_bytes()).next().unwrap().unwrap();
        prop_assert_eq!((mapping.start, mapping.end), (start, end));
        prop_assert_eq!((mapping.offset, mapping.inode), (offset, inode));
        prop_assert!(mapping.shared && mapping.execute && !mapping.write);
        prop_assert_eq!(mapping.name, Name::File(b"/a path"));
    }
}
