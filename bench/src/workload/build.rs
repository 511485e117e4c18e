//! `build`: compiles all C files of a tree, several at a time, as `make -j` would.
//!
//! The objects go to a directory that its owner removes, even if this program is interrupted. Their checksum shows
//! whether the compiler made the same objects as elsewhere. It depends only on the objects' bytes and order.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Args;

use crate::random::mix;

use super::print_line;

/// Options of `build`.
#[derive(Args, Debug)]
pub struct Build {
    /// The tree, also searched for headers.
    tree: PathBuf,
    /// Directory for the objects, which must exist.
    objects: PathBuf,
    /// Compilers that run at the same time.
    #[arg(long, short, default_value_t = 1)]
    jobs: usize,
    /// The compiler.
    #[arg(long, default_value = "cc")]
    cc: String,
    /// Fail unless this is the checksum of the objects.
    #[arg(long)]
    expect: Option<String>,
}

pub(super) fn run(options: &Build) -> Result<(), String> {
    let mut sources = Vec::new();
    find_sources(&options.tree, &mut sources)?;
    sources.sort();
    if sources.is_empty() {
        return Err(format!("{} has no C files", options.tree.display()));
    }
    let begun = Instant::now();
    compile_all(options, &sources)?;
    let wall_s = begun.elapsed().as_secs_f64();
    let files = sources.len();
    let checksum = checksum(&options.objects, files)?;
    let peak_bytes = compiler_peak_bytes();
    print_line(&format!(
        "{}{}",
        format_args!(r#"{{"phase":"compile","files":{files},"wall_s":{wall_s:.3},"#),
        format_args!(r#""checksum":"{checksum}","compiler_bytes":{peak_bytes}}}"#)
    ));
    match &options.expect {
        Some(expected) if *expected != checksum => Err(format!(
            "wrong objects: their checksum is {checksum}, expected {expected}"
        )),
        _ => Ok(()),
    }
}

fn find_sources(dir: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let cannot = |error| format!("cannot read {}: {error}", dir.display());
    for entry in std::fs::read_dir(dir).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.is_dir() {
            find_sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "c") {
            found.push(path);
        }
    }
    Ok(())
}

fn compile_all(options: &Build, sources: &[PathBuf]) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(source) = sources.get(number) else {
                return Ok(());
            };
            if let Err(error) = compile(options, source, &object(&options.objects, number)) {
                // Stops the other workers from beginning another source.
                next.store(sources.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1))
            .map(|_| scope.spawn(worker))
            .collect();
        let ended = workers.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        });
        // Collects all of them, so that no compiler is left running.
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

fn compile(options: &Build, source: &Path, object: &Path) -> Result<(), String> {
    let mut compiler = Command::new(&options.cc);
    compiler.args(["-O3", "-w", "-c", "-I"]).arg(&options.tree);
    compiler.arg(source).arg("-o").arg(object);
    let output = compiler
        .output()
        .map_err(|error| format!("cannot run the compiler {}: {error}", options.cc))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{} of {}: {}\n{}",
        options.cc,
        source.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    ))
}

/// The object of a source, named by the source's number: sources in different directories may have the same name.
fn object(objects: &Path, number: usize) -> PathBuf {
    objects.join(format!("{number}.o"))
}

/// A checksum of all objects in the order of their sources. It guards against damage, not against malice.
fn checksum(objects: &Path, files: usize) -> Result<String, String> {
    let mut sum = 0;
    for number in 0..files {
        let path = object(objects, number);
        let bytes = std::fs::read(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum = mix(sum ^ u64::from_le_bytes(word));
        }
        sum = mix(sum ^ bytes.len() as u64);
    }
    Ok(format!("{sum:016x}"))
}

/// Memory of the largest compiler process.
fn compiler_peak_bytes() -> u64 {
    // SAFETY: an all-zero rusage is valid, and a valid place for the result. rustix does not have `getrusage`.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_a_checksum_of_their_bytes() {
        let dir = std::env::temp_dir().join(format!("vswap-build-test-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(object(&dir, 0), b"0123456789").unwrap();
        std::fs::write(object(&dir, 1), b"x").unwrap();
        let before = checksum(&dir, 2).unwrap();
        assert_eq!(checksum(&dir, 2).unwrap(), before);
        std::fs::write(object(&dir, 1), b"y").unwrap();
        assert_ne!(checksum(&dir, 2).unwrap(), before);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
