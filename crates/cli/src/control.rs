//! The control socket. Other commands ask a run or the daemon through it for figures, or to start or stop using a swap
//! area.
//!
//! One connection carries one request (a JSON line) and one answer (a JSON line), and is then closed. Only a run that
//! has joined the daemon keeps its connection and goes on (`joined.rs`). Each connection has a thread, because giving
//! up an area may take long. If the asker goes away, the area is given up no further. Only root and the user of the run
//! get answers. Of others not a byte is read: they hear at once that they are refused.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, Shutdown, UCred, recv, shutdown};
use rustix::process::{Uid, geteuid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vswap_pager::{GroupChange, MapQuery, ParkStep, Settings};

use crate::join::Join;

/// Name of the socket in a run's directory.
const SOCKET_NAME: &str = "control.sock";
/// How long either side waits for the other. An answer takes milliseconds unless the run is stopped.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a client that has connected may take to begin asking. On a busy machine it may get no processor for longer
/// than the patience above.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failed accept. It fails when descriptors or memory are short. That passes or it stays, and spinning
/// helps in neither case.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Most bytes of a request. A path has at most 4096.
const REQUEST_BYTES_MAX: u64 = 16 << 10;
/// Most bytes of an answer that a client reads. A long command line and the figures fit many times over.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Most connections served at once. Each run of a daemon takes one of them. Who comes then hears that, and is to come
/// again.
const CONNECTIONS_MAX: usize = 256;

/// What a run or the daemon can be asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Give figures.
    Status,
    /// Start to use an area, described as for `--swap`.
    SwapOn(String),
    /// Give up an area, named as `vswap status --areas` names it.
    SwapOff(String),
    /// A run: to have other limits.
    Set(Settings),
    /// To have other limits for the group of this name.
    SetGroup(String, GroupChange),
    /// A run: to let go of a process of its own. False if it has none of this id.
    Detach(Detach),
    /// A run: to be parked.
    Park(ParkOrder),
    /// A run: to go on if it is parked.
    Wake,
    /// A run: to be sampled for so many seconds at most, and to say again and again what was seen. It ends with the
    /// connection.
    Sample(f64),
    /// Daemon only: manage a run for as long as the connection lasts.
    Join(Join),
    /// Daemon only: give the figures of the run that this process has joined.
    RunStatus(u32),
    /// Daemon only: give a map of the memory of a process of the run that this process has joined.
    RunMap(u32, MapQuery),
    /// The daemon: to let the run that this process has joined take some more, since it is told to end.
    AllowLast(u32),
    /// The daemon: to give the run that this process has joined other limits.
    RunSet(u32, Settings),
    /// The daemon: to let go of a process of the run that this process has joined.
    RunDetach(u32, u32),
    /// The daemon: to do a step of parking the run that this process has joined.
    RunPark(u32, ParkStep),
    /// The daemon, by the connection that has joined: to end the run and give its last figures.
    Finish,
}

/// How a run is to be parked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ParkOrder {
    /// Also a connection, input or a signal shall wake it.
    pub until_used: bool,
    /// Not if its pages would stay in memory.
    pub needs_area: bool,
}

/// Which process is to be let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detach {
    /// The process.
    pub pid: u32,
    /// Also if memory may not suffice.
    pub force: bool,
}

/// The answer to a request. Errors are worded for people.
type Answer = Result<Value, String>;

/// The answering end of the socket.
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
    peer: UCred,
}

impl Asker<'_> {
    /// Is nobody waiting for the answer any more, or is the run ending?
    pub fn has_gone(&self) -> bool {
        is_closed(self.stream) || self.stopping.load(Ordering::Acquire)
    }

    /// Process and user at the other end, as the kernel reports them.
    pub fn peer(&self) -> (u32, u32) {
        let pid = self.peer.pid.as_raw_nonzero().get();
        (pid.unsigned_abs(), self.peer.uid.as_raw())
    }

    /// Sends an answer that is not the last one to its request.
    pub fn send(&self, answer: &Answer) -> io::Result<()> {
        send_line(self.stream, answer)
    }

    /// The next request. `None` if the other end has closed or sent something else. Waits without a time limit.
    pub fn next(&self) -> Option<Request> {
        self.stream.set_read_timeout(None).ok()?;
        read_request(self.stream).ok()
    }
}

