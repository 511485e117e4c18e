//! Jobs of real programs. If a program is missing, its workload is left out, and the reason says what to install.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::Ended;

use super::{Job, Maker, Scratch, Unable};

/// Where programs are that a user's search path may not include.
const PROGRAM_DIRS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/local/bin"];
/// Memory that redis takes for a key with a value of 1 KiB: the allocated sizes of value and key, and an entry of the
/// table.
const REDIS_KEY_BYTES: usize = 1400;
/// redis and Python use this fraction of the requested memory, because they make many accesses and take longer.
const REDIS_SHARE: usize = 4;
const PYTHON_SHARE: usize = 2;
/// Memory per row at the peak of the Python workloads: table, order and copy.
const PYTHON_ROW_BYTES: usize = 80;
/// Compilers get this fraction of what all jobs would take together at their largest, but at least enough for a
/// compiler's own program. With a quarter the kernel's build takes as long as one without limit, and with a fifth a
/// seventh longer. With a sixth and less it sometimes takes twice as long, and sometimes the kernel kills a compiler.
const BUILD_SHARE: usize = 5;
const BUILD_BYTES_MIN: usize = 48 << 20;
/// How the name of the crate begins whose C sources are compiled. vswap itself is built with them, so they are there.
const BUILD_CRATE: &str = "zstd-sys-";

/// A redis server, and its driver.
pub(super) fn redis(maker: &Maker) -> Result<Job, Unable> {
    let server = program("redis-server", "redis-server")?;
    let benchmark = program("redis-benchmark", "redis-tools")?;
    let (size, ram) = maker.share(REDIS_SHARE);
    let keys = (size / REDIS_KEY_BYTES).max(1).to_string();
    let scratch = Scratch::new(&env::temp_dir(), "redis")?;
    let socket = scratch.path().join("socket");
    let mut job = maker.own("redis-client", &[]);
    job.command.push(socket.clone().into());
    job.command
        .extend(["--keys", &keys, "--content", &maker.content()].map(OsString::from));
    job.command.extend(["--benchmark".into(), benchmark.into()]);
    Ok(Job {
        driver: Some(job.command),
        command: crate::workload::redis_server(&server, &socket, scratch.path()),
        ram_bytes: ram,
        needs_bytes: Some(size),
        scratch: Some(scratch),
        ..maker.own("redis-client", &[])
    })
}

/// The compiler, on real sources.
pub(super) fn build(maker: &Maker) -> Result<Job, Unable> {
    program("cc", "gcc")?;
    let tree = match &maker.options.build_tree {
        Some(tree) => tree.clone(),
        None => fetched_sources()?,
    };
    // One small directory of the tree is enough to show that everything works.
    let tree = if maker.options.quick {
        tree.join("common")
    } else {
        tree
    };
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let scratch = Scratch::new(&env::temp_dir(), "build")?;
    let objects = scratch.path().to_owned();
    let words = |job: &mut Job, more: &[&str]| {
        job.command.push(tree.clone().into());
        job.command.push(objects.clone().into());
        job.command
            .extend(["--jobs".into(), jobs.to_string().into()]);
        job.command.extend(more.iter().map(OsString::from));
    };
    let mut reference = maker.own("build", &[]);
    words(&mut reference, &[]);
    let ended = maker.run(&reference.command)?;
    let (checksum, compiler_bytes) = reference_of(&ended).ok_or_else(|| {
        let said = ended.stderr.trim_end();
        Unable::Missing(format!("the sources do not compile without vswap: {said}"))
    })?;
    let needs = compiler_bytes * jobs;
    let mut job = maker.own("build", &[]);
    words(&mut job, &["--expect", &checksum]);
    Ok(Job {
        ram_bytes: maker
            .options
            .ram_told()
            .unwrap_or((needs / BUILD_SHARE).max(BUILD_BYTES_MIN)),
        needs_bytes: Some(needs),
        scratch: Some(scratch),
        ..job
    })
}

