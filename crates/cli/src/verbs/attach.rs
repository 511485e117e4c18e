//! `vswap attach`: a run around a program that was started without vswap.
//!
//! The program is no child of this process: its signals, its terminal and its exit status go where they always went.
//! What is told to this process concerns vswap alone, and ends the run, not the program (`vswap detach` does the same
//! from outside). Everything the program has in swap then comes back, and the guardian stays for its filter.

mod target;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use vswap_pager::Status;
use vswap_pager::config::RamRange;
use vswap_sys::process::procfs::Statm;
use vswap_sys::process::signals::{self, Blocked};

use crate::args::on_full::OnFull;
use crate::args::{AttachArgs, ManageArgs};
use crate::control::{Asker, Detach, Request};
use crate::failure::{Failure, OWN_ERROR};
use crate::host::{Host, confine};
use crate::metrics::Metrics;
use crate::output::figures::bytes;
use crate::output::{notice, warning};
use crate::record::Recording;
use crate::run_dir::RunDir;
use crate::verbs::attach::target::Target;
use crate::verbs::doctor;
use crate::verbs::run;
use crate::verbs::run::auto_park::AutoPark;
use crate::verbs::run::family::Family;
use crate::verbs::run::parking::Parking;
use crate::verbs::run::report::{Ending, Identity};
use crate::verbs::run::reports::{Ended, Reports};
use crate::verbs::run::sampled;
use crate::verbs::run::strangers::Strangers;
use crate::verbs::run::unmanaged::UnmanagedList;
use crate::verbs::run::watch::{TICK, Watch};

/// How long the program's agent may take to be taken in by the pager.
const WELCOME_PATIENCE: Duration = Duration::from_secs(5);
const WELCOME_PACE: Duration = Duration::from_millis(2);

/// How the run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The last of its processes has ended.
    Ended,
    /// Somebody wants the processes to go on without vswap.
    Left,
}

impl End {
    fn words(self) -> &'static str {
        match self {
            End::Ended => "has ended",
            End::Left => "goes on without vswap",
        }
    }
}

/// Manages the memory of a program until it ends, or until it is to go on alone.
pub fn attach(args: &AttachArgs) -> Result<ExitCode, Failure> {
    run::refuse_nested()?;
    let manage = &args.manage;
    run::refuse_direct_nowhere(manage)?;
    let ram = run::limit(manage)?;
    let target = Target::find(args.pid)?;
    let signals =
        signals::block().map_err(|error| Failure::own(format!("cannot block signals: {error}")))?;
    // After blocking signals: the probes have children of their own to wait for.
    doctor::require()?;
    let reports = Reports::create(manage, &target.command)?;
    let run_dir = RunDir::create()?;
    let host = Host::own(manage, run::config(manage, ram, args.pid, &run_dir))?;
    let server = run::serve_at(&run_dir)?;
    let metrics = Metrics::open(manage.metrics.as_ref(), manage.quiet)?;
    let unmanaged = UnmanagedList::default();
    let family = Family::attached(args.pid).ok_or_else(|| target.has_ended())?;
    let before_bytes = anonymous_bytes(args.pid);
    let strangers = run::strangers(&run_dir, &host, &family, &unmanaged)?;
    let strangers = match begin(strangers, &target, &host) {
        Ok(strangers) => strangers.quiet(manage.quiet),
        Err(failure) => {
            // An agent that comes late must find that it is not wanted, and not that vswap is gone.
            host.leave(say_stopped)?;
            return Err(failure);
        }
    };
    run::raise_descriptor_limit();
    confine(manage.quiet, host.reach());
    let identity = Identity::new(&target.command, args.pid, Instant::now(), &unmanaged);
    let identity = identity.attached(before_bytes);
    if !manage.quiet {
        say_managed(&target, ram);
    }
    let leave = Leave::default();
    let mut watch = Watch::new(&host, &family, manage);
    let parking = Parking::new(&host, &family);
    let (end, record) = std::thread::scope(|scope| {
        let recording = reports.record(scope, identity.started(), &host);
        let served = server.serve_in(scope, |request, asker| {
            answer(&host, &parking, &identity, &leave, &request, asker)
        });
        run::say_unserved(served);
        metrics.serve_in(scope, || identity.figures(&host, manage.codec));
        let end = Attendant {
            signals: &signals,
            host: &host,
            parking: &parking,
            auto_park: AutoPark::of(manage, run_dir.path()),
            strangers,
            leave: &leave,
            pid: args.pid,
        }
        .attend(&mut watch);
        server.stop();
        metrics.stop();
        (end, recording.map(Recording::end))
    });
    // The guardian shares the descriptors and may stay for as long as the program lives.
    drop(metrics);
    let ended = Ended::new(end.words().to_owned(), None, watch.has_ended_run());
    let status = match end {
        End::Ended => host.finish(),
        End::Left => leave_alive(host),
    };
    drop(run_dir);
    reports.write(manage, &identity, record, status, &ended)?;
    if end == End::Left && !manage.quiet {
        notice(&format!("process {} goes on without vswap", args.pid));
    }
    Ok(ExitCode::from(exit_status(manage, ended.was_full)))
}

/// What a process has in memory that counts against a limit.
fn anonymous_bytes(pid: u32) -> u64 {
    let sizes = Statm::open(pid).and_then(|statm| statm.sizes());
    sizes.map_or(0, |sizes| sizes.anonymous_bytes())
}

