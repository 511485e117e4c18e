//! The last question of `vswap doctor`: a small run. Whatever the probes do not ask for shows here, because
//! this is what the user wants to do.
//!
//! The program is a copy of vswap in memory, which verifies what it wrote. A copy, because vswap's file may grant
//! rights, and programs that gain rights are refused.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use vswap_sys::doctor::{Finding, Need, Status};

const ITSELF: &str = "/proc/self/exe";
/// Less than the program and vswap take, so that pages must go out, and enough for them compressed.
const RAM: &str = "56M";
const PROGRAM: [&str; 5] = ["bench-workload", "memhog", "--seconds", "0", "64M"];
/// Until the run is ended. It takes tenths of a second.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const ADVICE: &str = "what vswap says here; if this user has CAP_SYS_PTRACE by vswap's file capability alone, it \
     must also be able to open /dev/userfaultfd";

/// Runs it.
pub fn trial() -> Finding {
    let (status, detail) = match run() {
        Ok(output) => judge(&output),
        Err(error) => (Status::Unknown, format!("could not be started: {error}")),
    };
    let advice = if status == Status::Works { "" } else { ADVICE };
    Finding {
        name: "trial",
        status,
        need: Need::Required,
        detail,
        advice,
    }
}

fn run() -> io::Result<Output> {
    let copy = copy()?;
    let mut run = Command::new(ITSELF);
    run.args(["run", "--no-daemon", "--ram", RAM, "--summary", "-", "--"])
        .arg(format!("/proc/self/fd/{}", copy.as_raw_fd()))
        .args(PROGRAM)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = run.spawn()?;
    let end = Instant::now() + PATIENCE;
    while running.try_wait()?.is_none() {
        if Instant::now() > end {
            // The program is killed with it.
            running.kill()?;
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    running.wait_with_output()
}

/// Stays open in what is started: that is how it is named.
fn copy() -> io::Result<File> {
    let name = "vswap-trial";
    let made = memfd_create(name, MemfdFlags::EXEC)
        .or_else(|_| memfd_create(name, MemfdFlags::empty()))?;
    let mut copy = File::from(made);
    io::copy(&mut File::open(ITSELF)?, &mut copy)?;
    Ok(copy)
}

/// Did the program end well, and did pages go out?
fn judge(output: &Output) -> (Status, String) {
    let printed = String::from_utf8_lossy(&output.stdout);
    // The program's own lines come before the summary.
    let summary = printed.find('{').and_then(|at| printed.get(at..));
    let summary: Value = serde_json::from_str(summary.unwrap_or_default()).unwrap_or_default();
    let pages = summary["pages_out"].as_u64().unwrap_or(0);
    if output.status.success() && pages > 0 {
        let detail =
            format!("a program wrote, swapped and verified its memory ({pages} pages out)");
        return (Status::Works, detail);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = errors.lines().next().unwrap_or_default();
    let said = said.trim_start_matches("vswap: ");
    let how = if output.status.success() {
        "the program ran without swap and without limit".to_owned()
    } else {
        output.status.to_string()
    };
    (Status::Missing, format!("{how}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn ended(code: i32, stdout: &str, stderr: &str) -> Output {
        Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: stdout.into(),
            stderr: stderr.into(),
        }
    }

    #[test]
    fn only_pages_that_went_out_count() {
        let right = ended(0, "phase=fill\n{\"pages_out\": 7}\n", "");
        assert_eq!(judge(&right).0, Status::Works);
        let unlimited = ended(0, "{\"pages_out\": 0}\n", "vswap: turned an agent away\n");
        let (status, detail) = judge(&unlimited);
        assert_eq!(status, Status::Missing);
        assert!(
            detail.ends_with("without limit: turned an agent away"),
            "{detail}"
        );
        let (status, detail) = judge(&ended(125, "", "vswap: no directory\n"));
        assert_eq!(status, Status::Missing);
        assert_eq!(detail, "exit status: 125: no directory");
    }
}
