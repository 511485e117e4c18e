//! An area in a cluster whose hash slots are moved from node to node while a program runs: every byte comes back.

use std::process::Command;
use std::time::Instant;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Failure, Job, Outcome, ensure, require_program, workload_binary};

use crate::far::{LIMIT_BYTES, Server, end, must_have_used};
use crate::far_network::{MASTERS, cluster};
use crate::used::with_areas;

/// Hash slots that move at a time: one in eight of what a master has. The area has some 80 keys, each in
/// any slot.
const SLOTS: &str = "700";
/// It rewrites and verifies its memory again and again, for so many seconds.
const MEMHOG: [&str; 4] = ["memhog", "224M", "--seconds", "30"];

/// Moves hash slots with all that is in them.
fn reshard(from: &Server, to: &Server) -> Outcome {
    let client = require_program("redis-cli", "apt package redis-tools")?;
    let mut command = Command::new(client);
    command.args(["--cluster", "reshard", &from.address(), "--cluster-yes"]);
    command.args(["--cluster-from", &from.ask(&["CLUSTER", "MYID"])?]);
    command.args(["--cluster-to", &to.ask(&["CLUSTER", "MYID"])?]);
    command.args(["--cluster-slots", SLOTS]);
    let moved = command.output().during(|| "run redis-cli".to_owned())?;
    let is_done = moved.status.success();
    ensure!(is_done, "redis-cli --cluster reshard: {moved:?}");
    Ok(())
}

/// How often a server has done this, by what it says of its commands or errors.
fn count(server: &Server, section: &str, line: &str) -> Outcome<u64> {
    let info = server.ask(&["INFO", section])?;
    let found = info.lines().find_map(|text| text.strip_prefix(line));
    let number = found.and_then(|rest| rest.split([',', '\r']).next()?.parse().ok());
    Ok(number.unwrap_or(0))
}

/// Keys that a master has given to others, and requests that it has sent elsewhere.
fn given(server: &Server) -> Outcome<(u64, u64)> {
    let keys = count(server, "commandstats", "cmdstat_migrate:calls=")?;
    let moved = count(server, "errorstats", "errorstat_MOVED:count=")?;
    let asked = count(server, "errorstats", "errorstat_ASK:count=")?;
    Ok((keys, moved + asked))
}

pub fn hash_slots_are_moved(context: &Context) -> Outcome {
    let servers = cluster()?;
    let masters = &servers[..MASTERS];
    let store = masters[1].address();
    let job = Job::new(workload_binary()?).args(MEMHOG);
    let job = with_areas(job, &[format!("valkey://{store}:1G")]).vswap_options(["--pool", "off"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    masters[0].has_pages(&running)?;
    let begun = Instant::now();
    for (from, to) in [(0, 1), (1, 2)] {
        reshard(&masters[from], &masters[to])?;
    }
    let took = begun.elapsed().as_secs_f64();
    let is_alive = vswap_e2e::procfs::is_alive(running.pid());
    ensure!(is_alive, "the program ended before all was moved");
    let mut all = (0, 0);
    for master in masters {
        let (keys, elsewhere) = given(master)?;
        all = (all.0 + keys, all.1 + elsewhere);
    }
    context.say(format!(
        "{} keys were moved in {took:.1} s, {} requests sent elsewhere",
        all.0, all.1
    ));
    if all.0 == 0 || all.1 == 0 {
        return Err(Failure::wrong("no key was moved under load".to_owned()));
    }
    let ended = end(running)?;
    must_have_used(context, &ended, &store)?;
    servers.iter().try_for_each(Server::must_be_empty)
}
