//! PostgreSQL 15 with a work_mem far larger than `--ram`: a sort and a hash aggregate that stay in memory.
//!
//! The server refuses to run as root. So it runs as the user that its package has created, and so does vswap: a plain
//! user, who may open /dev/userfaultfd and has no capability.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use vswap_e2e::failure::During;
use vswap_e2e::need::{require_root, require_user};
use vswap_e2e::{Context, Failure, Job, Launcher, MIB, Outcome, Running, ensure, require_program};

const LIMIT_BYTES: u64 = 104 * MIB;
const PACKAGE: &str = "apt package postgresql-15";
const USER: &str = "postgres";
const ROWS: u64 = 1_500_000;

/// The server's settings: everything in the private memory of one backend, nothing durable, no parallel workers.
const SETTINGS: [&str; 14] = [
    "listen_addresses=",
    "shared_buffers=16MB",
    "work_mem=900MB",
    "hash_mem_multiplier=1",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "jit=off",
    "max_connections=10",
    "max_wal_senders=0",
    "wal_level=minimal",
    "max_parallel_workers_per_gather=0",
    "autovacuum=off",
    // A sort that spilled to disk would otherwise pass without having used memory. With this it fails.
    "temp_file_limit=1MB",
];

pub fn test(context: &Context) -> Outcome {
    require_root("postgres runs as a user of its own")?;
    let postgres = require_program("postgres", PACKAGE)?;
    let initdb = require_program("initdb", PACKAGE)?;
    let psql = require_program("psql", "apt package postgresql-client-15")?;
    let owner = require_user(USER, PACKAGE)?;
    let home = context.place().join("home");
    std::fs::create_dir(&home).during(|| format!("make {}", home.display()))?;
    std::os::unix::fs::chown(&home, Some(owner.uid), Some(owner.gid))
        .during(|| format!("give {} to {USER}", home.display()))?;
    make_cluster(&initdb, &home)?;
    context.compare(LIMIT_BYTES, |launcher| {
        let running = start(launcher, &postgres, &psql, &home)?;
        let sorted = ask(&psql, &home, &sort_query())?;
        ensure!(sorted == format!("{ROWS}|{ROWS}"), "the sort gave {sorted}");
        let grouped = ask(&psql, &home, &group_query())?;
        ensure!(
            grouped.starts_with(&format!("{}|{ROWS}|", ROWS / 2)),
            "the groups are {grouped}"
        );
        // A fast shutdown. The signal must reach the server unchanged through vswap.
        running.signal(Signal::INT)?;
        launcher.finish(running)?;
        Ok((sorted, grouped))
    })
}

fn make_cluster(initdb: &Path, home: &Path) -> Outcome {
    let output = Command::new("/usr/bin/setpriv")
        .args([
            &format!("--reuid={USER}"),
            &format!("--regid={USER}"),
            "--clear-groups",
        ])
        .arg(initdb)
        .args([
            "--no-sync",
            "--auth=trust",
            "--locale=C",
            "--encoding=UTF8",
            "--no-instructions",
        ])
        .arg("-D")
        .arg(home.join("data"))
        .current_dir(home)
        .output()
        .during(|| "run initdb".to_owned())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "initdb ended with {}: {errors}",
        output.status
    );
    Ok(())
}

fn start(launcher: &Launcher, postgres: &Path, psql: &Path, home: &Path) -> Outcome<Running> {
    let mut job = Job::new(postgres)
        .user(USER)
        .cwd(home)
        .vswap_options(["--codec", "zstd"]);
    job = job.arg("-D").arg(home.join("data")).arg("-k").arg(home);
    for setting in SETTINGS {
        job = job.arg("-c").arg(setting);
    }
    let running = launcher.start(&job)?;
    running.until(
        "postgres to answer",
        || Ok(ask(psql, home, "SELECT 1").ok()),
    )?;
    Ok(running)
}

fn ask(psql: &Path, home: &Path, query: &str) -> Outcome<String> {
    let output = Command::new(psql)
        .args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-U",
            USER,
            "-d",
            "postgres",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
        ])
        .arg(home)
        .args(["-c", query])
        .output()
        .during(|| "run psql".to_owned())?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::wrong(format!("psql: {errors}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Sorts every row by its label to exactly one place, which is known.
fn sort_query() -> String {
    format!(
        "SELECT count(*), count(*) FILTER (WHERE place = key + 1) FROM (
           SELECT key, row_number() OVER (ORDER BY label COLLATE \"C\") AS place FROM (
             SELECT i::bigint * 7919 % {ROWS} AS key,
                    'customers of the northern line, number '
                      || lpad((i::bigint * 7919 % {ROWS})::text, 12, '0')
                      || ', delivered before noon and paid in full' AS label
             FROM generate_series(0, {ROWS} - 1) AS i) AS rows) AS placed"
    )
}

/// Every group gets two rows.
fn group_query() -> String {
    format!(
        "SET enable_sort = off;
         SELECT count(*), sum(members), sum(total), min(members), max(members) FROM (
           SELECT label, count(*) AS members, sum(i) AS total FROM (
             SELECT i, 'customers of the northern line, number ' || lpad((i / 2)::text, 12, '0')
                      || ', delivered before noon and paid in full' AS label
             FROM generate_series(0, {ROWS} - 1) AS i) AS rows
           GROUP BY label) AS grouped"
    )
}
