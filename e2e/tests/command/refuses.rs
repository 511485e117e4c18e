//! What vswap refuses before it starts anything, with which message and which exit status.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::failure::During;
use vswap_e2e::need::{require_root, require_user};
use vswap_e2e::{Context, Failure, Outcome, ensure, require_program};

/// Exit statuses for vswap's own errors, for a program that cannot be run, and for one that is not found.
const OWN_ERROR: i32 = 125;
const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;

fn must_refuse(output: &Output, code: i32, words: &[&str]) -> Outcome {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(code),
        "{}, expected {code}: {text}",
        output.status
    );
    for word in words {
        ensure!(
            text.to_lowercase().contains(word),
            "the refusal says nothing of {word:?}: {text}"
        );
    }
    ensure!(
        output.stdout.is_empty(),
        "a refused run has written to standard output"
    );
    Ok(())
}

/// A program that leaves a file behind if it is started after all.
fn starting(context: &Context, name: &str, options: &[&str]) -> Outcome<String> {
    let text = "#include <fcntl.h>\nint main(void) { return creat(\"started\", 0644) < 0; }\n";
    let program = compile(context, GCC, text, name, options)?;
    Ok(program.display().to_string())
}

fn must_not_have_started(context: &Context) -> Outcome {
    ensure!(
        !context.place().join("started").exists(),
        "the refused program was started"
    );
    Ok(())
}

pub fn setuid_program(context: &Context) -> Outcome {
    require_root("it gives a program to another user")?;
    let owner = require_user("nobody", "apt package base-passwd")?;
    let program = starting(context, "setuid", &[])?;
    std::os::unix::fs::chown(&program, Some(owner.uid), None)
        .during(|| format!("chown {program}"))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    fs::set_permissions(&program, mode).during(|| format!("chmod {program}"))?;
    let output = context.vswap(&["run", "--ram", "64M", "--", &program])?;
    must_refuse(&output, CANNOT_EXECUTE, &["set"])?;
    must_not_have_started(context)
}

pub fn no_program(context: &Context) -> Outcome {
    let missing = context.vswap(&["run", "--ram", "64M", "--", "no-such-program-anywhere"])?;
    must_refuse(
        &missing,
        NOT_FOUND,
        &["no-such-program-anywhere", "not found"],
    )?;
    let missing = context.vswap(&["run", "--ram", "64M", "--", "/no/such/program"])?;
    must_refuse(&missing, NOT_FOUND, &["/no/such/program"])?;
    let plain = context.place().join("plain");
    fs::write(&plain, "no program\n").during(|| "write a plain file".to_owned())?;
    let plain = plain.display().to_string();
    let output = context.vswap(&["run", "--ram", "64M", "--", &plain])?;
    must_refuse(&output, CANNOT_EXECUTE, &[])?;
    let directory = context.vswap(&["run", "--ram", "64M", "--", "/usr"])?;
    must_refuse(&directory, CANNOT_EXECUTE, &[])
}

pub fn wrong_arguments(context: &Context) -> Outcome {
    let wrong: [&[&str]; 8] = [
        &["run", "--ram", "12Q", "--", "true"],
        &["run", "--ram", "0", "--", "true"],
        &["run", "--ram", "-5M", "--", "true"],
        &["run", "--ram", "0%", "--", "true"],
        &["run", "--", "true"],
        &["run", "--ram", "64M"],
        &["run", "--ram", "64M", "--codec", "rar", "--", "true"],
        &[
            "run",
            "--ram",
            "64M",
            "--summary",
            "/no/such/dir/file",
            "--",
            "touch",
            "started",
        ],
    ];
    for args in wrong {
        let output = context.vswap(args)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        ensure!(
            code == Some(OWN_ERROR),
            "vswap {args:?} ended with {code:?}: {text}"
        );
        ensure!(!text.is_empty(), "vswap {args:?} said nothing");
    }
    must_not_have_started(context)
}

pub fn run_in_a_run(context: &Context) -> Outcome {
    let vswap = context.require_vswap()?.display().to_string();
    let inner = [
        "run", "--ram", "256M", "--", &vswap, "run", "--ram", "64M", "--", "touch", "started",
    ];
    let output = context.vswap(&inner)?;
    must_refuse(&output, OWN_ERROR, &["already"])?;
    must_not_have_started(context)
}

/// Without /dev/userfaultfd, the system call and the capability nothing can be done. vswap says so at once, with what
/// to do about it.
pub fn user_without_permission(context: &Context) -> Outcome {
    require_root("it becomes another user")?;
    require_program("setpriv", "apt package util-linux")?;
    let allowed = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    if allowed.trim() != "0" {
        let text = "vm.unprivileged_userfaultfd is not 0 here, so every user is permitted";
        return Err(Failure::Skip(text.to_owned()));
    }
    let nobody = require_user("nobody", "apt package base-passwd")?;
    let copy = context.place().join("vswap");
    let vswap = context.require_vswap()?;
    fs::copy(&vswap, &copy).during(|| "copy vswap".to_owned())?;
    let output = as_user(
        nobody.uid,
        nobody.gid,
        &copy,
        &["run", "--ram", "64M", "--", "true"],
    )?;
    must_refuse(&output, OWN_ERROR, &["userfaultfd", "doctor"])?;
    let output = as_user(nobody.uid, nobody.gid, &copy, &["doctor"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.code() == Some(1),
        "doctor ended with {}: {text}",
        output.status
    );
    ensure!(
        text.contains("to do"),
        "doctor says nothing of what to do: {text}"
    );
    Ok(())
}

fn as_user(uid: u32, gid: u32, program: &Path, args: &[&str]) -> Outcome<Output> {
    Command::new("/usr/bin/setpriv")
        .args([
            format!("--reuid={uid}"),
            format!("--regid={gid}"),
            "--clear-groups".to_owned(),
        ])
        .args(["/usr/bin/timeout", "20"])
        .arg(program)
        .args(args)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .during(|| "run vswap as another user".to_owned())
}
