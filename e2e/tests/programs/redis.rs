//! redis-server with values of 1 KiB: load, read back, benchmark, BGSAVE while values change, restart from the
//! dump, compare again.
//!
//! BGSAVE forks while most of the memory is swapped. The child must see the values from the moment of the fork,
//! although the parent overwrites some of them at once.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vswap_bench::resp::{Connection, Reply};
use vswap_e2e::failure::During;
use vswap_e2e::records::record;
use vswap_e2e::{Context, Failure, Job, Launcher, MIB, Outcome, Running, ensure, require_program};

use crate::attach;

/// How much the server holds, and a limit that is less than a third of it.
#[derive(Clone, Copy)]
pub struct Size {
    keys: u64,
    limit_bytes: u64,
}

pub const SMALL: Size = Size {
    keys: 90_000,
    limit_bytes: 40 * MIB,
};
const LARGE: Size = Size {
    keys: 600_000,
    limit_bytes: 256 * MIB,
};

const VALUE_BYTES: usize = 1024;
pub const SEED: u64 = 0x5eed_0001;
/// Commands in flight: enough to hide the round trip, few enough for socket buffers.
const PIPELINE: u64 = 100;
/// One in this many keys is overwritten as soon as BGSAVE has forked.
const OVERWRITE_EVERY: u64 = 50;
/// The longest time for one answer. A server in swap is slow, but not stuck.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

pub fn test(context: &Context) -> Outcome {
    of_size(context, SMALL)
}

pub fn large(context: &Context) -> Outcome {
    of_size(context, LARGE)
}

fn of_size(context: &Context, size: Size) -> Outcome {
    let server = require_program("redis-server", "apt package redis-server")?;
    let benchmark = require_program("redis-benchmark", "apt package redis-tools")?;
    context.compare(size.limit_bytes, |launcher| {
        let (running, mut client) = start(launcher, &server)?;
        load(&mut client, size)?;
        read_back(&mut client, size, SEED)?;
        smoke(context, launcher, &benchmark, size)?;
        save_while_overwriting(&running, &mut client, size)?;
        shut_down(launcher, running, client)?;

        let (running, mut client) = start(launcher, &server)?;
        // The dump holds the values from the moment of the fork, and nothing that was written afterwards.
        read_back(&mut client, size, SEED)?;
        shut_down(launcher, running, client)?;
        Ok(size.keys)
    })
}

/// Without what comes before the fork, for other ways of following it.
pub fn fork_while_swapped(context: &Context) -> Outcome {
    let server = require_program("redis-server", "apt package redis-server")?;
    context.compare(SMALL.limit_bytes, |launcher| {
        let (running, mut client) = start(launcher, &server)?;
        load(&mut client, SMALL)?;
        save_while_overwriting(&running, &mut client, SMALL)?;
        shut_down(launcher, running, client)?;
        let (running, mut client) = start(launcher, &server)?;
        read_back(&mut client, SMALL, SEED)?;
        shut_down(launcher, running, client)?;
        Ok(SMALL.keys)
    })
}

/// It is attached to with all its values, forks while most of them are in swap, and is let go of.
pub fn attached_while_it_runs(context: &Context) -> Outcome {
    let server = require_program("redis-server", "apt package redis-server")?;
    let launcher = context.native()?;
    let (running, mut client) = start(&launcher, &server)?;
    load(&mut client, SMALL)?;
    let limit_bytes = SMALL.limit_bytes;
    let attached = attach::attach(context, &launcher, running.pid(), limit_bytes)?;
    read_back(&mut client, SMALL, SEED)?;
    save_while_overwriting(&running, &mut client, SMALL)?;
    let summary = attached.leaves()?;
    ensure!(summary["pages_out"].as_u64() > Some(0), "{summary:#}");
    // The same values once more, and a fork that nobody follows.
    save_while_overwriting(&running, &mut client, SMALL)?;
    shut_down(&launcher, running, client)
}

pub fn start(launcher: &Launcher, server: &Path) -> Outcome<(Running, Connection)> {
    let options = "--port 0 --unixsocket redis.sock --save  --appendonly no --dbfilename dump.rdb";
    let running = launcher.start(&Job::new(server).args(options.split(' ')))?;
    let socket = launcher.place().join("redis.sock");
    let client = running.until("redis-server to answer", || {
        let Ok(mut client) = Connection::open(&socket, Duration::ZERO) else {
            return Ok(None);
        };
        client.wait_at_most(ANSWER_WITHIN).map_err(Failure::wrong)?;
        // While the server loads a dump it answers with an error.
        Ok(matches!(client.ask(&[b"PING"]), Ok(Reply::Status(_))).then_some(client))
    })?;
    Ok((running, client))
}

fn key(number: u64) -> String {
    // The names that redis-benchmark uses.
    format!("key:{number:012}")
}

fn in_batches(
    keys: u64,
    mut send: impl FnMut(u64) -> Outcome,
    mut receive: impl FnMut(u64) -> Outcome,
) -> Outcome {
    for first in (0..keys).step_by(usize::try_from(PIPELINE).unwrap_or(1)) {
        send(first)?;
        (first..(first + PIPELINE).min(keys)).try_for_each(&mut receive)?;
    }
    Ok(())
}

