//! The tarball as a new user has it: in a root with busybox and musl, without glibc, and on this machine.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;
use vswap_e2e::compile::{MUSL, compile};
use vswap_e2e::failure::During;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::need::require_file;
use vswap_e2e::{Context, Failure, Outcome, ensure, require_program, require_root};

use crate::{output, printed, text, unpacked};

/// Fills 160 MiB with numbers that compress, and reads all of them back.
pub const FILL: &str = include_str!("../../inputs/fill.c");
const LOADER: &str = "/lib/ld-musl-x86_64.so.1";
/// The root gets its own /proc and this machine's /dev, and both are gone with the mount namespace.
const ENTER: &str = r#"
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$@"
"#;

/// A directory with busybox, musl, the filling program and the tarball, and nothing else.
struct BareRoot(PathBuf);

impl BareRoot {
    fn make(context: &Context) -> Outcome<BareRoot> {
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
            let built = compile(context, MUSL, FILL, name, options)?;
            install(&built, &root.join("bin").join(name))?;
        }
        install(&busybox, &root.join("bin/sh"))?;
        install(Path::new(LOADER), &root.join("lib/ld-musl-x86_64.so.1"))?;
        Ok(BareRoot(root))
    }

    /// vswap in the root.
    fn vswap(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private"])
            .args(["sh", "-c", ENTER, "sh"])
            .arg(&self.0)
            .arg("/usr/local/bin/vswap")
            .args(words)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin");
        command
    }

    /// What vswap says on standard error when it ends with this status.
    fn refused(&self, status: i32, words: &[&str]) -> Outcome<String> {
        let ended = output(&mut self.vswap(words))?;
        let said = text(&ended.stderr);
        ensure!(
            ended.status.code() == Some(status),
            "{words:?}: {}: {said}",
            ended.status
        );
        Ok(said)
    }

    /// A file in the root.
    fn file(&self, name: &str) -> Outcome<String> {
        fs::read_to_string(self.0.join(name)).during(|| format!("read {name}"))
    }
}

