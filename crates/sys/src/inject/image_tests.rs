//! Tests of laying out the agent: a library of a few hundred bytes, whole and damaged.

use super::*;

const RELA: usize = 0x240;
const SYMBOLS: usize = 0x300;
const DATA: u64 = 0x1000;
const FILE_BYTES: usize = 0x400;
/// Where what is defined in the library is.
const DEFINED_AT: u64 = 0x80;

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn segment(
    kind: u32,
    flags: u32,
    offset: u64,
    at: u64,
    (in_file, in_memory): (u64, u64),
) -> Vec<u8> {
    let head = [kind, flags].map(u32::to_le_bytes).concat();
    let rest = [offset, at, at, in_file, in_memory, 8].map(u64::to_le_bytes);
    [head, rest.concat()].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Symbol 1 is defined, 2 is weak and not, 3 is wanted and not.
fn symbol(binding: u8, section: u16, value: u64) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, binding << 4, 0];
    bytes.extend(section.to_le_bytes());
    bytes.extend(words(&[value, 0]));
    bytes
}

/// Kinds of relocations: relative, for data, for calls, as a word, chosen by running code.
fn numbers(kinds: &Kinds) -> [u64; 5] {
    let [data, call, word] = kinds.of_symbol;
    [kinds.relative, data, call, word, kinds.chosen].map(|kind| u64::from(kind.0))
}

