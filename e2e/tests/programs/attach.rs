//! `vswap attach` and `vswap detach`: programs that were started without vswap, come under a limit while they run, and
//! go on without vswap.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::Value;
use vswap_e2e::failure::During;
use vswap_e2e::group::Group;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::{
    Context, Ended, Failure, Job, Launcher, MIB, Outcome, Running, ensure, procfs, require_program,
    require_root,
};

use crate::attached::static_program;

const LIMIT_BYTES: u64 = 64 * MIB;
/// Three times the limit.
const PROGRAM_MIB: u64 = 192;
const OWN_ERROR: i32 = 125;
/// The limit of a control group of version 1.
const GROUP_LIMIT: &str = "memory.limit_in_bytes";

/// The program of `inputs/attach.py`, and the pipe that it reads.
struct Program {
    running: Running,
    pipe: File,
    said: usize,
}

impl Program {
    fn start(launcher: &Launcher) -> Outcome<Program> {
        let python = require_program("python3", "apt package python3")?;
        let pipe = launcher.place().join("pipe");
        let job = Job::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/inputs/attach.py"))
            .arg(PROGRAM_MIB.to_string())
            .arg(&pipe);
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &pipe, FileType::Fifo, mode, 0).during(|| "make a pipe".to_owned())?;
        let running = launcher.start(&job)?;
        // Open for both, so that opening does not wait.
        let pipe = File::options().read(true).write(true).open(&pipe);
        let mut program = Program {
            running,
            pipe: pipe.during(|| "open the pipe".to_owned())?,
            said: 0,
        };
        program.hear("ready")?;
        Ok(program)
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Waits for the next line, which must begin so.
    fn hear(&mut self, expected: &str) -> Outcome<String> {
        let line = self.running.until(expected, || {
            let text = fs::read_to_string(self.running.stdout()).unwrap_or_default();
            let whole = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            Ok(whole.map(str::to_owned).nth(self.said))
        })?;
        self.said += 1;
        ensure!(
            line.starts_with(expected),
            "it says {line:?} and not {expected}"
        );
        Ok(line)
    }

    fn tell(&mut self, command: &str) -> Outcome {
        writeln!(self.pipe, "{command}").during(|| format!("say {command}"))
    }

    /// Has it do something, and waits until that is done.
    fn does(&mut self, command: &str) -> Outcome {
        self.tell(command)?;
        self.hear(&format!("done {command}")).map(drop)
    }

    fn ends(mut self) -> Outcome {
        self.tell("quit")?;
        self.hear("end")?;
        let ended = self.running.wait()?;
        ended.must_succeed()?;
        ended.must_leave_nothing()
    }
}

/// A `vswap attach` that has its program.
pub struct Attached {
    running: Running,
    summary: PathBuf,
}

/// Attaches to a process, and waits until it is managed.
pub fn attach(
    context: &Context,
    launcher: &Launcher,
    pid: u32,
    ram_bytes: u64,
) -> Outcome<Attached> {
    let summary = launcher.place().join("attached.json");
    let area = format!("{}:2G", context.place().display());
    let ram = format!("{}M", ram_bytes / MIB);
    let job = Job::new(context.require_vswap()?)
        .args(["attach", "--ram", &ram, "--swap", &area, "--summary"])
        .arg(&summary)
        .arg(pid.to_string());
    let running = launcher.start(&job)?;
    running.until("the program to be managed", || {
        let said = fs::read_to_string(running.stderr()).unwrap_or_default();
        Ok(said.contains("is managed now").then_some(()))
    })?;
    Ok(Attached { running, summary })
}

impl Attached {
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.running.stderr()).unwrap_or_default()
    }

    /// What `vswap status` says of it.
    fn status(&self, context: &Context) -> Outcome<Value> {
        let output = context.vswap(&["status", "--json"])?;
        let all = json(&output.stdout)?;
        let own = |run: &&Value| run["pid"] == self.pid();
        let found = all.as_array().into_iter().flatten().find(own);
        Ok(found.cloned().unwrap_or_default())
    }

    /// Waits until the run keeps to its limit with most of the program in swap.
    fn swaps(&self, context: &Context) -> Outcome {
        self.running.until("most of it to be in swap", || {
            let status = self.status(context)?;
            let total = status["total_bytes"].as_u64().unwrap_or(u64::MAX);
            let swapped = status["swapped_pages"].as_u64().unwrap_or(0) * 4096;
            let is_small = total <= LIMIT_BYTES && swapped >= (PROGRAM_MIB - 96) * MIB;
            std::thread::sleep(Duration::from_millis(50));
            Ok(is_small.then_some(()))
        })
    }

    /// Waits for its end, which must be good. Returns its summary.
    pub fn ends(self) -> Outcome<Value> {
        self.running.wait()?.must_exit_with(0)?;
        let text = fs::read(&self.summary).during(|| "read the summary".to_owned())?;
        json(&text)
    }

    /// Asks it to let go of the program as Ctrl-C does, and waits until it has.
    pub fn leaves(self) -> Outcome<Value> {
        self.running.signal(Signal::INT)?;
        self.ends()
    }

    /// What was said of it when it was to be ended.
    fn wait(self) -> Outcome<Ended> {
        self.running.wait()
    }
}

