//! The pages, each with the one command that yields its figures.
//!
//! All commands together take less than 25 minutes on two idle processors. Workloads use half of the default sizes
//! where nothing but time depends on them. The times are estimates; `limit` ends a run that hangs.

use std::time::Duration;

/// A run is ended after this many times its usual time, and the minute besides.
const LIMIT_TIMES: u64 = 3;
const LIMIT_MORE_SECONDS: u64 = 60;

/// The program that measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `vswap bench`: vswap beside the kernel. Makes control groups and swap, and so needs root.
    Bench,
    /// `vswap-engine-bench`: the engine by itself.
    Engine,
}

/// A page of docs/results, and how its figures are made.
#[derive(Debug)]
pub struct Page {
    /// Its name on the command line, and that of its files.
    pub name: &'static str,
    /// Its heading.
    pub heading: &'static str,
    /// One sentence: what is measured.
    pub about: &'static str,
    /// What measures.
    pub program: Program,
    /// What to measure.
    pub words: &'static [&'static str],
    /// How large. Left out of a quick run, which is small by itself.
    pub size: &'static [&'static str],
    /// What the run takes, roughly, on two idle processors.
    pub seconds: u64,
}

impl Page {
    /// The program below `target/release`, and its arguments.
    pub fn command(&self, quick: bool) -> Vec<&'static str> {
        let mut command = match self.program {
            Program::Bench => vec!["vswap", "bench"],
            Program::Engine => vec!["vswap-engine-bench"],
        };
        command.extend(self.words);
        command.extend(if quick { &["--quick"] } else { self.size });
        command
    }

    /// The longest time for its command.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(LIMIT_TIMES * self.seconds + LIMIT_MORE_SECONDS)
    }
}

const HALF: &[&str] = &["--size", "1G", "--ram", "256M"];
const DEFAULT: &[&str] = &[];

/// Every page.
pub const PAGES: &[Page] = &[
    Page {
        name: "fill-read-write",
        heading: "fill, read and write",
        about: "One thread fills memory, reads it in order, reads and writes it at random, and verifies it.",
        program: Program::Bench,
        words: &["fill-read-write"],
        size: HALF,
        seconds: 150,
    },
    Page {
        name: "zipf",
        heading: "a few pages often",
        about: "One thread uses some pages far more often than others, by Zipf, and writes in one access of five.",
        program: Program::Bench,
        words: &["zipf"],
        size: HALF,
        seconds: 190,
    },
    Page {
        name: "usemem",
        heading: "usemem",
        about: "1, 2 and 31 tasks write their memory word by word, verify it and free it.",
        program: Program::Bench,
        words: &["usemem"],
        size: HALF,
        seconds: 160,
    },
    Page {
        name: "memhog",
        heading: "memhog",
        about: "A program fills three times its limit as fast as it can, rewrites it and verifies it.",
        program: Program::Bench,
        words: &["memhog"],
        size: HALF,
        seconds: 60,
    },
    Page {
        name: "redis",
        heading: "redis",
        about: "redis serves SET and GET, without and with BGSAVE, and a mix by Zipf.",
        program: Program::Bench,
        words: &["redis"],
        size: HALF,
        seconds: 190,
    },
    Page {
        name: "build",
        heading: "a build",
        about: "As many compilers as processors build zstd in a fifth of the memory that they need.",
        program: Program::Bench,
        words: &["build"],
        size: DEFAULT,
        seconds: 180,
    },
    Page {
        name: "python",
        heading: "Python",
        about: "pandas, DuckDB and numpy group and sort a table of 1 GiB with a limit of 256 MiB.",
        program: Program::Bench,
        words: &["python"],
        size: DEFAULT,
        seconds: 190,
    },
    Page {
        name: "fork",
        heading: "forks",
        about: "A large parent forks 64 children, 4 at a time.",
        program: Program::Bench,
        words: &["fork"],
        size: HALF,
        seconds: 70,
    },
    Page {
        name: "disk",
        heading: "a file without a pool",
        about: "fill-read-write with an area in a file, beside the kernel's swap file and what fio gets from the disk.",
        program: Program::Bench,
        words: &["disk", "device"],
        size: DEFAULT,
        seconds: 60,
    },
    Page {
        name: "overhead",
        heading: "what a program pays that fits",
        about: "fill-read-write with more memory than it uses, with vswap and without.",
        program: Program::Bench,
        words: &["fits"],
        size: DEFAULT,
        seconds: 20,
    },
    Page {
        name: "engine-operations",
        heading: "operations of the engine",
        about: "Single operations of the engine by itself, without a kernel, a process or a fault in between.",
        program: Program::Engine,
        words: &["operations"],
        size: DEFAULT,
        seconds: 50,
    },
    Page {
        name: "engine-designs",
        heading: "designs of the engine",
        about: "The engine beside models that differ from it in one choice of design each.",
        program: Program::Engine,
        words: &["ablation"],
        size: DEFAULT,
        seconds: 80,
    },
    Page {
        name: "engine-areas",
        heading: "four areas",
        about: "The engine writes pages to four areas that take turns, and to the same four one after the other.",
        program: Program::Engine,
        words: &["areas"],
        size: DEFAULT,
        seconds: 20,
    },
    Page {
        name: "engine-tables",
        heading: "what tables cost",
        about: "Memory of the engine's tables for an idle and a full area, beside the kernel's by arithmetic.",
        program: Program::Engine,
        words: &["metadata"],
        size: DEFAULT,
        seconds: 10,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_take_less_than_25_minutes() {
        let seconds: u64 = PAGES.iter().map(|page| page.seconds).sum();
        assert!(seconds < 25 * 60, "{seconds} s");
    }

    #[test]
    fn every_page_has_a_name_of_its_own_and_says_in_a_sentence_what_it_is() {
        for page in PAGES {
            let same = PAGES.iter().filter(|other| other.name == page.name);
            assert_eq!(same.count(), 1, "{}", page.name);
            assert!(
                page.about.ends_with('.') && page.about.len() <= 120,
                "{}",
                page.name
            );
        }
    }

    #[test]
    fn a_quick_run_has_no_size() {
        let fork = PAGES.iter().find(|page| page.name == "fork").unwrap();
        assert_eq!(fork.command(true), ["vswap", "bench", "fork", "--quick"]);
        assert_eq!(
            fork.command(false).join(" "),
            "vswap bench fork --size 1G --ram 256M"
        );
    }
}
