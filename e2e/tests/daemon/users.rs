//! Another user can neither read nor control a user's runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use vswap_e2e::failure::During;
use vswap_e2e::need::require_root;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, procfs, require_program};

use crate::daemon::Daemon;

const LIMIT_BYTES: u64 = 64 * MIB;
/// A user who owns nothing.
const NOBODY: &str = "65534";
/// Number of requests that the intruder makes.
const REQUESTS: usize = 7;

/// A command of another user, for 20 seconds at most.
fn command_of_nobody(daemon: &Daemon, words: &[&str]) -> Outcome<Command> {
    let setpriv = require_program("setpriv", "apt package util-linux")?;
    let mut command = Command::new("/usr/bin/timeout");
    command
        .arg("20")
        .arg(setpriv)
        .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")])
        .arg("--clear-groups")
        .args(words)
        .env("XDG_RUNTIME_DIR", daemon.runtime())
        .current_dir("/")
        .stdin(Stdio::null());
    Ok(command)
}

/// Runs a command as another user and returns its standard output.
fn as_nobody(daemon: &Daemon, words: &[&str]) -> Outcome<String> {
    let output = command_of_nobody(daemon, words)?
        .output()
        .during(|| format!("run {}", words.join(" ")))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn open_to_all(path: &Path) -> Outcome {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
        .during(|| format!("open {}", path.display()))
}

/// Opens the agents' socket of a directory to all, if there is one. Returns its names, on the disk and without.
fn open_agents(dir: &Path) -> Outcome<Vec<String>> {
    let agents = dir.join("agents.sock");
    if !agents.exists() {
        return Ok(Vec::new());
    }
    open_to_all(&agents)?;
    let name = agents.display().to_string();
    Ok(vec![format!("@{name}"), name])
}

/// Permissions keep others from the sockets. If the sockets were open, the check of the peer's credentials would.
pub fn other_users(context: &Context) -> Outcome {
    require_root("it becomes another user")?;
    let mut daemon = Daemon::start(context, &[])?;
    let sleeper = Job::new("/bin/sleep").arg("60");
    let running = context.limited(LIMIT_BYTES)?.start(&daemon.job(sleeper))?;
    running.until("the run to join", || {
        Ok(daemon.report_of(running.pid())?.map(drop))
    })?;

    // A copy of vswap that the other user can reach and run.
    let vswap = context.place().join("vswap");
    fs::copy(context.require_vswap()?, &vswap).during(|| "copy vswap".to_owned())?;
    open_to_all(&vswap)?;
    let vswap = vswap.display().to_string();
    let listed = as_nobody(&daemon, &[&vswap, "status"])?;
    ensure!(listed == "no runs\n", "another user sees {listed}");
    let pid = daemon.pid().to_string();
    let taken = as_nobody(&daemon, &[&vswap, "swapon", "/tmp:1M", "--run", &pid])?;
    ensure!(
        taken.contains("no run of yours"),
        "another user's swapon: {taken}"
    );

    let script = context.place().join("intruder.py");
    let text = include_str!("../../inputs/intruder.py");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    let intrude = |socket: &Path| {
        let (script, socket) = (script.display().to_string(), socket.display().to_string());
        let version = env!("CARGO_PKG_VERSION");
        as_nobody(&daemon, &["/usr/bin/python3", &script, &socket, version])
    };
    let dirs: Vec<_> = daemon.dirs_with("").into_iter().collect();
    ensure!(dirs.len() == 2, "a daemon and a run have {dirs:?}");
    for dir in &dirs {
        let socket = dir.join("control.sock");
        let shut = intrude(&socket)?;
        ensure!(
            shut == "PermissionError\n".repeat(REQUESTS),
            "permissions let {shut} through"
        );
    }
    open_to_all(&daemon.runtime().join("vswap-0"))?;
    for dir in &dirs {
        let socket = dir.join("control.sock");
        open_to_all(dir)?;
        open_to_all(&socket)?;
        let open = intrude(&socket)?;
        let refusals = open
            .lines()
            .filter(|line| line.contains("belongs to user 0"));
        ensure!(
            refusals.count() == REQUESTS,
            "credentials let something through: {open}"
        );
    }
    let outer = daemon.runtime().join("vswap-0");
    fs::set_permissions(&outer, fs::Permissions::from_mode(0o711))
        .during(|| format!("close {}", outer.display()))?;

    let report = daemon.report()?;
    ensure!(
        report["runs"] == serde_json::json!([running.pid()])
            && report["areas"] == serde_json::json!([]),
        "the daemon has changed: {report}"
    );
    ensure!(procfs::is_alive(running.program_pid()?), "the run has gone");
    running.signal(Signal::TERM)?;
    running.wait()?.must_be_ended_by(Signal::TERM)
}

/// Another user reaches every socket of a daemon and of its run, says nothing, and hears all the same that it is
/// refused: nobody reads what such a user sends.
pub fn other_users_try_all(context: &Context) -> Outcome {
    /// What the agents' socket answers to those whom it turns away: `TURNED_AWAY`.
    const TURNED_AWAY: u8 = 0x18;
    require_root("it becomes another user")?;
    let daemon = Daemon::start(context, &[])?;
    let sleeper = Job::new("/bin/sleep").arg("60");
    let running = context.limited(LIMIT_BYTES)?.start(&daemon.job(sleeper))?;
    running.until("the run to join", || {
        Ok(daemon.report_of(running.pid())?.map(drop))
    })?;
    let script = context.place().join("neighbour.py");
    let text = include_str!("../../inputs/neighbour.py");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    let outer = daemon.runtime().join("vswap-0");
    open_to_all(&outer)?;
    let mut controls = Vec::new();
    let mut agents = Vec::new();
    for dir in daemon.dirs_with("") {
        open_to_all(&dir)?;
        let control = dir.join("control.sock");
        open_to_all(&control)?;
        controls.push(control.display().to_string());
        agents.extend(open_agents(&dir)?);
    }
    ensure!(
        (controls.len(), agents.len()) == (2, 2),
        "there are {controls:?} and {agents:?}"
    );
    let script = script.display().to_string();
    let try_all = |sockets: &[String]| {
        let mut words = vec!["/usr/bin/python3", &script];
        words.extend(sockets.iter().map(String::as_str));
        as_nobody(&daemon, &words)
    };
    let heard = try_all(&controls)?;
    ensure!(
        heard.lines().count() == controls.len()
            && heard
                .lines()
                .all(|line| line.contains("belongs to user 0") && line.ends_with(" closed")),
        "the control sockets: {heard}"
    );
    let heard = try_all(&agents)?;
    let refusal = format!("{TURNED_AWAY} closed\n");
    ensure!(
        heard == refusal.repeat(agents.len()),
        "the agents' sockets: {heard}"
    );
    fs::set_permissions(&outer, fs::Permissions::from_mode(0o711))
        .during(|| format!("close {}", outer.display()))?;
    running.signal(Signal::TERM)?;
    running.wait()?.must_be_ended_by(Signal::TERM)
}

/// Another user connects to the sockets of a run's agents as fast as it can. Programs of the run start and end
/// meanwhile as if nobody did.
pub fn other_users_flood(context: &Context) -> Outcome {
    /// Seconds of the flood, and programs that start and end meanwhile, one after the other.
    const FLOOD: &str = "10";
    const PROGRAMS: usize = 200;
    /// It makes some ten thousand connections a second. Fewer than this are no flood.
    const CONNECTIONS_LEAST: u64 = 2000;
    require_root("it becomes another user")?;
    let daemon = Daemon::start(context, &[])?;
    let (go, done) = (context.place().join("go"), context.place().join("done"));
    let script = format!(
        "until [ -e {go} ]; do sleep 0.05; done\n\
         for i in $(seq {PROGRAMS}); do /bin/true || exit 1; done\n\
         touch {done}",
        go = go.display(),
        done = done.display()
    );
    let running = context
        .limited(LIMIT_BYTES)?
        .start(&daemon.job(Job::shell(script)))?;
    running.until("the run to join", || {
        Ok(daemon.report_of(running.pid())?.map(drop))
    })?;
    let script = context.place().join("flood.py");
    let text = include_str!("../../inputs/flood.py");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    let script = script.display().to_string();
    let mut words = vec!["/usr/bin/python3".to_owned(), script, FLOOD.to_owned()];
    open_to_all(&daemon.runtime().join("vswap-0"))?;
    for dir in daemon.dirs_with("") {
        open_to_all(&dir)?;
        words.extend(open_agents(&dir)?);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let heard = context.place().join("heard");
    let to = fs::File::create(&heard).during(|| format!("create {}", heard.display()))?;
    let mut flood = command_of_nobody(&daemon, &words)?
        .stdout(to)
        .spawn()
        .during(|| "start the flood".to_owned())?;
    let read = || fs::read_to_string(&heard).during(|| format!("read {}", heard.display()));
    running.until("the flood", || {
        Ok(read()?.contains("flooding").then_some(()))
    })?;
    fs::write(&go, "").during(|| format!("write {}", go.display()))?;
    running.until("its programs", || Ok(done.exists().then_some(())))?;
    let goes_on = flood
        .try_wait()
        .during(|| "look at the flood".to_owned())?
        .is_none();
    ensure!(
        goes_on,
        "{PROGRAMS} programs took longer than the flood of {FLOOD} s"
    );
    running.wait()?.must_succeed()?;
    flood.wait().during(|| "wait for the flood".to_owned())?;
    let said = read()?;
    let made = said.lines().last().and_then(|last| last.parse().ok());
    ensure!(
        made.is_some_and(|made: u64| made >= CONNECTIONS_LEAST),
        "the flood: {said}"
    );
    Ok(())
}

/// Programs of its runs are not its descendants, so it may not look into them without the capability.
pub fn without_the_capability(context: &Context) -> Outcome {
    require_root("it gives up a capability")?;
    let setpriv = require_program("setpriv", "apt package util-linux")?;
    let output = Command::new("/usr/bin/timeout")
        .arg("20")
        .arg(setpriv)
        .args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"])
        .arg(context.require_vswap()?)
        .arg("daemon")
        .env("XDG_RUNTIME_DIR", context.place())
        .stdin(Stdio::null())
        .output()
        .during(|| "run vswap daemon".to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(125) && said.contains("CAP_SYS_PTRACE"),
        "the daemon: {} {said}",
        output.status
    );
    Ok(())
}
