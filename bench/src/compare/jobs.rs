//! Named workloads: the command of each, and the sides that it runs on.
//!
//! The commands run this program again with the hidden subcommand for workloads, so that nothing else has to be
//! installed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::command::{RunError, Supervisor};

use crate::region::PAGE_BYTES;

use super::options::{On, Options};

mod programs;

/// The subcommand of this program that runs a workload.
const SUBCOMMAND: &str = "bench-workload";
/// Sides of workloads for memory, and of those for disks.
const MEMORY: &[On] = &[On::Vswap, On::Zram];
const DISK: &[On] = &[On::Vswap, On::File];
const ALONE: &[On] = &[On::Native];
const FITTING: &[On] = &[On::Vswap, On::Native];
/// Workloads whose memory can lie in an arena or in a file.
const PLACEABLE: [&str; 3] = ["fill-read-write", "zipf", "memhog"];
/// `disk` uses this fraction of the requested memory, because a random access takes ten times as long there.
const DISK_SHARE: usize = 4;
/// `disk` reads and writes one in this many pages at random.
const DISK_RANDOM_SHARE: usize = 20;

/// A command to run on several sides.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) command: Vec<OsString>,
    /// Uses the command, if the command does nothing by itself. The driver is neither limited nor measured.
    pub(super) driver: Option<Vec<OsString>>,
    /// Memory limit of the kernel's group.
    pub(super) ram_bytes: usize,
    /// How much memory the command uses, if known.
    pub(super) needs_bytes: Option<usize>,
    /// The sides, unless the user asks for others.
    pub(super) sides: &'static [On],
    /// Must the job run on these sides only?
    pub(super) is_alone: bool,
    /// Can the command have its memory in an arena or in a file?
    is_placeable: bool,
    /// Where the job keeps its files.
    scratch: Option<Scratch>,
}

/// A directory, removed on drop.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path, name: &str) -> Result<Self, String> {
        let path = dir.join(format!("vswap-bench-{}-{name}", std::process::id()));
        fs::create_dir(&path)
            .map(|()| Self(path.clone()))
            .map_err(|error| format!("cannot make the directory {}: {error}", path.display()))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Why there is no job.
#[derive(Debug)]
pub(super) enum Unable {
    /// What is missing on this machine, worded for people.
    Missing(String),
    /// The preparation was interrupted.
    Interrupted,
}

impl From<String> for Unable {
    fn from(reason: String) -> Self {
        Self::Missing(reason)
    }
}

impl From<RunError> for Unable {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Interrupted => Self::Interrupted,
            other => Self::Missing(other.to_string()),
        }
    }
}

impl Job {
    /// Removes the files that a run has left in its directory.
    pub(super) fn tidy(&self) {
        let path = self.scratch.as_ref().map(Scratch::path);
        let entries = path.and_then(|path| fs::read_dir(path).ok());
        for entry in entries.into_iter().flatten().flatten() {
            // A file that cannot be removed now is tried again with the directory.
            let _ = fs::remove_file(entry.path());
        }
    }

    /// The command with its memory in an arena, in a process that may take `total` bytes of RAM.
    ///
    /// # Errors
    /// Its memory cannot lie in one.
    pub(super) fn in_arena(&self, total: usize) -> Result<Vec<OsString>, String> {
        self.placed(["--arena".into(), total.to_string().into()])
    }

    /// The command with its memory in a file in this directory.
    ///
    /// # Errors
    /// Its memory cannot lie in one.
    pub(super) fn in_file(&self, directory: &Path) -> Result<Vec<OsString>, String> {
        self.placed(["--mmap".into(), directory.into()])
    }

    fn placed(&self, options: [OsString; 2]) -> Result<Vec<OsString>, String> {
        if !self.is_placeable {
            return Err("its memory cannot lie in an arena or in a file".to_owned());
        }
        let mut command = self.command.clone();
        command.extend(options);
        Ok(command)
    }