/// Returns the figures from before: while everything comes back there is no limit.
fn leave_alive(host: Host) -> Result<Status, Failure> {
    let status = host.status();
    let after = host.leave(say_stopped)?;
    Ok(status.unwrap_or(after))
}

/// The program's own status is its parent's to know.
fn exit_status(args: &ManageArgs, was_full: bool) -> u8 {
    match args.on_full {
        _ if !was_full => 0,
        OnFull::Fail(_) => OWN_ERROR,
        OnFull::Kill(_) | OnFull::Wait => Ending::Signaled(Signal::KILL.as_raw()).exit_status(),
    }
}

/// Puts the agent into the program, and waits until the pager has taken it in.
fn begin<'a>(
    strangers: Strangers<'a>,
    target: &Target,
    host: &Host,
) -> Result<Strangers<'a>, Failure> {
    // What is wrong is said once, as this command's own failure.
    let mut strangers = strangers.quiet(true);
    let refused = |why: &str| {
        Failure::own(format!(
            "process {} ({}) cannot be managed and runs on as before: {why}",
            target.pid, target.name
        ))
    };
    if let Err(why) = strangers.attach_running(target.pid, host) {
        strangers.let_go();
        return Err(refused(&why));
    }
    let since = Instant::now();
    while host
        .status()
        .is_none_or(|status| status.processes_managed == 0)
    {
        if since.elapsed() > WELCOME_PATIENCE {
            return Err(refused("its agent could not begin, see above"));
        }
        std::thread::sleep(WELCOME_PACE);
    }
    Ok(strangers)
}

fn say_managed(target: &Target, ram: RamRange) {
    let Target { pid, name, .. } = target;
    notice(&format!(
        "process {pid} ({name}) is managed now, within {}; Ctrl-C or `vswap detach {pid}` lets go of it",
        bytes(ram.most_bytes)
    ));
}

fn say_stopped(pid: u32) {
    warning(&format!(
        "process {pid} is stopped and can be let go of when it goes on: `kill -CONT {pid}`"
    ));
}

/// Whether `vswap detach` has asked for the end.
#[derive(Debug, Default)]
struct Leave(AtomicBool);

/// Waits for the end.
struct Attendant<'a> {
    signals: &'a Blocked,
    host: &'a Host,
    parking: &'a Parking<'a>,
    auto_park: Option<AutoPark>,
    strangers: Strangers<'a>,
    leave: &'a Leave,
    pid: u32,
}

impl Attendant<'_> {
    fn attend(mut self, watch: &mut Watch<'_>) -> End {
        let end = self.await_end(watch);
        self.strangers.let_go();
        end
    }

    fn await_end(&mut self, watch: &mut Watch<'_>) -> End {
        let mut next_tick = Instant::now() + TICK;
        let mut was_told = false;
        loop {
            let (managed, has_memory) = self.host.managed();
            self.parking.family().add(&managed);
            let next = self
                .strangers
                .look_around(self.host, self.parking, next_tick);
            let pause = next.saturating_duration_since(Instant::now());
            let taken = self.signals.take(pause);
            if self.leave.0.load(Ordering::Acquire) {
                return End::Left;
            }
            if taken.is_some_and(|taken| is_end(taken.signal)) {
                // What is stopped cannot be let go of.
                self.parking.wake_now();
                match self.room_to_leave(was_told) {
                    Ok(()) => return End::Left,
                    Err(why) => warning(&why),
                }
                was_told = true;
            }
            if Instant::now() >= next_tick {
                if !has_memory && self.parking.family().living().is_empty() {
                    return End::Ended;
                }
                if !self.parking.look() {
                    watch.look();
                }
                if let Some(auto_park) = &mut self.auto_park {
                    auto_park.look(self.parking);
                }
                next_tick = Instant::now() + TICK;
            }
        }
    }

    /// A second signal is obeyed whether there is room or not.
    fn room_to_leave(&self, force: bool) -> Result<(), String> {
        let asked = Detach {
            pid: self.pid,
            force,
        };
        let refused = |why: String| format!("{why}; a second signal does it all the same");
        run::room_for_swap(self.host, asked).map_err(refused)
    }
}

fn is_end(signal: i32) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]
        .iter()
        .any(|end| end.as_raw() == signal)
}

/// Does what another command asks of this run.
fn answer(
    host: &Host,
    parking: &Parking<'_>,
    identity: &Identity<'_>,
    leave: &Leave,
    request: &Request,
    asker: &Asker<'_>,
) -> Result<Value, String> {
    let asked = match request {
        Request::Detach(asked) => asked,
        Request::Park(order) => return parking.park(*order, asker),
        Request::Wake => return parking.wake(),
        Request::Sample(seconds) => return sampled::sample(host, parking, *seconds, asker),
        _ => return run::answer(host, identity, request, asker),
    };
    let own = std::process::id();
    if asked.pid != own && !parking.family().living().contains(&asked.pid) {
        return Ok(Value::Bool(false));
    }
    run::room_for_swap(host, *asked)?;
    parking.wake()?;
    leave.0.store(true, Ordering::Release);
    // Wakes the thread that waits for signals.
    let _ = signals::send(own, Signal::TERM.as_raw());
    // The asker waits for the end of this process.
    Ok(own.into())
}
