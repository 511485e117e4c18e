//! Who has made a system call, as well as that can be seen from outside of the thread.
//!
//! Its stack is read word by word. A word that is the address behind a call, in code that is mapped, is likely to be a
//! return address. So a caller may be named that returned long ago, and one may be missing. The names are made for
//! `addr2line -Cfe FILE ADDRESS`.

#[cfg_attr(target_arch = "x86_64", path = "callers/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "callers/aarch64.rs")]
mod machine;

use vswap_sys::memory::maps::{self, Mapping, Name};
use vswap_sys::process::memory_file::MemoryFile;
use vswap_sys::process::task::CallUnderWay;

/// How far the stack is read, in words, and how many callers are named.
const WORDS_MOST: u64 = 1024;
const CALLERS_MOST: usize = 8;

/// The first address on the thread's stack that is likely to be a caller's. It tells call sites apart that go through
/// the same function of the C library.
pub fn first(call: &CallUnderWay) -> Option<u64> {
    let mut bytes = Vec::new();
    let code = Code::read(&mut bytes)?;
    code.callers(call).map(|(address, _)| address).nth(1)
}

/// The code behind the call, and those who are likely to have called it, the nearest first.
pub fn of(call: &CallUnderWay) -> Vec<String> {
    let mut bytes = Vec::new();
    let Some(code) = Code::read(&mut bytes) else {
        return Vec::new();
    };
    let named = code.callers(call).map(|(address, mapping)| {
        let file = match mapping.name {
            Name::File(path) => String::from_utf8_lossy(path).into_owned(),
            _ => "?".to_owned(),
        };
        format!("{file} {:#x}", address - code.base_of(mapping))
    });
    named.take(CALLERS_MOST).collect()
}

/// What is mapped in this process.
struct Code<'a> {
    mappings: Vec<Mapping<'a>>,
    memory: MemoryFile,
}

impl<'a> Code<'a> {
    fn read(bytes: &'a mut Vec<u8>) -> Option<Code<'a>> {
        let pid = std::process::id();
        maps::read(pid, bytes).ok()?;
        let mappings = maps::parse(bytes).filter_map(Result::ok);
        Some(Code {
            mappings: mappings.collect(),
            memory: MemoryFile::open(pid).ok()?,
        })
    }

    fn callers(&self, call: &CallUnderWay) -> impl Iterator<Item = (u64, &Mapping<'a>)> {
        let places = (0..WORDS_MOST).map(|word| call.stack + word * 8);
        let words = places.map_while(|place| self.memory.word(place));
        let addresses = words.map(machine::address_in);
        let behind_calls = addresses.filter(|address| self.is_behind_call(*address));
        std::iter::once(call.code)
            .chain(behind_calls)
            .filter_map(|address| Some((address, self.mapping_of(address)?)))
    }

    /// The mapping with this code.
    fn mapping_of(&self, address: u64) -> Option<&Mapping<'a>> {
        let has = |mapping: &&Mapping<'a>| {
            mapping.execute && (mapping.start..mapping.end).contains(&address)
        };
        self.mappings.iter().find(has)
    }

    /// Where the mapping's file begins. Addresses in a file that can lie anywhere are told from there.
    fn base_of(&self, mapping: &Mapping<'_>) -> u64 {
        let first = self.mappings.iter().find(|it| it.name == mapping.name);
        first.map_or(mapping.start, |it| it.start)
    }

    fn is_behind_call(&self, address: u64) -> bool {
        if self.mapping_of(address).is_none() {
            return false;
        }
        let before = address.checked_sub(8).and_then(|at| self.memory.word(at));
        before.is_some_and(|bytes| machine::ends_with_call(bytes.to_ne_bytes()))
    }
}
