//! The files in examples/ work as far as this machine can tell: the entry point and far memory are run, units and YAML
//! are parsed.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use vswap_e2e::failure::During;
use vswap_e2e::need::workload_binary;
use vswap_e2e::{Context, Outcome, ensure, require_program, require_root};

const READ_YAML: &str = "
import sys, yaml
for path in sys.argv[1:]:
    assert isinstance(yaml.safe_load(open(path)), dict), path
";

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// vswap stays root and the program is another user, whose memory is swapped all the same.
pub fn entry_point(context: &Context) -> Outcome {
    require_root("to give it up")?;
    require_program("setpriv", "apt package util-linux")?;
    let place = context.place();
    for (program, name) in [
        (context.require_vswap()?, "vswap"),
        (workload_binary()?, "workload"),
    ] {
        fs::copy(&program, place.join(name)).during(|| format!("copy {name}"))?;
    }
    // The program's user must get at it.
    fs::set_permissions(place, Permissions::from_mode(0o755)).during(|| "chmod".to_owned())?;
    let path = format!("{}:/usr/bin:/bin", place.display());
    let output = Command::new(examples().join("entrypoint.sh"))
        .arg(place.join("workload"))
        .args(["fill-read-write", "--count", "2000", "128M"])
        .env("PATH", path)
        .env("VSWAP_RAM", "64M")
        .env("VSWAP_SWAP", place)
        .env("VSWAP_SWAP_SIZE", "1G")
        .env(
            "BECOME",
            "setpriv --reuid=65534 --regid=65534 --clear-groups",
        )
        .output()
        .during(|| "start the entry point".to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "ended with {}: {said}",
        output.status
    );
    ensure!(said.contains("pages out"), "nothing was swapped: {said}");
    ensure!(!said.contains("not managed"), "no agent: {said}");
    Ok(())
}

/// A cluster of three servers and a data set of four times the memory, in one command.
pub fn far_memory(context: &Context) -> Outcome {
    require_program("redis-server", "apt package redis-server")?;
    require_program("redis-cli", "apt package redis-tools")?;
    let output = Command::new(examples().join("far/run"))
        .args(["64", "256"])
        .env("VSWAP", context.require_vswap()?)
        // Away from those that people use, and different for each test process.
        .env(
            "FAR_PORT",
            (21_000 + std::process::id() % 1000 * 3).to_string(),
        )
        .output()
        .during(|| "start the example".to_owned())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && said.contains("1048576 of 1048576 records are right"),
        "ended with {}: {said}{complained}",
        output.status
    );
    ensure!(
        complained.contains("written to areas"),
        "nothing went to the servers: {complained}"
    );
    let left = said.lines().filter(|line| line.ends_with(": 0 keys"));
    ensure!(left.count() == 3, "keys are left: {said}");
    Ok(())
}

/// Sizes that are none, and ports that are taken, are refused with words.
pub fn far_memory_refuses(context: &Context) -> Outcome {
    require_program("redis-server", "apt package redis-server")?;
    let taken = TcpListener::bind("127.0.0.1:0").during(|| "take a port".to_owned())?;
    let port = taken
        .local_addr()
        .during(|| "take a port".to_owned())?
        .port();
    let port = port.to_string();
    for (size, port, expected) in [
        ("lots", "21000", "lots is no size"),
        ("96", &port, "does not begin"),
    ] {
        let output = Command::new(examples().join("far/run"))
            .arg(size)
            .env("VSWAP", context.require_vswap()?)
            .env("FAR_PORT", port)
            .output()
            .during(|| "start the example".to_owned())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains(expected),
            "{size}, port {port}: {said}"
        );
    }
    Ok(())
}

pub fn units(context: &Context) -> Outcome {
    let analyze = require_program("systemd-analyze", "apt package systemd")?;
    let vswap = context.require_vswap()?.display().to_string();
    for name in ["app-root.service", "app-user.service"] {
        let text = fs::read_to_string(examples().join(name)).during(|| format!("read {name}"))?;
        // Verified is also that the programs exist.
        let text = text
            .replace("/usr/local/bin/vswap", &vswap)
            .replace("/usr/local/bin/app", "/bin/true");
        let unit = context.place().join(name);
        fs::write(&unit, text).during(|| format!("write {name}"))?;
        let output = Command::new(&analyze)
            .args(["verify", "--man=no"])
            .arg(&unit)
            .output()
            .during(|| "start systemd-analyze".to_owned())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && !said.contains(name),
            "{name}: {said}"
        );
    }
    Ok(())
}

pub fn yaml(_: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let has_yaml = Command::new(&python).args(["-c", "import yaml"]).output();
    if !has_yaml.is_ok_and(|output| output.status.success()) {
        return Err(vswap_e2e::Failure::Skip(
            "python3 has no yaml; install apt package python3-yaml".to_owned(),
        ));
    }
    let output = Command::new(&python)
        .args(["-c", READ_YAML])
        .args(["compose.yaml", "pod.yaml"].map(|name| examples().join(name)))
        .output()
        .during(|| "start python3".to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(())
}
