//! What to run, natively or under vswap: a program, its arguments and its surroundings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A program to run.
#[derive(Debug, Clone)]
pub struct Job {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) stdin: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) own_group: bool,
    pub(crate) vswap_options: Vec<OsString>,
}

impl Job {
    /// This program without arguments, in the test's directory, with empty input.
    pub fn new(program: impl AsRef<Path>) -> Job {
        Job {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            stdin: None,
            user: None,
            own_group: false,
            vswap_options: Vec::new(),
        }
    }

    /// `sh -c script`.
    pub fn shell(script: impl Into<OsString>) -> Job {
        Job::new("/bin/sh").arg("-c").arg(script)
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Job {
        self.args.push(arg.into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Job {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Job {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The working directory.
    #[must_use]
    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Job {
        self.cwd = Some(dir.as_ref().to_owned());
        self
    }

    /// A file that becomes standard input.
    #[must_use]
    pub fn stdin(mut self, file: impl AsRef<Path>) -> Job {
        self.stdin = Some(file.as_ref().to_owned());
        self
    }

    /// Another user for the program and for vswap, without any capability, who may open /dev/userfaultfd. For tests
    /// that run as root.
    #[must_use]
    pub fn user(mut self, user: &str) -> Job {
        self.user = Some(user.to_owned());
        self
    }

    /// Its own process group, so that the test can kill the whole group.
    #[must_use]
    pub fn own_group(mut self) -> Job {
        self.own_group = true;
        self
    }

    /// More options for `vswap run` itself. A native run ignores them.
    #[must_use]
    pub fn vswap_options<A: Into<OsString>>(mut self, options: impl IntoIterator<Item = A>) -> Job {
        self.vswap_options
            .extend(options.into_iter().map(Into::into));
        self
    }

    /// Appends the program and arguments of another job to this job's arguments.
    #[must_use]
    pub fn append(mut self, other: &Job) -> Job {
        self.args.push(other.program.clone().into());
        self.args.extend(other.args.iter().cloned());
        self
    }

    /// The job `outer`, with this job's program and arguments as its arguments.
    #[must_use]
    pub fn within(mut self, outer: impl AsRef<Path>) -> Job {
        self.args
            .insert(0, std::mem::take(&mut self.program).into());
        self.program = outer.as_ref().to_owned();
        self
    }
}
