//! Finds the program as a shell would, and says before the program starts if it cannot take the agent.
//!
//! The agent gets into a program through LD_PRELOAD of the dynamic loader. A static program has no such loader. The
//! loader must not obey LD_PRELOAD in a program whose file grants rights. A program of another word size or C library
//! cannot load the agent.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use vswap_sys::machine;
use vswap_sys::process::elf::{Elevation, ElfError, Kind, Program, inspect, is_musl};

use crate::failure::Failure;

/// Where programs are looked for if PATH is not set. The C library chooses the same.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Finds `name`: taken as a path if it contains a slash, else looked up in the directories of PATH.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    find_in(name, &path)
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        return executable(Path::new(name))
            .map(|()| name.into())
            .map_err(|error| unusable(Path::new(name), &error));
    }
    let mut found_unusable = None;
    for directory in std::env::split_paths(path) {
        // An empty entry means the working directory.
        let candidate = if directory.as_os_str().is_empty() {
            Path::new(".").join(name)
        } else {
            directory.join(name)
        };
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                found_unusable.get_or_insert_with(|| unusable(&candidate, &error));
            }
            Err(_) => {}
        }
    }
    Err(found_unusable.unwrap_or_else(|| {
        Failure::not_found(format!(
            "{}: command not found in PATH",
            name.to_string_lossy()
        ))
    }))
}

/// May this user execute the file?
fn executable(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(())
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Failure::not_found(format!("{path}: no such file"))
        }
        io::ErrorKind::IsADirectory => {
            Failure::cannot_execute(format!("{path}: is a directory, not a program"))
        }
        _ => Failure::cannot_execute(format!("{path}: cannot be executed: {error}")),
    }
}

/// Refuses a program that cannot take the agent. True if its loader brings the agent, false if it has to be attached.
pub fn check(path: &Path) -> Result<bool, Failure> {
    let program = match inspect(path.as_os_str(), std::env::var_os("PATH").as_deref()) {
        Ok(program) => program,
        Err(ElfError::NotFound { command }) => {
            let path = path.display();
            return Err(Failure::not_found(format!(
                "{path}: its interpreter {command} is not there"
            )));
        }
        // A file that may be executed but not read is run all the same: there is nothing to judge it by.
        Err(ElfError::Io { .. }) => return Ok(true),
        Err(error) => return Err(Failure::cannot_execute(error.to_string())),
    };
    match why_not(&program) {
        None => Ok(!is_attached_to(&program)),
        Some(why) => Err(Failure::cannot_execute(describe(&program, &why))),
    }
}

/// Why a program cannot take the agent, and what to do about it.
fn why_not(program: &Program) -> Option<Cow<'static, str>> {
    match program.elevation {
        Some(Elevation::SetUid | Elevation::SetGid) => {
            return Some(Cow::Borrowed(
                "changes its user or group when it starts (setuid or setgid), and the dynamic loader ignores vswap's \
                 agent \
                 in such a program. Run vswap itself as that user, for example with sudo",
            ));
        }
        Some(Elevation::Capabilities) => {
            return Some(Cow::Borrowed(
                "gains capabilities when it starts, and the dynamic loader ignores vswap's agent in such a program. \
                 Run vswap as root, or run a copy of the program without file capabilities",
            ));
        }
        None => {}
    }
    match &program.kind {
        Kind::OtherMachine { .. } => Some(Cow::Owned(format!(
            "is built for another machine or word size: vswap's agent is for 64-bit {}. Use a build for that",
            machine::NAME
        ))),
        // /bin/sh runs a file without a known format, as shells do.
        Kind::Static | Kind::Dynamic { .. } | Kind::Unknown => None,
    }
}

/// Has the agent to be put into it from outside? The loader of the GNU C library alone loads it.
fn is_attached_to(program: &Program) -> bool {
    match &program.kind {
        Kind::Static => true,
        Kind::Dynamic { loader } => is_musl(loader),
        Kind::OtherMachine { .. } | Kind::Unknown => false,
    }
}

fn describe(program: &Program, why: &str) -> String {
    let path = program.path.display();
    match program.scripts.first() {
        None => format!("{path} {why}"),
        Some(script) => format!("{} is a script for {path}, which {why}", script.display()),
    }
}
