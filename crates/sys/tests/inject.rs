//! Tracing threads of other processes.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use vswap_sys::inject::{InjectError, Stopped, Tracee};
use vswap_sys::process;

const PATIENCE: Duration = Duration::from_secs(20);

/// Traces a child of another process, has something done with it that ends it, and expects its parent to see the end.
/// The tracing thread lives on meanwhile.
fn parent_sees_the_end(act: fn(u32, Stopped)) {
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 1000 & echo $!; wait $!; echo $?"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let pid: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    let stopped = stop(pid);
    act(pid, stopped);
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || said.send(lines.next().unwrap().unwrap()));
    let status = heard.recv_timeout(PATIENCE);
    let _ = process::kill(pid);
    let _ = shell.kill();
    shell.wait().unwrap();
    assert_eq!(status.as_deref(), Ok("137"), "128 and SIGKILL");
}

fn stop(pid: u32) -> Stopped {
    let mut tracee = Tracee::seize(pid).unwrap();
    for _ in 0..1000 {
        match tracee.stop().unwrap() {
            Ok(stopped) => return stopped,
            Err(running) => tracee = running,
        }
    }
    panic!("it does not stop");
}

#[test]
fn parents_see_the_end_of_a_child_that_is_killed_while_it_is_traced() {
    parent_sees_the_end(|pid, stopped| {
        process::kill(pid).unwrap();
        assert!(matches!(stopped.release(), Err(InjectError::Gone)));
    });
    parent_sees_the_end(|pid, mut stopped| {
        process::kill(pid).unwrap();
        let called = stopped.call("getpid", libc::SYS_getpid, [0; 6]);
        assert!(matches!(called, Err(InjectError::Gone)));
    });
    parent_sees_the_end(|pid, stopped| {
        stopped.release().unwrap();
        let mut tracee = Tracee::seize(pid).unwrap();
        process::kill(pid).unwrap();
        // It may have stopped before.
        while let Ok(Err(running)) = tracee.stop() {
            tracee = running;
        }
    });
}
