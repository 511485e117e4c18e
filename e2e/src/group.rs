//! A control group for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::failure::During;
use crate::{Failure, Outcome};

/// How often removing a group whose processes have just ended is tried, and the pause in between.
const REMOVE_TRIES: u32 = 100;
const REMOVE_PACE: Duration = Duration::from_millis(10);

/// A control group, removed with the test.
#[derive(Debug)]
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

    /// Writes a file of the group.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Outcome {
        let file = self.file(name);
        fs::write(&file, text).during(|| format!("write {}", file.display()))
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
