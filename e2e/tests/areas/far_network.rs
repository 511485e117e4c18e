//! Areas in redis-server behind a network that is cut, and in a cluster whose master dies: every byte comes back.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use vswap_e2e::failure::During;
use vswap_e2e::need::proxy_binary;
use vswap_e2e::{Context, Failure, Outcome, ensure, require_program};

use crate::far::{CONTENT, LIMIT_BYTES, Server, end, free_port, must_have_used, said};
use crate::used::{with_areas, workload};

/// Masters of the cluster, and replicas.
pub const MASTERS: usize = 3;
/// How often the cluster is asked whether it is ready, twenty times a second.
const LOOKS: usize = 400;
/// How long the network drops everything. A client waits five seconds for an answer and tries again: the first cut is
/// shorter, the second longer than that.
const CUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(7)];
/// As long as requests are repeated.
const LONG_CUT: Duration = Duration::from_secs(60);
/// What a byte takes in each direction, in microseconds.
const DELAY_US: &str = "50";

/// Masters, and as many replicas behind them in the list.
pub fn cluster() -> Outcome<Vec<Server>> {
    let client = require_program("redis-cli", "apt package redis-tools")?;
    let mut servers = Vec::new();
    for _ in 0..2 * MASTERS {
        let bus = free_port()?.to_string();
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        servers.push(Server::start(
            &[&options[..], &["--cluster-port", &bus]].concat(),
        )?);
    }
    let mut create = Command::new(client);
    create.args(["--cluster", "create"]);
    create.args(servers.iter().map(Server::address));
    create.args(["--cluster-replicas", "1", "--cluster-yes"]);
    let made = create.output().during(|| "make a cluster".to_owned())?;
    ensure!(
        made.status.success(),
        "redis-cli --cluster create: {made:?}"
    );
    for _ in 0..LOOKS {
        if all_ready(&servers)? {
            return Ok(servers);
        }
        sleep(Duration::from_millis(50));
    }
    Err(Failure::wrong("the cluster is not ready".to_owned()))
}

fn all_ready(servers: &[Server]) -> Outcome<bool> {
    for (server, replica) in servers.iter().zip(0..) {
        let state = server.ask(&["CLUSTER", "INFO"])?;
        let role = server.ask(&["ROLE"])?;
        let follows = replica < MASTERS || role.contains("connected");
        if !state.contains("cluster_state:ok") || !follows {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_master(server: &Server) -> Outcome<bool> {
    Ok(server.ask(&["ROLE"])?.starts_with("master"))
}

/// Two copies of each page. A master dies while the program runs, and its replica, which may be a little behind, takes
/// its place.
pub fn replica_is_promoted(context: &Context) -> Outcome {
    let servers = cluster()?;
    // One that answers is enough to find all of them.
    let store = servers[1].address();
    let options = ["--pool", "off", "--far-copies", "2"];
    let job =
        with_areas(workload(CONTENT)?, &[format!("valkey://{store}:1G")]).vswap_options(options);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    servers[0].has_pages(&running)?;
    servers[0].signal(Signal::KILL)?;
    running.until("a replica to be promoted", || {
        for replica in &servers[MASTERS..] {
            if is_master(replica)? {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })?;
    let ended = end(running)?;
    must_have_used(context, &ended, &store)?;
    servers[1..].iter().try_for_each(Server::must_be_empty)
}

/// A network with latency, which ends with the test.
struct Network {
    child: Child,
    port: u16,
}

impl Network {
    fn before(server: &Server) -> Outcome<Network> {
        let port = free_port()?;
        let mut command = Command::new(proxy_binary()?);
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--to", &server.address(), "--delay-us", DELAY_US]);
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.during(|| "start latency-proxy".to_owned())?;
        let network = Network { child, port };
        for _ in 0..LOOKS {
            if TcpStream::connect(network.store()).is_ok() {
                return Ok(network);
            }
            sleep(Duration::from_millis(50));
        }
        Err(Failure::wrong("latency-proxy does not start".to_owned()))
    }

    /// The server, as it is reached through the network.
    fn store(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Drops everything for a while, as a cable that is pulled out does.
    fn cut(&self, time: Duration) -> Outcome {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::wrong("a proxy without a process id".to_owned()))?;
        kill_process(pid, Signal::STOP).during(|| "stop latency-proxy".to_owned())?;
        sleep(time);
        kill_process(pid, Signal::CONT).during(|| "continue latency-proxy".to_owned())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // One that has ended is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The network drops packets for seconds: the program waits, vswap says for whom, and nothing is wrong.
pub fn is_cut(context: &Context) -> Outcome {
    let server = Server::start(&[])?;
    let network = Network::before(&server)?;
    let store = network.store();
    let areas = [format!("valkey://{store}:1G")];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(["--pool", "off"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    server.has_pages(&running)?;
    for time in CUTS {
        network.cut(time)?;
    }
    let ended = end(running)?;
    must_have_used(context, &ended, &store)?;
    let said = said(&ended.stderr);
    ensure!(
        said.contains(&format!("waits for {store}")) && said.contains("answers again"),
        "stderr: {said}"
    );
    server.must_be_empty()
}

/// The network drops packets for a minute, which is as long as requests are repeated. What is wanted meanwhile comes
/// from the backup, and every byte is right. What could not be written stays in memory.
pub fn is_cut_for_a_minute(context: &Context) -> Outcome {
    let server = Server::start(&[])?;
    let network = Network::before(&server)?;
    let store = network.store();
    let backup = context.place().display().to_string();
    let job = with_areas(workload(CONTENT)?, &[format!("valkey://{store}:1G")]).vswap_options([
        "--pool",
        "off",
        "--far-backup",
        &backup,
    ]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    server.has_pages(&running)?;
    network.cut(LONG_CUT)?;
    let ended = end(running)?;
    must_have_used(context, &ended, &store)?;
    let said = said(&ended.stderr);
    ensure!(
        said.contains(&format!("waits for {store}")),
        "stderr: {said}"
    );
    server.must_be_empty()
}

/// The same for longer than requests are repeated, without a backup. Who touches a page there is ended by SIGBUS, is
/// told which server it was, and reads no wrong bytes.
pub fn is_cut_for_too_long(context: &Context) -> Outcome {
    let server = Server::start(&[])?;
    let network = Network::before(&server)?;
    let store = network.store();
    let areas = [
        format!("valkey://{store}:1G,prio=5"),
        format!("{}:1G,prio=1", context.place().display()),
    ];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(["--pool", "off"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    server.has_pages(&running)?;
    // The program may wait for room first, then for a page among others, and then for it alone.
    network.cut(3 * LONG_CUT + Duration::from_secs(20))?;
    let ended = running.wait()?;
    ended.must_be_ended_by(Signal::BUS)?;
    let said = said(&ended.stderr);
    ensure!(
        said.contains(&format!("waits for {store}")) && said.contains("not answered in time"),
        "stderr: {said}"
    );
    Ok(())
}