/// Has the other end closed?
fn is_closed(stream: &UnixStream) -> bool {
    let mut byte = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut byte, flags) {
        Ok((_, 0)) => true,
        Ok(_) => false,
        Err(error) => error != Errno::AGAIN && error != Errno::INTR,
    }
}

fn send_line(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
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

    /// Lets `handle` answer requests until `stop` is called, then waits for the requests that are being answered.
    pub fn serve(&self, handle: impl Fn(Request, &Asker<'_>) -> Answer + Sync) {
        let handle = &handle;
        std::thread::scope(|scope| {
            loop {
                let connection = self.listener.accept();
                // Acquire pairs with the release in `stop`.
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
                let Ok((stream, _)) = connection else {
                    std::thread::sleep(ACCEPT_RETRY);
                    continue;
                };
                if self.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                    self.connections.fetch_sub(1, Ordering::AcqRel);
                    let _ = turn_away(&stream);
                    continue;
                }
                let spawned = Builder::new().spawn_scoped(scope, move || {
                    // It does not matter here if a client went away or sent something else.
                    let _ = answer(&stream, &self.stopping, handle);
                    self.connections.fetch_sub(1, Ordering::AcqRel);
                });
                // Without a thread the connection closes, and the client hears that nobody answers.
                if spawned.is_err() {
                    self.connections.fetch_sub(1, Ordering::AcqRel);
                }
            }
        });
    }

    /// `serve` in a thread of its own.
    ///
    /// # Errors
    /// There is no thread.
    pub fn serve_in<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        handle: impl Fn(Request, &Asker<'_>) -> Answer + Send + Sync + 'scope,
    ) -> io::Result<()> {
        let serve = move || self.serve(handle);
        Builder::new().spawn_scoped(scope, serve).map(drop)
    }

    /// Makes `serve` return.
    pub fn stop(&self) {
        // Release pairs with the acquire in `serve`. The shutdown only wakes `serve`. A connection would not wake it if
        // somebody had removed the socket's file.
        self.stopping.store(true, Ordering::Release);
        let _ = shutdown(&self.listener, Shutdown::Both);
    }
}

