//! Recording: the kernel's counter of page faults, read by `perf`, while vswap moves everything out again and again.
//!
//! So a page is seen once in each interval in which it is touched. What vswap brings in beside a fault, because it
//! takes the faults for a stream, is not seen until it has left again.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::trace;

const PAGE_BYTES: u64 = 4096;
/// What vswap's agent is called inside the program. Its own touches are not the program's.
const AGENT: &str = "vswap-agent";
/// Pages of the buffer of each processor. Faults come in bursts.
const BUFFER_PAGES: &str = "4096";

#[derive(clap::Args)]
pub struct Args {
    /// Where the trace is written. A file that is there is replaced.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How long pages stay in memory. Touches of a page within that time count as one.
    #[arg(long, value_name = "PAUSE", default_value = "5ms")]
    every: String,
    /// RAM that the program may use: more than it needs.
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    ram: String,
    /// The vswap that evicts.
    #[arg(long, value_name = "PATH", default_value = "vswap")]
    vswap: PathBuf,
    /// The program.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the program and writes its trace.
///
/// # Errors
/// `perf` or the program cannot be run, the program fails, or touches were lost.
pub fn run(args: &Args) -> Result<(), String> {
    let data = args.out.with_extension("perf");
    let pid = args.out.with_extension("pid");
    let done = record(args, &data, &pid).and_then(|own| convert(args, &data, own));
    let _ = fs::remove_file(&data);
    let _ = fs::remove_file(&pid);
    let touches = done?;
    println!("{touches} touches are in {}", args.out.display());
    Ok(())
}

/// Returns the process id of vswap.
fn record(args: &Args, data: &PathBuf, pid: &PathBuf) -> Result<u32, String> {
    // The shell becomes vswap, and so says which process that is.
    let script = "echo $$ > \"$1\" && shift && exec \"$@\"";
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "--quiet",
        "-e",
        "page-faults",
        "-c",
        "1",
        "-d",
        "-m",
        BUFFER_PAGES,
        "-o",
    ])
    .arg(data)
    .args(["--", "sh", "-c", script, "sh"])
    .arg(pid)
    .arg(&args.vswap)
    .args([
        "run",
        "--no-daemon",
        "--quiet",
        "--swap",
        "none",
        "--ram",
        &args.ram,
    ])
    .args(["--debug-evict-every", &args.every, "--"])
    .args(&args.command);
    let ended = perf.status().map_err(|error| {
        format!("cannot start perf: {error}; it is in the package linux-perf or linux-tools")
    })?;
    if !ended.success() {
        return Err(format!(
            "perf or the program under it ended with {ended}; perf needs root, or kernel.perf_event_paranoid at 1 or \
             less"
        ));
    }
    let text = fs::read_to_string(pid)
        .map_err(|error| format!("cannot read {}: {error}", pid.display()))?;
    text.trim()
        .parse()
        .map_err(|_| format!("{} has no process id in it: {text:?}", pid.display()))
}

/// Writes the touches of all processes but vswap's own. Returns how many there are.
fn convert(args: &Args, data: &PathBuf, own: u32) -> Result<usize, String> {
    let mut perf = Command::new("perf");
    perf.args([
        "script",
        "--show-lost-events",
        "-F",
        "comm,pid,event,addr",
        "-i",
    ])
    .arg(data);
    let said = perf
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start perf: {error}"))?;
    if !said.status.success() {
        return Err(format!("perf script ended with {}", said.status));
    }
    let cannot = |error| format!("cannot write {}: {error}", args.out.display());
    let mut out = BufWriter::new(fs::File::create(&args.out).map_err(cannot)?);
    let mut touches = 0;
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        match read(line)? {
            Some((pid, page)) if pid != own => {
                out.write_all(trace::line(pid, page).as_bytes())
                    .map_err(cannot)?;
                touches += 1;
            }
            _ => {}
        }
    }
    out.flush().map_err(cannot)?;
    Ok(touches)
}

/// Process and page of a line of `perf script`. None of the agent's own touches.
fn read(line: &str) -> Result<Option<(u32, u64)>, String> {
    if line.contains("PERF_RECORD_LOST") {
        return Err(format!(
            "touches were lost: {}; try again while less runs",
            line.trim()
        ));
    }
    if line.trim_start().starts_with(AGENT) {
        return Ok(None);
    }
    let other = || format!("perf script says \"{line}\", which is no fault with an address");
    // A name may have spaces in it. The words from the end on are known.
    let mut words = line.split_whitespace().rev();
    let address = words
        .next()
        .and_then(|word| u64::from_str_radix(word, 16).ok());
    let event = words
        .next()
        .is_some_and(|word| word.starts_with("page-faults"));
    let pid = words.next().and_then(|word| word.parse().ok());
    match (pid, address) {
        (Some(pid), Some(address)) if event => Ok(Some((pid, address / PAGE_BYTES))),
        _ => Err(other()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_perf_are_read() {
        let line = "   redis server   4711 page-faults:       7f00001234ab";
        assert_eq!(read(line), Ok(Some((4711, 0x7_f000_0123))));
        assert_eq!(
            read("vswap-agent  4711 page-faults:  7f00001234ab"),
            Ok(None)
        );
        assert!(read("swapper 0 PERF_RECORD_LOST lost 7").is_err());
        assert!(read("what is this").is_err());
    }
}