/// A program that no loader brings anything to, which forks all the time.
pub fn while_it_runs(context: &Context) -> Outcome {
    let launcher = context.native()?;
    let program = static_program(context)?;
    let file = context.place().join("ends");
    let job = Job::new(program).args(["until", &PROGRAM_MIB.to_string()]);
    let running = launcher.start(&job.arg(&file))?;
    running.until("it to fill its memory", || {
        let is_full = procfs::anon_bytes(running.pid()) >= PROGRAM_MIB * MIB;
        Ok(is_full.then_some(()))
    })?;
    let attached = attach(context, &launcher, running.pid(), LIMIT_BYTES)?;
    // Many rounds of it, in which it pages all of its memory.
    attached.running.until("it to page", || {
        let pages = attached.status(context)?["pages_in"].as_u64();
        std::thread::sleep(Duration::from_millis(50));
        Ok((pages >= Some(100_000)).then_some(()))
    })?;
    attached.leaves()?;
    std::thread::sleep(Duration::from_secs(1));
    File::create(&file).during(|| "end it".to_owned())?;
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()
}

/// More threads that compute than there are processors, until this is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn processors() -> Busy {
        let is_over = Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..2 * processors {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Busy(is_over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Vswap lets go of a program in the middle of its forks, again and again, and ends. The guardian must not take a child
/// that has just said hello for one that nobody serves any more.
pub fn left_while_it_forks(context: &Context) -> Outcome {
    const ROUNDS: usize = 24;
    const SMALL_MIB: u64 = 64;
    /// The guardian waits for 100 ms before it kills.
    const GRACE: Duration = Duration::from_millis(300);
    let launcher = context.native()?;
    let program = static_program(context)?;
    let file = context.place().join("ends");
    // Vswap's threads have to wait for a processor in the middle of what they do.
    let _busy = Busy::processors();
    for round in 0..ROUNDS {
        let _ = fs::remove_file(&file);
        let job = Job::new(&program).args(["brood", &SMALL_MIB.to_string()]);
        let running = launcher.start(&job.arg(&file))?;
        running.until("it to fill its memory", || {
            let is_full = procfs::anon_bytes(running.pid()) >= SMALL_MIB * MIB;
            Ok(is_full.then_some(()))
        })?;
        let attached = attach(context, &launcher, running.pid(), SMALL_MIB * MIB / 2)?;
        // At another moment of its forks each time.
        std::thread::sleep(Duration::from_millis(50 + 7 * round as u64));
        attached.leaves()?;
        std::thread::sleep(GRACE);
        File::create(&file).during(|| "end it".to_owned())?;
        let ended = running.wait()?;
        ended.must_succeed()?;
        ended.must_leave_nothing()?;
    }
    Ok(())
}

/// Threads verify all the time, and the program grows and forks, before, during and after.
pub fn python(context: &Context) -> Outcome {
    let launcher = context.native()?;
    let mut program = Program::start(&launcher)?;
    program.does("fork")?;
    let attached = attach(context, &launcher, program.pid(), LIMIT_BYTES)?;
    attached.swaps(context)?;
    program.does("check")?;
    program.does("grow 32")?;
    program.does("fork")?;
    let resident = procfs::anon_bytes(program.pid());
    ensure!(
        resident <= LIMIT_BYTES,
        "{} MiB are in memory",
        resident / MIB
    );

    let pid = program.pid().to_string();
    let output = context.vswap(&["detach", &pid])?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "detach says {errors}");
    let resident = procfs::anon_bytes(program.pid());
    ensure!(
        resident >= (PROGRAM_MIB + 32) * MIB,
        "only {} MiB came back",
        resident / MIB
    );
    let said = attached.said();
    ensure!(said.contains("goes on without vswap"), "it says {said}");
    let summary = attached.ends()?;
    ensure!(summary["pages_in"].as_u64() > Some(0), "{summary:#}");
    for _ in 0..2 {
        program.does("check")?;
        program.does("grow 16")?;
        program.does("fork")?;
    }
    refuses(
        context,
        &["attach", "--ram", "64M", &pid],
        "let go of it before",
    )?;
    program.ends()
}

fn json(text: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(text).map_err(|error| Failure::wrong(error.to_string()))
}

fn refuses(context: &Context, args: &[&str], expected: &str) -> Outcome {
    let output = context.vswap(args)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let is_own = output.status.code() == Some(OWN_ERROR);
    ensure!(
        is_own && said.contains(expected) && !said.contains("panicked"),
        "vswap {} ends with {} and says {said:?}, not {expected:?}",
        args.join(" "),
        output.status
    );
    Ok(())
}

/// What a user gets wrong. The program is none the worse for it.
pub fn refusals(context: &Context) -> Outcome {
    let launcher = context.native()?;
    let mut program = Program::start(&launcher)?;
    let own = std::process::id().to_string();
    refuses(
        context,
        &["attach", "--ram", "64M", "4194304"],
        "there is no process",
    )?;
    refuses(
        context,
        &["attach", "--ram", "64M", &own],
        "would manage itself",
    )?;
    refuses(context, &["detach", &own], "in none of your runs")?;
    let pid = program.pid().to_string();
    refuses(context, &["detach", &pid], "in none of your runs")?;
    let attached = attach(context, &launcher, program.pid(), LIMIT_BYTES)?;
    refuses(
        context,
        &["attach", "--ram", "64M", &pid],
        "in a run already",
    )?;
    program.does("check")?;
    attached.leaves()?;
    program.does("check")?;
    program.ends()
}

/// A program's own end is the end of it, and what it leaves behind belongs to it.
pub fn orphans(context: &Context) -> Outcome {
    let launcher = context.native()?;
    let mut program = Program::start(&launcher)?;
    let attached = attach(context, &launcher, program.pid(), LIMIT_BYTES)?;
    attached.swaps(context)?;
    program.tell("orphan")?;
    let said = program.hear("orphan")?;
    program.hear("done orphan")?;
    let orphan: u32 = said
        .trim_start_matches("orphan ")
        .trim()
        .parse()
        .unwrap_or(0);
    let Program { running, pipe, .. } = program;
    signal_pid(running.pid(), Signal::KILL)?;
    let stdout = running.stdout().to_owned();
    running.wait()?.must_be_ended_by(Signal::KILL)?;
    // Long enough for several looks at who is left.
    std::thread::sleep(Duration::from_secs(3));
    ensure!(
        procfs::is_alive(orphan),
        "the orphan has ended; vswap says {}",
        attached.said()
    );
    let status = attached.status(context)?;
    ensure!(status["processes_managed"] == 1, "{status:#}");
    // The end of what it reads.
    drop(pipe);
    attached.ends()?;
    let said = fs::read_to_string(stdout).during(|| "read its output".to_owned())?;
    ensure!(said.ends_with("orphan is right\n"), "it says {said}");
    Ok(())
}

/// Nobody can give the pages back when vswap is killed, so the program may not go on.
pub fn killed(context: &Context) -> Outcome {
    let launcher = context.native()?;
    let program = Program::start(&launcher)?;
    let attached = attach(context, &launcher, program.pid(), LIMIT_BYTES)?;
    attached.swaps(context)?;
    attached.running.signal(Signal::KILL)?;
    attached.wait()?.must_be_ended_by(Signal::KILL)?;
    let stdout = program.running.stdout().to_owned();
    program.running.wait()?.must_be_ended_by(Signal::KILL)?;
    let said = fs::read_to_string(stdout).during(|| "read its output".to_owned())?;
    ensure!(!said.contains("WRONG"), "it says {said}");
    Ok(())
}

/// A stopped process is let go of when it goes on.
pub fn stopped(context: &Context) -> Outcome {
    let launcher = context.native()?;
    let mut program = Program::start(&launcher)?;
    let attached = attach(context, &launcher, program.pid(), LIMIT_BYTES)?;
    attached.swaps(context)?;
    program.running.signal(Signal::STOP)?;
    attached.running.signal(Signal::TERM)?;
    attached.running.until("it to say what it waits for", || {
        Ok(attached.said().contains("kill -CONT").then_some(()))
    })?;
    program.running.signal(Signal::CONT)?;
    attached.ends()?;
    program.does("check")?;
    program.ends()
}

/// One process of `vswap run` is let go of, and the run goes on.
pub fn of_a_run(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let mut program = Program::start(&launcher)?;
    program.does("check")?;
    let pid = program.running.program_pid()?;
    let output = context.vswap(&["detach", &pid.to_string()])?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "detach says {errors}");
    let resident = procfs::anon_bytes(pid);
    ensure!(
        resident >= PROGRAM_MIB * MIB,
        "only {} MiB came back",
        resident / MIB
    );
    program.does("check")?;
    program.does("grow 16")?;
    program.does("fork")?;
    program.ends()
}

/// Where memory may not suffice for what is in swap, that is said.
pub fn without_room(context: &Context) -> Outcome {
    require_root("to make a control group")?;
    let group = Group::make("memory")?;
    group.write(GROUP_LIMIT, (96 * MIB).to_string())?;
    let launcher = context.native()?;
    let mut program = Program::start(&launcher)?;
    let attached = attach(context, &launcher, program.pid(), LIMIT_BYTES)?;
    attached.swaps(context)?;
    group.write("cgroup.procs", program.pid().to_string())?;
    let pid = program.pid().to_string();
    refuses(context, &["detach", &pid], "--force")?;
    attached.running.signal(Signal::INT)?;
    attached
        .running
        .until("it to say that there is no room", || {
            Ok(attached.said().contains("a second signal").then_some(()))
        })?;
    program.does("check")?;
    group.write(GROUP_LIMIT, (1024 * MIB).to_string())?;
    attached.leaves()?;
    program.does("check")?;
    program.ends()
}
