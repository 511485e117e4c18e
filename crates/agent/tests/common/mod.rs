//! A small pager for the agent's tests: it accepts connections, gives commands, and serves faults with what it took
//! out.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vswap_sys::memory::RingMap;
use vswap_sys::process::{LocalSpan, RemoteSpan, read_memory};
use vswap_sys::ring::{ACK, DOORBELL, Hello, INHERITED, RING_MAGIC, hello};
use vswap_sys::sock::{Listener, Stream, Wait};
use vswap_sys::uffd::{Message, Messages, Userfaultfd, mode};

pub const PAGE: usize = 4096;
/// Pages that the test program holds.
pub const PAGES: u64 = 256;
/// Longer than anything takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The target, if it is not the machine on which the tests were built. Empty otherwise.
const CROSS_TARGET: &str = env!("VSWAP_CROSS_TARGET");

/// Do the tests run on another machine's emulator? It runs what they start with a runner, and lacks userfaultfd.
pub const fn is_emulated() -> bool {
    !CROSS_TARGET.is_empty()
}

/// What cargo is told of the target by the environment, such as RUNNER and LINKER.
fn told(what: &str) -> String {
    let name = CROSS_TARGET.to_uppercase().replace('-', "_");
    let name = format!("CARGO_TARGET_{name}_{what}");
    std::env::var(&name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// The agent as it is shipped. `cargo test` itself would build it with unwinding panics.
pub fn agent() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("agent");
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--quiet", "--release", "--package", "vswap-agent"])
            .arg("--target-dir")
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        if is_emulated() {
            build.args(["--target", CROSS_TARGET]);
        }
        assert!(build.status().unwrap().success());
        target.join(CROSS_TARGET).join("release/libvswap_agent.so")
    })
}

/// The test program, compiled once per test binary.
pub fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program.c");
        let compiler = if is_emulated() {
            told("LINKER")
        } else {
            "cc".to_owned()
        };
        let built = Command::new(compiler)
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .args([&path, &source])
            .status()
            .unwrap();
        assert!(built.success());
        path
    })
}

/// A command for a program of the target, with these variables in its environment.
pub fn command_with(program: &Path, environment: &[(&str, &Path)]) -> Command {
    if !is_emulated() {
        let mut command = Command::new(program);
        command.envs(environment.iter().copied());
        return command;
    }
    // The emulator itself must not get them: it is of this machine.
    let runner = told("RUNNER");
    let mut words = runner.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    for (name, value) in environment {
        command.args(["-E", &format!("{name}={}", value.display())]);
    }
    command.arg(program);
    command
}

/// Copies of the agent and the test program that other users can run. They last as long as this value.
pub struct Published {
    place: tempfile::TempDir,
}

impl Published {
    pub fn new() -> Published {
        let everybody = std::fs::Permissions::from_mode(0o755);
        let place = tempfile::Builder::new()
            .permissions(everybody)
            .tempdir()
            .unwrap();
        // Another process copies. If this one had the copy open for writing, a child that another test starts at that
        // moment would have it open too, and starting the copy would fail with ETXTBSY.
        for (from, name) in [(agent(), "agent.so"), (program(), "program")] {
            let copied = Command::new("cp")
                .args([from, &place.path().join(name)])
                .status()
                .unwrap();
            assert!(copied.success());
        }
        Published { place }
    }

    /// The agent's copy.
    pub fn agent(&self) -> PathBuf {
        self.place.path().join("agent.so")
    }

    /// Hides the agent's copy from everybody, or brings it back.
    pub fn hide_agent(&self, hides: bool) {
        let hidden = self.place.path().join("hidden");
        let (from, to) = if hides {
            (self.agent(), hidden)
        } else {
            (hidden, self.agent())
        };
        std::fs::rename(from, to).unwrap();
    }

    /// Like [`Pager::command`], for the test program.
    pub fn command(&self, pager: &Pager) -> Command {
        let mut command = pager.command(&self.place.path().join("program"));
        command.env("LD_PRELOAD", self.place.path().join("agent.so"));
        command
    }
}