/// A library with a text segment, a data segment of which a part is in the file, and these relocations: offset, type,
/// symbol, addend. The last one stands in the table of the PLT.
fn library(kinds: &Kinds, relocations: &[(u64, u64, u64, u64)]) -> Vec<u8> {
    let mut file = vec![0; FILE_BYTES];
    put(&mut file, 0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    put(&mut file, 16, &[3, 0, 0, 0, 1, 0, 0, 0]);
    put(&mut file, 18, &kinds.machine.to_le_bytes());
    put(&mut file, 24, &words(&[0x40, 64, 0]));
    put(&mut file, 52, &[64, 0, 56, 0, 3, 0]);
    let text = segment(1, 5, 0, 0, (FILE_BYTES as u64, FILE_BYTES as u64));
    let data = segment(1, 6, 0x3c0, DATA, (0x40, 0x1100));
    let dynamic = segment(2, 4, 0x180, 0x180, (0x60, 0x60));
    put(&mut file, 64, &[text, data, dynamic].concat());
    let (plt, plain) = (
        relocations.len().min(1),
        relocations.len().saturating_sub(1),
    );
    let (plt_at, plt_bytes) = (RELA + plain * 24, plt * 24);
    let tags = [
        [7, RELA as u64],
        [8, plain as u64 * 24],
        [6, SYMBOLS as u64],
        [23, plt_at as u64],
        [2, plt_bytes as u64],
        [0, 0],
    ];
    put(&mut file, 0x180, &words(tags.as_flattened()));
    for (number, (offset, kind, symbol, addend)) in relocations.iter().enumerate() {
        let words = words(&[*offset, symbol << 32 | kind, *addend]);
        put(&mut file, RELA + number * 24, &words);
    }
    let symbols = [(0, 0, 0), (1, 1, DEFINED_AT), (2, 0, 0), (1, 0, 0)];
    for (number, (binding, section, value)) in symbols.into_iter().enumerate() {
        put(
            &mut file,
            SYMBOLS + number * 24,
            &symbol(binding, section, value),
        );
    }
    put(&mut file, 0x3c0, &[0xaa; 0x40]);
    file
}

fn whole(kinds: &Kinds) -> Vec<u8> {
    let [relative, data, call, word, _] = numbers(kinds);
    let relocations = [
        (DATA, relative, 0, 0x44),
        (DATA + 8, data, 1, 2),
        (DATA + 16, word, 2, 9),
        (DATA + 24, call, 1, 0),
    ];
    library(kinds, &relocations)
}

fn word(memory: &[u8], at: u64) -> u64 {
    let at = usize::try_from(at).unwrap();
    u64::from_le_bytes(memory[at..at + 8].try_into().unwrap())
}

fn refusal(kinds: &Kinds, file: &[u8]) -> String {
    Image::read_for(kinds, file).unwrap_err().to_string()
}

#[test]
fn words_that_depend_on_the_place_are_right_wherever_it_lies() {
    for kinds in relocations::ALL {
        words_are_right(&Image::read_for(&kinds, &whole(&kinds)).unwrap());
    }
}

fn words_are_right(image: &Image) {
    assert_eq!((image.bytes(), image.entry(0x7000)), (0x3000, 0x7040));
    for start in [0, 0x7f00_1234_5000] {
        let memory = image.at(start);
        assert_eq!(memory.len(), 0x3000);
        assert_eq!(word(&memory, DATA), start + 0x44);
        assert_eq!(word(&memory, DATA + 8), start + DEFINED_AT + 2);
        assert_eq!(word(&memory, DATA + 16), 0, "a weak reference to libc");
        assert_eq!(word(&memory, DATA + 24), start + DEFINED_AT);
        assert_eq!(word(&memory, DATA + 32), 0xaaaa_aaaa_aaaa_aaaa);
        assert!(
            memory[0x1040..].iter().all(|byte| *byte == 0),
            "what is not in the file is zero"
        );
    }
    let segments: Vec<_> = image.segments().collect();
    assert_eq!(segments, [(0..0x1000, 5), (0x1000..0x3000, 3)]);
}

#[test]
fn what_this_loader_does_not_do_is_refused() {
    for kinds in relocations::ALL {
        what_it_does_not_do_is_refused(&kinds);
    }
}

fn what_it_does_not_do_is_refused(kinds: &Kinds) {
    let refusal = |file: &[u8]| refusal(kinds, file);
    let [relative, data, _, _, chosen] = numbers(kinds);
    let mut file = whole(kinds);
    file[64 + 2 * 56] = 7;
    assert!(refusal(&file).contains("thread-local"));
    file[64 + 2 * 56] = 4;
    assert!(refusal(&file).contains("no dynamic section"));
    let mut file = whole(kinds);
    put(&mut file, 24, &words(&[0]));
    assert!(refusal(&file).contains("no entry"));
    put(&mut file, 24, &words(&[0x3000]));
    assert!(refusal(&file).contains("no entry"));
    let needs = [
        ((DATA, data, 3, 0), "symbol that it needs"),
        ((DATA, 999, 0, 0), "unknown relocation"),
        ((DATA, chosen, 0, 0), "chosen by running code"),
        ((0x2ff9, relative, 0, 0), "relocation out of bounds"),
        ((u64::MAX, relative, 0, 0), "relocation out of bounds"),
        ((DATA, data, u64::from(u32::MAX), 0), "table out of bounds"),
    ];
    for (relocation, why) in needs {
        let refusal = refusal(&library(kinds, &[relocation]));
        assert!(refusal.contains(why), "{relocation:x?}: {refusal}");
    }
    let mut file = whole(kinds);
    put(&mut file, 0x180 + 2 * 16 + 8, &words(&[u64::MAX]));
    assert!(refusal(&file).contains("table out of bounds"));
    assert!(refusal(b"#!/bin/sh\n").contains("not a 64-bit ELF library"));
}

#[test]
fn a_library_of_the_other_machine_is_refused() {
    let [one, other] = relocations::ALL;
    for (reader, written) in [(&one, &other), (&other, &one)] {
        let refusal = refusal(reader, &whole(written));
        assert_eq!(refusal, "the library has code for another machine");
    }
}

#[test]
fn damaged_files_give_an_error_or_an_image() {
    let whole = whole(&relocations::THIS);
    let mut read = 0;
    for end in 0..whole.len() {
        read += usize::from(Image::read(&whole[..end]).is_ok());
    }
    assert_eq!(read, 0, "the text segment is the whole file");
    for at in 0..whole.len() {
        for damage in [0x00, 0x01, 0x7f, 0xff] {
            let mut file = whole.clone();
            file[at] ^= damage;
            if let Ok(image) = Image::read(&file) {
                assert_eq!(image.at(u64::MAX - 0xfff).len() as u64, image.bytes());
            }
        }
    }
}
