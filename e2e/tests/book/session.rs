//! A shell that carries out the commands of a chapter, one after the other.
//!
//! It runs in a mount namespace of its own, in which `/tmp` is the test's directory. So it sees no other vswap of this
//! machine, and the paths in its output are the same everywhere. One thread reads what it prints.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Failure, Outcome, require_program, require_root};

/// Stands before the exit status behind the output of a command. No program prints it.
const END_OF_COMMAND: &str = "\u{1e}status ";
/// Longest time of one command of the book. They take a second; a busy machine may need many times that.
const COMMAND_BOUND: Duration = Duration::from_secs(120);
/// Gives the shell its own /tmp, in which `home`, `run` and `bin` are.
const ENTER: &str = r#"mount --bind "$0" /tmp && cd /tmp/home && exec bash --noprofile --norc"#;

/// What a command did.
#[derive(Debug)]
pub struct Did {
    /// What it printed on standard output and standard error.
    pub printed: String,
    /// Its exit status.
    pub status: i32,
}

/// The shell.
#[derive(Debug)]
pub struct Session {
    shell: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    unread: String,
}

impl Session {
    /// Starts the shell, with vswap in its PATH and the program of the book in its directory.
    pub fn start(context: &Context) -> Outcome<Session> {
        require_root("to give the commands a /tmp of their own")?;
        require_program("unshare", "apt package util-linux")?;
        require_program("bash", "apt package bash")?;
        let place = context.place();
        for name in ["home", "run", "bin"] {
            fs::create_dir(place.join(name)).during(|| format!("make {name}"))?;
        }
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/lines.pl");
        for (file, to) in [
            (context.require_vswap()?, "bin/vswap"),
            (program, "home/lines.pl"),
        ] {
            fs::copy(file, place.join(to)).during(|| format!("copy {to}"))?;
        }
        let (mut reader, writer) = std::io::pipe().during(|| "make a pipe".to_owned())?;
        let errors = writer.try_clone().during(|| "copy a pipe".to_owned())?;
        let mut shell = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "bash", "-c", ENTER])
            .arg(place)
            .env_clear()
            .env("PATH", "/tmp/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", "/tmp/home")
            .env("XDG_RUNTIME_DIR", "/tmp/run")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(writer)
            .stderr(errors)
            .spawn()
            .during(|| "start a shell".to_owned())?;
        let input = shell.stdin.take();
        let input = input.ok_or_else(|| Failure::wrong("the shell has no input"))?;
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Session {
            shell,
            input,
            output,
            unread: String::new(),
        })
    }

    /// Carries out a command. Its standard input is empty, and `$?` is the status of the one before it.
    pub fn run(&mut self, text: &str, status_before: i32) -> Outcome<Did> {
        let script = format!(
            "(exit {status_before})\n{{ {text}\n}} </dev/null\nprintf '\\n{END_OF_COMMAND}%s\\n' $?\n"
        );
        self.input
            .write_all(script.as_bytes())
            .during(|| format!("give the shell {text:?}"))?;
        let until = Instant::now() + COMMAND_BOUND;
        loop {
            if let Some(did) = self.take_ended() {
                return Ok(did);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(piece) => self.unread.push_str(&String::from_utf8_lossy(&piece)),
                Err(error) => {
                    let unread = &self.unread;
                    return Err(Failure::wrong(format!(
                        "{text:?} does not end ({error}); it has printed {unread:?}"
                    )));
                }
            }
        }
    }

    /// What the command did, if its end has been read.
    fn take_ended(&mut self) -> Option<Did> {
        let mark = format!("\n{END_OF_COMMAND}");
        let begin = self.unread.find(&mark)?;
        let (printed, rest) = self.unread.split_at(begin);
        let (status, rest) = rest[mark.len()..].split_once('\n')?;
        let did = Did {
            printed: printed.to_owned(),
            status: status.parse().ok()?,
        };
        self.unread = rest.to_owned();
        Some(did)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What the shell has left in the background is ended by the suite, with all that the test has started.
        let _gone = self.shell.kill();
        let _reaped = self.shell.wait();
    }
}
