//! What cannot be an area is refused before the program starts. The message says what to do about it.

use std::fs::{self, File};
use std::process::Command;

use rustix::process::Signal;
use vswap_e2e::device::{LoopDevice, must};
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, Running, ensure, require_program};

use crate::used::{list, with_areas};

/// Ends a run that only waits.
fn end(running: Running) -> Outcome {
    running.signal(Signal::TERM)?;
    running.wait()?.must_leave_nothing()
}

/// Runs `true` with this area and returns the refusal.
fn refusal(context: &Context, area: &str) -> Outcome<String> {
    let output = context.vswap(&["run", "--ram", "64M", "--swap", area, "--", "true"])?;
    ensure!(
        !output.status.success(),
        "--swap {area} was taken: {output:?}"
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!said.contains("panicked"), "{area}: {said}");
    Ok(said)
}

fn must_say(context: &Context, area: &str, expected: &str) -> Outcome {
    let said = refusal(context, area)?;
    ensure!(
        said.contains(expected),
        "--swap {area} says: {said}; expected: {expected}"
    );
    Ok(())
}

pub fn refused(context: &Context) -> Outcome {
    let place = context.place();
    let path = |name: &str| place.join(name).display().to_string();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(place.join(name), bytes).during(|| format!("write {name}"))
    };
    must_say(context, &path("nothing"), "vswap mkswap")?;
    write("text", &[b'x'; 65536])?;
    must_say(context, &path("text"), "no swap area")?;
    must_say(context, &format!("{}:1G", path("text")), "it exists")?;
    must_say(
        context,
        &format!("{}:1G", path("no/such/directory")),
        "no directory",
    )?;
    must_say(context, "/dev/null", "character device")?;
    must_say(
        context,
        &format!("{},packed", path("text")),
        "private files",
    )?;
    must_say(
        context,
        &format!("{},prio=99999", path("text")),
        "0 to 32767",
    )?;
    must_say(context, &format!("{},pri=1", path("text")), "unknown")?;
    must_say(context, ":1G", "no path")?;
    damaged(context)?;
    on_a_live_run(context)?;
    device_with_a_file_system(context)
}

/// An area that was cut after it was made.
fn damaged(context: &Context) -> Outcome {
    let area = context.place().join("cut").display().to_string();
    let made = context.vswap(&["mkswap", &area, "--size", "1M"])?;
    ensure!(made.status.success(), "mkswap: {made:?}");
    let file = File::options().write(true).open(&area);
    file.and_then(|file| file.set_len(MIB / 2))
        .during(|| format!("cut {area}"))?;
    let said = refusal(context, &area)?;
    ensure!(said.contains("cut off"), "a cut area says: {said}");
    Ok(())
}

/// Requests to a living run, and without any run.
fn on_a_live_run(context: &Context) -> Outcome {
    // Where no run of somebody else at this machine is found.
    let without = Command::new(context.require_vswap()?)
        .args(["swapon", "/nowhere"])
        .env("XDG_RUNTIME_DIR", context.place())
        .output();
    let without = without.during(|| "run vswap swapon".to_owned())?;
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    ensure!(said.contains("no run is alive"), "without a run: {said}");
    let launcher = context.limited(64 * MIB)?;
    let running = launcher.start(&Job::new("/bin/sleep").arg("20"))?;
    running.until("the run to answer", || {
        let output = context.vswap(&["status", "--json"])?;
        let run = format!("\"pid\": {}", running.pid());
        Ok(String::from_utf8_lossy(&output.stdout)
            .contains(&run)
            .then_some(()))
    })?;
    let run = running.pid().to_string();
    for (args, expected) in [
        (["swapon", "/nowhere", "--run", &run], "vswap mkswap"),
        (["swapoff", "/nowhere", "--run", &run], "it is not in use"),
    ] {
        let output = context.vswap(&args)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            !output.status.success() && said.contains(expected),
            "{args:?}: {said}; expected: {expected}"
        );
    }
    end(running)
}

/// A device with a file system has no swap header, and is not touched.
fn device_with_a_file_system(context: &Context) -> Outcome {
    let mkfs = require_program("mkfs.ext4", "apt package e2fsprogs")?;
    let device = LoopDevice::new(context, "ext4.image", 16 * MIB)?;
    must(&mkfs, &["-q"], device.path())?;
    let image = context.place().join("ext4.image");
    let before = fs::read(&image).during(|| "read the image".to_owned())?;
    must_say(
        context,
        &device.path().display().to_string(),
        "no swap area",
    )?;
    let after = fs::read(&image).during(|| "read the image".to_owned())?;
    ensure!(before == after, "a device that was refused was written to");
    Ok(())
}

/// Two runs on one area would overwrite each other's pages.
pub fn held_by_another_run(context: &Context) -> Outcome {
    let area = context.place().join("area").display().to_string();
    let made = context.vswap(&["mkswap", &area, "--size", "16M"])?;
    ensure!(made.status.success(), "mkswap: {made:?}");
    let launcher = context.limited(64 * MIB)?;
    let job = with_areas(
        Job::new("/bin/sleep").arg("20"),
        std::slice::from_ref(&area),
    );
    let running = launcher.start(&job)?;
    running.until("the first run to use it", || {
        Ok(list(context, running.pid())?.contains(&area).then_some(()))
    })?;
    must_say(context, &area, "uses it")?;
    end(running)
}