/// Answers one connection. Whoever sends something that is no request gets no answer.
pub fn answer(
    stream: &UnixStream,
    stopping: &AtomicBool,
    handle: impl Fn(Request, &Asker<'_>) -> Answer,
) -> io::Result<()> {
    let peer = socket_peercred(stream)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if !may_ask(peer.uid, geteuid()) {
        let owner = geteuid().as_raw();
        let refusal = format!("it belongs to user {owner}, and answers nobody else but root");
        return send_line(stream, &Answer::Err(refusal));
    }
    await_request(stream, stopping)?;
    let request = read_request(stream)?;
    let asker = Asker {
        stopping,
        stream,
        peer,
    };
    let answer = handle(request, &asker);
    send_line(stream, &answer)
}

/// Tells whoever may ask that there are too many connections. Waits for nobody: what is written first fits.
fn turn_away(stream: &UnixStream) -> io::Result<()> {
    if !may_ask(socket_peercred(stream)?.uid, geteuid()) {
        return Ok(());
    }
    stream.set_nonblocking(true)?;
    let busy = format!(
        "it answers {CONNECTIONS_MAX} connections at a time, and a run takes one: wait until one has ended"
    );
    send_line(stream, &Answer::Err(busy))
}

/// May a process of user `own` answer this peer?
fn may_ask(peer: Uid, own: Uid) -> bool {
    peer == own || peer.is_root()
}

/// Waits until the client has begun to ask, but not when the server stops: that waits for all connections.
fn await_request(stream: &UnixStream, stopping: &AtomicBool) -> io::Result<()> {
    let since = Instant::now();
    // The stream has a time limit of its own, after which this looks again.
    while let Err(error) = recv(stream, &mut [0], RecvFlags::PEEK) {
        let is_late = stopping.load(Ordering::Acquire) || since.elapsed() > REQUEST_PATIENCE;
        if is_late || !matches!(error, Errno::AGAIN | Errno::INTR) {
            return Err(error.into());
        }
    }
    Ok(())
}

fn read_request(stream: &UnixStream) -> io::Result<Request> {
    let mut line = Vec::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// The asking end of a connection.
#[derive(Debug)]
pub struct Connection(UnixStream);

impl Connection {
    /// Connects to the run or daemon of this directory, if the user's own process or root's listens there.
    pub fn open(dir: &Path) -> io::Result<Connection> {
        let stream = UnixStream::connect(dir.join(SOCKET_NAME))?;
        let listener = socket_peercred(&stream)?;
        if !may_ask(geteuid(), listener.uid) {
            let owner = listener.uid.as_raw();
            return Err(io::Error::other(format!("user {owner} listens there")));
        }
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection(stream))
    }

    /// Asks and waits for the answer. Without `patience` the wait has no time limit. A refusal is an error too.
    pub fn ask(&mut self, request: &Request, patience: Option<Duration>) -> io::Result<Value> {
        self.0.set_read_timeout(patience)?;
        // Whoever is refused may hear so before it has asked, and finds nobody who reads any more.
        let sent = send_line(&self.0, request);
        let mut text = String::new();
        let read = BufReader::new((&self.0).take(ANSWER_BYTES_MAX)).read_line(&mut text);
        if text.is_empty() {
            sent?;
        }
        if read? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer: Answer = serde_json::from_str(&text)?;
        answer.map_err(io::Error::other)
    }

    /// Has the other end closed?
    pub fn has_gone(&self) -> bool {
        is_closed(&self.0)
    }

    /// Asks what has many answers.
    pub fn listen(self, request: &Request) -> io::Result<Answers> {
        // Whoever is refused may hear so before it has asked.
        let _ = send_line(&self.0, request);
        Ok(Answers {
            reader: BufReader::new(self.0),
            line: Vec::new(),
        })
    }
}

/// Answers to one request.
#[derive(Debug)]
pub struct Answers {
    reader: BufReader<UnixStream>,
    /// What has come of the next one.
    line: Vec<u8>,
}

impl Answers {
    /// The next answer, if it comes within `patience`. At the end of all an error of the kind `UnexpectedEof`. A
    /// refusal is an error too.
    pub fn next(&mut self, patience: Duration) -> io::Result<Option<Value>> {
        self.reader.get_ref().set_read_timeout(Some(patience))?;
        let left = ANSWER_BYTES_MAX.saturating_sub(self.line.len() as u64);
        match self
            .reader
            .by_ref()
            .take(left)
            .read_until(b'\n', &mut self.line)
        {
            Ok(_) if self.line.ends_with(b"\n") => {}
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let answer: Answer = serde_json::from_slice(&std::mem::take(&mut self.line))?;
        answer.map(Some).map_err(io::Error::other)
    }
}

/// Asks the run or daemon of this directory. A refusal is an error too.
pub fn ask(dir: &Path, request: &Request) -> io::Result<Value> {
    // Nobody knows how long an area takes. A user who loses patience presses Ctrl-C, and the run notices.
    let is_quick = matches!(request, Request::Status | Request::RunStatus(_));
    Connection::open(dir)?.ask(request, is_quick.then_some(PATIENCE))
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
            let served = server.serve_in(scope, |request, asker| match request {
                Request::Status => Ok(json!({"pid": 7})),
                Request::SwapOn(spec) => Err(format!("{spec}: no")),
                // A long request: it lasts until nobody waits for it.
                Request::SwapOff(_) => {
                    while !asker.has_gone() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(Value::Null)
                }
                // A conversation: it lasts as long as figures are asked for.
                Request::Finish => {
                    let mut asked = 0;
                    while asker.send(&Ok(json!(asked))).is_ok()
                        && asker.next() == Some(Request::Status)
                    {
                        asked += 1;
                    }
                    Ok(json!("end"))
                }
                _ => Err("no daemon".to_owned()),
            });
            served.expect("a thread");
            // Stops the server if the test fails, too. Otherwise the test would wait for it for ever.
            let _stop = Stop(&server);
            test(&dir);
            // The server ends even if the socket's file is gone.
            std::fs::remove_dir_all(&dir).expect("removed");
        });
    }

    struct Stop<'a>(&'a Server);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
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
    fn a_client_that_asks_late_is_answered_and_one_that_never_does_holds_nothing_up() {
        with_server("late", |dir| {
            let mut late = Connection::open(dir).expect("connect");
            // Open to the end: the server stops all the same.
            let _silent = std::mem::ManuallyDrop::new(Connection::open(dir).expect("connect"));
            std::thread::sleep(PATIENCE + PATIENCE / 2);
            late.ask(&Request::Status, None).expect("answer");
        });
    }

    #[test]
    fn a_connection_can_be_kept() {
        with_server("kept", |dir| {
            let mut kept = Connection::open(dir).expect("connect");
            let mut ask = |request| kept.ask(&request, None).expect("answer");
            assert_eq!(ask(Request::Finish), json!(0));
            assert_eq!(ask(Request::Status), json!(1));
            assert_eq!(ask(Request::Status), json!(2));
            assert_eq!(ask(Request::Finish), json!("end"));
            let error = kept.ask(&Request::Status, None).expect_err("it is over");
            // Which one comes depends on how far the server is with closing.
            let closed = [
                io::ErrorKind::UnexpectedEof,
                io::ErrorKind::BrokenPipe,
                io::ErrorKind::ConnectionReset,
            ];
            assert!(closed.contains(&error.kind()), "{error}");
            assert!(kept.has_gone());
        });
    }

    #[test]
    fn many_answers_come_one_by_one() {
        with_server("many", |dir| {
            let kept = Connection::open(dir).expect("connect");
            let mut answers = kept.listen(&Request::Finish).expect("asked");
            assert_eq!(answers.next(PATIENCE).expect("an answer"), Some(json!(0)));
            let later = answers.next(Duration::from_millis(5));
            assert_eq!(
                later.expect("nothing is wrong"),
                None,
                "it waits for a request"
            );
        });
    }

    #[test]
    fn the_user_and_root_are_answered_and_nobody_else() {
        let user = |uid| Uid::from_raw(uid);
        assert!(may_ask(user(1000), user(1000)) && may_ask(user(0), user(1000)));
        assert!(!may_ask(user(1000), user(0)), "nor is root's");
        assert!(!may_ask(user(1000), user(1001)));
        with_server("peer", |dir| {
            let mut own = Connection::open(dir).expect("connect");
            own.ask(&Request::Status, None).expect("answer");
        });
    }

    #[test]
    fn who_is_refused_before_asking_hears_why() {
        let dir = std::env::temp_dir().join(format!("vswap-refused-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("directory");
        let listener = UnixListener::bind(dir.join(SOCKET_NAME)).expect("socket");
        let mut asker = Connection::open(&dir).expect("connect");
        let (refused, _) = listener.accept().expect("accept");
        send_line(&refused, &Answer::Err("not you".to_owned())).expect("write");
        drop(refused);
        let error = asker.ask(&Request::Status, None).expect_err("refused");
        assert_eq!(error.to_string(), "not you");
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn rude_and_silent_clients_are_dropped_and_others_served() {
        with_server("rude", |dir| {
            let connect = || UnixStream::connect(dir.join(SOCKET_NAME)).expect("connect");
            let mut rude = connect();
            rude.write_all(b"nonsense\n").expect("write");
            let mut text = String::new();
            // Unread bytes at the close may show as a reset. That is no answer either.
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

    #[test]
    fn one_connection_too_many_hears_that() {
        with_server("many", |dir| {
            // There are hundreds of threads, perhaps on an emulated machine.
            let ask = |connection: &mut Connection| {
                connection.ask(&Request::Status, Some(REQUEST_PATIENCE))
            };
            let mut all: Vec<Connection> = (0..CONNECTIONS_MAX)
                .map(|_| Connection::open(dir).expect("it listens"))
                .collect();
            // Connections are taken in the order in which they came.
            let mut late = Connection::open(dir).expect("it listens");
            let refusal = ask(&mut late).expect_err("too many").to_string();
            assert!(refusal.contains("256 connections at a time"), "{refusal}");
            let last = all.last_mut().expect("many");
            assert_eq!(ask(last).expect("answered"), json!({"pid": 7}));
            drop(all);
            let next = || Connection::open(dir).and_then(|mut one| ask(&mut one));
            let begun = Instant::now();
            while let Err(error) = next() {
                assert!(begun.elapsed() < REQUEST_PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}
