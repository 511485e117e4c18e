//! The wheel: pip installs it into a new environment, and its module, its program and its magic work there.

use std::path::PathBuf;
use std::process::Command;

use vswap_e2e::need::require_file;
use vswap_e2e::{Context, Outcome, ensure, require_program};

use crate::{package, printed};

const MODULE: &str = include_str!("../../inputs/module.py");
const MAGIC: &str = include_str!("../../inputs/magic.py");

/// Python of a new environment with the wheel in it. Nothing is fetched.
fn environment(context: &Context) -> Outcome<PathBuf> {
    let wheel = package(".whl")?;
    let python = require_program("python3", "apt package python3")?;
    require_file(
        "/usr/lib/python3/dist-packages/pip",
        "apt packages python3-pip python3-venv",
    )?;
    let place = context.place().join("environment");
    // With the packages of the system, for IPython.
    printed(
        Command::new(python)
            .args(["-m", "venv", "--system-site-packages"])
            .arg(&place),
    )?;
    let python = place.join("bin/python");
    let mut pip = Command::new(&python);
    printed(
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--force-reinstall",
        ])
        .arg(wheel),
    )?;
    Ok(python)
}

pub fn module(context: &Context) -> Outcome {
    let python = environment(context)?;
    let said = printed(
        Command::new(&python)
            .args(["-c", MODULE])
            .current_dir(context.place()),
    )?;
    ensure!(said.trim() == "all right", "{said}");
    let version = printed(Command::new(&python).args(["-m", "vswap", "--version"]))?;
    ensure!(version.starts_with("vswap "), "{version}");
    // The program itself, not a script that starts Python first.
    let program = python.with_file_name("vswap");
    ensure!(
        printed(Command::new(program).arg("--version"))? == version,
        "bin/vswap is another"
    );
    Ok(())
}

pub fn magic(context: &Context) -> Outcome {
    require_file(
        "/usr/lib/python3/dist-packages/IPython",
        "apt package python3-ipython",
    )?;
    let python = environment(context)?;
    let mut run = Command::new(&python);
    let said = printed(run.args(["-c", MAGIC]).env("IPYTHONDIR", context.place()))?;
    ensure!(
        said.contains("300000 right") && said.contains("from perl"),
        "{said}"
    );
    Ok(())
}
