//! Areas in exports of nbdkit, on loopback: every byte comes back, also when the server dies and comes again; what was
//! altered is never taken for a page; somebody's data is left alone.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use vswap_e2e::failure::During;
use vswap_e2e::launch::Running;
use vswap_e2e::{Context, Failure, MIB, Outcome, ensure, require_program};

use crate::far::{end, free_port, must_have_used, said};
use crate::used::{with_areas, workload};

const LIMIT_BYTES: u64 = 96 * MIB;
/// Much more than fits into the pool.
const CONTENT: &str = "320M";
const EXPORT_BYTES: u64 = 1024 * MIB;
/// How long a server may take to begin.
const START: Duration = Duration::from_secs(10);

/// A server of one blank file. It is killed at the end.
struct Server {
    program: PathBuf,
    child: Option<Child>,
    port: u16,
    image: PathBuf,
}

impl Server {
    fn start(context: &Context) -> Outcome<Server> {
        let program = require_program("nbdkit", "apt package nbdkit")?;
        let image = context.place().join("image");
        let blank = File::create(&image).and_then(|file| file.set_len(EXPORT_BYTES));
        blank.during(|| "make the file to be served".to_owned())?;
        let mut server = Server {
            program,
            child: None,
            port: 0,
            image,
        };
        for _ in 0..5 {
            server.port = free_port()?;
            if server.begin(&[])? {
                return Ok(server);
            }
        }
        Err(Failure::wrong("nbdkit does not start".to_owned()))
    }

