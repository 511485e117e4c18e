//! Real programs that several verbs measure: which there are, and what they need. Each does the same work in each run,
//! takes some seconds, and prints a result on standard output that depends on the memory it has read. `place` runs
//! them.

pub mod place;

use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian has the servers of PostgreSQL, one directory by version.
const POSTGRES_DIRS: &str = "/usr/lib/postgresql";

/// A program, and how to run it. Scripts run in the program's own directory. `$SCRIPTS` is where the files of this
/// repository are, `$TEMPORARY` a directory that every user may enter and that goes away.
#[derive(Debug)]
pub struct Program {
    /// Its name on the command line and in the tables.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Commands that must be there.
    pub needs: &'static [&'static str],
    /// A shell script that runs once.
    pub prepare: &'static str,
    /// The shell script that is the program.
    pub run: &'static str,
}

/// All of them.
pub const PROGRAMS: [Program; 7] = [
    Program {
        name: "cpython",
        about: "CPython, a dict of 600,000 records",
        needs: &["python3"],
        prepare: "",
        run: "python3 \"$SCRIPTS/records.py\"",
    },
    Program {
        name: "java",
        about: "OpenJDK, a map of 500,000 arrays",
        needs: &["java"],
        prepare: "",
        run: "java -XX:+UseSerialGC -Xmx640m \"$SCRIPTS/Arrays.java\"",
    },
    Program {
        name: "redis",
        about: "redis and its client, 300,000 keys",
        needs: &["redis-server", "redis-cli", "python3"],
        prepare: "python3 \"$SCRIPTS/commands.py\" >commands",
        run: "redis-server --port 0 --unixsocket ./redis.sock --save '' --appendonly no >server.log &\n\
              until redis-cli -s ./redis.sock ping; do sleep 0.05; done >ping.log 2>&1\n\
              redis-cli -s ./redis.sock --pipe <commands &&\n\
              redis-cli -s ./redis.sock --eval \"$SCRIPTS/digest.lua\" &&\n\
              redis-cli -s ./redis.sock shutdown nosave\n\
              wait",
    },
    Program {
        name: "duckdb",
        about: "DuckDB, a table of 5,000,000 rows",
        needs: &["python3"],
        prepare: "python3 -m venv venv && ./venv/bin/pip install --quiet duckdb==1.1.3",
        run: "./venv/bin/python3 \"$SCRIPTS/queries.py\"",
    },
    Program {
        name: "gcc",
        about: "gcc -O1, one file of 300 functions",
        needs: &["gcc", "python3"],
        prepare: "python3 \"$SCRIPTS/source.py\" >large.c",
        run: "gcc -O1 -w -c large.c -o large.o && cksum <large.o",
    },
    Program {
        name: "node",
        about: "Node, a map of 600,000 objects",
        needs: &["node"],
        prepare: "",
        run: "node --max-old-space-size=700 \"$SCRIPTS/objects.js\"",
    },
    Program {
        name: "postgres",
        about: "PostgreSQL, a sort, groups and a join of 1,000,000 rows",
        needs: &["postgres", "initdb", "psql", "setpriv"],
        prepare: "sh -e \"$SCRIPTS/postgres.sh\" prepare",
        run: "sh \"$SCRIPTS/postgres.sh\" run",
    },
];

/// The named programs, or all.
///
/// # Errors
/// There is no program of such a name.
pub fn choose(names: &[String]) -> Result<Vec<&'static Program>, String> {
    if names.is_empty() {
        return Ok(PROGRAMS.iter().collect());
    }
    let known = |name: &String| {
        let mut all = PROGRAMS.iter();
        all.find(|program| program.name == name)
            .ok_or_else(|| format!("there is no program {name:?}; --list lists them"))
    };
    names.iter().map(known).collect()
}

/// The first command that is not there.
pub fn missing(program: &Program) -> Option<&'static str> {
    let dirs = search_dirs();
    let is_there = |name: &str| dirs.iter().any(|dir| dir.join(name).is_file());
    program.needs.iter().copied().find(|name| !is_there(name))
}

/// Where commands are looked for: what the user has in PATH, and the servers that Debian keeps out of it, the newest
/// first.
fn search_dirs() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let entries = fs::read_dir(Path::new(POSTGRES_DIRS));
    let mut versions: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions.sort_by_key(|path| std::cmp::Reverse(version(path)));
    dirs.extend(versions.into_iter().map(|path| path.join("bin")));
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_chosen_by_its_name() {
        let chosen = choose(&["redis".to_owned(), "node".to_owned()]).unwrap();
        let names: Vec<&str> = chosen.iter().map(|program| program.name).collect();
        assert_eq!(names, ["redis", "node"]);
        assert_eq!(choose(&[]).unwrap().len(), PROGRAMS.len());
        let unknown = choose(&["no-such".to_owned()]).unwrap_err();
        assert!(unknown.contains("no-such"), "{unknown}");
    }

    #[test]
    fn each_program_has_a_name_of_its_own() {
        for program in &PROGRAMS {
            let same = PROGRAMS.iter().filter(|other| other.name == program.name);
            assert_eq!(same.count(), 1, "{}", program.name);
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let program = |needs| Program {
            name: "",
            about: "",
            needs,
            prepare: "",
            run: "",
        };
        assert_eq!(missing(&program(&["sh", "cat"])), None);
        let absent = program(&["sh", "no-such-command"]);
        assert_eq!(missing(&absent), Some("no-such-command"));
    }
}
