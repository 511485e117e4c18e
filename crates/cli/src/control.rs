//! The socket through which other commands ask a run: for its figures, and to begin or end using a swap area.
//!
//! One connection, one request of one JSON line, one JSON answer, closed. Each connection has a thread of the run,
//! because an area may take long to give up; it is given up no further when the asker goes away. Only the user of the
//! run, and root, are answered.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name of the socket in a run's directory.
const SOCKET_NAME: &str = "control.sock";
/// How long either side waits for the other: an answer takes milliseconds unless the run is stopped.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause after a failed accept, which is a shortage of descriptors or memory: it passes or stays, spinning helps
/// neither.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Most bytes of a request: a path has at most 4096.
const REQUEST_BYTES_MAX: u64 = 16 << 10;
/// Most bytes of an answer that a client reads: a long command line and the figures fit many times over.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Connections that are served at once; one more is closed.
const CONNECTIONS_MAX: usize = 16;

/// What a run can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Its figures.
    Status,
    /// To begin to use an area, described as after `--swap`.
    SwapOn(String),
    /// To give an area up, named as `vswap status --areas` names it.
    SwapOff(String),
}

/// What it answers; the error is one for people.
type Answer = Result<Value, String>;

/// The run's end of the socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    stopping: AtomicBool,
    connections: AtomicUsize,
}

/// The connection that a request came by.
#[derive(Debug)]
pub struct Asker<'a> {
    stopping: &'a AtomicBool,
    stream: &'a UnixStream,
}

impl Asker<'_> {
    /// Does nobody wait for the answer any more, or does the run end?
    pub fn has_gone(&self) -> bool {
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let left = match recv(self.stream, &mut byte, flags) {
            Ok((_, 0)) => true,
            Ok(_) => false,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        };
        left || self.stopping.load(Ordering::Acquire)
    }
}

impl Server {
    /// Makes the socket in `run_dir`.
    pub fn bind(run_dir: &Path) -> io::Result<Server> {
        let path = run_dir.join(SOCKET_NAME);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Server {
            listener,
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        })
    }

    /// Has `handle` answer until `stop` is called, and waits for those that are being answered.
    pub fn serve(&self, handle: impl Fn(Request, &Asker<'_>) -> Answer + Sync) {
        let handle = &handle;
        std::thread::scope(|scope| {
            loop {
                let connection = self.listener.accept();
                // Acquire; pairs with `stop`.
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
                let Ok((stream, _)) = connection else {
                    std::thread::sleep(ACCEPT_RETRY);
                    continue;
                };
                if self.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                    self.connections.fetch_sub(1, Ordering::AcqRel);
                    continue;
                }
                scope.spawn(move || {
                    // A client that went away, or sent something else, is its own affair.
                    let _ = answer(&stream, &self.stopping, handle);
                    self.connections.fetch_sub(1, Ordering::AcqRel);
                });
            }
        });
    }

    /// Makes `serve` return.
    pub fn stop(&self) {
        // Release; pairs with `serve`. The shutdown only wakes it: a connection would not where the socket's file was
        // removed by somebody else.
        self.stopping.store(true, Ordering::Release);
        let _ = shutdown(&self.listener, Shutdown::Both);
    }
}

/// Answers one connection. What is no request is answered with nothing.
pub fn answer(
    mut stream: &UnixStream,
    stopping: &AtomicBool,
    handle: impl Fn(Request, &Asker<'_>) -> Answer,
) -> io::Result<()> {
    let peer = socket_peercred(stream)?;
    if !peer.uid.is_root() && peer.uid != geteuid() {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(stream)?;
    let answer = handle(request, &Asker { stopping, stream });
    stream.write_all(&serde_json::to_vec(&answer)?)
}

fn read_request(stream: &UnixStream) -> io::Result<Request> {
    let mut line = Vec::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// Asks the run whose directory this is. What the run refuses is an error too.
pub fn ask(run_dir: &Path, request: &Request) -> io::Result<Value> {
    let mut stream = UnixStream::connect(run_dir.join(SOCKET_NAME))?;
    // How long an area takes is not known; who loses patience presses Ctrl-C, and the run notices.
    let is_quick = *request == Request::Status;
    stream.set_read_timeout(is_quick.then_some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
    let answer: Answer = serde_json::from_str(&text)?;
    answer.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_server(name: &str, test: impl FnOnce(&Path)) {
        let dir = std::env::temp_dir().join(format!("vswap-control-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("directory");
        let server = Server::bind(&dir).expect("socket");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                server.serve(|request, asker| match request {
                    Request::Status => Ok(json!({"pid": 7})),
                    Request::SwapOn(spec) => Err(format!("{spec}: no")),
                    // Long: until nobody waits.
                    Request::SwapOff(_) => {
                        while !asker.has_gone() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        Ok(Value::Null)
                    }
                });
            });
            test(&dir);
            // Also without the file in its place the server ends.
            std::fs::remove_dir_all(&dir).expect("removed");
            server.stop();
        });
    }

    #[test]
    fn one_request_one_answer() {
        with_server("answer", |dir| {
            for _ in 0..2 {
                assert_eq!(ask(dir, &Request::Status).expect("answer")["pid"], 7);
            }
            let error = ask(dir, &Request::SwapOn("x,prio=3".to_owned())).expect_err("refused");
            assert_eq!(error.to_string(), "x,prio=3: no");
        });
    }

    #[test]
    fn rude_and_silent_clients_are_dropped_and_others_served() {
        with_server("rude", |dir| {
            let connect = || UnixStream::connect(dir.join(SOCKET_NAME)).expect("connect");
            let mut rude = connect();
            rude.write_all(b"nonsense\n").expect("write");
            let mut text = String::new();
            // Unread bytes at the close may show as a reset, which is no answer either.
            let _ = rude.read_to_string(&mut text);
            assert_eq!(text, "");
            drop(connect());
            assert_eq!(ask(dir, &Request::Status).expect("answer")["pid"], 7);
        });
    }

    #[test]
    fn a_long_request_does_not_hold_others_up_and_ends_with_its_asker() {
        with_server("long", |dir| {
            let mut long = UnixStream::connect(dir.join(SOCKET_NAME)).expect("connect");
            let line = serde_json::to_string(&Request::SwapOff("x".to_owned())).expect("JSON");
            writeln!(long, "{line}").expect("write");
            assert_eq!(ask(dir, &Request::Status).expect("answer")["pid"], 7);
            // `with_server` ends only if the handler does.
            drop(long);
        });
    }
}
