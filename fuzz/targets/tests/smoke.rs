//! Every target accepts its corpus and some mutations of it: on stable Rust, without a fuzzer.
//!
//! The mutations are the same every time. `cargo xtask fuzz` does the searching.

use std::path::PathBuf;

use vswap_fuzz_targets::TARGETS;

/// Mutations of each file of a corpus.
const MUTATIONS: usize = 40;
/// Most changes of one mutation.
const CHANGES_MAX: u64 = 8;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
}

fn below(state: &mut u64, end: usize) -> usize {
    usize::try_from(random(state)).expect("64 bits") % end.max(1)
}

/// Overwrites, inserts, drops and doubles bytes.
fn mutate(input: &[u8], state: &mut u64) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random(state) % CHANGES_MAX {
        let at = below(state, bytes.len());
        let byte = random(state).to_le_bytes()[0];
        match random(state) % 4 {
            0 if !bytes.is_empty() => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => bytes.truncate(at),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus")
        .join(target);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{target} has no corpus");
    let read = |path: PathBuf| std::fs::read(path).expect("readable");
    paths.into_iter().map(read).collect()
}

#[test]
fn every_target_takes_its_corpus_and_mutations_of_it() {
    for (name, target) in TARGETS {
        target(&[]);
        for input in corpus(name) {
            target(&input);
            let mut state = 0x9e37_79b9_7f4a_7c15 + input.len() as u64;
            for _ in 0..MUTATIONS {
                target(&mutate(&input, &mut state));
            }
        }
    }
}
