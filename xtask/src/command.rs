//! Runs one command: shows its output as it comes, counts the tests in it, and ends a hang.
//!
//! Standard output goes through a thread, so that the lines of the test harness can be counted. Standard error passes
//! through untouched. The last lines of what failed are repeated in the error, because steps run side by side and the
//! end of a log is what people read first. A command that exceeds its limit is killed with all its descendants, but
//! only if nobody sits at the keyboard (`CI` is set). The command stays in our process group, so that whoever ends us
//! ends it too.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(100);
/// How long output is still read after the command ended. A process that the command left behind may hold the pipe.
const DRAIN: Duration = Duration::from_secs(2);
/// Rounds of killing. A killed process may have started another one just before.
const KILL_ROUNDS: u32 = 20;
/// Marks a test that did not run, in the output of the end-to-end tests. The reason follows.
const SKIP_MARK: &str = "SKIP: ";
/// How many lines of a failed command its error repeats, and how many letters of each.
const LAST_LINES: usize = 12;
const LINE_LENGTH: usize = 300;

/// What a command has said so far.
#[derive(Default)]
struct Said {
    counts: TestCounts,
    last: VecDeque<String>,
}

impl Said {
    /// Shows a line, counts the tests in it, and keeps it for a while.
    fn line(&mut self, line: &str) {
        print!("{line}");
        let _ = std::io::stdout().flush();
        self.counts.read_line(line);
        let short: String = line.trim_end().chars().take(LINE_LENGTH).collect();
        if short.is_empty() {
            return;
        }
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(short);
    }

    fn ending(&self) -> String {
        let lines = self.last.iter().map(|line| format!("\n| {line}"));
        lines.collect()
    }
}

/// The test harness's results, over all binaries that one command ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were compiled but not run.
    pub ignored: u64,
    /// The reasons that tests printed for not running, each once.
    pub skips: Vec<String>,
}

impl TestCounts {
    /// Adds the results in one line of output, if there are any.
    pub fn read_line(&mut self, line: &str) {
        // The mark may come after the test's name, and again where the harness repeats the line.
        if let Some((_, reason)) = line.split_once(SKIP_MARK) {
            let reason = reason.trim().to_string();
            if !self.skips.contains(&reason) {
                self.skips.push(reason);
            }
            return;
        }
        let Some(rest) = line.strip_prefix("test result: ") else {
            return;
        };
        let mut words = rest.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let Ok(number) = word.parse::<u64>() else {
                continue;
            };
            match words.peek().map(|what| what.trim_end_matches(';')) {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// Runs the command, which must succeed, and counts the tests in its output.
///
/// # Errors
/// The command could not start, ended with another status than 0, or exceeded `limit` where limits hold.
pub fn run(command: &mut Command, limit: Duration) -> Result<TestCounts, String> {
    let (status, said) = run_and_listen(command, limit)?;
    if status.success() {
        return Ok(said.counts);
    }
    let shown = shell_words(command);
    Err(format!("`{shown}` ended with {status}{}", said.ending()))
}

/// Runs the command to its end, whatever its status.
///
/// # Errors
/// The command could not start, or exceeded `limit` where limits hold.
pub fn run_to_end(
    command: &mut Command,
    limit: Duration,
) -> Result<(ExitStatus, TestCounts), String> {
    let (status, said) = run_and_listen(command, limit)?;
    Ok((status, said.counts))
}

fn run_and_listen(command: &mut Command, limit: Duration) -> Result<(ExitStatus, Said), String> {
    let limited = std::env::var_os("CI").is_some();
    let shown = shell_words(command);
    println!("$ {shown}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    let lines = read_in_thread(&mut child);
    let deadline = limited.then(|| Instant::now() + limit);
    let mut said = Said::default();
    let status = wait(&mut child, &lines, deadline, &mut said)
        .map_err(|reason| format!("`{shown}` {reason}{}", said.ending()))?;
    Ok((status, said))
}

fn read_in_thread(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while matches!(reader.read_until(b'\n', &mut line), Ok(bytes) if bytes > 0) {
                if sender
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    break;
                }
                line.clear();
            }
        });
    }
    lines
}

/// Shows lines until the command and its output have ended, but no longer than `DRAIN` after the command's end.
fn wait(
    child: &mut Child,
    lines: &Receiver<String>,
    deadline: Option<Instant>,
    said: &mut Said,
) -> Result<ExitStatus, String> {
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match lines.recv_timeout(POLL) {
            Ok(line) => said.line(&line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL),
        }
        if ended.is_none() {
            let status = child
                .try_wait()
                .map_err(|error| format!("cannot be waited for: {error}"))?;
            ended = status.map(|status| (status, Instant::now()));
        }
        match ended {
            Some((status, at)) if drained(lines, said) || at.elapsed() > DRAIN => {
                return Ok(status);
            }
            None if deadline.is_some_and(|deadline| Instant::now() > deadline) => {
                kill_tree(child);
                return Err("took longer than its limit and was killed".to_string());
            }
            _ => {}
        }
    }
}

