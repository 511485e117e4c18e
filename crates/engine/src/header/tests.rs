//! Tests of the header: every check of decoding, and round trips in both byte orders.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A header written field by field. It may be wrong.
#[derive(Debug, Clone)]
struct Raw {
    version: u32,
    last_page: u32,
    bad_count: u32,
    bad_pages: Vec<u32>,
    uuid: Uuid,
    label: [u8; 16],
    swapped: bool,
}

impl Raw {
    /// A correct header, with pages 0 to `last_page`.
    fn new(last_page: u32) -> Raw {
        Raw {
            version: 1,
            last_page,
            bad_count: 0,
            bad_pages: Vec::new(),
            uuid: [7; 16],
            label: [0; 16],
            swapped: false,
        }
    }

    fn with_bad(last_page: u32, bad_pages: &[u32]) -> Raw {
        Raw {
            bad_count: u32::try_from(bad_pages.len()).unwrap(),
            bad_pages: bad_pages.to_vec(),
            ..Raw::new(last_page)
        }
    }

    fn page(&self) -> Vec<u8> {
        let mut page = vec![0; 4096];
        let mut put = |at: usize, word: u32| {
            let word = if self.swapped {
                word.swap_bytes()
            } else {
                word
            };
            page[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        };
        put(1024, self.version);
        put(1028, self.last_page);
        put(1032, self.bad_count);
        for (index, bad) in self.bad_pages.iter().enumerate() {
            put(1536 + 4 * index, *bad);
        }
        page[1036..1052].copy_from_slice(&self.uuid);
        page[1052..1068].copy_from_slice(&self.label);
        page[4086..].copy_from_slice(b"SWAPSPACE2");
        page
    }
}

fn device(pages: u64) -> Medium {
    Medium {
        kind: Kind::BlockDevice,
        bytes: pages * 4096,
    }
}

fn file(pages: u64) -> Medium {
    Medium {
        kind: Kind::RegularFile,
        bytes: pages * 4096,
    }
}

fn decode_raw(raw: &Raw, medium: Medium) -> Result<Header, HeaderError> {
    decode(&raw.page(), medium)
}

/// Zeros with `end` as the last bytes of a first page of `page_bytes`, and more zeros behind.
fn ending(end: &[u8; 10], page_bytes: usize) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    head[page_bytes - 10..page_bytes].copy_from_slice(end);
    head
}

#[test]
fn a_new_header_comes_back() {
    let label: Label = "spare".parse().unwrap();
    let encoded = encode(256 * 4096 + 17, Some(label), [9; 16]).unwrap();
    assert_eq!((encoded.pages, encoded.dropped_pages), (256, 0));
    assert_eq!(encoded.page[..BOOT_BYTES], [0; BOOT_BYTES]);
    let header = decode(&encoded.page, file(256)).unwrap();
    let expected = Header {
        pages: 256,
        dropped_pages: 0,
        usable_pages: 255,
        bad_pages: Vec::new(),
        label: Some(label),
        uuid: [9; 16],
        foreign_endian: false,
    };
    assert_eq!(header, expected);
}

#[test]
fn new_areas_have_ten_pages_at_least() {
    assert_eq!(
        encode(40_959, None, [0; 16]),
        Err(TooSmall { bytes: 40_959 })
    );
    assert_eq!(encode(40_960, None, [0; 16]).unwrap().pages, 10);
    let message = TooSmall { bytes: 5 }.to_string();
    assert!(message.contains("at least 40960 (10 pages)"), "{message}");
}

#[test]
fn new_areas_end_at_the_limit_of_the_format() {
    for (bytes, pages, dropped_pages) in [
        (PAGES_MAX * 4096, PAGES_MAX, 0),
        ((PAGES_MAX + 1) * 4096, PAGES_MAX, 1),
        (u64::MAX, PAGES_MAX, u64::MAX / 4096 - PAGES_MAX),
    ] {
        let encoded = encode(bytes, None, [0; 16]).unwrap();
        assert_eq!(
            (encoded.pages, encoded.dropped_pages),
            (pages, dropped_pages)
        );
        let medium = Medium {
            kind: Kind::BlockDevice,
            bytes,
        };
        let header = decode(&encoded.page, medium).unwrap();
        assert_eq!((header.pages, header.dropped_pages), (PAGES_MAX, 0));
    }
}

