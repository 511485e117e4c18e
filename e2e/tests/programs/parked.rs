//! redis-server is parked, and asked again.

use std::time::{Duration, Instant};

use vswap_bench::resp::{Connection, Reply};
use vswap_e2e::limit::mib;
use vswap_e2e::{Context, Failure, MIB, Outcome, Running, ensure, procfs, require_program};

use crate::{attach, redis};

const LIMIT_BYTES: u64 = 1024 * MIB;
/// What may be left of the server, and in all.
const PROGRAM_BYTES_MAX: u64 = 8 * MIB;
const LEFT_BYTES_MAX: u64 = 48 * MIB;
/// How long the server may take to answer after it was woken.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

fn must(context: &Context, words: &[&str]) -> Outcome<String> {
    let done = context.vswap(words)?;
    ensure!(done.status.success(), "{words:?}: {done:?}");
    Ok(String::from_utf8_lossy(&done.stdout)
        .trim()
        .replace('\n', "; "))
}

fn left_bytes(context: &Context, run: &str) -> Outcome<u64> {
    let output = context.vswap(&["status", "--json", "--run", run])?;
    let all: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let report = all.into_iter().next().unwrap_or_default();
    ensure!(report["state"] == "parked", "it is not parked: {report}");
    let left = report["total_bytes"].as_u64();
    left.ok_or_else(|| Failure::wrong(format!("no total in {report}")))
}

fn ask(client: &mut Connection) -> Outcome {
    let reply = client.receive().map_err(Failure::wrong)?;
    ensure!(reply == Reply::Status("PONG".to_owned()), "PING: {reply:?}");
    Ok(())
}

/// A client asks while the server is parked, and gets its answer when it is woken.
pub fn redis(context: &Context) -> Outcome {
    let server = require_program("redis-server", "apt package redis-server")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let (running, mut client) = redis::start(&launcher, &server)?;
    redis::load(&mut client, redis::SMALL)?;
    let run = running.pid().to_string();
    for _ in 0..2 {
        context.say(must(
            context,
            &["park", &running.program_pid()?.to_string()],
        )?);
        let anon = procfs::anon_bytes(running.program_pid()?);
        let left = left_bytes(context, &run)?;
        ensure!(
            anon <= PROGRAM_BYTES_MAX && left <= LEFT_BYTES_MAX,
            "{} are left of the server, {} in all",
            mib(anon),
            mib(left)
        );
        client.send(&[b"PING"]).map_err(Failure::wrong)?;
        client.flush().map_err(Failure::wrong)?;
        let began = Instant::now();
        must(context, &["wake", "--run", &run])?;
        ask(&mut client)?;
        context.say(format!("answers {:?} after it was woken", began.elapsed()));
        ensure!(
            began.elapsed() < ANSWER_WITHIN,
            "an answer took {:?}",
            began.elapsed()
        );
        redis::read_back(&mut client, redis::SMALL, redis::SEED)?;
    }
    redis::shut_down(&launcher, running, client)
}

/// A server that was attached to is let go of while it is parked: it goes on, with all of its values.
pub fn attached(context: &Context) -> Outcome {
    let server = require_program("redis-server", "apt package redis-server")?;
    let launcher = context.native()?;
    let (running, mut client) = redis::start(&launcher, &server)?;
    redis::load(&mut client, redis::SMALL)?;
    let attached = attach::attach(context, &launcher, running.pid(), LIMIT_BYTES)?;
    let server = running.pid().to_string();
    context.say(must(context, &["park", &server])?);
    ensure!(is_stopped(&running), "the server is not stopped");
    must(context, &["wake", &server])?;
    redis::read_back(&mut client, redis::SMALL, redis::SEED)?;
    must(context, &["park", &server])?;
    attached.leaves()?;
    ensure!(!is_stopped(&running), "the server does not go on");
    redis::read_back(&mut client, redis::SMALL, redis::SEED)?;
    redis::shut_down(&launcher, running, client)
}

fn is_stopped(running: &Running) -> bool {
    procfs::stat(running.pid()).is_some_and(|stat| stat.state == b'T')
}
