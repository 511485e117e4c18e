//! The tarball as a new user has it: in a root with busybox and musl, without glibc, and on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use vswap_e2e::compile::{MUSL, compile};
use vswap_e2e::failure::During;
use vswap_e2e::need::require_file;
use vswap_e2e::{Context, Outcome, ensure, require_program, require_root};

use crate::{output, printed, text, unpacked};

/// Fills 160 MiB with numbers that compress, and reads all of them back.
const FILL: &str = include_str!("../../inputs/fill.c");
const LOADER: &str = "/lib/ld-musl-x86_64.so.1";
/// The root gets its own /proc and this machine's /dev, and both are gone with the mount namespace.
const ENTER: &str = r#"
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$@"
"#;

pub fn new_user(context: &Context) -> Outcome {
    require_root("to change the root")?;
    let busybox = require_program("busybox", "apt package busybox-static")?;
    require_program("unshare", "apt package util-linux")?;
    require_file(LOADER, "apt package musl")?;
    let root = context.place().join("root");
    for directory in ["proc", "dev", "bin", "lib", "tmp", "var/tmp", "usr/local"] {
        let path = root.join(directory);
        fs::create_dir_all(&path).during(|| format!("make {}", path.display()))?;
    }
    unpacked(&root.join("usr/local"))?;
    for (options, name) in [(&["-O2"][..], "dynamic"), (&["-O2", "-static"], "static")] {
        install(
            &compile(context, MUSL, FILL, name, options)?,
            &root.join("bin").join(name),
        )?;
    }
    install(&busybox, &root.join("bin/sh"))?;
    install(Path::new(LOADER), &root.join("lib/ld-musl-x86_64.so.1"))?;

    let vswap = "/usr/local/bin/vswap";
    let help = printed(&mut inside(&root, &[vswap, "--help"]))?;
    ensure!(help.contains("Run a program in less RAM"), "{help}");
    let doctor = printed(&mut inside(&root, &[vswap, "doctor"]))?;
    ensure!(doctor.contains("works here"), "{doctor}");
    for program in ["/bin/dynamic", "/bin/static", "/bin/sh"] {
        // busybox's shell starts the program, as it would for a user.
        let words: &[&str] = match program {
            "/bin/sh" => &["/bin/sh", "-c", "/bin/dynamic && echo and so on"],
            program => &[program],
        };
        let run = [vswap, "run", "--ram", "64M", "--"];
        let ran = output(&mut inside(&root, &[&run[..], words].concat()))?;
        let (out, said) = (text(&ran.stdout), text(&ran.stderr));
        ensure!(
            ran.status.success() && out.contains("all right"),
            "{words:?}: {out}{said}"
        );
        ensure!(
            said.contains("pages out"),
            "{words:?} was not swapped: {said}"
        );
    }
    let mistyped = output(&mut inside(
        &root,
        &[vswap, "run", "--rma", "64M", "--", "/bin/static"],
    ))?;
    let said = text(&mistyped.stderr);
    ensure!(
        mistyped.status.code() == Some(125) && said.contains("'--ram'"),
        "{said}"
    );
    Ok(())
}

fn install(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to).during(|| format!("copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).during(|| "chmod".to_owned())
}

fn inside(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        ENTER,
        "sh",
    ]);
    command
        .arg(root)
        .args(words)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin");
    command
}

pub fn with_glibc(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let vswap = unpacked(context.place())?.join("bin/vswap");
    let script = "held = [b'%d' % number * 100 for number in range(300_000)]\n\
                  print(sum(held[number] == b'%d' % number * 100 for number in range(300_000)))";
    let mut run = Command::new(vswap);
    run.args(["run", "--ram", "64M", "--"])
        .arg(python)
        .args(["-c", script]);
    let ran = output(&mut run)?;
    let said = text(&ran.stderr);
    ensure!(
        ran.status.success() && text(&ran.stdout).trim() == "300000",
        "{said}"
    );
    ensure!(said.contains("pages out"), "it was not swapped: {said}");
    Ok(())
}