    /// Starts it, once more if it was stopped.
    fn begin(&mut self, options: &[&str]) -> Outcome<bool> {
        let mut command = Command::new(&self.program);
        command.args(["-f", "-i", "127.0.0.1", "-p", &self.port.to_string()]);
        command.args(options).arg("file").arg(&self.image);
        let child = command.stdin(Stdio::null()).spawn();
        self.child = Some(child.during(|| "start nbdkit".to_owned())?);
        let begun = Instant::now();
        while begun.elapsed() < START {
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.stop();
        Ok(false)
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that has ended is only waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn name(&self) -> String {
        format!("nbd://127.0.0.1:{}/", self.port)
    }

    /// Waits until pages have come to it.
    fn has_pages(&self, running: &Running) -> Outcome {
        use std::os::unix::fs::MetadataExt;
        running.until("pages to come to the export", || {
            let file = fs::metadata(&self.image).during(|| "look at the file".to_owned())?;
            Ok((file.blocks() * 512 > 16 * MIB).then_some(()))
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Everything goes there and comes back, and what is not needed any more is given back.
pub fn export(context: &Context) -> Outcome {
    let server = Server::start(context)?;
    let areas = [server.name()];
    let job = with_areas(workload(CONTENT)?, &areas).vswap_options(["--pool", "25%"]);
    let ended = end(context.limited(LIMIT_BYTES)?.start(&job)?)?;
    must_have_used(context, &ended, &server.name())?;
    let kept = std::os::unix::fs::MetadataExt::blocks(
        &fs::metadata(&server.image).during(|| "look at the file".to_owned())?,
    ) * 512;
    ensure!(kept < MIB, "{kept} bytes are left in the file");
    let checked = context.vswap(&["far", "check", &server.name()])?;
    let said = String::from_utf8_lossy(&checked.stdout);
    ensure!(
        said.contains("a swap area with room for"),
        "far check: {checked:?}"
    );
    Ok(())
}

/// The server is killed and comes again: the program waits, vswap says for whom, and nothing is wrong afterwards.
pub fn server_dies(context: &Context) -> Outcome {
    let mut server = Server::start(context)?;
    let job = with_areas(workload(CONTENT)?, &[server.name()]).vswap_options(["--pool", "off"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    server.has_pages(&running)?;
    server.stop();
    let stderr = running.stderr().to_owned();
    let waits = format!("waits for 127.0.0.1:{}", server.port);
    running.until("vswap to say for whom it waits", || {
        Ok(said(&stderr).contains(&waits).then_some(()))
    })?;
    ensure!(server.begin(&[])?, "nbdkit does not start again");
    let ended = end(running)?;
    must_have_used(context, &ended, &server.name())?;
    let said = said(&ended.stderr);
    ensure!(said.contains("answers again"), "stderr: {said}");
    Ok(())
}

/// Somebody writes into the file. Who touches such a page is ended by SIGBUS, and reads nothing else in its place.
pub fn altered(context: &Context) -> Outcome {
    let server = Server::start(context)?;
    let job = with_areas(workload(CONTENT)?, &[server.name()]).vswap_options(["--pool", "off"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    server.has_pages(&running)?;
    let file = File::options().read(true).write(true).open(&server.image);
    let file = file.during(|| "open the file".to_owned())?;
    // One bit of each page of the first 64 MiB, but for the header.
    for page in 1..64 * MIB / 4096 {
        let mut byte = [0];
        let at = page * 4096 + 1000;
        let altered = file
            .read_exact_at(&mut byte, at)
            .and_then(|()| file.write_all_at(&[byte[0] ^ 4], at));
        altered.during(|| "alter the file".to_owned())?;
    }
    let ended = running.wait()?;
    ended.must_be_ended_by(Signal::BUS)?;
    ensure!(ended.figure("pages_lost")? > 0, "no lost page is counted");
    let said = said(&ended.stderr);
    ensure!(
        said.contains("something else than what was written"),
        "stderr: {said}"
    );
    Ok(())
}

/// An export comes while the program runs, and goes again.
pub fn live(context: &Context) -> Outcome {
    let server = Server::start(context)?;
    let disk = format!("{}:1G", context.place().display());
    let job = with_areas(workload(CONTENT)?, &[disk]);
    let job = job.vswap_options(["--pool", "off", "--allow-far"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    let run = running.pid().to_string();
    let area = format!("{}:512M,prio=9", server.name());
    let on = running.until("the run to take the export", || {
        let asked = context.vswap(&["swapon", "--run", &run, &area])?;
        Ok(asked.status.success().then_some(asked))
    })?;
    ensure!(on.status.success(), "swapon: {on:?}");
    server.has_pages(&running)?;
    let listed = context.vswap(&["status", "--areas"])?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    ensure!(listed.contains(&server.name()), "status --areas: {listed}");
    let off = context.vswap(&["swapoff", "--run", &run, &server.name()])?;
    ensure!(off.status.success(), "swapoff: {off:?}");
    end(running)?;
    Ok(())
}

/// What cannot be an area is refused with what mends it, and somebody's data stays as it is.
pub fn refused(context: &Context) -> Outcome {
    let mut server = Server::start(context)?;
    let name = server.name();
    let nobody = format!("nbd://127.0.0.1:{}/", free_port()?);
    let must_be_refused = |area: &str, expected: &str| {
        let run = ["run", "--ram", "64M", "--swap", area, "--", "true"];
        let refused = context.vswap(&run)?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        let is_refused = refused.status.code() == Some(125) && said.contains(expected);
        ensure!(is_refused, "{area}: {refused:?}");
        Ok(())
    };
    must_be_refused(&nobody, "does not answer")?;
    must_be_refused(&format!("{name}:2G"), "leave the size out")?;
    let mut data = [0; 4096];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut data))
        .during(|| "read random bytes".to_owned())?;
    let file = File::options().read(true).write(true).open(&server.image);
    let file = file.during(|| "open the file".to_owned())?;
    file.write_all_at(&data, 0)
        .during(|| "write to the file".to_owned())?;
    must_be_refused(&name, "holds data")?;
    let checked = context.vswap(&["far", "check", &name])?;
    ensure!(!checked.status.success(), "far check: {checked:?}");
    let mut after = [0; 4096];
    file.read_exact_at(&mut after, 0)
        .during(|| "read the file".to_owned())?;
    ensure!(after == data, "somebody's data was written over");
    server.stop();
    ensure!(server.begin(&["-r"])?, "nbdkit does not start again");
    must_be_refused(&name, "read-only")
}