#[test]
fn what_is_no_area_is_told_apart() {
    for (head, expected) in [
        (vec![], HeaderError::Short { bytes: 0 }),
        (vec![0; 4095], HeaderError::Short { bytes: 4095 }),
        (vec![0; HEAD_BYTES], HeaderError::NotSwap),
        (ending(b"SWAPSPACE3", 4096), HeaderError::NotSwap),
        (ending(b"SWAPSPACE2", 32768), HeaderError::NotSwap),
        (ending(b"SWAP-SPACE", 4096), HeaderError::OldFormat),
        (ending(b"SWAP-SPACE", 8192), HeaderError::OldFormat),
        (ending(b"S1SUSPEND\0", 4096), HeaderError::Suspended),
        (ending(b"S2SUSPEND\0", 4096), HeaderError::Suspended),
        (ending(b"ULSUSPEND\0", 4096), HeaderError::Suspended),
        (ending(b"LINHIB0001", 65536), HeaderError::Suspended),
        (
            ending(b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c\x01\x02", 4096),
            HeaderError::Suspended,
        ),
    ] {
        assert_eq!(decode(&head, device(1 << 20)), Err(expected));
    }
    for page_bytes in [8192, 16384, 65536] {
        let head = ending(b"SWAPSPACE2", page_bytes);
        assert_eq!(
            decode(&head, device(1 << 20)),
            Err(HeaderError::OtherPageSize { page_bytes })
        );
        // One page is not enough to recognise it.
        assert_eq!(
            decode(&head[..4096], device(1 << 20)),
            Err(HeaderError::NotSwap)
        );
    }
}

#[test]
fn the_nearest_magic_counts() {
    let mut head = ending(b"SWAPSPACE2", 65536);
    head[..4096].copy_from_slice(&Raw::new(99).page());
    assert_eq!(signature(&head), Signature::Swap { page_bytes: 4096 });
    assert_eq!(decode(&head, device(100)).unwrap().pages, 100);
}

#[test]
fn the_version_is_one_in_either_byte_order() {
    for version in [0, 2, 0x0001_0000, u32::MAX] {
        let raw = Raw {
            version,
            ..Raw::new(99)
        };
        assert_eq!(
            decode_raw(&raw, file(100)),
            Err(HeaderError::Version { version })
        );
    }
    for swapped in [false, true] {
        let raw = Raw {
            swapped,
            ..Raw::with_bad(99, &[50, 3])
        };
        let header = decode_raw(&raw, device(100)).unwrap();
        assert_eq!((header.pages, header.usable_pages), (100, 97));
        assert_eq!(header.bad_pages, [3, 50]);
        assert_eq!(header.foreign_endian, swapped);
    }
}

#[test]
fn an_area_without_pages_is_refused() {
    assert_eq!(
        decode_raw(&Raw::new(0), file(100)),
        Err(HeaderError::NoPages)
    );
    assert_eq!(decode_raw(&Raw::new(1), file(2)).unwrap().usable_pages, 1);
}

#[test]
fn an_area_that_was_cut_is_refused() {
    let mut medium = file(100);
    assert!(decode_raw(&Raw::new(99), medium).is_ok());
    medium.bytes -= 1;
    assert_eq!(
        decode_raw(&Raw::new(99), medium),
        Err(HeaderError::CutOff {
            expected_bytes: 409_600,
            bytes: 409_599
        })
    );
    let everything = decode_raw(&Raw::new(u32::MAX), file(PAGES_MAX - 1));
    assert!(matches!(everything, Err(HeaderError::CutOff { .. })));
}

#[test]
fn pages_beyond_the_format_are_dropped_and_reported() {
    let last = u32::MAX;
    let header = decode_raw(&Raw::new(last), device(PAGES_MAX)).unwrap();
    assert_eq!((header.pages, header.dropped_pages), (PAGES_MAX, 1));
    let header = decode_raw(&Raw::new(last - 1), device(PAGES_MAX)).unwrap();
    assert_eq!((header.pages, header.dropped_pages), (PAGES_MAX, 0));
    // A bad page among the dropped ones does not count against the others.
    let raw = Raw::with_bad(last, &[last, last - 1]);
    let header = decode_raw(&raw, device(PAGES_MAX)).unwrap();
    assert_eq!(header.bad_pages, [last - 1]);
    assert_eq!(header.usable_pages, PAGES_MAX - 2);
}

#[test]
fn only_devices_have_bad_pages() {
    let raw = Raw::with_bad(99, &[5]);
    assert_eq!(
        decode_raw(&raw, file(100)),
        Err(HeaderError::BadPagesInFile { count: 1 })
    );
    assert_eq!(decode_raw(&raw, device(100)).unwrap().bad_pages, [5]);
}

#[test]
fn the_list_of_bad_pages_is_bounded() {
    let most: Vec<u32> = (1..=637).collect();
    let header = decode_raw(&Raw::with_bad(999, &most), device(1000)).unwrap();
    assert_eq!(header.usable_pages, 999 - 637);
    for count in [638, u32::MAX] {
        let raw = Raw {
            bad_count: count,
            ..Raw::new(999)
        };
        assert_eq!(
            decode_raw(&raw, device(1000)),
            Err(HeaderError::TooManyBadPages { count })
        );
    }
}

#[test]
fn bad_pages_are_in_the_area_and_once() {
    for (page, last_page) in [(0, 99), (100, 99), (u32::MAX, 99)] {
        let raw = Raw::with_bad(last_page, &[5, page]);
        assert_eq!(
            decode_raw(&raw, device(100)),
            Err(HeaderError::BadPageOutside { page, last_page })
        );
    }
    let raw = Raw::with_bad(99, &[5, 99, 5]);
    assert_eq!(
        decode_raw(&raw, device(100)),
        Err(HeaderError::BadPageTwice { page: 5 })
    );
}

#[test]
fn an_area_of_bad_pages_alone_is_refused() {
    let raw = Raw::with_bad(3, &[1, 2, 3]);
    assert_eq!(decode_raw(&raw, device(4)), Err(HeaderError::Empty));
    let raw = Raw::with_bad(3, &[1, 3]);
    assert_eq!(decode_raw(&raw, device(4)).unwrap().usable_pages, 1);
}

#[test]
fn labels_come_back_whatever_bytes_they_are() {
    for (field, shown) in [
        (*b"plain\0garbage\0\0\0", "plain"),
        (*b"sixteen bytes ok", "sixteen bytes ok"),
        (*b"caf\xc3\xa9\0\0\0\0\0\0\0\0\0\0\0", "caf\u{e9}"),
        (*b"caf\xe9 2\0\0\0\0\0\0\0\0\0\0", "caf\\xe9 2"),
        (*b"a\\b\x1b[2J\0\0\0\0\0\0\0\0\0", "a\\\\b\\u{1b}[2J"),
    ] {
        let raw = Raw {
            label: field,
            ..Raw::new(99)
        };
        let label = decode_raw(&raw, file(100)).unwrap().label.unwrap();
        assert_eq!(label.to_string(), shown);
        let before_zero = field.split(|byte| *byte == 0).next().unwrap();
        assert_eq!(label.as_bytes(), before_zero);
        assert_eq!(label.as_str(), str::from_utf8(before_zero).ok());
        let again = encode(409_600, Some(label), [0; 16]).unwrap();
        assert_eq!(decode(&again.page, file(100)).unwrap().label, Some(label));
    }
    assert_eq!(decode_raw(&Raw::new(99), file(100)).unwrap().label, None);
}

#[test]
fn labels_that_do_not_fit_are_refused() {
    assert_eq!(
        Label::new(&[b'x'; 15]).unwrap().as_str(),
        Some("xxxxxxxxxxxxxxx")
    );
    assert_eq!(
        Label::new(&[b'x'; 16]),
        Err(LabelError::TooLong { bytes: 16 })
    );
    assert_eq!(Label::new(b""), Err(LabelError::Empty));
    assert_eq!(Label::new(b"a\0b"), Err(LabelError::Zero));
}

#[test]
fn messages_say_what_is_wrong_and_what_to_do() {
    for (error, parts) in [
        (HeaderError::Short { bytes: 7 }, ["7 bytes", "Make it"]),
        (HeaderError::NotSwap, ["SWAPSPACE2", "Make"]),
        (HeaderError::Suspended, ["hibernated", "Resume"]),
        (
            HeaderError::OtherPageSize { page_bytes: 65536 },
            ["65536 bytes, expected 4096", "anew"],
        ),
        (
            HeaderError::Version { version: 2 },
            ["version 2, expected version 1", "anew"],
        ),
        (
            HeaderError::BadPageOutside {
                page: 9,
                last_page: 5,
            },
            ["page 9", "from 1 to 5"],
        ),
        (
            HeaderError::TooManyBadPages { count: 700 },
            ["700 bad pages", "637"],
        ),
    ] {
        let message = error.to_string();
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    }
}

/// Numbers of the last page: any number, with small ones and the largest more often.
fn last_pages() -> impl Strategy<Value = u32> {
    prop_oneof![
        1..=u32::MAX,
        1..2000u32,
        u32::MAX - 2..=u32::MAX,
        Just(1),
        Just(u32::MAX)
    ]
}

/// Any correct header of a device.
fn right_headers() -> impl Strategy<Value = Raw> {
    last_pages().prop_flat_map(|last_page| {
        let bad = proptest::collection::btree_set(
            prop_oneof![1..=last_page, 1..=last_page.min(700), Just(last_page)],
            0..=BAD_PAGES_MAX,
        );
        (
            bad,
            any::<Uuid>(),
            any::<[u8; 16]>(),
            any::<bool>(),
            any::<u64>(),
        )
            .prop_map(move |(bad, uuid, label, swapped, order)| {
                let mut bad: Vec<u32> = bad.into_iter().collect();
                let turn = usize::try_from(order % (bad.len() as u64 + 1)).unwrap();
                bad.rotate_left(turn);
                Raw {
                    uuid,
                    label,
                    swapped,
                    ..Raw::with_bad(last_page, &bad)
                }
            })
    })
}

proptest! {
    #[test]
    fn right_headers_come_back(raw in right_headers()) {
        let pages = (u64::from(raw.last_page) + 1).min(PAGES_MAX);
        let bad: BTreeSet<u32> =
            raw.bad_pages.iter().copied().filter(|bad| u64::from(*bad) < pages).collect();
        let usable = pages - 1 - bad.len() as u64;
        match decode_raw(&raw, device(pages)) {
            Ok(header) => {
                prop_assert_eq!(header.pages, pages);
                prop_assert_eq!(header.dropped_pages, u64::from(raw.last_page) + 1 - pages);
                prop_assert_eq!(header.usable_pages, usable);
                prop_assert!(header.bad_pages.iter().eq(bad.iter()));
                prop_assert_eq!(header.uuid, raw.uuid);
                prop_assert_eq!(header.foreign_endian, raw.swapped);
                let label = raw.label.split(|byte| *byte == 0).next().unwrap_or(&[]);
                prop_assert_eq!(header.label.as_ref().map_or(&[][..], Label::as_bytes), label);
            }
            Err(error) => prop_assert_eq!((error, usable), (HeaderError::Empty, 0)),
        }
        let cut = Medium { bytes: pages * 4096 - 1, ..device(0) };
        let refused = decode_raw(&raw, cut);
        prop_assert!(matches!(refused, Err(HeaderError::CutOff { .. })), "{refused:?}");
    }

    #[test]
    fn new_headers_come_back(
        bytes in prop_oneof![any::<u64>(), 0..1u64 << 20, PAGES_MAX * 4096 - 9000..=PAGES_MAX * 4096 + 9000],
        label in proptest::collection::vec(1..=255u8, 1..=15),
        uuid in any::<Uuid>(),
    ) {
        let label = Label::new(&label).unwrap();
        match encode(bytes, Some(label), uuid) {
            Err(TooSmall { .. }) => prop_assert!(bytes < 40_960),
            Ok(encoded) => {
                prop_assert_eq!(encoded.pages + encoded.dropped_pages, bytes / 4096);
                let header = decode(&encoded.page, Medium { kind: Kind::RegularFile, bytes }).unwrap();
                prop_assert_eq!(header.pages, encoded.pages);
                prop_assert_eq!(header.usable_pages, encoded.pages - 1);
                prop_assert_eq!((header.label, header.uuid), (Some(label), uuid));
                prop_assert_eq!((header.dropped_pages, header.bad_pages.len()), (0, 0));
            }
        }
    }

    #[test]
    fn no_bytes_panic(
        mut head in proptest::collection::vec(any::<u8>(), 0..9000),
        bytes in any::<u64>(),
        magic in any::<bool>(),
    ) {
        if magic && head.len() >= PAGE_BYTES {
            head[MAGIC_AT..PAGE_BYTES].copy_from_slice(MAGIC);
        }
        for kind in [Kind::RegularFile, Kind::BlockDevice] {
            let _ = decode(&head, Medium { kind, bytes });
        }
    }

    #[test]
    fn no_changed_header_panics_or_grows(
        raw in right_headers(),
        changes in proptest::collection::vec((prop_oneof![1024..1068usize, 1536..4096usize], any::<u8>()), 1..8),
        bytes in prop_oneof![any::<u64>(), 0..1u64 << 24],
    ) {
        let mut page = raw.page();
        for (at, value) in changes {
            page[at] = value;
        }
        for kind in [Kind::RegularFile, Kind::BlockDevice] {
            let Ok(header) = decode(&page, Medium { kind, bytes }) else { continue };
            prop_assert!(header.pages <= bytes / 4096 && header.pages <= PAGES_MAX);
            prop_assert_eq!(header.usable_pages + header.bad_pages.len() as u64 + 1, header.pages);
            prop_assert!(header.usable_pages > 0);
        }
    }
}
