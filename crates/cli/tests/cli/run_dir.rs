//! The run's directory is private, no run leaves one behind, and those of dead runs are removed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::{Scratch, eventually, names, output, text, wait};

/// A run that sleeps, and its directory.
fn sleeper(scratch: &Scratch) -> (Child, PathBuf) {
    let child = scratch.sleeper();
    let prefix = format!("run-{}-", child.id());
    let dir = eventually("the run's directory", || {
        let outer = scratch.path().join(scratch.names().first()?);
        let name = names(&outer)
            .into_iter()
            .find(|name| name.starts_with(&prefix))?;
        let dir = outer.join(name);
        dir.join("control.sock").exists().then_some(dir)
    });
    (child, dir)
}

fn end(mut child: Child) {
    crate::kill("TERM", child.id());
    wait(&mut child);
}

#[test]
fn it_is_private_and_goes_with_the_run() {
    let scratch = Scratch::new();
    let (child, dir) = sleeper(&scratch);
    let outer = dir.parent().expect("outer");
    let is_root = fs::metadata(&dir).expect("metadata").uid() == 0;
    let expected = if is_root { 0o711 } else { 0o700 };
    for directory in [dir.as_path(), outer] {
        let mode = fs::metadata(directory)
            .expect("metadata")
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, expected, "{}", directory.display());
    }
    let control = fs::metadata(dir.join("control.sock"))
        .expect("metadata")
        .permissions()
        .mode();
    assert_eq!(control & 0o777, 0o600);
    assert!(dir.join("agent.so").exists());
    end(child);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    let scratch = Scratch::new();
    let line = format!(
        "umask 077; exec {} run --ram 256M --quiet -- sh -c 'stat -c %a ${{LD_PRELOAD%%/agent.so*}}'",
        env!("CARGO_BIN_EXE_vswap")
    );
    let mut command = std::process::Command::new("sh");
    let output = output(
        command
            .args(["-c", &line])
            .env("XDG_RUNTIME_DIR", scratch.path()),
    );
    let mode = text(&output.stdout);
    let is_root = fs::metadata(scratch.path()).expect("metadata").uid() == 0;
    assert_eq!(
        mode.trim(),
        if is_root { "711" } else { "700" },
        "{output:?}"
    );
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_command() {
    let scratch = Scratch::new();
    let (mut dead, dead_dir) = sleeper(&scratch);
    let (alive, alive_dir) = sleeper(&scratch);
    let program = eventually("the program", || {
        let pid = dead.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let mut children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        // The other child is vswap's own guardian.
        children.find(|child: &u32| {
            let name = fs::read_to_string(format!("/proc/{child}/comm"));
            name.is_ok_and(|name| name.trim() == "sleep")
        })
    });
    dead.kill().expect("killed");
    dead.wait().expect("reaped");
    // The agent kills the program. If it cannot, that is not what this test checks.
    let _ = std::process::Command::new("kill")
        .args(["-9", &program.to_string()])
        .stderr(Stdio::null())
        .status();
    assert!(dead_dir.exists(), "SIGKILL leaves no time to clean up");
    assert!(output(scratch.vswap().arg("status")).status.success());
    assert!(!dead_dir.exists());
    assert!(alive_dir.exists(), "the living are left alone");
    end(alive);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn a_place_that_somebody_else_has_prepared_is_not_used() {
    let scratch = Scratch::new();
    let user = fs::metadata(scratch.path()).expect("metadata").uid();
    let trap = scratch.path().join(format!("vswap-{user}"));
    fs::create_dir(&trap).expect("directory");
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o777)).expect("mode");
    let output = output(scratch.run().args(["sh", "-c", "echo $VSWAP_SOCKET"]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let socket = text(&output.stdout);
    assert!(
        !socket.contains(scratch.path().to_str().expect("path")),
        "{socket}"
    );
    assert!(names(&trap).is_empty());

    fs::remove_dir(&trap).expect("removed");
    std::os::unix::fs::symlink("/tmp", &trap).expect("link");
    let through_link = crate::output(scratch.run().args(["sh", "-c", "echo $VSWAP_SOCKET"]));
    assert!(!text(&through_link.stdout).contains(scratch.path().to_str().expect("path")));
}

#[test]
fn where_no_code_can_be_mapped_the_agent_is_a_file_in_memory() {
    let scratch = Scratch::new();
    if fs::metadata(scratch.path()).expect("metadata").uid() != 0 {
        eprintln!("not root: cannot mount anything, nothing was tested");
        return;
    }
    // In a mount namespace of its own, each place that vswap would take is covered by a file system that forbids code.
    // The tested program may itself lie in one of them, so it is opened before.
    let line = format!(
        "exec 9<'{}'; \
         for place in /tmp /dev/shm /run; do mount -t tmpfs -o noexec,mode=1777 tmpfs $place || exit 99; done; \
         exec /proc/self/fd/9 run --ram 256M -- sh -c 'grep -c agent /proc/self/maps; echo $LD_PRELOAD'",
        env!("CARGO_BIN_EXE_vswap")
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", &line]);
    let output = output(command.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = text(&output.stdout);
    let (mappings, path) = shown.trim().split_once('\n').expect("two lines");
    assert!(
        mappings.parse::<u32>().expect("a number") > 0,
        "the agent is loaded: {output:?}"
    );
    assert!(path.starts_with("/proc/"), "{shown}");
}

/// A run that is starting, or is at its end, has a directory, and nobody listens there.
#[test]
fn a_run_where_nobody_listens_has_no_process_to_let_go_of() {
    let scratch = Scratch::new();
    let user = rustix::process::geteuid().as_raw();
    let name = format!("vswap-{user}/run-{}-00", std::process::id());
    let run = scratch.path().join(name);
    fs::create_dir_all(&run).expect("a directory");
    let held = fs::File::open(&run).expect("opened");
    held.lock().expect("a lock, as a run that lives has it");
    for has_socket in [false, true] {
        if has_socket {
            drop(UnixListener::bind(run.join("control.sock")).expect("a socket"));
        }
        let answer = output(scratch.vswap().args(["detach", "1"]));
        let said = text(&answer.stderr);
        assert!(said.contains("in none of your runs"), "{said}");
        assert!(run.exists(), "it was taken for one that lives");
    }
}
