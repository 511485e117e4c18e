//! Areas in redis-server, on loopback: every byte comes back, also while servers stop and die; what is lost is never
//! zeros; nothing stays behind.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use vswap_e2e::failure::During;
use vswap_e2e::launch::Running;
use vswap_e2e::schema::{is_as_described, parsed};
use vswap_e2e::{Context, Ended, Failure, MIB, Outcome, ensure, require_program};

use crate::used::{traffic, with_areas, workload};

pub const LIMIT_BYTES: u64 = 96 * MIB;
/// Much more than fits into the pool.
pub const CONTENT: &str = "320M";
/// How long a server may take to begin.
const START: Duration = Duration::from_secs(10);

/// A server, which is killed at the end.
pub struct Server {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Server {
    /// Starts one with these options.
    pub fn start(options: &[&str]) -> Outcome<Server> {
        let program = require_program("redis-server", "apt package redis-server")?;
        for _ in 0..5 {
            let port = free_port()?;
            let dir = tempfile::tempdir().during(|| "make a directory".to_owned())?;
            let mut command = Command::new(&program);
            command.args(["--bind", "127.0.0.1", "--save", "", "--port"]);
            command.arg(port.to_string()).arg("--dir").arg(dir.path());
            let child = command.args(options).stdout(Stdio::null()).spawn();
            let mut server = Server {
                child: child.during(|| "start redis-server".to_owned())?,
                port,
                _dir: dir,
            };
            if server.is_up() {
                return Ok(server);
            }
        }
        Err(Failure::wrong("redis-server does not start".to_owned()))
    }

