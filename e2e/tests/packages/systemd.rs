//! The unit of the tarball under a living systemd: it starts, serves a user's runs, waits for them, and stops.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use vswap_e2e::compile::{MUSL, compile};
use vswap_e2e::failure::During;
use vswap_e2e::need::require_file;
use vswap_e2e::{Context, Outcome, ensure, require_program, require_root};

use crate::bare_root::FILL;
use crate::{output, text, unpacked};

const BOOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/inputs/boots.sh");
const PROBE_UNIT: &str = include_str!("../../inputs/probe.service");
const PROBE: &str = include_str!("../../inputs/probe.sh");
/// A container that has not gone off by then is killed.
const SECONDS: &str = "60";

pub fn unit_lives(context: &Context) -> Outcome {
    require_root("to boot a container")?;
    require_program("systemd-nspawn", "apt package systemd-container")?;
    require_program("setpriv", "apt package util-linux")?;
    require_file("/lib/systemd/systemd", "apt package systemd")?;
    let upper = context.place().join("upper");
    lay_out(context, &upper)?;
    let mut boots = Command::new("timeout");
    boots
        .args(["--signal=KILL", SECONDS, "unshare", "--mount"])
        .args(["--propagation", "private", "sh", BOOTS])
        .arg(context.place());
    let booted = output(&mut boots)?;
    let log = fs::read_to_string(upper.join("probe.log")).unwrap_or_default();
    ensure!(
        booted.status.success(),
        "{}: {}{}\n{log}",
        booted.status,
        text(&booted.stdout),
        text(&booted.stderr)
    );
    for wanted in [
        "begun: active",
        "this run is in the daemon",
        "pages out",
        "waiting for 1 runs to end",
        "ActiveState=inactive",
        "Result=success",
        "the daemon is ready",
    ] {
        ensure!(log.contains(wanted), "{wanted:?} is missing:\n{log}");
    }
    let right = log.matches("all right").count();
    ensure!(right == 2, "{right} of 2 runs were right:\n{log}");
    Ok(())
}

/// What the container has beside this machine's files.
fn lay_out(context: &Context, upper: &Path) -> Outcome {
    let usr = upper.join("usr");
    let units = upper.join("etc/systemd/system");
    for directory in [&usr, &units] {
        fs::create_dir_all(directory).during(|| format!("make {}", directory.display()))?;
    }
    unpacked(&usr)?;
    let fill = compile(context, MUSL, FILL, "fill", &["-O2", "-static"])?;
    fs::copy(fill, usr.join("bin/fill")).during(|| "copy fill".to_owned())?;
    for (path, text) in [
        (units.join("probe.service"), PROBE_UNIT),
        (upper.join("probe.sh"), PROBE),
    ] {
        fs::write(&path, text).during(|| format!("write {}", path.display()))?;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, upper.join("probe.pipe"), FileType::Fifo, mode, 0)
        .during(|| "make a pipe".to_owned())
}
