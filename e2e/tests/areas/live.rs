//! Areas of a living run: added, given up while the program verifies, refused and interrupted.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use vswap_e2e::device::LoopDevice;
use vswap_e2e::failure::During;
use vswap_e2e::launch::signal_pid;
use vswap_e2e::{Context, Job, Launcher, MIB, Outcome, Running, ensure, workload_binary};

use crate::used::{list, with_areas};

const LIMIT_BYTES: u64 = 96 * MIB;
/// How often an area is given up and used again.
const ROUNDS: usize = 3;

/// A program that rewrites and verifies its memory again and again. Its pages go straight to the areas.
pub fn hog(size: &str, seconds: &str) -> Outcome<Job> {
    let job = Job::new(workload_binary()?).args(["memhog", size, "--seconds", seconds]);
    Ok(job.vswap_options(["--pool", "off"]))
}

pub fn directory(context: &Context, name: &str) -> Outcome<String> {
    let place = context.place().join(name);
    fs::create_dir(&place).during(|| format!("make {}", place.display()))?;
    Ok(place.display().to_string())
}

/// Starts the job and waits until an area holds some MiB.
pub fn start(context: &Context, launcher: &Launcher, job: &Job) -> Outcome<Running> {
    let running = launcher.start(job)?;
    wait_for_use(context, &running)?;
    Ok(running)
}

fn wait_for_use(context: &Context, running: &Running) -> Outcome {
    running.until("all areas to hold something", || {
        let areas = list(context, running.pid())?;
        let mut lines = areas.lines().peekable();
        let is_used = lines.peek().is_some() && lines.all(|line| !line.contains(" 0 B "));
        Ok(is_used.then_some(()))
    })
}

/// A device is given up again and again while the program verifies what lay on it.
pub fn swapoff_in_the_middle(context: &Context) -> Outcome {
    let device = LoopDevice::new(context, "device.image", 512 * MIB)?;
    let path = device.path().display().to_string();
    let made = context.vswap(&["mkswap", &path])?;
    ensure!(made.status.success(), "mkswap: {made:?}");
    let place = directory(context, "private")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = with_areas(hog("320M", "25")?, &[place, path.clone()]);
    let running = start(context, &launcher, &job)?;
    let run = running.pid().to_string();
    for round in 0..ROUNDS {
        let off = context.vswap(&["swapoff", &path, "--run", &run])?;
        ensure!(off.status.success(), "swapoff, round {round}: {off:?}");
        ensure!(
            !list(context, running.pid())?.contains(&path),
            "it is listed after swapoff"
        );
        let on = context.vswap(&["swapon", &format!("{path},prio=5"), "--run", &run])?;
        ensure!(on.status.success(), "swapon, round {round}: {on:?}");
        wait_for_use(context, &running)?;
    }
    let off = context.vswap(&["swapoff", &path, "--run", &run])?;
    ensure!(off.status.success(), "the last swapoff: {off:?}");
    device.detach()?;
    launcher.finish(running)?;
    Ok(())
}

/// The only area goes. The pool had half of the limit as long as there was an area, and now takes all pages in.
pub fn swapoff_of_the_only_area(context: &Context) -> Outcome {
    let place = directory(context, "private")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = Job::new(workload_binary()?).args(["memhog", "170M", "--seconds", "10"]);
    let running = start(
        context,
        &launcher,
        &with_areas(job, std::slice::from_ref(&place)),
    )?;
    let run = running.pid().to_string();
    let off = context.vswap(&["swapoff", &place, "--run", &run])?;
    ensure!(off.status.success(), "swapoff: {off:?}");
    ensure!(
        list(context, running.pid())?.is_empty(),
        "an area is listed after swapoff"
    );
    launcher.finish(running)?;
    Ok(())
}

/// Nothing else has room, so the area stays, with its pages and its priority.
pub fn swapoff_without_room(context: &Context) -> Outcome {
    let place = directory(context, "private")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = with_areas(hog("320M", "10")?, &[format!("{place},prio=7")]);
    let running = start(context, &launcher, &job)?;
    let run = running.pid().to_string();
    let off = context.vswap(&["swapoff", &place, "--run", &run])?;
    let said = String::from_utf8_lossy(&off.stderr).into_owned();
    ensure!(
        !off.status.success(),
        "swapoff had nowhere to put the pages: {off:?}"
    );
    ensure!(said.contains("room"), "swapoff says {said}");
    let areas = list(context, running.pid())?;
    ensure!(
        areas
            .lines()
            .any(|line| line.contains(&place) && line.contains(" 7 ")),
        "it is not what it was: {areas}"
    );
    launcher.finish(running)?;
    Ok(())
}

/// The asker goes away, so the area stays in use.
pub fn swapoff_interrupted(context: &Context) -> Outcome {
    interrupt(context, hog("400M", "12")?)
}

/// Gives up one of a job's two areas, and goes away in the middle.
pub fn interrupt(context: &Context, job: Job) -> Outcome {
    let (first, second) = (directory(context, "first")?, directory(context, "second")?);
    let launcher = context.limited(LIMIT_BYTES)?;
    let job = with_areas(job, &[first.clone(), second]);
    let running = start(context, &launcher, &job)?;
    let run = running.pid().to_string();
    let vswap = context.require_vswap()?;
    let mut asker = Command::new(vswap)
        .args(["swapoff", &first, "--run", &run])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .during(|| "run vswap swapoff".to_owned())?;
    thread::sleep(Duration::from_millis(20));
    signal_pid(asker.id(), Signal::INT)?;
    let status = asker.wait().during(|| "wait for swapoff".to_owned())?;
    // It may have finished by then.
    if !status.success() {
        running.until("the area to be back", || {
            Ok(list(context, running.pid())?.contains(&first).then_some(()))
        })?;
    }
    context.say(format!("swapoff ended with {status}"));
    launcher.finish(running).map(drop)
}