    fn is_up(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < START && matches!(self.child.try_wait(), Ok(None)) {
            if self.ask(&["PING"]).is_ok_and(|answer| answer == "PONG") {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn ask(&self, words: &[&str]) -> Outcome<String> {
        let client = require_program("redis-cli", "apt package redis-tools")?;
        let mut command = Command::new(client);
        command.args(["-p", &self.port.to_string()]).args(words);
        let output = command.output().during(|| "run redis-cli".to_owned())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    pub fn signal(&self, signal: Signal) -> Outcome {
        kill_process(self.pid()?, signal).during(|| "signal redis-server".to_owned())
    }

    fn pid(&self) -> Outcome<Pid> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| Failure::wrong("a server without a process id".to_owned()))
    }

    /// Waits until pages have come to it.
    pub fn has_pages(&self, running: &Running) -> Outcome {
        running.until("pages to come to the store", || {
            let keys: u64 = self.ask(&["DBSIZE"])?.parse().unwrap_or(0);
            Ok((keys > 20).then_some(()))
        })
    }

    /// Checks that no key is left.
    pub fn must_be_empty(&self) -> Outcome {
        let keys = self.ask(&["DBSIZE"])?;
        ensure!(keys == "0", "{keys} keys are left");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").during(|| "find a port".to_owned())?;
    let address = listener.local_addr().during(|| "find a port".to_owned())?;
    Ok(address.port())
}

pub fn said(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits for the end of a run that must be right. The servers of the test live on, so it may have children then.
pub fn end(running: Running) -> Outcome<Ended> {
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_hold_limit()?;
    Ok(ended)
}

pub fn must_have_used(context: &Context, ended: &Ended, name: &str) -> Outcome {
    let (written, read) = traffic(ended, name)?;
    context.say(format!(
        "written {} MiB, read {} MiB",
        written / MIB,
        read / MIB
    ));
    ensure!(
        written > 32 * MIB && read > 32 * MIB,
        "the store was hardly used"
    );
    Ok(())
}

/// Everything goes there and comes back. At the end no key is left.
pub fn store(context: &Context) -> Outcome {
    let server = Server::start(&[])?;
    let areas = [format!("valkey://{}:1G", server.address())];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(["--pool", "25%"]);
    let ended = end(context.limited(LIMIT_BYTES)?.start(&job)?)?;
    must_have_used(context, &ended, &server.address())?;
    server.must_be_empty()
}

/// The server stands still for a while: the program waits, vswap says for whom, and nothing is wrong afterwards.
pub fn stopped(context: &Context) -> Outcome {
    let server = Server::start(&[])?;
    let areas = [format!("valkey://{}:1G", server.address())];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(["--pool", "off"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    server.has_pages(&running)?;
    server.signal(Signal::STOP)?;
    let stderr = running.stderr().to_owned();
    let waits = format!("waits for {}", server.address());
    running.until("vswap to say for whom it waits", || {
        Ok(said(&stderr).contains(&waits).then_some(()))
    })?;
    let run = running.pid().to_string();
    let status = context.vswap(&["status", "--far", "--run", &run])?;
    let status = String::from_utf8_lossy(&status.stdout);
    ensure!(status.contains("waits, "), "status --far: {status}");
    must_be_described(context, &run)?;
    server.signal(Signal::CONT)?;
    let ended = end(running)?;
    must_have_used(context, &ended, &server.address())?;
    let said = said(&ended.stderr);
    ensure!(said.contains("answers again"), "stderr: {said}");
    server.must_be_empty()
}

/// What `status --json` says of a run with a store, whose server does not answer, is what its schema says.
fn must_be_described(context: &Context, run: &str) -> Outcome {
    let printed = context.vswap(&["status", "--json", "--run", run])?;
    let printed = parsed(&printed.stdout)?;
    let report = &printed[0];
    is_as_described("run", report)?;
    let far = &report["areas"][0]["far"];
    let server = &far["servers"][0];
    ensure!(
        far["pages"].as_u64() > Some(0) && server["silent_seconds"].is_number(),
        "status --json: {far}"
    );
    Ok(())
}

/// Two copies of each page on three servers. One of them dies.
pub fn one_of_three_dies(context: &Context) -> Outcome {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(&[])?);
    }
    let names: Vec<String> = servers.iter().map(Server::address).collect();
    let areas = [format!("valkey://{}:1G", names.join(","))];
    let options = ["--pool", "off", "--far-copies", "2"];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(options);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    servers[0].has_pages(&running)?;
    servers[0].signal(Signal::KILL)?;
    let ended = end(running)?;
    must_have_used(context, &ended, &names[2])?;
    servers[1..].iter().try_for_each(Server::must_be_empty)
}

/// Somebody empties the store. Who touches a lost page is ended by SIGBUS, and reads no zeros.
pub fn lost(context: &Context) -> Outcome {
    let server = Server::start(&[])?;
    let areas = [
        format!("valkey://{}:1G,prio=5", server.address()),
        format!("{}:1G,prio=1", context.place().display()),
    ];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(["--pool", "off"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    server.has_pages(&running)?;
    server.ask(&["FLUSHALL"])?;
    let ended = running.wait()?;
    ended.must_be_ended_by(Signal::BUS)?;
    ensure!(ended.figure("pages_lost")? > 0, "no lost page is counted");
    let said = said(&ended.stderr);
    ensure!(said.contains("not there any more"), "stderr: {said}");
    Ok(())
}

/// A store comes while the program runs, and goes again.
pub fn live(context: &Context) -> Outcome {
    let server = Server::start(&[])?;
    let name = format!("valkey://{}", server.address());
    let job = with_areas(
        workload(CONTENT)?,
        &[format!("{}:1G", context.place().display())],
    )
    .vswap_options(["--pool", "off", "--allow-far"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    let run = running.pid().to_string();
    let area = format!("{name}:512M,prio=9");
    let on = running.until("the run to take the store", || {
        let asked = context.vswap(&["swapon", "--run", &run, &area])?;
        Ok(asked.status.success().then_some(asked))
    })?;
    ensure!(on.status.success(), "swapon: {on:?}");
    server.has_pages(&running)?;
    let off = context.vswap(&["swapoff", "--run", &run, &name])?;
    ensure!(off.status.success(), "swapoff: {off:?}");
    end(running)?;
    server.must_be_empty()
}

/// A store that would throw pages away is refused, with what mends it. So is one that is not there.
pub fn refused(context: &Context) -> Outcome {
    let options = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];
    let server = Server::start(&options)?;
    let store = format!("valkey://{}:32M", server.address());
    let nobody = format!("valkey://127.0.0.1:{}:32M", free_port()?);
    for (area, expected) in [
        (&store, "CONFIG SET maxmemory-policy noeviction"),
        (&nobody, "does not answer"),
        (&format!("valkey://{}", server.address()), "noeviction"),
    ] {
        let run = ["run", "--ram", "64M", "--swap", area, "--", "true"];
        let refused = context.vswap(&run)?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(
            refused.status.code() == Some(125) && said.contains(expected),
            "{area}: {refused:?}"
        );
    }
    let checked = context.vswap(&["far", "check", &format!("valkey://{}", server.address())])?;
    ensure!(!checked.status.success(), "far check: {checked:?}");
    Ok(())
}