    /// The command as people would type it.
    pub(super) fn line(&self) -> String {
        let line = |words: &[OsString]| -> String {
            // A script is shown by its first line.
            let words = words.iter().map(|word| word.to_string_lossy());
            let words = words.map(|word| word.lines().next().unwrap_or("''").to_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        match &self.driver {
            Some(driver) => format!("{}, driven by {}", line(&self.command), line(driver)),
            None => line(&self.command),
        }
    }
}

/// A workload that users can ask for by name.
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    make: fn(&Maker) -> Result<Job, Unable>,
}

/// Every workload, in the order of running.
pub(super) const NAMED: &[Named] = &[
    Named {
        name: "fill-read-write",
        about: "fill memory, read it in order, read and write it at random, verify it",
        make: |maker| Ok(maker.memory("fill-read-write", &["--ratio"])),
    },
    Named {
        name: "zipf-0.8",
        about: "few pages often, one write in five, Zipf exponent 0.8",
        make: |maker| Ok(maker.zipf("0.8")),
    },
    Named {
        name: "zipf-0.99",
        about: "the same, exponent 0.99",
        make: |maker| Ok(maker.zipf("0.99")),
    },
    Named {
        name: "zipf-1.2",
        about: "the same, exponent 1.2",
        make: |maker| Ok(maker.zipf("1.2")),
    },
    Named {
        name: "usemem-1",
        about: "one task that writes its memory word by word, then frees it",
        make: |maker| Ok(maker.usemem(1)),
    },
    Named {
        name: "usemem-2",
        about: "two tasks with half of it each",
        make: |maker| Ok(maker.usemem(2)),
    },
    Named {
        name: "usemem-31",
        about: "31 tasks",
        make: |maker| Ok(maker.usemem(31)),
    },
    Named {
        name: "memhog",
        about: "fill three times the limit as fast as it goes, rewrite and verify it",
        make: |maker| Ok(maker.memhog()),
    },
    Named {
        name: "redis",
        about: "redis: SET, GET by redis-benchmark, without and with BGSAVE, and a mix by Zipf",
        make: programs::redis,
    },
    Named {
        name: "build",
        about: "compile zstd, as many files at a time as there are processors",
        make: programs::build,
    },
    Named {
        name: "python-pandas",
        about: "group and sort a table in pandas",
        make: |maker| programs::python(maker, "pandas", include_str!("python/pandas.py")),
    },
    Named {
        name: "python-duckdb",
        about: "the same in DuckDB",
        make: |maker| programs::python(maker, "duckdb", include_str!("python/duckdb.py")),
    },
    Named {
        name: "python-numpy",
        about: "the same with numpy alone",
        make: |maker| programs::python(maker, "numpy", include_str!("python/numpy.py")),
    },
    Named {
        name: "fork",
        about: "a large parent that forks 64 children, 4 at a time",
        make: |maker| Ok(maker.memory("fork", &[])),
    },
    Named {
        name: "disk",
        about: "fill-read-write on a swap file, vswap without a pool",
        make: |maker| Ok(maker.disk()),
    },
    Named {
        name: "device",
        about: "what fio gets from the disk that disk is on",
        make: programs::device,
    },
    Named {
        name: "areas",
        about: "the engine alone: four areas that take turns, and one after the other",
        make: |maker| Ok(maker.engine("areas")),
    },
    Named {
        name: "metadata",
        about: "the engine alone: tables of an idle area of 1 TiB, and of full ones",
        make: |maker| Ok(maker.engine("metadata")),
    },
    Named {
        name: "fits",
        about: "fill-read-write with more memory than it uses, beside a run without vswap",
        make: |maker| Ok(maker.fits()),
    },
];

/// `fits` gets this many times the memory that it uses.
const FITTING_TIMES: usize = 4;
/// memhog takes this many times its limit.
const MEMHOG_TIMES: usize = 3;

/// The requested workloads.
///
/// # Errors
/// No workload has this name.
pub(super) fn wanted(options: &Options) -> Result<Vec<&'static Named>, String> {
    for asked in &options.workloads {
        if !NAMED.iter().any(|named| named.is(asked)) {
            let names: Vec<&str> = NAMED.iter().map(|named| named.name).collect();
            return Err(format!(
                "there is no workload {asked}: expected one of {}, or the beginning of several, such as zipf",
                names.join(", ")
            ));
        }
    }
    let asked = |named: &&Named| options.workloads.iter().any(|asked| named.is(asked));
    Ok(NAMED
        .iter()
        .filter(|named| options.all || asked(named))
        .collect())
}