/// Can a program have its agent here? If not, says so, and the test is to be skipped.
pub fn has_agents() -> bool {
    if is_emulated() {
        eprintln!("skipped: an emulator starts no thread that shares as little as the agent's");
    }
    !is_emulated()
}

/// Does userfaultfd work here? If not, says so, and the test is to be skipped.
pub fn possible() -> bool {
    if is_emulated() {
        eprintln!("skipped: an emulator has no userfaultfd");
        return false;
    }
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/userfaultfd");
    if device.is_err() {
        eprintln!("skipped: /dev/userfaultfd cannot be opened: {device:?}");
    }
    device.is_ok()
}

/// A new path for a socket.
pub fn socket_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!(
        "vswap-agent-test-{}-{number}.sock",
        std::process::id()
    ))
}

/// The listening end of the pager.
pub struct Pager {
    pub listener: Listener,
}

impl Pager {
    pub fn new() -> Pager {
        let listener = Listener::bind(&socket_path(), 0o666).unwrap();
        Command::new("chmod")
            .arg("666")
            .arg(listener.path())
            .status()
            .unwrap();
        Pager { listener }
    }

    /// A command with the agent in its environment.
    pub fn command(&self, program: &Path) -> Command {
        let environment = [
            ("LD_PRELOAD", agent()),
            ("VSWAP_SOCKET", self.listener.path()),
        ];
        command_with(program, &environment)
    }

    pub fn run(&self) -> Program {
        Program::start(self.command(program()))
    }

    /// Does somebody connect within `time`?
    pub fn has_caller(&self, time: Duration) -> bool {
        readable(self.listener.as_fd(), time)
    }

    /// Accepts the next connection and reads its Hello.
    pub fn accept(&self) -> Agent {
        assert!(self.has_caller(PATIENCE), "nobody connects");
        Agent::from_stream(self.listener.accept().unwrap())
    }

    /// A program that has said Hello.
    pub fn start(&self) -> (Program, Agent) {
        let mut program = self.run();
        let agent = self.accept();
        assert_eq!(agent.hello.kind, hello::EXEC);
        assert_eq!(agent.hello.pid.unsigned_abs(), program.child.id());
        program.memory();
        (program, agent)
    }
}

fn readable(fd: std::os::fd::BorrowedFd<'_>, time: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::try_from(time).unwrap())).unwrap() == 1
}

/// A running test program.
pub struct Program {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Address of its pages.
    pub memory: u64,
}

impl Program {
    pub fn start(mut command: Command) -> Program {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Program {
            child,
            input,
            output,
            memory: 0,
        }
    }

    /// Reads the first line of a program image.
    pub fn memory(&mut self) {
        let line = self.line();
        let address = line
            .strip_prefix("memory 0x")
            .unwrap_or_else(|| panic!("{line:?}"));
        self.memory = u64::from_str_radix(address, 16).unwrap();
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line()
    }

    /// Address of a page.
    pub fn page(&self, index: u64) -> u64 {
        self.memory + index * PAGE as u64
    }

