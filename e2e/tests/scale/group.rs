//! A control group for one run, and a vswap that is started in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use vswap_e2e::context::vswap_binary;
use vswap_e2e::failure::During;
use vswap_e2e::launch::How;
use vswap_e2e::{Context, Failure, Launcher, Outcome};

/// How often removing a group whose processes have just ended is tried, and the pause in between.
const REMOVE_TRIES: u32 = 100;
const REMOVE_PACE: Duration = Duration::from_millis(10);

/// A control group, removed with the test.
pub struct Group(PathBuf);

impl Group {
    /// Makes a group of this controller, or skips the test.
    pub fn make(controller: &str) -> Outcome<Group> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        let path = root.join(format!("vswap-e2e-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Group(path)),
            Err(error) => Err(Failure::Skip(format!(
                "no group in {}: {error}; needs root and that controller there",
                root.display()
            ))),
        }
    }

    /// A file of the group.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Shell code that puts its process into the group.
    pub fn enter(&self) -> String {
        format!("echo $$ > {}\nexec", self.file("cgroup.procs").display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(REMOVE_PACE);
        }
    }
}

/// A launcher that starts vswap by a script that ends in `exec`.
pub fn launcher(context: &Context, limit_bytes: u64, script: &str) -> Outcome<Launcher> {
    let vswap = vswap_binary()?;
    let path = context.place().join("vswap-by-script");
    let text = format!("#!/bin/sh\n{script} {} \"$@\"\n", vswap.display());
    fs::write(&path, text).during(|| format!("write {}", path.display()))?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, mode).during(|| format!("chmod {}", path.display()))?;
    let how = How::Limited {
        vswap: path,
        limit_bytes,
    };
    Ok(Launcher::new(
        how,
        context.place(),
        context.deadline(),
        false,
    ))
}