impl Named {
    /// Is `asked` its name or that of its family?
    fn is(&self, asked: &str) -> bool {
        let rest = self.name.strip_prefix(asked);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Prepares it.
    ///
    /// # Errors
    /// Why it cannot be run here.
    pub(super) fn job(
        &self,
        program: &Path,
        options: &Options,
        supervisor: &Supervisor,
    ) -> Result<Job, Unable> {
        let maker = Maker {
            name: self.name,
            program,
            options,
            supervisor,
        };
        (self.make)(&maker)
    }
}

/// The command that the user gave instead of a workload.
pub(super) fn of_command(options: &Options) -> Job {
    Job {
        name: "command".to_owned(),
        command: options.command.iter().map(OsString::from).collect(),
        ram_bytes: options.ram(),
        driver: None,
        needs_bytes: None,
        sides: MEMORY,
        is_alone: false,
        is_placeable: false,
        scratch: None,
    }
}

/// Makes the commands.
struct Maker<'a> {
    name: &'static str,
    program: &'a Path,
    options: &'a Options,
    supervisor: &'a Supervisor,
}

impl Maker<'_> {
    /// A job that runs `workload` of this program with the arguments `words`.
    fn own(&self, workload: &str, words: &[&str]) -> Job {
        let mut command = vec![self.program.into(), SUBCOMMAND.into(), workload.into()];
        command.extend(words.iter().map(OsString::from));
        Job {
            name: self.name.to_owned(),
            command,
            driver: None,
            ram_bytes: self.options.ram(),
            needs_bytes: Some(self.options.size()),
            sides: MEMORY,
            is_alone: false,
            is_placeable: false,
            scratch: None,
        }
    }

    /// The same for workloads that fill memory with content, as much as was asked for.
    fn memory(&self, workload: &str, words: &[&str]) -> Job {
        self.filling(workload, self.options.size(), words)
    }

    fn filling(&self, workload: &str, bytes: usize, words: &[&str]) -> Job {
        let content = self.content();
        let bytes_word = bytes.to_string();
        let threads = self.options.threads.filter(|threads| threads.get() > 1);
        let threads = threads.map(|threads| threads.to_string());
        let mut all = vec![bytes_word.as_str(), "--content", &content, "--json"];
        all.extend(words);
        // A result of more threads has another name, so that it is not judged by the targets for one.
        let mut name = self.name.to_owned();
        if let Some(threads) = &threads {
            all.extend(["--threads", threads]);
            name += &format!(", --threads {threads}");
        }
        Job {
            name,
            needs_bytes: Some(bytes),
            is_placeable: PLACEABLE.contains(&workload),
            ..self.own(workload, &all)
        }
    }

    /// The content's name.
    fn content(&self) -> String {
        let content = self.options.content.to_possible_value();
        content.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// A fraction of memory and limit, for workloads that take long. A quick run has little anyway and takes all of it.
    fn share(&self, share: usize) -> (usize, usize) {
        let share = if self.options.quick { 1 } else { share };
        (self.options.size() / share, self.options.ram() / share)
    }

    fn zipf(&self, exponent: &str) -> Job {
        let words = [
            "--exponent",
            exponent,
            "--write-percent",
            "20",
            "--hot-sets",
            "1",
        ];
        self.memory("zipf", &words)
    }

    fn usemem(&self, tasks: usize) -> Job {
        let each = (self.options.size() / tasks).to_string();
        let tasks = tasks.to_string();
        let options = ["-O", "-y", "-x", "--init-time", "--verify", "--json"];
        let mut words = vec![each.as_str(), "-n", &tasks];
        words.extend(options);
        self.own("usemem", &words)
    }

    fn disk(&self) -> Job {
        let (bytes, ram) = self.share(DISK_SHARE);
        let count = (bytes / PAGE_BYTES / DISK_RANDOM_SHARE).to_string();
        Job {
            ram_bytes: ram,
            sides: DISK,
            ..self.filling("fill-read-write", bytes, &["--count", &count])
        }
    }

    /// A measurement of the engine, which swaps by itself.
    fn engine(&self, what: &str) -> Job {
        let quick = self.options.quick.then_some("--quick");
        let mut words = vec![what, "--phases", "--rounds", "1"];
        words.extend(quick);
        self.alone("engine", &words)
    }

    /// A job without any swap, whichever sides were asked for.
    fn alone(&self, workload: &str, words: &[&str]) -> Job {
        Job {
            needs_bytes: None,
            sides: ALONE,
            is_alone: true,
            ..self.own(workload, words)
        }
    }

    fn fits(&self) -> Job {
        Job {
            ram_bytes: self.options.size() * FITTING_TIMES,
            sides: FITTING,
            ..self.memory("fill-read-write", &[])
        }
    }

    fn memhog(&self) -> Job {
        let bytes = self.options.ram() * MEMHOG_TIMES;
        self.filling("memhog", bytes, &["--seconds", "0"])
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        Line::parse_from([&["bench"], words].concat()).options
    }

    fn names(words: &[&str]) -> Result<Vec<&'static str>, String> {
        let wanted = wanted(&options(words))?;
        Ok(wanted.iter().map(|named| named.name).collect())
    }

    #[test]
    fn workloads_are_asked_for_by_name_or_family() {
        assert_eq!(names(&["usemem-2"]).unwrap(), ["usemem-2"]);
        assert_eq!(
            names(&["zipf"]).unwrap(),
            ["zipf-0.8", "zipf-0.99", "zipf-1.2"]
        );
        assert_eq!(names(&["--all"]).unwrap().len(), NAMED.len());
        let said = names(&["zip"]).unwrap_err();
        assert!(
            said.contains("no workload zip") && said.contains("memhog"),
            "{said}"
        );
    }

    #[test]
    fn commands_are_this_program_again() {
        let options = options(&["usemem-2", "--size", "1M", "--ram", "512K"]);
        let job =
            wanted(&options).unwrap()[0].job(Path::new("/bin/vswap"), &options, &Supervisor::new());
        let job = job.unwrap();
        assert_eq!(
            job.line(),
            "/bin/vswap bench-workload usemem 524288 -n 2 -O -y -x --init-time --verify --json"
        );
        assert_eq!((job.ram_bytes, job.needs_bytes), (512 << 10, Some(1 << 20)));
    }

    #[test]
    fn a_workload_has_an_arena_or_says_that_it_has_none() {
        let options = options(&["zipf-0.99", "fork", "--threads", "2", "--size", "1M"]);
        let jobs = wanted(&options).unwrap().into_iter();
        let commands: Vec<_> = jobs
            .map(|named| {
                let job = named.job(Path::new("/bin/vswap"), &options, &Supervisor::new());
                let job = job.unwrap();
                assert_eq!(job.name, format!("{}, --threads 2", named.name));
                job.in_arena(9 << 20)
            })
            .collect();
        let words = commands[0].as_ref().unwrap();
        assert_eq!(
            words[..4],
            ["/bin/vswap", "bench-workload", "zipf", "1048576"]
        );
        assert_eq!(
            words[words.len() - 4..],
            ["--threads", "2", "--arena", "9437184"]
        );
        assert!(commands[1].as_ref().unwrap_err().contains("arena"));
    }
}