    /// The status, if it ends within `time`.
    pub fn ended(&mut self, time: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < time {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    /// Ends it, and returns what it and its children have written to standard error.
    pub fn quit_and_errors(mut self) -> String {
        self.say("quit");
        let mut errors = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        std::io::Read::read_to_string(stderr, &mut errors).unwrap();
        errors
    }

    pub fn quit(mut self) {
        self.say("quit");
        assert_eq!(
            self.ended(PATIENCE).and_then(|status| status.code()),
            Some(0)
        );
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The byte that the test program has at `at` of a page.
pub fn seeded(page: u64, at: usize) -> u8 {
    ((page * 131 + at as u64 * 7 + 1) % 251) as u8
}

/// One connection and what came over it.
pub struct Agent {
    pub hello: Hello,
    pub stream: Stream,
    pub main: Option<Arc<Userfaultfd>>,
    pub staging: Option<Userfaultfd>,
    pub ring: Option<RingMap>,
}

impl Agent {
    pub fn from_stream(stream: Stream) -> Agent {
        let (hello, mut descriptors) = stream.recv::<Hello>(Wait::Yes).unwrap();
        assert_eq!(hello.magic, RING_MAGIC);
        let mut agent = Agent {
            hello,
            stream,
            main: None,
            staging: None,
            ring: None,
        };
        if hello.kind == hello::FORK_BEGIN || hello.uffd_errno != 0 {
            assert!(descriptors.is_empty());
            return agent;
        }
        let inherited = hello.flags & INHERITED != 0;
        assert_eq!(descriptors.len(), if inherited { 2 } else { 3 });
        let mut index = 0;
        let mut next = || {
            index += 1;
            descriptors.take(index - 1).unwrap()
        };
        if !inherited {
            agent.main = Some(Arc::new(Userfaultfd::from_fd(next())));
        }
        agent.staging = Some(Userfaultfd::from_fd(next()));
        let ring = RingMap::open(next().as_fd()).unwrap();
        // As the pager does. An agent that was never heard has nothing to lose when the connection ends.
        ring.heard.store(1, Ordering::SeqCst);
        agent.ring = Some(ring);
        agent
    }

    pub fn ring(&self) -> &RingMap {
        self.ring.as_ref().unwrap()
    }

    pub fn main(&self) -> &Userfaultfd {
        self.main.as_ref().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.hello.pid.unsigned_abs()
    }

    /// Gives a command and waits for its result.
    pub fn command(&self, op: u32, args: &[u64], runs: &[(u64, u64)]) -> i64 {
        self.begin(op, args, runs);
        self.finish()
    }

    pub fn begin(&self, op: u32, args: &[u64], runs: &[(u64, u64)]) {
        let ring = self.ring();
        ring.op.store(op, Ordering::Relaxed);
        for (to, from) in ring.args.iter().zip(args) {
            to.store(*from, Ordering::Relaxed);
        }
        for (to, (address, pages)) in ring.runs.iter().zip(runs) {
            to.address.store(*address, Ordering::Relaxed);
            to.pages.store(*pages, Ordering::Relaxed);
        }
        ring.run_count
            .store(u32::try_from(runs.len()).unwrap(), Ordering::Relaxed);
        ring.command_seq.fetch_add(1, Ordering::SeqCst);
        if ring.agent_sleeps.swap(0, Ordering::SeqCst) != 0 {
            self.stream.send(&DOORBELL, &[], Wait::Yes).unwrap();
        }
    }

    pub fn finish(&self) -> i64 {
        use rustix::thread::futex;
        let ring = self.ring();
        let number = ring.command_seq.load(Ordering::SeqCst);
        let start = Instant::now();
        loop {
            ring.pager_sleeps.store(1, Ordering::SeqCst);
            let complete = ring.complete_seq.load(Ordering::SeqCst);
            if complete == number {
                ring.pager_sleeps.store(0, Ordering::SeqCst);
                return ring.result.load(Ordering::Acquire);
            }
            assert!(start.elapsed() < PATIENCE, "no answer to command {number}");
            let most = Timespec {
                tv_sec: 20,
                tv_nsec: 0,
            };
            let _ = futex::wait(
                &ring.complete_seq,
                futex::Flags::empty(),
                complete,
                Some(&most),
            );
        }
    }

    pub fn page_errnos(&self, pages: usize) -> Vec<i32> {
        self.ring()
            .page_errno
            .iter()
            .take(pages)
            .map(|e| e.load(Ordering::Acquire))
            .collect()
    }

    /// Reads pages of staging.
    pub fn staged(&self, first: u64, pages: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; pages * PAGE];
        let address = self.hello.staging + first * PAGE as u64;
        let remote = [RemoteSpan {
            address,
            bytes: bytes.len(),
        }];
        let local = [LocalSpan {
            pointer: bytes.as_mut_ptr(),
            bytes: bytes.len(),
        }];
        // SAFETY: the local span is all of `bytes`. A copy from another process has no safe wrapper.
        let read = unsafe { read_memory(self.pid(), &remote, &local) };
        assert_eq!(read, Ok(bytes.len()));
        bytes
    }

    /// Registers the program's pages.
    pub fn register(&self, program: &Program) {
        // SAFETY: the memory is another process's, so no reference here can point to it.
        unsafe {
            self.main().register(
                program.memory,
                PAGES * PAGE as u64,
                mode::MISSING | mode::WP,
            )
        }
        .unwrap();
        self.ring().active.store(1, Ordering::SeqCst);
    }

    /// Answers a FORKED|INHERITED.
    pub fn give_inherited(&mut self, uffd: Arc<Userfaultfd>) {
        assert_eq!(self.offer(&uffd), ACK);
        self.stream.send(&ACK, &[], Wait::Yes).unwrap();
        self.main = Some(uffd);
    }

    /// Offers a userfaultfd to a child, which says whether it is its own.
    pub fn offer(&self, uffd: &Userfaultfd) -> u8 {
        self.stream.send(&ACK, &[uffd.as_fd()], Wait::Yes).unwrap();
        self.stream.recv::<u8>(Wait::Yes).unwrap().0
    }
}

/// Pages taken out of a program, by address.
pub type Store = Arc<Mutex<HashMap<u64, Vec<u8>>>>;

/// Serves one userfaultfd from a store. Its thread ends with the address space, or when this value is dropped.
pub struct Server {
    /// Userfaultfds of children, in the order of their forks.
    pub forks: Arc<Mutex<Vec<Arc<Userfaultfd>>>>,
    /// Other events.
    pub events: Arc<Mutex<Vec<String>>>,
    asked: AtomicU32,
    stop: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub fn new(uffd: Arc<Userfaultfd>, store: Store) -> Server {
        let (forks, events) = (Arc::default(), Arc::default());
        let stop = Arc::new(AtomicU32::new(0));
        let (my_forks, my_events, my_stop) =
            (Arc::clone(&forks), Arc::clone(&events), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while my_stop.load(Ordering::Relaxed) == 0 {
                if readable(uffd.as_fd(), Duration::from_millis(5)) {
                    serve(&uffd, &store, &my_forks, &my_events);
                }
            }
        });
        Server {
            forks,
            events,
            asked: AtomicU32::new(0),
            stop,
            thread: Some(thread),
        }
    }
}

impl Server {
    /// Waits for the userfaultfd of the child after the last one asked for.
    pub fn next_fork(&self) -> Arc<Userfaultfd> {
        self.fork(self.asked.fetch_add(1, Ordering::Relaxed) as usize)
    }

    /// Waits for the userfaultfd of the `number`-th child, from 0 on.
    pub fn fork(&self, number: usize) -> Arc<Userfaultfd> {
        let start = Instant::now();
        loop {
            // The forking thread runs on as soon as the event is read, before the event is noted here.
            if let Some(uffd) = self.forks.lock().unwrap().get(number) {
                return Arc::clone(uffd);
            }
            assert!(start.elapsed() < PATIENCE, "no fork event {number}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(1, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn serve(
    uffd: &Userfaultfd,
    store: &Store,
    forks: &Mutex<Vec<Arc<Userfaultfd>>>,
    events: &Mutex<Vec<String>>,
) {
    let mut messages = Messages::new();
    if !matches!(uffd.read(&mut messages, 1), Ok(1..)) {
        return;
    }
    for message in messages.by_ref() {
        match message {
            Message::Fault { address, .. } => {
                let page = address & !(PAGE as u64 - 1);
                let bytes = store.lock().unwrap().get(&page).cloned();
                let bytes = bytes.unwrap_or_else(|| vec![0; PAGE]);
                while uffd
                    .copy(page, bytes.as_ptr(), PAGE as u64, 0)
                    .is_err_and(|e| e.errno() == 11)
                {}
            }
            Message::Fork { uffd } => forks.lock().unwrap().push(Arc::new(uffd)),
            other => events.lock().unwrap().push(format!("{other:?}")),
        }
    }
}

/// Does a descriptor have something to read now?
pub fn has_message(uffd: &Userfaultfd) -> bool {
    readable(uffd.as_fd(), Duration::ZERO)
}
