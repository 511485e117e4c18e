//! A `vswap attach` that comes to a program while it runs, and may let go of it before it ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vswap_drive::processes::{self, die_with_parent};
use vswap_drive::random::Random;

use crate::driver::attempt::Bench;
use crate::driver::ended::words;

/// When it comes: at once, or after the program has done something.
const COME_AFTER_MS: (u32, u32) = (0, 150);
/// How long it stays, if it does not stay to the end. Programs take a second or two.
const STAY_MS: (u32, u32) = (20, 1200);
/// One in this many stays to the end.
const STAY_TO_THE_END: u32 = 4;
/// How long it may take to end after the program, or after it was told to let go.
const END_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(4);
/// What may keep it from a program: that ends just then, or puts a filter of its own on itself.
const REASONS: [&str; 4] = [
    "it has ended",
    "there is no process",
    "a seccomp filter of its own",
    "its agent could not begin",
];

/// It, before it comes and while it is there.
#[derive(Debug)]
pub(crate) struct Companion {
    command: Command,
    errors: PathBuf,
    come: Instant,
    stay: Option<Duration>,
    child: Option<(Child, Instant)>,
    is_told: bool,
}

impl Companion {
    /// One that comes and goes as the seed says.
    ///
    /// # Errors
    /// There is no place for what it says.
    pub(crate) fn new(
        seed: u64,
        mut command: Command,
        options: &[String],
        bench: &Bench,
    ) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let come = ms(random.between(COME_AFTER_MS.0, COME_AFTER_MS.1));
        let stay = ms(random.between(STAY_MS.0, STAY_MS.1));
        let stays = random.below(STAY_TO_THE_END) == 0;
        let errors = bench.place.join("attach-stderr");
        let file = fs::File::create(&errors);
        let file = file.map_err(|error| format!("cannot make {}: {error}", errors.display()))?;
        command.arg("attach").args(options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        command.env("XDG_RUNTIME_DIR", &bench.run_dir);
        die_with_parent(&mut command);
        Ok(Self {
            command,
            errors,
            come: Instant::now() + come,
            stay: (!stays).then_some(stay),
            child: None,
            is_told: false,
        })
    }

    /// Called often, with the process of the program. It is told to let go once it hears that: before, SIGTERM ends it
    /// as it ends any program that has just begun.
    pub(crate) fn act(&mut self, program: u32) {
        match &self.child {
            None if Instant::now() >= self.come => {
                let child = self.command.arg(program.to_string()).spawn();
                self.child = child.ok().map(|child| (child, Instant::now()));
                if self.child.is_none() {
                    // Not again at each call.
                    self.come = Instant::now() + END_WITHIN;
                }
            }
            Some((child, since))
                if !self.is_told
                    && self.stay.is_some_and(|stay| since.elapsed() >= stay)
                    && processes::blocks(child.id(), libc::SIGTERM) =>
            {
                self.is_told = true;
                processes::signal(child.id(), libc::SIGTERM);
            }
            _ => {}
        }
    }

    /// The program has ended. Says what is wrong, if anything is.
    pub(crate) fn finish(self) -> Option<String> {
        let (mut child, _) = self.child?;
        let until = Instant::now() + END_WITHIN;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(POLL),
                _ => {
                    processes::signal(child.id(), libc::SIGKILL);
                    let _killed = child.wait();
                    break None;
                }
            }
        };
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        let is_good = status.is_some_and(|status| status.success())
            || REASONS.iter().any(|reason| said.contains(reason));
        let text = || format!("vswap attach: {}\n{}", words(status), said.trim());
        (!is_good || said.contains("panicked")).then(text)
    }
}
