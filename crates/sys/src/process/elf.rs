//! What a command is, and whether the loader would load a preloaded library into it.
//!
//! Three kinds of program never load a preload: static ones, ones for another machine, and ones that gain rights when
//! they start. Scripts are followed to the program that runs them. Reads a few hundred bytes of each file and runs
//! nothing.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::elf;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::machine::ELF_MACHINE;

/// Most scripts on the way to a program: the kernel's bound on interpreters of interpreters (BINPRM), with one `env`
/// each.
const SCRIPTS_MAX: usize = 8;
/// Bytes that the kernel reads of a script's first line.
const FIRST_LINE_BYTES_MAX: usize = 256;
/// Longer than any path that the kernel takes. A bound against hostile headers.
const INTERPRETER_BYTES_MAX: u64 = 4096;

/// What kind of program a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Dynamically linked for this machine: a preload works.
    Dynamic {
        /// The loader that its header names.
        loader: PathBuf,
    },
    /// Statically linked: no loader, no preload.
    Static,
    /// Of another machine or word size.
    OtherMachine {
        /// ELF machine number.
        machine: u16,
        /// Word size in bits, 32 or 64.
        bits: u8,
    },
    /// Neither an ELF file nor a script. A shell would take it for a script.
    Unknown,
}

/// Why a program gains rights when it starts. The loader then ignores preloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elevation {
    /// Set-user-id to another user.
    SetUid,
    /// Set-group-id to another group.
    SetGid,
    /// File capabilities.
    Capabilities,
}

/// A command, found and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The file that runs in the end.
    pub path: PathBuf,
    /// Scripts on the way to it, first the command itself; empty for a program.
    pub scripts: Vec<PathBuf>,
    /// What it is.
    pub kind: Kind,
    /// Rights that it gains for the current user.
    pub elevation: Option<Elevation>,
}

impl Program {
    /// Would a library built for the GNU loader be preloaded?
    pub fn takes_preload(&self) -> bool {
        match &self.kind {
            Kind::Dynamic { loader } => !is_musl(loader) && self.elevation.is_none(),
            _ => false,
        }
    }
}

/// Is this musl's loader? That one does not load libraries linked against the GNU C library.
pub fn is_musl(loader: &Path) -> bool {
    loader
        .file_name()
        .is_some_and(|name| name.as_bytes().starts_with(b"ld-musl"))
}

/// Why a command could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// No such command.
    #[error("no executable `{command}` in PATH: give its path, or install it")]
    NotFound {
        /// The command as given.
        command: String,
    },
    /// Not a file that this user may run.
    #[error("{path} is not an executable file: chmod +x, or name another")]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read (it might still run).
    #[error("{path} cannot be read: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Scripts that name each other.
    #[error(
        "{path} goes through more than {SCRIPTS_MAX} interpreters: do its first lines name each other?"
    )]
    TooManyScripts {
        /// The last one.
        path: PathBuf,
    },
}

/// Finds `command` as a shell would, with `path` as PATH, and returns what would run.
///
/// # Errors
/// As `ElfError` says.
pub fn inspect(command: &OsStr, path: Option<&OsStr>) -> Result<Program, ElfError> {
    let mut scripts = Vec::new();
    let mut file = find(command, path)?;
    for _ in 0..=SCRIPTS_MAX {
        let io = |error| ElfError::Io {
            path: file.clone(),
            error,
        };
        let mut opened = File::open(&file).map_err(io)?;
        let metadata = opened.metadata().map_err(io)?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return Err(ElfError::NotExecutable { path: file });
        }
        let mut line = Vec::new();
        opened
            .by_ref()
            .take(FIRST_LINE_BYTES_MAX as u64)
            .read_to_end(&mut line)
            .map_err(io)?;
        let Some(interpreter) = interpreter(&line) else {
            let kind = kind(opened).unwrap_or(Kind::Unknown);
            let elevation = elevation(&opened_path(&file), &metadata);
            return Ok(Program {
                path: file,
                scripts,
                kind,
                elevation,
            });
        };
        let next = match interpreter {
            Interpreter::Path(next) => find(next.as_os_str(), path)?,
            Interpreter::ThroughEnv(command) => find(&command, path)?,
        };
        scripts.push(std::mem::replace(&mut file, next));
    }
    Err(ElfError::TooManyScripts { path: file })
}

