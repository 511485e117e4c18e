//! The program of `inputs/parked.py` in a run, and what is asked of the run.

use std::fs::{self, File};
use std::io::Write;
use std::process::Output;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use vswap_e2e::failure::During;
use vswap_e2e::{
    Context, Ended, Failure, Job, Launcher, Outcome, Running, ensure, procfs, require_program,
};

/// States of a run that goes on. On a busy machine it may be in the second, too.
const RUNS: [&str; 2] = ["running", "thrashing"];

/// How large the program is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub mib: u64,
    pub threads: u32,
    pub children: u32,
}

/// The program, in a run, and the pipe that it reads.
pub struct Program<'a> {
    context: &'a Context,
    pub running: Running,
    pipe: File,
    said: usize,
}

impl<'a> Program<'a> {
    /// Starts it, and waits until its memory is full.
    pub fn start(
        context: &'a Context,
        launcher: &Launcher,
        size: Size,
        options: &[&str],
    ) -> Outcome<Program<'a>> {
        let python = require_program("python3", "apt package python3")?;
        let pipe = launcher.place().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &pipe, FileType::Fifo, mode, 0).during(|| "make a pipe".to_owned())?;
        let numbers = [size.mib, size.threads.into(), size.children.into()];
        let job = Job::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/inputs/parked.py"))
            .args(numbers.map(|number| number.to_string()))
            .arg(&pipe)
            .own_group()
            .vswap_options(options.iter().copied());
        let running = launcher.start(&job)?;
        // Open for both, so that opening does not wait.
        let pipe = File::options().read(true).write(true).open(&pipe);
        let mut program = Program {
            context,
            running,
            pipe: pipe.during(|| "open the pipe".to_owned())?,
            said: 0,
        };
        program.hear("ready")?;
        Ok(program)
    }

    /// Waits for the next line, which must be this.
    pub fn hear(&mut self, expected: &str) -> Outcome {
        let line = self.running.until(expected, || {
            let text = fs::read_to_string(self.running.stdout()).unwrap_or_default();
            Ok(text.lines().map(str::to_owned).nth(self.said))
        })?;
        self.said += 1;
        ensure!(line == expected, "it says {line:?} and not {expected}");
        Ok(())
    }

    /// Has it do something, and does not wait for that.
    pub fn tell(&mut self, command: &str) -> Outcome {
        writeln!(self.pipe, "{command}").during(|| format!("say {command}"))
    }

    /// Has it do something, and waits until that is done.
    pub fn does(&mut self, command: &str) -> Outcome {
        self.tell(command)?;
        self.hear(&format!("done {command}"))
    }

    /// Every byte must be right, and the program must end well.
    pub fn ends(mut self) -> Outcome<Ended> {
        self.does("check")?;
        self.does("quit")?;
        let ended = self.running.wait()?;
        ended.must_succeed()?;
        ended.must_leave_nothing()?;
        Ok(ended)
    }

    /// A command for the run.
    pub fn vswap(&self, words: &[&str]) -> Outcome<Output> {
        let run = self.running.pid().to_string();
        self.context.vswap(&[words, &["--run", &run]].concat())
    }

    /// The same, which must do it. Returns what it says.
    pub fn must(&self, words: &[&str]) -> Outcome<String> {
        let done = self.vswap(words)?;
        ensure!(done.status.success(), "{words:?}: {done:?}");
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Parks it, and checks that it is.
    pub fn parks(&self) -> Outcome<String> {
        let said = self.must(&["park"])?;
        self.context.say(said.lines().next().unwrap_or_default());
        self.is_in("parked")?;
        for pid in self.processes() {
            ensure!(
                procfs::stat(pid).is_some_and(|stat| stat.state == b'T'),
                "{} is not stopped",
                procfs::describe(pid)
            );
        }
        Ok(said)
    }

    /// Wakes it.
    pub fn wakes(&self) -> Outcome {
        let said = self.must(&["wake"])?;
        ensure!(said.contains("goes on"), "wake said {said}");
        let state = self.state()?;
        ensure!(RUNS.contains(&state.as_str()), "it is {state}");
        Ok(())
    }

    /// The run must be in this state.
    pub fn is_in(&self, state: &str) -> Outcome {
        let found = self.state()?;
        ensure!(found == state, "not {state} but {found}");
        Ok(())
    }

    /// Waits until it runs again.
    pub fn until_it_runs(&self) -> Outcome {
        self.running.until("the run to go on", || {
            Ok(RUNS.contains(&self.state()?.as_str()).then_some(()))
        })
    }

    fn state(&self) -> Outcome<String> {
        Ok(self.report()?["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// What the run says of itself.
    pub fn report(&self) -> Outcome<Value> {
        let output = self.vswap(&["status", "--json"])?;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let report = all.into_iter().next();
        report.ok_or_else(|| Failure::wrong(format!("no report: {output:?}")))
    }

    /// One of its figures.
    pub fn figure(&self, name: &str) -> Outcome<u64> {
        let report = self.report()?;
        let figure = report[name].as_u64();
        figure.ok_or_else(|| Failure::wrong(format!("no {name} in {report}")))
    }

    /// The program and its children.
    pub fn processes(&self) -> Vec<u32> {
        let mut all = procfs::living_descendants(self.running.pid());
        all.retain(|pid| !procfs::is_guardian(*pid));
        all
    }

    /// What they have of memory that is their own, as the kernel counts it.
    pub fn anon_bytes(&self) -> u64 {
        self.processes()
            .into_iter()
            .map(procfs::anon_share_bytes)
            .sum()
    }
}
