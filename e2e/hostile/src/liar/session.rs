//! What follows a hello that was heard: commands come, and are answered in some manner, while other threads use memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use vswap_drive::random::Random;
use vswap_sys::eventfd::{PollFd, PollFlags, poll};
use vswap_sys::ring::{TURNED_AWAY, op};

use crate::liar::beside;
use crate::liar::descriptors::{self, KINDS};
use crate::liar::replies::{self, Manner};
use crate::liar::truth::{Arena, Truth};
use crate::liar::wire::Connection;
use crate::liar::{Liar, Log, filters};

/// How long it looks at the ring before it sleeps on the socket, and how long it sleeps at most.
const LOOKS: u32 = 50;
const SLEEP: Duration = Duration::from_millis(4);
/// Pause of the thread that does things beside.
const TURN: Duration = Duration::from_millis(2);
/// Pause between touches of the arena.
const TOUCH_PACE: Duration = Duration::from_micros(200);
const EEXIST: i64 = -17;

/// What the threads of a session share.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) truth: Truth,
    /// Set once the hello has gone.
    connection: OnceLock<Connection>,
    goes_on: AtomicBool,
    /// How many commands were answered.
    commands: AtomicU32,
}

/// The thread that answers.
struct Server {
    session: Arc<Session>,
    manner: Manner,
    random: Random,
    log: Log,
    near: (u64, u64),
    kept: Vec<OwnedFd>,
    /// Number of the newest command that was answered.
    answered: u32,
}

impl Session {
    /// Starts the threads. From the hello on the pager may stop each call that maps memory until it was answered, so
    /// the thread that answers must have all that it needs before.
    pub(crate) fn start(liar: &mut Liar, truth: Truth, manner: Manner) -> Arc<Session> {
        let session = Arc::new(Session {
            truth,
            connection: OnceLock::new(),
            goes_on: AtomicBool::new(true),
            commands: AtomicU32::new(0),
        });
        let mut server = Server {
            session: Arc::clone(&session),
            manner,
            random: Random::new(liar.random.next()),
            log: liar.log.clone(),
            near: liar.arena.near(),
            kept: Vec::new(),
            answered: session.truth.ring().complete_seq.load(Ordering::SeqCst),
        };
        std::thread::spawn(move || server.serve());
        touch(liar.arena, liar.random.next(), &session);
        session
    }

    /// The hello has gone: lives with its consequences until `until`. `beside` things of a thousand turns happen
    /// meanwhile.
    pub(crate) fn live(
        &self,
        liar: &mut Liar,
        connection: Connection,
        until: Instant,
        beside: u32,
    ) {
        // It is set once for each session.
        let _ = self.connection.set(connection);
        self.go_on(liar, until, beside);
        self.goes_on.store(false, Ordering::SeqCst);
        let commands = self.commands.load(Ordering::Relaxed);
        liar.log.note(&format!("has answered {commands} commands"));
    }

    /// The same, and it goes on afterwards.
    pub(crate) fn go_on(&self, liar: &mut Liar, until: Instant, beside: u32) {
        while Instant::now() < until.min(liar.until) {
            std::thread::sleep(TURN);
            if liar.random.below(1000) < beside {
                beside::act(self, liar);
            }
        }
    }

    /// The connection, once there is one.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.connection.get()
    }

    /// Gives the session its connection before it is lived.
    pub(crate) fn connect(&self, connection: Connection) {
        // It is set once for each session.
        let _ = self.connection.set(connection);
    }
}

impl Server {
    fn serve(&mut self) {
        while self.session.connection().is_none() {
            std::thread::sleep(TURN / 4);
        }
        let session = Arc::clone(&self.session);
        let mut hears = true;
        while hears && session.goes_on.load(Ordering::SeqCst) {
            hears = self.turn();
        }
    }

    /// Waits for a command and answers it. False if there will be none.
    fn turn(&mut self) -> bool {
        let ring = self.session.truth.ring();
        let is_new = || ring.command_seq.load(Ordering::SeqCst) != self.answered;
        let has_come = (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            is_new()
        });
        if !has_come {
            ring.agent_sleeps.store(1, Ordering::SeqCst);
            if !is_new() {
                return self.sleep();
            }
        }
        let (seq, asked) = (
            ring.command_seq.load(Ordering::SeqCst),
            ring.op.load(Ordering::Relaxed),
        );
        let result = (asked == op::INSTALL_FILTER).then(|| self.install_filter());
        self.answered = seq;
        self.session.commands.fetch_add(1, Ordering::Relaxed);
        replies::answer(&self.session.truth, &self.manner, &mut self.random, result)
    }

    /// Hears what the pager says on the socket. False if it lets go of this process.
    fn sleep(&self) -> bool {
        let Some(connection) = self.session.connection() else {
            return false;
        };
        let mut fds = [PollFd::new(&connection.0, PollFlags::IN)];
        match poll(&mut fds, Some(SLEEP)) {
            Ok(0) | Err(_) => true,
            Ok(_) => match connection.hear(Duration::ZERO) {
                Some((byte, _)) => byte != TURNED_AWAY,
                None => {
                    // The connection is closed; commands may come all the same.
                    std::thread::sleep(SLEEP);
                    true
                }
            },
        }
    }

    /// Installs a filter and sends its listener, or something else, or says something else.
    fn install_filter(&mut self) -> i64 {
        let session = Arc::clone(&self.session);
        let Some(connection) = session.connection() else {
            return EEXIST;
        };
        let random = &mut self.random;
        let lies = random.chance(self.manner.listeners);
        match random.below(3) {
            _ if !lies => {}
            0 => return random.pick(&[i64::MIN, i64::MAX, -1, 1, -4096]),
            // No descriptor comes.
            1 => return 0,
            _ => {
                let kind = random.pick(&KINDS);
                self.log.note(&format!("a {kind:?} as a listener"));
                if let Some(made) = descriptors::make(kind, random, self.near) {
                    connection.send(&[0], &[made.fd.as_fd()]);
                    self.kept.extend(made.other_end);
                }
                return 0;
            }
        }
        // There may be one already, of the process that started this one.
        let Some(listener) = filters::install(random, true) else {
            return EEXIST;
        };
        if random.chance(self.manner.listeners / 4) {
            connection.send(&[0; 9], &[listener.as_fd(); 3]);
        } else {
            connection.send(&[0], &[listener.as_fd()]);
        }
        if random.chance(20) {
            // The pager's is then not the only one.
            self.kept.push(listener);
        }
        0
    }
}

/// Threads that read and write the arena, and make calls that stop in a filter.
fn touch(arena: Arena, seed: u64, session: &Arc<Session>) {
    for thread in 0..3 {
        let session = Arc::clone(session);
        let mut random = Random::new(seed ^ thread);
        // They may wait for the pager for ever, and end with the process.
        std::thread::spawn(move || {
            while session.goes_on.load(Ordering::SeqCst) {
                if thread == 0 {
                    filters::stopping_call(&mut random, arena);
                } else {
                    let word = random.chance(50).then(|| random.next());
                    arena.touch(random.next(), word);
                }
                std::thread::sleep(TOUCH_PACE);
            }
        });
    }
}