pub fn load(client: &mut Connection, Size { keys, .. }: Size) -> Outcome {
    let client = std::cell::RefCell::new(client);
    let mut value = Vec::new();
    let send = |first: u64| {
        for number in first..(first + PIPELINE).min(keys) {
            value.clear();
            record(SEED, number, VALUE_BYTES, &mut value);
            let mut client = client.borrow_mut();
            client
                .send(&[b"SET", key(number).as_bytes(), &value])
                .map_err(Failure::wrong)?;
        }
        Ok(())
    };
    in_batches(keys, send, |number| {
        let reply = client.borrow_mut().receive().map_err(Failure::wrong)?;
        ensure!(
            reply == Reply::Status("OK".to_owned()),
            "SET {}: {reply:?}",
            key(number)
        );
        Ok(())
    })
}

pub fn read_back(client: &mut Connection, Size { keys, .. }: Size, seed: u64) -> Outcome {
    ensure!(
        client.ask(&[b"DBSIZE"]).map_err(Failure::wrong)? == Reply::Integer(keys.cast_signed()),
        "DBSIZE is not {keys}"
    );
    let client = std::cell::RefCell::new(client);
    let mut value = Vec::new();
    let send = |first: u64| {
        for number in first..(first + PIPELINE).min(keys) {
            let mut client = client.borrow_mut();
            client
                .send(&[b"GET", key(number).as_bytes()])
                .map_err(Failure::wrong)?;
        }
        Ok(())
    };
    in_batches(keys, send, |number| {
        let reply = client.borrow_mut().receive().map_err(Failure::wrong)?;
        value.clear();
        record(seed, number, VALUE_BYTES, &mut value);
        let Reply::Bulk(Some(got)) = reply else {
            return Err(Failure::wrong(format!("GET {}: {reply:?}", key(number))));
        };
        let differs = got
            .iter()
            .zip(&value)
            .position(|(got, expected)| got != expected);
        ensure!(
            got.len() == value.len() && differs.is_none(),
            "{} has {} bytes and differs from byte {differs:?} on",
            key(number),
            got.len()
        );
        Ok(())
    })
}

fn smoke(context: &Context, launcher: &Launcher, benchmark: &Path, size: Size) -> Outcome {
    let keys = size.keys.to_string();
    let options = [
        "-r", &keys, "-n", &keys, "-d", "1024", "-c", "12", "-P", "32", "-t", "get", "-q",
    ];
    let output = Command::new(benchmark)
        .args(["-s", "redis.sock"])
        .args(options)
        .current_dir(launcher.place())
        .output()
        .during(|| "run redis-benchmark".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
    let last = text
        .lines()
        .rev()
        .find(|line| line.contains("requests per second"));
    let errors = String::from_utf8_lossy(&output.stderr);
    let line =
        last.ok_or_else(|| Failure::wrong(format!("redis-benchmark said {text} {errors}")))?;
    ensure!(
        output.status.success(),
        "redis-benchmark ended with {}: {errors}",
        output.status
    );
    context.say(format!(
        "redis-benchmark {}: {}",
        options.join(" "),
        line.trim()
    ));
    Ok(())
}

fn save_while_overwriting(running: &Running, client: &mut Connection, size: Size) -> Outcome {
    let reply = client.ask(&[b"BGSAVE"]).map_err(Failure::wrong)?;
    ensure!(
        reply == Reply::Status("Background saving started".to_owned()),
        "BGSAVE: {reply:?}"
    );
    let mut value = Vec::new();
    for number in (0..size.keys).step_by(usize::try_from(OVERWRITE_EVERY).unwrap_or(1)) {
        value.clear();
        record(!SEED, number, VALUE_BYTES, &mut value);
        let reply = client
            .ask(&[b"SET", key(number).as_bytes(), &value])
            .map_err(Failure::wrong)?;
        ensure!(
            reply == Reply::Status("OK".to_owned()),
            "SET during BGSAVE: {reply:?}"
        );
    }
    running.until("BGSAVE to end", || {
        let reply = client.ask(&[b"INFO", b"persistence"]);
        let Reply::Bulk(Some(text)) = reply.map_err(Failure::wrong)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        if !text.contains("rdb_bgsave_in_progress:0") {
            std::thread::sleep(Duration::from_millis(50));
            return Ok(None);
        }
        ensure!(
            text.contains("rdb_last_bgsave_status:ok"),
            "BGSAVE failed: {text}"
        );
        Ok(Some(()))
    })?;
    for number in (0..size.keys).step_by(usize::try_from(OVERWRITE_EVERY).unwrap_or(1)) {
        value.clear();
        record(!SEED, number, VALUE_BYTES, &mut value);
        let reply = client
            .ask(&[b"GET", key(number).as_bytes()])
            .map_err(Failure::wrong)?;
        let expected = Reply::Bulk(Some(value.clone()));
        ensure!(
            reply == expected,
            "{} lost what was written during BGSAVE",
            key(number)
        );
    }
    Ok(())
}

pub fn shut_down(launcher: &Launcher, running: Running, mut client: Connection) -> Outcome {
    client
        .send_last(&[b"SHUTDOWN", b"NOSAVE"])
        .map_err(Failure::wrong)?;
    launcher.finish(running).map(drop)
}
