//! What the packages hold, and that systemd takes the units.

use std::fs;
use std::process::Command;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Outcome, ensure, require_program};

use crate::{output, package, printed, text, unpacked};

/// Below /usr in packages of distributions.
const INSTALLED: [&str; 9] = [
    "usr/bin/vswap",
    "usr/share/man/man1/vswap.1",
    "usr/share/man/man1/vswap-run.1",
    "usr/share/bash-completion/completions/vswap",
    "usr/share/fish/vendor_completions.d/vswap.fish",
    "_vswap",
    "usr/lib/systemd/user/vswap.service",
    "usr/lib/systemd/system/vswap@.service",
    "usr/share/doc/vswap/LICENSES-OF-OTHERS",
];

pub fn units(context: &Context) -> Outcome {
    let analyze = require_program("systemd-analyze", "apt package systemd")?;
    let prefix = unpacked(context.place())?;
    let vswap = prefix.join("bin/vswap").display().to_string();
    for (kind, unit) in [("--user", "vswap.service"), ("--system", "vswap@.service")] {
        let from = prefix.join("lib/systemd").join(&kind[2..]).join(unit);
        let text_of = fs::read_to_string(&from).during(|| format!("read {unit}"))?;
        ensure!(
            text_of.contains("/usr/bin/vswap daemon"),
            "{unit}: {text_of}"
        );
        // Verified is also that the program exists. A template wants an instance.
        let to = context.place().join(unit.replace('@', "@0"));
        fs::write(&to, text_of.replace("/usr/bin/vswap", &vswap)).during(|| "write".to_owned())?;
        let checked = output(
            Command::new(&analyze)
                .args([kind, "verify", "--man=no"])
                .env("XDG_RUNTIME_DIR", context.place())
                .arg(&to),
        )?;
        let said = text(&checked.stderr);
        ensure!(
            checked.status.success() && !said.contains("vswap"),
            "{unit}: {said}"
        );
    }
    Ok(())
}

pub fn deb(_: &Context) -> Outcome {
    let dpkg = require_program("dpkg-deb", "apt package dpkg")?;
    let package = package("_amd64.deb")?;
    holds_all(&printed(
        Command::new(&dpkg).arg("--contents").arg(&package),
    )?)?;
    let fields = printed(Command::new(&dpkg).arg("--field").arg(&package))?;
    ensure!(fields.contains("Package: vswap\n"), "{fields}");
    let needs = fields
        .lines()
        .find_map(|line| line.strip_prefix("Depends:"));
    ensure!(
        needs.is_none_or(|needs| needs.trim().is_empty()),
        "a static binary needs nothing: {fields}"
    );
    Ok(())
}

pub fn rpm(_: &Context) -> Outcome {
    let rpm = require_program("rpm", "apt package rpm")?;
    let package = package(".x86_64.rpm")?;
    let query = |what: &str| {
        let mut rpm = Command::new(&rpm);
        printed(
            rpm.args(["--query", "--nosignature", what, "--package"])
                .arg(&package),
        )
    };
    holds_all(&query("--list")?)?;
    let needs = query("--requires")?;
    ensure!(
        !needs.contains("libc"),
        "a static binary needs nothing: {needs}"
    );
    Ok(())
}

fn holds_all(listed: &str) -> Outcome {
    for file in INSTALLED {
        ensure!(listed.contains(file), "no {file} in {listed}");
    }
    Ok(())
}
