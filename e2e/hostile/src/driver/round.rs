//! One round, from its first process to its last, and all that must hold.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vswap_drive::patience::Patience;
use vswap_drive::random::Random;
use vswap_drive::{processes, threads};

use crate::crew::PRELOAD;
use crate::driver::Wishes;
use crate::driver::figures::{self, Figures};
use crate::driver::run::{Phase, Running};
use crate::secret;

/// Between two looks.
const POLL: Duration = Duration::from_millis(20);
/// Beyond the time of the lies, each phase takes a second or two on an idle machine.
const PATIENCE: Duration = Duration::from_secs(25);
/// What vswap has too much must be gone within this time after the last lie.
const SETTLES_WITHIN: Duration = Duration::from_secs(12);
/// How long the processor time of vswap is measured.
const MEASURE: Duration = Duration::from_secs(1);
/// A thread that takes more than this part of a processor beside a program that sleeps turns in circles.
const BUSY_PART: f64 = 0.3;
/// Most descriptors and threads of vswap at any time. A few hundred connections, as many threads that wait for them,
/// and some for each liar.
const DESCRIPTORS_MAX: usize = 3000;
const THREADS_MAX: usize = 1200;
/// How much more than before the lies it may have after them.
const SPARE_DESCRIPTORS: usize = 40;
const SPARE_THREADS: usize = 4;
/// Threads that serve one program: `evict-`, `calls-`, `moves-`, `syscalls`. Each starts with its first need, on a busy
/// machine after the figures before the lies were taken.
const THREADS_OF_PROGRAM: usize = 4;
/// What vswap may take beyond the limit of the run.
const SPARE_KIB: u64 = 192 << 10;
const RAM_MIB: u64 = 160;
/// The limit of descriptors in a third of the rounds.
const FEW_DESCRIPTORS: u64 = 1024;
/// Lines of the list of lies that are printed.
const LIES_SHOWN: usize = 25;

/// One round.
pub(crate) struct Round<'a> {
    pub(crate) wishes: &'a Wishes,
    pub(crate) vswap: &'a Path,
    pub(crate) place: &'a Path,
    /// XDG_RUNTIME_DIR of its processes.
    pub(crate) run_dir: &'a Path,
    pub(crate) seed: u64,
}

/// What is watched while a round goes on.
struct Watched<'a> {
    /// The process that has the pager.
    pager: u32,
    runs: &'a mut [Running],
    before: Option<Figures>,
    most: Figures,
}