pub fn new_user(context: &Context) -> Outcome {
    let root = BareRoot::make(context)?;
    let help = printed(&mut root.vswap(&["--help"]))?;
    ensure!(help.contains("Run a program in less RAM"), "{help}");
    let doctor = printed(&mut root.vswap(&["doctor"]))?;
    ensure!(doctor.contains("works here"), "{doctor}");
    for program in ["/bin/dynamic", "/bin/static", "/bin/sh"] {
        // busybox's shell starts the program, as it would for a user.
        let words: &[&str] = match program {
            "/bin/sh" => &["/bin/sh", "-c", "/bin/dynamic && echo and so on"],
            program => &[program],
        };
        let run = ["run", "--ram", "64M", "--"];
        let ran = output(&mut root.vswap(&[&run[..], words].concat()))?;
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
    Ok(())
}

/// The three commands: unpack (that is done), look at a run, ask how much RAM is enough.
pub fn picture(context: &Context) -> Outcome {
    let root = BareRoot::make(context)?;
    let run = ["run", "--ram", "64M", "--report", "/tmp/run.html", "--"];
    printed(&mut root.vswap(&[&run[..], &["/bin/dynamic"]].concat()))?;
    let advise = ["advise", "--report", "/tmp/advice.html", "--"];
    let advised = output(&mut root.vswap(&[&advise[..], &["/bin/dynamic", "40"]].concat()))?;
    let said = text(&advised.stderr);
    ensure!(
        advised.status.success() && said.contains("+5 % or less"),
        "{said}"
    );
    for name in ["tmp/run.html", "tmp/advice.html"] {
        let page = root.file(name)?;
        ensure!(
            page.contains("<svg") && page.contains("/bin/dynamic") && page.ends_with("</html>"),
            "{name} is no page with a picture: {} bytes",
            page.len()
        );
    }
    Ok(())
}

/// Looks at a run, parks it, wakes it, and has it end well; and interrupts another.
pub fn parks(context: &Context) -> Outcome {
    let root = BareRoot::make(context)?;
    let run = ["run", "--ram", "64M", "--", "/bin/dynamic", "waits"];
    let mut running = Waiting::start(&root, &run)?;
    let status = printed(&mut root.vswap(&["status"]))?;
    ensure!(status.contains("/bin/dynamic"), "{status}");
    let parked = printed(&mut root.vswap(&["park"]))?;
    ensure!(parked.contains("parked"), "{parked}");
    let status = printed(&mut root.vswap(&["status"]))?;
    ensure!(status.contains("parked"), "{status}");
    printed(&mut root.vswap(&["wake"]))?;
    let (status, out) = running.go_on()?;
    ensure!(
        status.success() && out.contains("all right"),
        "{status}: {out}"
    );

    let mut running = Waiting::start(&root, &run)?;
    // The shells before it have become vswap.
    signal_pid(running.0.id(), Signal::INT)?;
    let (status, _) = running.go_on()?;
    ensure!(
        status.signal() == Some(Signal::INT.as_raw()) || status.code() == Some(130),
        "an interrupted run ends with {status}"
    );
    let status = printed(&mut root.vswap(&["status"]))?;
    ensure!(!status.contains("/bin/dynamic"), "{status}");
    Ok(())
}

/// A run whose program has filled its memory and waits. Killed when it is dropped.
struct Waiting(Child);

impl Waiting {
    fn start(root: &BareRoot, words: &[&str]) -> Outcome<Waiting> {
        let mut command = root.vswap(words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().during(|| format!("start {command:?}"))?;
        let mut said = [0; "filled\n".len()];
        let read = child.stdout.as_mut().map(|out| out.read_exact(&mut said));
        let waiting = Waiting(child);
        match read {
            Some(Ok(())) if &said == b"filled\n" => Ok(waiting),
            other => Err(Failure::wrong(format!("it says {said:?}: {other:?}"))),
        }
    }

    /// Gives it a line of input. How it ends, and what it prints then.
    fn go_on(&mut self) -> Outcome<(ExitStatus, String)> {
        if let Some(mut pipe) = self.0.stdin.take() {
            // It may have ended already.
            let _ = pipe.write_all(b"\n");
        }
        let mut out = String::new();
        let pipe = self.0.stdout.take();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut out))
            .during(|| "read what it prints".to_owned())?;
        let status = self.0.wait().during(|| "wait for it".to_owned())?;
        Ok((status, out))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // It has ended, mostly.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a new user gets wrong, and what goes wrong for one.
pub fn mistakes(context: &Context) -> Outcome {
    let root = BareRoot::make(context)?;
    let program = "/bin/static";
    for (status, words, wanted) in [
        (125, &["run", "--rma", "64M", "--", program][..], "'--ram'"),
        (125, &["rnu", "--ram", "64M", "--", program], "'rnu'"),
        (125, &["run", "--", program], "--ram"),
        (125, &["run", "--ram", "64", "--", program], "write 512M"),
        (125, &["run", "--ram", "64M"], "<CMD>"),
        (
            127,
            &["run", "--ram", "64M", "--", "/bin/statick"],
            "/bin/statick",
        ),
        (
            126,
            &["run", "--ram", "64M", "--", "/usr/local"],
            "/usr/local",
        ),
        (125, &["park"], "no run"),
        (125, &["top"], "vswap status --watch"),
    ] {
        let said = root.refused(status, words)?;
        ensure!(
            said.contains(wanted) && !said.contains("panicked"),
            "{words:?} should say {wanted:?}: {said}"
        );
    }
    let full = ["run", "--ram", "32M", "--pool", "off", "--swap", "/tmp:8M"];
    let full = [&full[..], &["--on-full", "fail:1", "--", program]].concat();
    let said = root.refused(125, &full)?;
    ensure!(
        said.contains("full") && said.contains("swapon"),
        "a run without room should say so, and what helps: {said}"
    );
    Ok(())
}

fn install(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to).during(|| format!("copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).during(|| "chmod".to_owned())
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
