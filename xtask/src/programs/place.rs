//! The directory of a program: prepares it once, and runs commands in it with what its script needs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Program, search_dirs};
use crate::command;

const PREPARE_SECONDS: u64 = 300;
/// Where the files are that the scripts use.
const SCRIPTS: &str = "xtask/programs";
/// Marks a program as prepared. The file holds the script that prepared it.
const PREPARED: &str = "prepared";
/// Everybody may enter: a server that root starts runs as another user.
const TEMPORARY_MODE: u32 = 0o755;

/// A program and its directories.
#[derive(Debug)]
pub struct Place {
    scripts: PathBuf,
    /// The program.
    pub program: &'static Program,
    path: PathBuf,
    temporary: Temporary,
}

/// A directory outside of the tree, removed on drop.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Result<Temporary, String> {
        let path = std::env::temp_dir().join(format!("vswap-{name}-{}", std::process::id()));
        let failed = |error| format!("cannot make {}: {error}", path.display());
        fs::create_dir(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(TEMPORARY_MODE)).map_err(failed)?;
        Ok(Temporary(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a program that is built here into `below`, so that a build meanwhile changes nothing.
///
/// # Errors
/// There is no such program, or no room.
pub fn keep(from: &Path, below: &Path) -> Result<PathBuf, String> {
    let to = below.join(from.file_name().unwrap_or_default());
    let failed = |error| {
        let (from, to) = (from.display(), to.display());
        format!("cannot copy {from} to {to}: {error}")
    };
    fs::create_dir_all(below).map_err(failed)?;
    // A file that is copied to itself is empty afterwards.
    if fs::canonicalize(from).ok() == fs::canonicalize(&to).ok() && to.exists() {
        return Ok(to);
    }
    fs::copy(from, &to).map_err(failed)?;
    Ok(to)
}

/// How many wanted a processor in the last minute, on average.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.unwrap_or(f64::NAN)
}

impl Place {
    /// Prepares a program in a directory of `below`, unless the same script has done so before.
    ///
    /// # Errors
    /// It cannot be prepared; the output is in `log`.
    pub fn new(root: &Path, below: &Path, program: &'static Program) -> Result<Place, String> {
        let path = below.join(program.name);
        fs::create_dir_all(&path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let place = Place {
            scripts: root.join(SCRIPTS),
            program,
            path,
            temporary: Temporary::new(program.name)?,
        };
        let stamp = place.path.join(PREPARED);
        // The scripts that it uses are small, and whoever changes one prepares anew.
        if fs::read_to_string(&stamp).is_ok_and(|script| script == program.prepare) {
            return Ok(place);
        }
        let mut command = bounded(PREPARE_SECONDS);
        command.args(["sh", "-e", "-c", program.prepare]);
        match place.finish(command)? {
            0 => fs::write(&stamp, program.prepare)
                .map_err(|error| format!("cannot write {}: {error}", stamp.display()))?,
            status => {
                return Err(format!(
                    "preparing it ended with {status}: {}",
                    place.said()
                ));
            }
        }
        Ok(place)
    }

    /// A file of the program's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What a file of the directory holds.
    ///
    /// # Errors
    /// It is not there, or no JSON.
    pub fn json(&self, name: &str) -> Result<Value, String> {
        let path = self.file(name);
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Runs it to its end, with what it says in a file. A signal counts as -1.
    ///
    /// # Errors
    /// It does not start.
    pub fn finish(&self, mut command: Command) -> Result<i32, String> {
        self.equip(&mut command)?;
        command::run_in(&self.path, &self.file("log"), command)
    }

    /// Gives a command the directory, and the variables that scripts want.
    ///
    /// # Errors
    /// PATH has a directory that no PATH can name.
    pub fn equip(&self, command: &mut Command) -> Result<(), String> {
        let dirs = std::env::join_paths(search_dirs()).map_err(|error| error.to_string())?;
        command
            .current_dir(&self.path)
            .env("PATH", dirs)
            .env("LC_ALL", "C.UTF-8")
            .env("SCRIPTS", &self.scripts)
            .env("TEMPORARY", &self.temporary.0);
        Ok(())
    }

    /// The last line that it said.
    pub fn said(&self) -> String {
        let text = fs::read(self.file("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().last().unwrap_or("it said nothing").to_owned()
    }
}

/// A command that is ended after so long.
pub fn bounded(seconds: u64) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=20s", &format!("{seconds}s")]);
    command
}
