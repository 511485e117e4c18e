//! The socket through which `vswap status` asks a run for its figures.
//!
//! One connection, one request line, one JSON answer, closed. The run answers from one small thread and never calls
//! back. Only the user of the run, and root, are answered.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, shutdown};
use rustix::process::geteuid;

/// Name of the socket in a run's directory.
const SOCKET_NAME: &str = "control.sock";
/// The one request there is.
const REQUEST: &[u8] = b"status\n";
/// How long either side waits for the other: an answer takes milliseconds unless the run is stopped.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause after a failed accept, which is a shortage of descriptors or memory: it passes or stays, spinning helps
/// neither.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Most bytes of an answer that a client reads: a long command line and the figures fit many times over.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The run's end of the socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    stopping: AtomicBool,
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
        })
    }

    /// Answers until `stop` is called; `report` is asked anew each time.
    pub fn serve(&self, report: impl Fn() -> String) {
        loop {
            let connection = self.listener.accept();
            // Acquire; pairs with `stop`.
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            match connection {
                // A client that went away, or sent something else, is its own affair.
                Ok((stream, _)) => drop(answer(&stream, &report)),
                Err(_) => std::thread::sleep(ACCEPT_RETRY),
            }
        }
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
pub fn answer(mut stream: &UnixStream, report: impl Fn() -> String) -> io::Result<()> {
    let peer = socket_peercred(stream)?;
    if !peer.uid.is_root() && peer.uid != geteuid() {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = [0; REQUEST.len()];
    stream.read_exact(&mut request)?;
    if request == REQUEST {
        stream.write_all(report().as_bytes())
    } else {
        Ok(())
    }
}

/// Asks the run whose directory this is.
pub fn ask(run_dir: &Path) -> io::Result<serde_json::Value> {
    let mut stream = UnixStream::connect(run_dir.join(SOCKET_NAME))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_one_answer() {
        let dir = std::env::temp_dir().join(format!("vswap-control-test-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("directory");
        let server = Server::bind(&dir).expect("socket");
        std::thread::scope(|scope| {
            scope.spawn(|| server.serve(|| "{\"pid\":7}\n".to_owned()));
            assert_eq!(ask(&dir).expect("answer")["pid"], 7);
            assert_eq!(ask(&dir).expect("a second answer")["pid"], 7);

            let mut rude = UnixStream::connect(dir.join(SOCKET_NAME)).expect("connect");
            rude.write_all(b"nonsense").expect("write");
            let mut text = String::new();
            // Unread bytes at the close may show as a reset, which is no answer either.
            let _ = rude.read_to_string(&mut text);
            assert_eq!(text, "");

            drop(UnixStream::connect(dir.join(SOCKET_NAME)).expect("connect"));
            assert_eq!(ask(&dir).expect("answers after a silent client")["pid"], 7);
            // Also without the file in its place the server ends.
            std::fs::remove_dir_all(&dir).expect("removed");
            server.stop();
        });
    }
}
