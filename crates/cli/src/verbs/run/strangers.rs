//! Processes of a run whose loader does not bring the agent: it is put into them from outside.
//!
//! Static programs, those of another C library, those with a cleared environment, children that were made without the
//! C library's fork: nothing of ours runs in them by itself. This looks through the processes of the run, and attaches
//! an agent (`vswap_sys::inject`) to each that has none and will not get one. The program that `vswap run` starts is
//! attached to before its first instruction; others when they are seen, a moment after they began.
//!
//! On the thread that supervises the run: ptrace knows its tracer by thread, and no other thread may wait for children
//! meanwhile.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vswap_sys::inject::{Image, InjectError, Order, Tracee, inject};
use vswap_sys::process::image::{self, Mark};
use vswap_sys::process::{self, cpu, procfs, task};
use vswap_sys::ring::{FILTERS, origin};

use crate::host::Host;
use crate::output::{error, warning};
use crate::verbs::run::family::{Family, Listing};
use crate::verbs::run::parking::Parking;
use crate::verbs::run::unmanaged::{Unmanaged, UnmanagedList};

/// How often processes are looked for while new ones come, and while none do.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_SELDOM: Duration = Duration::from_millis(100);
/// Looking takes at most one part in this many of the thread's time.
const COST_PART: u32 = 32;
/// How long a process may take to load the agent that its environment asks for.
const LOAD_PATIENCE: Duration = Duration::from_secs(2);
/// How long it is tried to attach to a process that does not stop, or that shares its parent's memory.
const ATTACH_PATIENCE: Duration = Duration::from_secs(10);
/// How often the memory of a process that is to be looked at may not come back in time. On a busy machine swap of
/// another run takes longer.
const LATE_MAX: u32 = 8;
/// Pause between two tries at the program that is attached to.
const ATTACH_PACE: Duration = Duration::from_millis(1);

/// Longest chain of parents followed upwards.
const ANCESTORS_MAX: usize = 64;

/// So many processes that are not managed are named as they are met.
const TOLD_MAX: u32 = 32;
const FIRST_NOT_TOLD: u32 = TOLD_MAX + 1;

const FILTERED: &str = "it has a seccomp filter of its own, under which the agent may be killed";
const COPY: &str = "it was forked past the C library, or while a debugger had its parent, or its agent was turned \
     away; it is not swapped until it starts another program";
const UNREADABLE: &str =
    "its memory cannot be read, because it serves faults there itself and does not";
const LEFT: &str = "it has no agent any more";
const ENDED: &str = "it has ended";

/// What is known of a process.
#[derive(Debug)]
struct Seen {
    mark: Mark,
    since: Instant,
    stage: Stage,
    /// It has been told to stop, and has not yet.
    stopping: Option<Tracee>,
    /// How often its memory could not be read in time.
    late: u32,
}

/// What has become of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    /// It had an agent at this moment.
    HadAgent(Instant),
    Settled,
}

/// How far attaching has come.
#[derive(Debug)]
enum Attached {
    Yes,
    NotYet(Tracee),
    /// It is another program by now, or has an agent: it was let go on, and is looked at anew.
    Changed,
}

impl Seen {
    fn new(mark: Mark) -> Seen {
        Seen {
            mark,
            since: Instant::now(),
            stage: Stage::New,
            stopping: None,
            late: 0,
        }
    }

    /// Is it traced, and has neither stopped nor ended? If it has ended that is passed on: its parent hears of it only
    /// when the tracer has.
    fn still_stops(&mut self) -> bool {
        self.stopping = match self.stopping.take().map(Tracee::stop) {
            Some(Ok(Err(not_yet))) => Some(not_yet),
            // Whoever has stopped goes on when this is dropped.
            _ => None,
        };
        self.stopping.is_some()
    }
}

/// Looks for processes without an agent, and attaches one.
#[derive(Debug)]
pub struct Strangers<'a> {
    image: Image,
    /// Where the loader finds the agent, and where agents say hello.
    agent: PathBuf,
    socket: String,
    quiet: bool,
    /// How many processes were met that are not managed.
    told: u32,
    family: &'a Family,
    listing: Listing,
    seen: HashMap<u32, Seen>,
    next_look: Instant,
    pause: Duration,
    /// Filters that every process of the run inherits from whoever started vswap.
    inherited_filters: u32,
    unmanaged: &'a UnmanagedList,
    /// A process that cannot be managed is the end of the run.
    require_managed: bool,
}