fn opened_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn find(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ElfError> {
    let not_found = || ElfError::NotFound {
        command: command.to_string_lossy().into_owned(),
    };
    if command.as_bytes().contains(&b'/') {
        let file = PathBuf::from(command);
        return if file.exists() {
            Ok(file)
        } else {
            Err(not_found())
        };
    }
    if command.is_empty() {
        return Err(not_found());
    }
    std::env::split_paths(path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")))
        .map(|directory| directory.join(command))
        .find(|file| {
            let metadata = std::fs::metadata(file);
            metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(not_found)
}

#[derive(Debug, PartialEq, Eq)]
enum Interpreter {
    Path(PathBuf),
    /// `env command`: found through PATH.
    ThroughEnv(OsString),
}

/// The interpreter that a file's first bytes name.
fn interpreter(start: &[u8]) -> Option<Interpreter> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|&byte| byte == b'\n')
        .next()?;
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
        .filter(|word| !word.is_empty());
    let path = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
    if path.file_name() == Some(OsStr::new("env")) {
        // Options and assignments come before the command.
        let command = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        if let Some(command) = command {
            return Some(Interpreter::ThroughEnv(OsString::from_vec(
                command.to_vec(),
            )));
        }
    }
    Some(Interpreter::Path(path))
}

/// What an ELF file is. None if it is no ELF file or a broken one.
fn kind(file: File) -> Option<Kind> {
    kind_of(&ReadCache::new(file))
}

fn kind_of<'a, R: object::ReadRef<'a>>(data: R) -> Option<Kind> {
    let ident = data.read_bytes_at(0, 20).ok()?;
    if !ident.starts_with(&elf::ELFMAG) {
        return None;
    }
    let bits = if ident[4] == elf::ELFCLASS64.0 {
        64
    } else {
        32
    };
    let little = ident[5] == elf::ELFDATA2LSB.0;
    let machine = [ident[18], ident[19]];
    let machine = if little {
        u16::from_le_bytes(machine)
    } else {
        u16::from_be_bytes(machine)
    };
    if machine != ELF_MACHINE || bits != 64 || !little {
        return Some(Kind::OtherMachine { machine, bits });
    }
    let header = elf::FileHeader64::<object::LittleEndian>::parse(data).ok()?;
    let endian = object::LittleEndian;
    for segment in header.program_headers(endian, data).ok()? {
        if segment.p_type(endian) == elf::PT_INTERP {
            let (offset, bytes) = segment.file_range(endian);
            let path = data
                .read_bytes_at(offset, bytes.min(INTERPRETER_BYTES_MAX))
                .ok()?;
            let path = path.split(|&byte| byte == 0).next()?;
            return Some(Kind::Dynamic {
                loader: PathBuf::from(OsString::from_vec(path.to_vec())),
            });
        }
    }
    Some(Kind::Static)
}

fn elevation(path: &Path, metadata: &Metadata) -> Option<Elevation> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let mode = metadata.permissions().mode();
    if mode & 0o4000 != 0 && metadata.uid() != user {
        return Some(Elevation::SetUid);
    }
    // Without the group's execute bit the set-group-id bit means mandatory locking.
    if mode & 0o2010 == 0o2010 && metadata.gid() != group {
        return Some(Elevation::SetGid);
    }
    let mut capabilities = [0u8; 64];
    let found = rustix::fs::getxattr(path, "security.capability", &mut capabilities);
    (user != 0 && found.is_ok_and(|bytes| bytes > 0)).then_some(Elevation::Capabilities)
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