impl Round<'_> {
    /// Runs it. The error says what did not hold.
    pub(crate) fn run(&self) -> Result<(), String> {
        let _absent = fs::remove_dir_all(self.run_dir);
        let _absent = fs::remove_file(self.place.join("lies"));
        let _absent = fs::remove_file(self.place.join(secret::STOLEN));
        fs::create_dir_all(self.run_dir)
            .map_err(|error| format!("cannot make a directory: {error}"))?;
        let done = if self.wishes.daemon {
            self.with_daemon()
        } else {
            self.alone()
        };
        let done = done.and_then(|()| self.nothing_is_stolen());
        let done = done.and_then(|()| self.nothing_is_left());
        processes::kill_below(std::process::id());
        done
    }

    /// The end of the list of lies.
    pub(crate) fn newest_lies(&self) -> String {
        let text = fs::read_to_string(self.place.join("lies")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LIES_SHOWN);
        lines[from..]
            .iter()
            .map(|line| format!("  {line}\n"))
            .collect()
    }

    fn alone(&self) -> Result<(), String> {
        let mut runs = [self.start("run", self.wishes.liars, 2)?];
        let pager = runs[0].child.id();
        self.watch(pager, &mut runs)?;
        self.finish(&mut runs)
    }

    fn with_daemon(&self) -> Result<(), String> {
        let mut command = self.vswap();
        command.args(["daemon", "--quiet"]);
        let mut daemon = Running::start("daemon", command, self.descriptors(), self.place)?;
        self.await_daemon(daemon.child.id())?;
        let mut runs = [
            self.start("lying", self.wishes.liars, 0)?,
            self.start("honest", 0, 2)?,
        ];
        self.watch(daemon.child.id(), &mut runs)
            .and_then(|()| self.finish(&mut runs))
            .map_err(|error| with_panic_of(&daemon, error))?;
        // It still serves.
        let mut command = self.vswap();
        command.args([
            "run",
            "--quiet",
            "--ram",
            "64M",
            "--debug-evict-every",
            "5ms",
            "--",
        ]);
        command.arg(own()?).args(["honest", "--seconds", "0.5"]);
        let mut late = [Running::start("late", command, None, self.place)?];
        self.finish(&mut late)?;
        if let Some(status) = daemon.ended() {
            return Err(format!(
                "the daemon has ended with {status}: {}",
                daemon.said()
            ));
        }
        processes::signal(daemon.child.id(), libc::SIGTERM);
        let mut patience = Patience::new(PATIENCE);
        while !patience.is_over() {
            if daemon.ended().is_some() {
                return match daemon.said() {
                    said if said.contains("panicked") => {
                        Err(format!("the daemon panicked: {said}"))
                    }
                    _ => Ok(()),
                };
            }
            std::thread::sleep(POLL);
        }
        Err(format!(
            "HANG: the daemon does not end\n{}",
            threads::report_below()
        ))
    }

    fn vswap(&self) -> Command {
        let mut command = Command::new(self.vswap);
        command.env("XDG_RUNTIME_DIR", self.run_dir);
        command
    }

    /// A third of all rounds have few descriptors.
    fn descriptors(&self) -> Option<u64> {
        Random::new(self.seed).chance(33).then_some(FEW_DESCRIPTORS)
    }

    fn start(&self, name: &'static str, liars: u32, honest: u32) -> Result<Running, String> {
        let mut random = Random::new(self.seed ^ 0x1a2b);
        let pace = random.pick(&["2ms", "5ms", "20ms"]);
        let ram = format!("{RAM_MIB}M");
        let mut command = self.vswap();
        command.args(["run", "--quiet", "--ram", &ram, "--debug-evict-every", pace]);
        if !self.wishes.daemon {
            // Nor somebody else's.
            command.arg("--no-daemon");
        }
        command.arg("--");
        let is_bare = liars > 0 && random.chance(50);
        if is_bare {
            let script =
                format!("{PRELOAD}=$LD_PRELOAD; export {PRELOAD}; unset LD_PRELOAD; exec \"$@\"");
            command.args(["/bin/sh", "-c", &script, "sh"]);
        }
        command
            .arg(own()?)
            .args(["crew", "--seed", &self.seed.to_string()])
            .args(["--seconds", &self.wishes.seconds.to_string()])
            .args([
                "--liars",
                &liars.to_string(),
                "--honest",
                &honest.to_string(),
            ])
            .arg("--log")
            .arg(self.place.join("lies"));
        if is_bare {
            command.arg("--bare");
        }
        for lie in &self.wishes.lie {
            command.args(["--lie", lie]);
        }
        let descriptors = self.descriptors().filter(|_| !self.wishes.daemon);
        Running::start(name, command, descriptors, self.place)
    }

    fn await_daemon(&self, pid: u32) -> Result<(), String> {
        let mut patience = Patience::new(PATIENCE);
        while !patience.is_over() {
            let status = self.vswap().arg("status").output();
            let text = status.map(|output| output.stdout).unwrap_or_default();
            if String::from_utf8_lossy(&text).contains(&pid.to_string()) {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err("the daemon does not answer".to_owned())
    }

    /// Watches vswap while lies are told, and afterwards.
    fn watch(&self, pager: u32, runs: &mut [Running]) -> Result<(), String> {
        let mut watched = Watched {
            pager,
            runs,
            before: None,
            most: Figures::default(),
        };
        let lies = Duration::from_secs_f64(self.wishes.seconds);
        watched.until_quiet(Patience::new(lies + PATIENCE))?;
        watched.has_settled()?;
        watched.is_idle()
    }

    /// Lets the crews end, and looks at how they do.
    fn finish(&self, runs: &mut [Running]) -> Result<(), String> {
        let mut patience = Patience::new(PATIENCE);
        for run in runs {
            run.release();
            let status = loop {
                if let Some(status) = run.ended() {
                    break status;
                }
                if patience.is_over() {
                    return Err(format!(
                        "HANG: {} does not end\n{}",
                        run.name,
                        threads::report_below()
                    ));
                }
                std::thread::sleep(POLL);
            };
            if let Some(wrong) = run.wrong_with(status) {
                return Err(wrong);
            }
        }
        Ok(())
    }

    /// No liar has got what it must not get.
    fn nothing_is_stolen(&self) -> Result<(), String> {
        if self.place.join(secret::STOLEN).exists() {
            return Err("THEFT: a liar has got memory of an honest program".to_owned());
        }
        Ok(())
    }

    /// No process and no file of the round is left.
    fn nothing_is_left(&self) -> Result<(), String> {
        let mut patience = Patience::new(SETTLES_WITHIN);
        loop {
            processes::reap();
            let living: Vec<String> = processes::below(std::process::id())
                .into_iter()
                .map(threads::name)
                .collect();
            let files = fs::read_dir(self.run_dir);
            let files: Vec<String> = files
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            if living.is_empty() && files.is_empty() {
                return Ok(());
            }
            if patience.is_over() {
                return Err(format!(
                    "left behind: processes {living:?}, files {files:?}"
                ));
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Watched<'_> {
    /// Waits until all liars have been ended, and looks at vswap meanwhile.
    fn until_quiet(&mut self, mut patience: Patience) -> Result<(), String> {
        loop {
            if let Some(now) = Figures::of(self.pager) {
                self.most = self.most.max(now);
                if self.before.is_none() && self.runs.iter().all(|run| run.phase() >= Phase::Begun)
                {
                    self.before = Some(now);
                }
                if now.descriptors > DESCRIPTORS_MAX
                    || now.threads > THREADS_MAX
                    || now.kib > (RAM_MIB << 10) + SPARE_KIB
                {
                    let kinds = figures::kinds_of_descriptors(self.pager);
                    return Err(format!("GROWTH: vswap has {now}: {kinds}"));
                }
            }
            if self.runs.iter().all(|run| run.phase() == Phase::Quiet) {
                return Ok(());
            }
            self.nobody_has_ended()?;
            if patience.is_over() {
                let phases: Vec<_> = self.runs.iter().map(|run| run.phase()).collect();
                return Err(format!(
                    "HANG: no end of the lies, phases {phases:?}\n{}",
                    threads::report_below()
                ));
            }
            std::thread::sleep(POLL);
        }
    }

    fn nobody_has_ended(&mut self) -> Result<(), String> {
        for run in self.runs.iter_mut() {
            if let Some(status) = run.ended() {
                let wrong = run.wrong_with(status);
                return Err(wrong.unwrap_or_else(|| format!("{} ended too early", run.name)));
            }
        }
        Ok(())
    }

    /// After the lies vswap has hardly more than before.
    fn has_settled(&mut self) -> Result<(), String> {
        let Some(before) = self.before else {
            return Ok(());
        };
        // The first program of each run still lives.
        let serving = before.serving.max(THREADS_OF_PROGRAM * self.runs.len());
        let mut patience = Patience::new(SETTLES_WITHIN);
        loop {
            self.nobody_has_ended()?;
            let now = Figures::of(self.pager).unwrap_or_default();
            if now.descriptors <= before.descriptors + SPARE_DESCRIPTORS
                && now.serving <= serving + SPARE_THREADS
            {
                return Ok(());
            }
            if patience.is_over() {
                return Err(format!(
                    "LEAK: before the lies vswap had {before}, at most {}, and after them {now}\n{}\nthreads {}",
                    self.most,
                    figures::kinds_of_descriptors(self.pager),
                    figures::names(self.pager).join(" ")
                ));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Beside a program that sleeps no thread of vswap works.
    fn is_idle(&self) -> Result<(), String> {
        let before = figures::times(self.pager);
        std::thread::sleep(MEASURE);
        for (tid, (name, after)) in figures::times(self.pager) {
            let taken = before
                .get(&tid)
                .map_or(after, |(_, before)| after.saturating_sub(*before));
            if taken > MEASURE.mul_f64(BUSY_PART) {
                return Err(format!(
                    "SPIN: thread {name} of vswap takes {taken:?} of {MEASURE:?}\n{}",
                    threads::report_below()
                ));
            }
        }
        Ok(())
    }
}

/// If the daemon is what went wrong, the run's end only follows from it.
fn with_panic_of(daemon: &Running, error: String) -> String {
    let said = daemon.said();
    if said.trim().is_empty() {
        error
    } else {
        format!("{error}\nthe daemon said: {said}")
    }
}

fn own() -> Result<std::path::PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))
}