/// Shows what has come so far. True if no more can come.
fn drained(lines: &Receiver<String>, said: &mut Said) -> bool {
    loop {
        match lines.recv_timeout(Duration::ZERO) {
            Ok(line) => said.line(&line),
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}

/// Ends the command and all its descendants.
pub fn kill_tree(child: &mut Child) {
    for _ in 0..KILL_ROUNDS {
        let pids = descendants(child.id());
        if pids.is_empty() {
            break;
        }
        kill(&pids);
        std::thread::sleep(POLL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Runs a command to its end in `place`, with what it says in the file `log`. A signal counts as -1.
///
/// # Errors
/// The command could not start, or the file could not be made.
pub fn run_in(place: &Path, log: &Path, mut command: Command) -> Result<i32, String> {
    let shown = shell_words(&command);
    let failed = |error: std::io::Error| format!("cannot run `{shown}`: {error}");
    let output = File::create(log).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let status = command
        .current_dir(place)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .status()
        .map_err(failed)?;
    Ok(status.code().unwrap_or(-1))
}

/// Ends processes. It is no error if they have ended already.
pub fn kill(pids: &[u32]) {
    signal("-KILL", pids);
}

/// Asks a process to end.
pub fn terminate(pid: u32) {
    signal("-TERM", &[pid]);
}

fn signal(name: &str, pids: &[u32]) {
    // std has no kill(2) for a process that is not a child. Every Debian has the tool.
    let _ = Command::new("kill")
        .args([name, "--"])
        .args(pids.iter().map(ToString::to_string))
        .stderr(Stdio::null())
        .status();
}

/// Does this process exist, and is it no zombie?
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| parent(&stat).is_some())
}

/// Living processes below `pid`, parents first.
pub fn descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| {
            Some((
                pid,
                parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?,
            ))
        })
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let above = found[next];
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == above)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.split_off(1)
}

/// The parent's id from a line of `/proc/PID/stat`, unless the process is a zombie. The name is in brackets and may
/// itself contain brackets and spaces.
fn parent(stat: &str) -> Option<u32> {
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    let state = rest.next()?;
    let parent = rest.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}

/// The command as a user could type it, with the variables that were set for it.
pub fn shell_words(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_string_lossy(), value?.to_string_lossy())))
        .map(|(name, value)| format!("{name}={}", quote(&value)));
    let program = quote(&command.get_program().to_string_lossy());
    let arguments = command
        .get_args()
        .map(|word| quote(&word.to_string_lossy()));
    variables
        .chain([program])
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_over_binaries() {
        let mut counts = TestCounts::default();
        counts.read_line(
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 1 filtered out\n",
        );
        counts.read_line(
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        counts.read_line("test word::round_trip ... ok\n");
        counts.read_line("test ring ... SKIP: no io_uring here\n");
        counts.read_line("SKIP: no io_uring here\n");
        let expected = TestCounts {
            passed: 13,
            failed: 2,
            ignored: 3,
            skips: vec!["no io_uring here".into()],
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn a_command_is_shown_as_it_could_be_typed() {
        let mut command = Command::new("cargo");
        command
            .args(["test", "it's"])
            .env("RUSTFLAGS", "--cfg loom");
        assert_eq!(
            shell_words(&command),
            r"RUSTFLAGS='--cfg loom' cargo test 'it'\''s'"
        );
    }

    #[test]
    fn output_is_counted_and_a_bad_status_is_an_error() {
        let long = Duration::from_secs(20);
        let mut good = Command::new("sh");
        good.args([
            "-c",
            "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'",
        ]);
        assert_eq!(run(&mut good, long).unwrap().passed, 2);
        let mut bad = Command::new("sh");
        bad.args(["-c", "for n in $(seq 30); do echo line $n; done; exit 3"]);
        let error = run(&mut bad, long).unwrap_err();
        assert!(error.contains("status: 3"), "{error}");
        assert!(error.ends_with("| line 29\n| line 30"), "{error}");
        assert!(!error.contains("| line 18\n"), "{error}");
        let mut absent = Command::new("/no/such/program");
        assert!(run(&mut absent, long).unwrap_err().contains("cannot start"));
    }

    #[test]
    fn a_killed_command_takes_its_children_along() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60"])
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while descendants(child.id()).len() < 2 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(POLL);
        }
        let children = descendants(child.id());
        assert_eq!(children.len(), 2);
        kill_tree(&mut child);
        let left = descendants(std::process::id());
        assert!(children.iter().all(|pid| !left.contains(pid)));
        assert!(!children.iter().any(|pid| is_alive(*pid)));
    }

    #[test]
    fn names_with_brackets_do_not_confuse() {
        assert_eq!(parent("12 (a) b) S 7 12 12"), Some(7));
        assert_eq!(parent("12 (a) Z 7 12 12"), None);
    }

    #[test]
    fn a_process_left_behind_does_not_hang_the_step() {
        let begun = Instant::now();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "sleep 8 & echo 'test result: ok. 1 passed; 0 failed; 0 ignored'",
        ]);
        assert_eq!(
            run(&mut command, Duration::from_secs(20)).unwrap().passed,
            1
        );
        assert!(begun.elapsed() < Duration::from_secs(6));
    }
}
