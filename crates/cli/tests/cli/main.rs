//! `vswap` as its users see it: the binary, its exit status, its streams, its signals.

mod arguments;
mod bench;
mod log;
mod metrics;
mod mkswap;
mod passes_through;
mod pty;
mod refusals;
mod run_dir;
mod signals;
mod status;
mod swap;
mod terminal;
mod top;
mod watch;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time limit for anything that is immediate on an idle machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The directory of one test, used as XDG_RUNTIME_DIR and removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "vt{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("scratch directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        Scratch(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// A shell script in this directory, executable.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(format!("{name}.text"));
        fs::write(&path, text).expect("script");
        self.program(&path, name, 0o755)
    }

    /// A copy of a file in this directory, with other permissions.
    ///
    /// Another process makes it. If this one had the copy open for writing, a child that another test starts at that
    /// moment would have it open too, and starting the copy would fail with ETXTBSY.
    fn program(&self, from: &Path, name: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        let made = Command::new("install")
            .args(["-m", &format!("{mode:o}")])
            .args([from, &path])
            .status()
            .expect("install of coreutils");
        assert!(made.success(), "install: {made}");
        path
    }

    /// `vswap` with its run directories in this one.
    fn vswap(&self) -> Command {
        let mut command = undisturbed(env!("CARGO_BIN_EXE_vswap"));
        command.env("XDG_RUNTIME_DIR", &self.0).stdin(Stdio::null());
        command
    }

    /// `vswap run` with a limit that no test reaches.
    fn run(&self) -> Command {
        let mut command = self.vswap();
        command.args(["run", "--ram", "256M", "--"]);
        command
    }

    /// A run that sleeps and says nothing.
    fn sleeper(&self) -> Child {
        let mut run = self.run();
        run.args(["sleep", "1000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        run.spawn().expect("vswap starts")
    }

    /// Names in this directory, sorted.
    fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command that starts with every signal at its default, whatever the tests themselves ignore. Under nohup or in a
/// background job they inherit ignored signals, and so would all that they start. env(1) becomes the program, so the
/// pid is the program's.
fn undisturbed(program: &str) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal", program]);
    command
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command starts")
}

/// Waits until `condition` returns something.
fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for a child, but not for ever.
fn wait(child: &mut Child) -> std::process::ExitStatus {
    eventually("the end of the child", || child.try_wait().expect("wait"))
}

/// Sends a signal, named as kill(1) names it.
fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status();
    assert!(
        status.expect("kill starts").success(),
        "kill -s {signal} {pid}"
    );
}

/// State letter of a process, or `None` if it is gone.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