/// Checksum of the objects, and memory of the largest compiler.
fn reference_of(ended: &Ended) -> Option<(String, usize)> {
    if !ended.status.success() {
        return None;
    }
    let line: Value = serde_json::from_str(ended.stdout.lines().last()?).ok()?;
    let bytes = usize::try_from(line.get("compiler_bytes")?.as_u64()?).ok()?;
    Some((line.get("checksum")?.as_str()?.to_owned(), bytes))
}

/// The newest sources that cargo has unpacked.
fn fetched_sources() -> Result<PathBuf, String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let sources = home.unwrap_or_default().join("registry/src");
    let directories = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten();
        entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect()
    };
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(BUILD_CRATE))
    };
    let crates = directories(&sources)
        .into_iter()
        .flat_map(|registry| directories(&registry));
    let newest = crates.filter(is_wanted).max();
    newest.map(|path| path.join("zstd/lib")).ok_or_else(|| {
        format!(
            "no C sources: expected those of zstd in {}, where building vswap unpacks them; run cargo fetch in a \
             clone of it, or name a tree with --build-tree",
            sources.display()
        )
    })
}

/// fio on the disk, with as much data as `disk` uses.
pub(super) fn device(maker: &Maker) -> Result<Job, Unable> {
    let fio = program("fio", "fio")?;
    let (size, _) = maker.share(super::DISK_SHARE);
    let scratch = Scratch::new(&maker.options.swap_dir, "device")?;
    let mut job = maker.alone("device", &["--size", &size.to_string()]);
    job.command.push(scratch.path().join("file").into());
    job.command.extend(["--fio".into(), fio.into()]);
    job.scratch = Some(scratch);
    Ok(job)
}

/// A script that uses a Python library.
pub(super) fn python(maker: &Maker, library: &str, script: &str) -> Result<Job, Unable> {
    let interpreter = interpreter(maker, library)?;
    let (size, ram) = maker.share(PYTHON_SHARE);
    let rows = (size / PYTHON_ROW_BYTES).max(1).to_string();
    let mut job = maker.own("python", &[]);
    // The part that all scripts share goes behind the line that says what the script does.
    let (title, body) = script.split_once('\n').unwrap_or((script, ""));
    let script = format!("{title}\n{}{body}", include_str!("../python/phase.py"));
    job.command = vec![interpreter.into(), "-c".into(), script.into(), rows.into()];
    Ok(Job {
        ram_bytes: ram,
        needs_bytes: Some(size),
        ..job
    })
}

/// A Python that has the library: the user's or the distribution's. Returned as the interpreter's own path. The name in
/// PATH may be a script that looks for the interpreter each time.
fn interpreter(maker: &Maker, library: &str) -> Result<String, Unable> {
    let ask = format!("import sys, {library}; print(sys.executable)");
    for python in ["python3", "/usr/bin/python3"] {
        let command = [python, "-c", &ask].map(OsString::from);
        match maker.run(&command) {
            Ok(ended) if ended.status.success() => return Ok(ended.stdout.trim().to_owned()),
            Err(Unable::Interrupted) => return Err(Unable::Interrupted),
            Ok(_) | Err(Unable::Missing(_)) => {}
        }
    }
    Err(Unable::Missing(format!(
        "no python3 can import {library}: install it with python3 -m pip install {library}"
    )))
}

/// The path of a program.
fn program(name: &str, package: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(PROGRAM_DIRS.map(PathBuf::from));
    let mut files = dirs.map(|dir| dir.join(name));
    files
        .find(|file| file.is_file())
        .ok_or_else(|| format!("no program {name}: install the package {package}"))
}

impl Maker<'_> {
    /// Runs a command that the job needs an answer from, without any limit.
    fn run(&self, words: &[OsString]) -> Result<Ended, Unable> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let timeout = std::time::Duration::from_secs(self.options.timeout);
        Ok(self.supervisor.run(&mut command, timeout)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        assert!(program("sh", "dash").is_ok());
        let said = program("no-such-program", "some-package").unwrap_err();
        assert!(
            said.contains("no-such-program") && said.contains("some-package"),
            "{said}"
        );
    }
}
