//! The agent's ELF file, laid out and relocated for an address.
//!
//! A loader for one library that is built to need little of one: for this machine, no thread-local storage, no
//! constructors that have to run, and references to libc that may be 0. Everything else in the file is refused.

mod relocations;

use std::ops::Range;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, Sym};
use object::{LittleEndian, Pod, pod};

use crate::memory::pagemap::PAGE_BYTES;
use relocations::Kinds;

/// Why a file cannot be put into a process.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is no ELF file of the right kind.
    #[error("not a 64-bit ELF library: {0}")]
    Elf(#[from] object::read::Error),
    /// It has something that this loader does not do.
    #[error("the library has {0}")]
    Unsupported(&'static str),
}

/// A library, ready to be placed.
#[derive(Debug)]
pub struct Image {
    /// From address 0 on, as it lies in memory.
    memory: Vec<u8>,
    entry: u64,
    segments: Vec<(Range<u64>, u64)>,
    relocations: Vec<Relocation>,
}

/// A word that depends on where the image is.
#[derive(Debug, Clone, Copy)]
struct Relocation {
    offset: usize,
    /// What is added to the image's address; None for the fixed value 0.
    addend: Option<u64>,
}

type Header = elf::FileHeader64<LittleEndian>;

impl Image {
    /// Reads a library.
    ///
    /// # Errors
    /// [`ImageError`] for every other kind of file.
    pub fn read(file: &[u8]) -> Result<Image, ImageError> {
        Image::read_for(&relocations::THIS, file)
    }

    fn read_for(kinds: &Kinds, file: &[u8]) -> Result<Image, ImageError> {
        let endian = LittleEndian;
        let header = Header::parse(file)?;
        if header.e_machine(endian).0 != kinds.machine {
            return Err(ImageError::Unsupported("code for another machine"));
        }
        let (mut memory, mut segments) = (Vec::new(), Vec::new());
        let mut dynamic = None;
        for segment in header.program_headers(endian, file)? {
            match segment.p_type(endian) {
                elf::PT_LOAD => segments.push(load(segment, file, &mut memory)?),
                elf::PT_TLS => return Err(ImageError::Unsupported("thread-local storage")),
                elf::PT_DYNAMIC => dynamic = segment.dynamic(endian, file)?,
                _ => {}
            }
        }
        memory.resize(aligned(memory.len()), 0);
        let dynamic = dynamic.ok_or(ImageError::Unsupported("no dynamic section"))?;
        let relocations = relocations(kinds, &memory, dynamic)?;
        let entry = header.e_entry.get(endian);
        if entry == 0 || entry >= memory.len() as u64 {
            return Err(ImageError::Unsupported("no entry"));
        }
        Ok(Image {
            memory,
            entry,
            segments,
            relocations,
        })
    }

    /// Bytes that it takes, whole pages.
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Where it begins to run when it lies at `start`.
    pub fn entry(&self, start: u64) -> u64 {
        start + self.entry
    }

    /// Its parts, whole pages from its beginning on, and their protections.
    pub fn segments(&self) -> impl Iterator<Item = (Range<u64>, u64)> {
        self.segments.iter().cloned()
    }

    /// Its bytes when it lies at `start`.
    pub fn at(&self, start: u64) -> Vec<u8> {
        let mut memory = self.memory.clone();
        for relocation in &self.relocations {
            let value = relocation
                .addend
                .map_or(0, |addend| start.wrapping_add(addend));
            if let Some(word) = memory.get_mut(relocation.offset..relocation.offset + 8) {
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        memory
    }
}

fn load(
    segment: &elf::ProgramHeader64<LittleEndian>,
    file: &[u8],
    memory: &mut Vec<u8>,
) -> Result<(Range<u64>, u64), ImageError> {
    /// Larger than any agent: a bound against a damaged file.
    const BYTES_MAX: u64 = 1 << 24;
    let endian = LittleEndian;
    let (at, bytes) = (segment.p_vaddr(endian), segment.p_memsz(endian));
    let end = at
        .checked_add(bytes)
        .filter(|end| *end <= BYTES_MAX)
        .ok_or(ImageError::Unsupported("a segment out of bounds"))?;
    let data = segment
        .data(endian, file)
        .map_err(|()| ImageError::Unsupported("a segment beyond its end"))?;
    let [from, to] = [at, end].map(|byte| usize::try_from(byte).unwrap_or(usize::MAX));
    if memory.len() < to {
        memory.resize(to, 0);
    }
    memory
        .get_mut(from..from + data.len())
        .ok_or(ImageError::Unsupported("a segment out of bounds"))?
        .copy_from_slice(data);
    let flags = segment.p_flags(endian);
    let protection = [
        (elf::PF_R, libc::PROT_READ),
        (elf::PF_W, libc::PROT_WRITE),
        (elf::PF_X, libc::PROT_EXEC),
    ]
    .into_iter()
    .filter(|(flag, _)| flags.0 & flag.0 != 0)
    .fold(0, |all, (_, protection)| all | protection.unsigned_abs());
    let pages = at / PAGE_BYTES * PAGE_BYTES..end.next_multiple_of(PAGE_BYTES);
    Ok((pages, u64::from(protection)))
}

fn relocations(
    kinds: &Kinds,
    memory: &[u8],
    dynamic: &[elf::Dyn64<LittleEndian>],
) -> Result<Vec<Relocation>, ImageError> {
    let endian = LittleEndian;
    let value = |tag: elf::DynamicTag| {
        let found = dynamic.iter().find(|entry| entry.d_tag(endian) == tag);
        found.map_or(0, |entry| entry.d_val(endian))
    };
    let both = [
        (elf::DT_RELA, elf::DT_RELASZ),
        (elf::DT_JMPREL, elf::DT_PLTRELSZ),
    ];
    let mut found = Vec::new();
    for (table, bytes) in both {
        let table: &[elf::Rela64<LittleEndian>] = table_at(memory, value(table), value(bytes))?;
        for rela in table {
            found.push(relocation(kinds, memory, value(elf::DT_SYMTAB), rela)?);
        }
    }
    Ok(found)
}

fn relocation(
    kinds: &Kinds,
    memory: &[u8],
    symbols: u64,
    rela: &elf::Rela64<LittleEndian>,
) -> Result<Relocation, ImageError> {
    let endian = LittleEndian;
    let addend = rela.r_addend(endian).cast_unsigned();
    let addend = match rela.r_type(endian, false) {
        kind if kind == kinds.relative => Some(addend),
        kind if kinds.of_symbol.contains(&kind) => {
            let entry_bytes = size_of::<elf::Sym64<LittleEndian>>() as u64;
            let at = symbols.saturating_add(u64::from(rela.r_sym(endian, false)) * entry_bytes);
            let symbol: &[elf::Sym64<LittleEndian>] = table_at(memory, at, entry_bytes)?;
            let symbol = symbol
                .first()
                .ok_or(ImageError::Unsupported("a symbol out of bounds"))?;
            match symbol.st_shndx(endian) {
                elf::SHN_UNDEF if symbol.st_bind() == elf::STB_WEAK => None,
                elf::SHN_UNDEF => return Err(ImageError::Unsupported("a symbol that it needs")),
                _ => Some(symbol.st_value(endian).wrapping_add(addend)),
            }
        }
        kind if kind == kinds.chosen => {
            return Err(ImageError::Unsupported(
                "a function that is chosen by running code (IFUNC)",
            ));
        }
        _ => return Err(ImageError::Unsupported("an unknown relocation")),
    };
    let offset = usize::try_from(rela.r_offset(endian)).unwrap_or(usize::MAX);
    offset
        .checked_add(8)
        .filter(|end| *end <= memory.len())
        .ok_or(ImageError::Unsupported("a relocation out of bounds"))?;
    Ok(Relocation { offset, addend })
}

/// `bytes` of a table that lies in the image.
fn table_at<T: Pod>(memory: &[u8], at: u64, bytes: u64) -> Result<&[T], ImageError> {
    let [at, bytes] = [at, bytes].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let table = at
        .checked_add(bytes)
        .and_then(|end| memory.get(at..end))
        .and_then(|table| pod::slice_from_all_bytes(table).ok());
    table.ok_or(ImageError::Unsupported("a table out of bounds"))
}

fn aligned(bytes: usize) -> usize {
    let page = usize::try_from(PAGE_BYTES).unwrap_or(4096);
    bytes.next_multiple_of(page)
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