impl<'a> Strangers<'a> {
    pub fn new(
        image: Image,
        agent: PathBuf,
        socket: String,
        family: &'a Family,
        unmanaged: &'a UnmanagedList,
    ) -> Strangers<'a> {
        Strangers {
            image,
            agent,
            socket,
            quiet: false,
            told: 0,
            family,
            listing: Listing::default(),
            seen: HashMap::new(),
            next_look: Instant::now(),
            pause: LOOK_EVERY,
            inherited_filters: task::filters_of(std::process::id().cast_signed()).unwrap_or(0),
            unmanaged,
            require_managed: false,
        }
    }

    /// Says nothing of what cannot be managed.
    #[must_use]
    pub fn quiet(self, quiet: bool) -> Strangers<'a> {
        Strangers { quiet, ..self }
    }

    /// Ends the run if a process of it cannot be managed.
    #[must_use]
    pub fn require_managed(self, require_managed: bool) -> Strangers<'a> {
        Strangers {
            require_managed,
            ..self
        }
    }

    /// What the thread that supervises the run does between signals: it listens whether something wakes a parked run,
    /// and looks through the processes of one that is awake. What is stopped starts none. Returns when to do so again,
    /// at `latest` then.
    pub fn look_around(&mut self, host: &Host, parking: &Parking<'_>, latest: Instant) -> Instant {
        let next = parking.listen().map_or(latest, |at| at.min(latest));
        if parking.is_parked() {
            return next;
        }
        self.look(host);
        next.min(self.next_look)
    }

    /// Has the run been ended because a process could not be managed?
    pub fn has_ended_run(&self) -> bool {
        self.require_managed && !self.unmanaged.all().is_empty()
    }

    /// The program has been started and stands before its first instruction.
    pub fn attach_first(&mut self, pid: u32) {
        let attached = Tracee::after_exec(pid).and_then(|tracee| self.inject(tracee, |_| true));
        match attached {
            Ok(_) | Err(InjectError::Gone) => self.enter(pid, Stage::HadAgent(Instant::now())),
            Err(error) => {
                self.give_up(pid, &error.to_string());
                self.enter(pid, Stage::Settled);
            }
        }
    }

    /// Puts the agent into a process that runs already. It may take a while to stop.
    ///
    /// # Errors
    /// Why it has none; it runs on as before.
    pub fn attach_running(&mut self, pid: u32, host: &Host) -> Result<(), String> {
        let since = Instant::now();
        loop {
            self.look_at(pid, host);
            match self.seen.get(&pid).map(|seen| seen.stage) {
                Some(Stage::HadAgent(_)) => return Ok(()),
                Some(Stage::Settled) => {
                    let known = self.unmanaged.all().pop();
                    return Err(known.map_or_else(|| ENDED.to_owned(), |it| it.why));
                }
                // Nothing is seen of one that has ended, nor of one in the middle of an exec.
                Some(Stage::New) | None if task::has_ended(pid) => return Err(ENDED.to_owned()),
                Some(Stage::New) | None if since.elapsed() > ATTACH_PATIENCE => {
                    return Err(self.hindrance(pid).to_owned());
                }
                Some(Stage::New) | None => std::thread::sleep(ATTACH_PACE),
            }
        }
    }

    /// Why nothing has come of a process within `ATTACH_PATIENCE`.
    fn hindrance(&self, pid: u32) -> &'static str {
        match self.seen.get(&pid) {
            Some(seen) if seen.stopping.is_some() => {
                "it does not stop, because it waits for a disk or for a child of vfork; try again"
            }
            Some(_) => "it starts one program after the other; try again",
            None => "nothing can be read of it in /proc",
        }
    }

    /// Lets go of what has been told to stop, before the run is left. What has not stopped by now goes on when this
    /// process ends.
    pub fn let_go(&mut self) {
        let pending = self
            .seen
            .values_mut()
            .filter_map(|seen| seen.stopping.take());
        for tracee in pending {
            // Dropping a thread that has stopped lets it go on.
            drop(tracee.stop());
        }
    }

    /// Looks through the processes of the run, if it is time.
    fn look(&mut self, host: &Host) {
        if Instant::now() < self.next_look {
            return;
        }
        let began = cpu::thread_time();
        let mut listing = std::mem::take(&mut self.listing);
        let running = listing.look(self.family);
        // One that is not listed may live all the same. Of one that has no memory nothing more is seen. Nearly all are
        // listed and wait for nothing.
        self.seen.retain(|pid, seen| {
            let is_listed = running.contains(pid);
            if is_listed && seen.stopping.is_none() {
                return true;
            }
            image::mark(*pid).is_some() || seen.still_stops() || is_listed
        });
        let mut is_news = false;
        for pid in running {
            is_news |= self.look_at(*pid, host);
        }
        self.listing = listing;
        self.pause = if is_news {
            LOOK_EVERY
        } else {
            (self.pause + LOOK_EVERY).min(LOOK_SELDOM)
        };
        let cost = cpu::thread_time().saturating_sub(began);
        self.next_look = Instant::now() + self.pause.max(cost * COST_PART);
    }

    /// True while the process is new, or not settled.
    fn look_at(&mut self, pid: u32, host: &Host) -> bool {
        let Some(mark) = image::mark(pid) else {
            return false;
        };
        let seen = self.seen.entry(pid).or_insert_with(|| Seen::new(mark));
        if seen.mark != mark {
            *seen = Seen {
                // It stays traced across an exec.
                stopping: seen.stopping.take(),
                ..Seen::new(mark)
            };
        }
        let age = seen.since.elapsed();
        match seen.stage {
            Stage::Settled => return false,
            Stage::HadAgent(since) => {
                if since.elapsed() > LOAD_PATIENCE {
                    self.confirm(pid);
                }
                return false;
            }
            Stage::New => {}
        }
        // What has been told to stop is let go on by `attach`, whatever it is by now.
        if seen.stopping.is_none() && image::has_agent(pid) {
            self.enter(pid, Stage::HadAgent(Instant::now()));
        } else if seen.stopping.is_some() || !waits_for_loader(pid, seen, &self.agent) {
            self.attach(pid, age, host);
        }
        true
    }

    /// Has the process kept its agent? The pager may have turned it away.
    fn confirm(&mut self, pid: u32) {
        if !image::has_agent(pid) && image::mark(pid).is_some() {
            self.give_up(pid, LEFT);
        }
        self.enter(pid, Stage::Settled);
    }

    fn attach(&mut self, pid: u32, age: Duration, host: &Host) {
        let pending = self
            .seen
            .get_mut(&pid)
            .and_then(|seen| seen.stopping.take());
        if pending.is_none() {
            if let Some(why) = self.refusal(pid, host) {
                if why == UNREADABLE && self.may_be_late(pid) {
                    return;
                }
                self.give_up(pid, why);
                return self.enter(pid, Stage::Settled);
            }
            // A child of vfork: its memory is its parent's, until it starts a program.
            if self.shares_memory(pid) {
                return;
            }
            if image::has_ring_of_agent(pid) && !may_adopt(pid, &self.agent) {
                // Not one that is just about to start another program.
                if age > LOAD_PATIENCE {
                    self.give_up(pid, COPY);
                    self.enter(pid, Stage::Settled);
                }
                return;
            }
        }
        let attached = pending
            .map_or_else(|| Tracee::seize(pid), Ok)
            .and_then(|tracee| self.inject(tracee, |this| this.wants_agent(pid, host)));
        match attached {
            Ok(Attached::Yes) | Err(InjectError::Gone) => {
                self.enter(pid, Stage::HadAgent(Instant::now()));
            }
            // What does not stop waits for something; it is looked at again.
            Ok(Attached::NotYet(tracee)) => {
                if let Some(seen) = self.seen.get_mut(&pid) {
                    seen.stopping = Some(tracee);
                }
            }
            Ok(Attached::Changed) => {}
            Err(InjectError::Busy) if age < ATTACH_PATIENCE => {}
            Err(error) => {
                self.give_up(pid, &error.to_string());
                self.enter(pid, Stage::Settled);
            }
        }
    }

    fn inject(
        &self,
        tracee: Tracee,
        is_wanted: impl FnOnce(&Self) -> bool,
    ) -> Result<Attached, InjectError> {
        let pid = tracee.tid();
        match tracee.stop()? {
            // Asked while it stands still: it may have gone on since it was seen.
            Ok(stopped) => {
                if !is_wanted(self) {
                    return stopped.release().map(|()| Attached::Changed);
                }
                inject(stopped, &self.order(pid)).map(|()| Attached::Yes)
            }
            Err(tracee) => Ok(Attached::NotYet(tracee)),
        }
    }

    /// Is the process, which stands still, what it was when it was seen, without an agent and fit for one?
    fn wants_agent(&self, pid: u32, host: &Host) -> bool {
        let Some(seen) = self.seen.get(&pid) else {
            return false;
        };
        image::mark(pid) == Some(seen.mark)
            && !image::has_agent(pid)
            && (!image::has_ring_of_agent(pid) || may_adopt(pid, &self.agent))
            && !waits_for_loader(pid, seen, &self.agent)
            && self.refusal(pid, host).is_none()
    }

    fn order(&self, pid: u32) -> Order<'_> {
        Order {
            origin: if image::has_ring_of_agent(pid) {
                origin::FORKED
            } else {
                origin::EXEC
            },
            image: &self.image,
            socket: &self.socket,
        }
    }

    /// Why it is not even tried.
    fn refusal(&self, pid: u32, host: &Host) -> Option<&'static str> {
        let filters = |pid: u32| task::filters_of(pid.cast_signed()).unwrap_or(0);
        let own = filters(pid).saturating_sub(self.inherited_filters);
        // vswap's goes on to children and to the next program. Filters are never taken away, so whoever has as many as
        // a forefather has the same.
        let is_vswaps = || {
            let known = host.status().map(|status| status.filtered);
            let known = known.unwrap_or_default();
            let parent = |pid: &u32| procfs::stat(*pid).ok().map(|stat| stat.parent);
            let family = std::iter::successors(Some(pid), parent).take(ANCESTORS_MAX);
            family
                .take_while(|one| filters(*one) == filters(pid))
                .any(|one| known.contains(&one))
        };
        let may_be_killed = own > FILTERS || (own != 0 && !is_vswaps());
        if may_be_killed {
            return Some(FILTERED);
        }
        image::loads_agent(pid, &self.agent)
            .is_none()
            .then_some(UNREADABLE)
    }

    /// May its memory be looked at once more, which has not come back in time?
    fn may_be_late(&mut self, pid: u32) -> bool {
        self.seen.get_mut(&pid).is_some_and(|seen| {
            seen.late += 1;
            seen.late <= LATE_MAX
        })
    }

    fn shares_memory(&self, pid: u32) -> bool {
        let others = self.seen.keys().copied();
        let mut others = others.filter(|other| *other != pid);
        others.any(|other| image::may_share_memory(pid, other))
    }

    fn enter(&mut self, pid: u32, stage: Stage) {
        if let Some(mark) = image::mark(pid) {
            self.seen
                .entry(pid)
                .or_insert_with(|| Seen::new(mark))
                .stage = stage;
        }
    }

    fn give_up(&mut self, pid: u32, why: &str) {
        if image::mark(pid).is_none() {
            // Nothing is left of it, and that may be all that is wrong.
            return;
        }
        let name = procfs::stat(pid).map(|stat| stat.comm).unwrap_or_default();
        if self.require_managed {
            error(&format!(
                "process {pid} ({name}) cannot be managed, and --require-managed ends the run: {why}"
            ));
            for pid in self.family.living() {
                // It may be gone already.
                let _ = process::kill(pid);
            }
        } else if !self.quiet {
            self.told += 1;
            match self.told {
                ..=TOLD_MAX => warning(&format!(
                    "process {pid} ({name}) is not managed, and its memory is not limited: {why}"
                )),
                FIRST_NOT_TOLD => warning(
                    "further processes that are not managed are not named here; `vswap status --json` has them",
                ),
                _ => {}
            }
        }
        self.unmanaged.add(Unmanaged {
            pid,
            name,
            why: why.to_owned(),
        });
    }
}

/// May an agent be attached to the child of a fork from a process with an agent? If nothing was registered there, its
/// memory is its own. A child of a program with hooks starts its agent itself.
fn may_adopt(pid: u32, agent: &Path) -> bool {
    image::loads_agent(pid, agent) == Some(false) && !image::is_watched(pid)
}

/// Will its loader bring the agent, and has had no time to yet?
fn waits_for_loader(pid: u32, seen: &Seen, agent: &Path) -> bool {
    seen.since.elapsed() <= LOAD_PATIENCE && image::loads_agent(pid, agent) != Some(false)
}
