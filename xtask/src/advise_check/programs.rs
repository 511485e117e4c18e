//! The programs on which advice is tried. Each does the same work in each run, and some seconds of it.

/// A program, and how to run it. Scripts run in the program's own directory; `$SCRIPTS` is where the files of this
/// repository are.
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
pub const PROGRAMS: [Program; 5] = [
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
              redis-cli -s ./redis.sock --pipe <commands && redis-cli -s ./redis.sock shutdown nosave\n\
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
        run: "gcc -O1 -w -c large.c -o large.o",
    },
];
