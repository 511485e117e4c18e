//! What a test gets: its directory, its time, and the two ways of running a program.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::ended::Ended;
use crate::failure::During;
use crate::launch::{How, Launcher};
use crate::limit::{NEED_PARTS, allowed_bytes, mib};
use crate::need::{require_program, require_root};
use crate::{Failure, MIB, Outcome, ensure};

/// Seconds that a command such as `vswap status` may take.
const COMMAND_BOUND_S: &str = "20";

/// The surroundings of one test.
#[derive(Debug)]
pub struct Context {
    place: tempfile::TempDir,
    deadline: Instant,
    said: RefCell<bool>,
    is_plain_user: Cell<bool>,
}

/// Shall the programs run without vswap? That is only for writing the tests themselves.
pub fn native_only() -> bool {
    std::env::var_os("VSWAP_E2E_NATIVE").is_some_and(|value| value == "1")
}

/// The vswap binary under test.
pub fn vswap_binary() -> Outcome<PathBuf> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/vswap");
    let path = std::env::var_os("VSWAP_BIN").map_or_else(built, PathBuf::from);
    let help = "build it with `cargo build --release -p vswap`, or name one in VSWAP_BIN";
    let found = fs::canonicalize(&path);
    found
        .map_err(|error| Failure::wrong(format!("no vswap at {}: {error}; {help}", path.display())))
}

impl Context {
    /// A context with a fresh directory, open to other users for programs that run as one, and with this much time.
    pub fn new(prefix: &str, bound: Duration) -> Outcome<Context> {
        let mut builder = tempfile::Builder::new();
        let mode = PermissionsExt::from_mode(0o755);
        let place = builder.prefix(prefix).permissions(mode).tempdir();
        let place = place.during(|| "make the test's directory".to_owned())?;
        Ok(Context {
            place,
            deadline: Instant::now() + bound,
            said: RefCell::new(false),
            is_plain_user: Cell::new(false),
        })
    }

    /// The test's directory. It is removed with everything in it when the test ends.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// From now on jobs run as a user without any capability, who may open /dev/userfaultfd: as the job's user, or as
    /// nobody. So the kernel tells vswap of no forks.
    pub fn be_a_plain_user(&self) -> Outcome {
        require_root("to become a plain user, and to let that user open the device")?;
        require_program("setpriv", "apt package util-linux")?;
        let open: fs::Permissions = PermissionsExt::from_mode(0o777);
        fs::set_permissions(self.place(), open)
            .during(|| "open the test's directory".to_owned())?;
        self.is_plain_user.set(true);
        Ok(())
    }

    /// When the test's time is over.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Prints a line below the test's name.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.said.replace(true) {
            println!();
        }
        println!("    {}", text.as_ref());
    }

    /// Skips the test if there is no vswap to test.
    pub fn require_vswap(&self) -> Outcome<PathBuf> {
        if native_only() {
            return Err(Failure::Skip(
                "VSWAP_E2E_NATIVE=1 runs without vswap".to_owned(),
            ));
        }
        vswap_binary()
    }

    /// Runs a vswap command that ends at once. Returns its output and status.
    pub fn vswap(&self, args: &[&str]) -> Outcome<Output> {
        let vswap = self.require_vswap()?;
        let mut command = Command::new("/usr/bin/timeout");
        command
            .arg(COMMAND_BOUND_S)
            .arg(vswap)
            .args(args)
            .current_dir(self.place());
        command
            .stdin(Stdio::null())
            .output()
            .during(|| format!("run vswap {}", args.join(" ")))
    }

    /// A launcher that runs jobs under vswap in its own directory.
    pub fn limited(&self, limit_bytes: u64) -> Outcome<Launcher> {
        let how = How::Limited {
            vswap: self.require_vswap()?,
            limit_bytes,
        };
        self.launcher(how, "limited")
    }

    /// A launcher that runs jobs natively.
    pub fn native(&self) -> Outcome<Launcher> {
        self.launcher(How::Native, "native")
    }

    fn launcher(&self, how: How, dir: &str) -> Outcome<Launcher> {
        let place = self.place().join(dir);
        fs::create_dir_all(&place).during(|| format!("make {}", place.display()))?;
        let is_plain_user = self.is_plain_user.get();
        Ok(Launcher::new(how, &place, self.deadline, is_plain_user))
    }

    /// Does the work natively and then under vswap with this limit, and compares the results.
    ///
    /// The native run is the reference for the result and for the need. The limit is a third of the need at the most,
    /// else the test would prove nothing: it is lowered where the sampled need is a little lower this time. A program
    /// that needs much less than it did is an error.
    pub fn compare<T: PartialEq + Debug>(
        &self,
        limit_bytes: u64,
        work: impl Fn(&Launcher) -> Outcome<T>,
    ) -> Outcome {
        let native = self.native()?;
        let expected = work(&native)?;
        let need = native
            .ended()
            .iter()
            .map(|ended| ended.peak.total_bytes)
            .max()
            .unwrap_or(0);
        self.say(format!(
            "native:  peak {}, {}",
            mib(need),
            seconds(&native.ended())
        ));
        let third = need / NEED_PARTS;
        ensure!(
            third >= limit_bytes / 10 * 9,
            "the program needs only {}: a limit of {} is no third of it",
            mib(need),
            mib(limit_bytes)
        );
        let limit_bytes = limit_bytes.min(third / MIB * MIB);
        let cleared = native.place();
        fs::remove_dir_all(cleared).during(|| format!("clear {}", cleared.display()))?;
        if native_only() {
            self.say(
                "NATIVE ONLY: the run under vswap, its limit and its figures were not checked",
            );
            return Ok(());
        }
        let limited = self.limited(limit_bytes)?;
        let result = work(&limited)?;
        for ended in limited.ended() {
            self.say(figures(limit_bytes, &ended)?);
        }
        ensure!(
            result == expected,
            "the results differ: {expected:?} natively, {result:?} under vswap"
        );
        Ok(())
    }
}

fn seconds(runs: &[Ended]) -> String {
    let times: Vec<String> = runs
        .iter()
        .map(|run| format!("{:.1} s", run.took.as_secs_f64()))
        .collect();
    times.join(" + ")
}

fn figures(limit_bytes: u64, ended: &Ended) -> Outcome<String> {
    Ok(format!(
        "limited: --ram {} (allowed {}): sampled peak {} ({} in vswap; {} samples, {} blurred, longest gap {} ms), \
         peak_total_bytes {}, needed {}, out {}, in {}, {:.1} s",
        mib(limit_bytes),
        mib(allowed_bytes(limit_bytes)),
        mib(ended.peak.total_bytes),
        mib(ended.peak.own_bytes),
        ended.peak.samples,
        ended.peak.blurred,
        ended.peak.gap_max.as_millis(),
        mib(ended.figure("peak_total_bytes")?),
        mib(ended.figure("peak_needed_bytes")?),
        ended.figure("pages_out")?,
        ended.figure("pages_in")?,
        ended.took.as_secs_f64()
    ))
}
