//! What is written comes back, byte by byte.

use std::sync::atomic::{AtomicU64, Ordering};

use vswap_engine::{Codec, Page, RamStorage, ReadRun, Scratch, Storage, StorageError};

use vswap_far::FarStorage;

use crate::seeded::Seeded;
use crate::support::{Server, check, open, options, page, write};

const THREADS: u64 = 4;
/// Slots of one thread: they share clusters with those of others.
const SLOTS: u64 = 700;
const STEPS: u64 = 120;

#[test]
fn every_byte_comes_back_while_threads_write_rewrite_and_discard() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let storage = open(&server.url(), options(THREADS * SLOTS));
    let seeds = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (storage, seeds) = (&storage, &seeds);
            scope.spawn(move || exercise(storage, seeds, thread));
        }
    });
    let figures = storage.figures();
    assert_eq!((figures.lost_pages, figures.altered_pages), (0, 0));
    assert!(figures.nodes[0].pages_out > 0 && figures.nodes[0].latency.is_some());
    storage.discard(0..THREADS * SLOTS).expect("discarded");
    assert_eq!((storage.figures().pages, storage.figures().keys), (0, 0));
    assert_eq!(server.keys(), Vec::<Vec<u8>>::new());
}

fn exercise(storage: &FarStorage, seeds: &AtomicU64, thread: u64) {
    let mut random = Seeded(thread);
    let first = thread * SLOTS;
    let mut held: Vec<Option<u64>> = vec![None; usize::try_from(SLOTS).unwrap()];
    for _ in 0..STEPS {
        let length = 1 + random.below(64);
        let begin = random.below(held.len() - length + 1);
        let of_run = begin..begin + length;
        let at = begin as u64;
        match random.below(5) {
            0 => {
                let end = first + (begin + length) as u64;
                storage.discard(first + at..end).unwrap();
                held[of_run].fill(None);
            }
            1 | 2 => {
                let new: Vec<u64> = of_run
                    .clone()
                    .map(|_| seeds.fetch_add(1, Ordering::Relaxed))
                    .collect();
                write(storage, first + at, &new).unwrap();
                for (slot, seed) in held[of_run].iter_mut().zip(new) {
                    *slot = Some(seed);
                }
            }
            _ => {
                let known: Option<Vec<u64>> = held[of_run].iter().copied().collect();
                match known {
                    Some(known) => check(storage, first + at, &known).unwrap(),
                    None => {
                        let mut pages = vec![Page::zeroed(); length];
                        let mut pages: Vec<&mut Page> = pages.iter_mut().collect();
                        let read = storage.read(first + at, &mut pages);
                        assert_eq!(read, Err(StorageError::Lost));
                    }
                }
            }
        }
    }
    for (at, seed) in held.iter().enumerate() {
        if let Some(seed) = seed {
            check(storage, first + at as u64, &[*seed]).unwrap();
        }
    }
}

#[test]
fn packed_content_travels_as_it_is_and_runs_have_results_of_their_own() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let storage = open(&server.url(), options(2000));
    assert!(storage.keeps_packed());
    let mut scratch = Scratch::new();
    let pages: Vec<Page> = (0..600).map(page).collect();
    // The pool has pages of several codecs, and gives them as they are.
    let codecs = [Codec::Lz4, Codec::Zstd, Codec::None];
    let packed: Vec<Vec<u8>> = pages
        .iter()
        .zip(codecs.into_iter().cycle())
        .map(|(page, codec)| match codec.compress(page, &mut scratch) {
            Ok(packed) => packed.to_vec(),
            Err(_) => page.0.to_vec(),
        })
        .collect();
    let packed: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
    storage.write_packed(100, &packed).unwrap();
    let bytes: usize = packed.iter().map(|one| one.len()).sum();
    assert_eq!(storage.figures().nodes[0].bytes_out, bytes as u64);
    let mut into = vec![Page::zeroed(); 21];
    let (first, rest) = into.split_at_mut(10);
    let (second, third) = rest.split_at_mut(10);
    let mut runs = [
        ReadRun {
            slot: 500,
            pages: first.iter_mut().collect(),
            outcome: Ok(()),
        },
        ReadRun {
            slot: 695,
            pages: second.iter_mut().collect(),
            outcome: Ok(()),
        },
        ReadRun {
            slot: 1999,
            pages: third.iter_mut().collect(),
            outcome: Ok(()),
        },
    ];
    storage.read_runs(&mut runs);
    let outcomes: Vec<_> = runs.iter().map(|run| run.outcome).collect();
    let lost = Err(StorageError::Lost);
    assert_eq!(outcomes, [Ok(()), lost, lost]);
    assert!(into[..10] == pages[400..410]);
    let short = Err(StorageError::Short);
    assert_eq!(write(&storage, 1999, &[1, 2]), short);
    assert_eq!(storage.discard(1999..2001), short);
}

#[test]
fn a_backup_has_what_the_store_has_lost() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let mut options = options(600);
    options.backup = Some(Box::new(RamStorage::new(600)));
    let storage = open(&server.url(), options);
    let seeds: Vec<u64> = (0..600).collect();
    write(&storage, 0, &seeds).unwrap();
    let newer: Vec<u64> = (1000..1100).collect();
    write(&storage, 50, &newer).unwrap();
    let mut client = server.client();
    let _: () = redis::cmd("FLUSHALL").query(&mut client).unwrap();
    check(&storage, 0, &seeds[..50]).unwrap();
    check(&storage, 50, &newer).unwrap();
    check(&storage, 150, &seeds[150..]).unwrap();
    let figures = storage.figures();
    assert_eq!((figures.backup_reads, figures.lost_pages), (600, 0));
    storage.discard(0..1).unwrap();
    assert_eq!(check(&storage, 0, &[0]), Err(StorageError::Lost));
}
