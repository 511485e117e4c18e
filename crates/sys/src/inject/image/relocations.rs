//! Kinds of relocations, by machine. Pure numbers.

use object::elf::{self, RelocationType};

use crate::machine::ELF_MACHINE;

/// Those that a library of one machine may have.
#[derive(Debug)]
pub struct Kinds {
    /// The machine's number in headers.
    pub machine: u16,
    /// The image's address is added.
    pub relative: RelocationType,
    /// The address of a symbol is added: for data, for calls, as a word.
    pub of_symbol: [RelocationType; 3],
    /// A function of the library decides. Refused.
    pub chosen: RelocationType,
}

const X86_64: Kinds = Kinds {
    machine: elf::EM_X86_64.0,
    relative: elf::R_X86_64_RELATIVE,
    of_symbol: [
        elf::R_X86_64_GLOB_DAT,
        elf::R_X86_64_JUMP_SLOT,
        elf::R_X86_64_64,
    ],
    chosen: elf::R_X86_64_IRELATIVE,
};

const AARCH64: Kinds = Kinds {
    machine: elf::EM_AARCH64.0,
    relative: elf::R_AARCH64_RELATIVE,
    of_symbol: [
        elf::R_AARCH64_GLOB_DAT,
        elf::R_AARCH64_JUMP_SLOT,
        elf::R_AARCH64_ABS64,
    ],
    chosen: elf::R_AARCH64_IRELATIVE,
};

/// Every machine, for tests: what is read is only data.
#[cfg(test)]
pub const ALL: [Kinds; 2] = [X86_64, AARCH64];

/// Those of the machine that this is built for.
pub const THIS: Kinds = if cfg!(target_arch = "x86_64") {
    X86_64
} else {
    AARCH64
};
const _: () = assert!(THIS.machine == ELF_MACHINE);
