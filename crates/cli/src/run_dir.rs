//! The directory of a run holds the agent's file, the agents' socket and the control socket. It goes away with the run.
//! The daemon has a directory too, with only a control socket in it.
//!
//! Layout: PLACE/vswap-UID/run-PID-RANDOM and daemon-PID-RANDOM. The outer directory belongs to one user, and others
//! cannot list it. Others may pass through root's outer directory and through its runs' directories, so that children
//! that change their user still reach the agent by its unguessable path. A run or daemon locks its own directory for as
//! long as it lives. A directory that nobody locks is stale, and the next command removes it. Making, checking and
//! removing happen under a lock on the outer directory. So there is at most one daemon in it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, MemfdFlags, OFlags, flock, memfd_create};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use vswap_sys::process::spawn::can_map_executable;

use crate::failure::Failure;

/// The agent, carried inside the binary.
pub static AGENT: &[u8] = include_bytes!(env!("VSWAP_AGENT"));
const AGENT_NAME: &str = "agent.so";
/// Random bytes in a directory's name: more than anybody can guess.
const NAME_RANDOM_BYTES: usize = 12;
/// Longest path of a run's directory. A socket's path has at most 107 bytes, and the sockets' names follow.
const PATH_BYTES_MAX: usize = 86;
/// How often making a directory starts again because another run removed the outer one just then.
const OUTER_TRIES_MAX: usize = 256;

/// Whose a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A run's.
    Run,
    /// The daemon's.
    Daemon,
}

/// A living run or daemon, and its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Living {
    pub kind: Kind,
    pub pid: u32,
    pub path: PathBuf,
}

/// The directory that a run or the daemon owns. Dropping it removes the directory.
#[derive(Debug)]
struct OwnDir {
    outer: PathBuf,
    path: PathBuf,
    /// Open, with an exclusive lock, for as long as the process lives.
    _lock: File,
}

/// The directory that a run owns. Dropping it removes the directory.
#[derive(Debug)]
pub struct RunDir {
    dir: OwnDir,
    agent: Agent,
}

/// The directory that the daemon owns. Dropping it removes the directory.
#[derive(Debug)]
pub struct DaemonDir(OwnDir);

#[derive(Debug)]
enum Agent {
    InDirectory,
    /// If no directory allows code to be mapped: a file in memory, reached through this process's descriptor.
    InMemory(File),
}

impl RunDir {
    /// Makes the directory in the first place that allows code to be mapped, and writes the agent into it.
    pub fn create() -> Result<RunDir, Failure> {
        RunDir::create_in(&places(), &geteuid().as_raw().to_string())
    }

    fn create_in(places: &[PathBuf], user: &str) -> Result<RunDir, Failure> {
        let mut without_code = None;
        let mut refusals = Vec::new();
        for place in places {
            match make_for_run(&place.join(format!("vswap-{user}"))) {
                Ok(dir) if dir.agent_can_be_mapped() => return Ok(dir),
                Ok(dir) => {
                    refusals.push(format!(
                        "{}: does not allow code to be mapped (noexec)",
                        place.display()
                    ));
                    without_code.get_or_insert(dir);
                }
                Err(error) => refusals.push(format!("{}: {error}", place.display())),
            }
        }
        if let Some(mut dir) = without_code
            && let Ok(agent) = agent_in_memory()
        {
            dir.agent = agent;
            return Ok(dir);
        }
        Err({
            Failure::own(format!(
                "no directory for the run's sockets and agent could be made; tried {}. Set XDG_RUNTIME_DIR to a \
                 directory \
                 of your own that is writable and not mounted noexec",
                refusals.join("; ")
            ))
        })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.dir.path
    }

    /// The path by which the dynamic loader finds the agent.
    pub fn agent_path(&self) -> PathBuf {
        match &self.agent {
            Agent::InDirectory => self.dir.path.join(AGENT_NAME),
            Agent::InMemory(file) => PathBuf::from(format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                file.as_raw_fd()
            )),
        }
    }

    fn agent_can_be_mapped(&self) -> bool {
        File::open(self.dir.path.join(AGENT_NAME)).is_ok_and(|file| can_map_executable(&file))
    }
}

impl DaemonDir {
    /// Makes the directory in the first place that exists. Refuses if there is a daemon already.
    pub fn create() -> Result<DaemonDir, Failure> {
        let mut refusals = Vec::new();
        let user = geteuid().as_raw();
        for place in places() {
            match make(&place.join(format!("vswap-{user}")), Kind::Daemon) {
                Ok(dir) => return Ok(DaemonDir(dir)),
                Err(error) => refusals.push(format!("{}: {error}", place.display())),
            }
        }
        Err(Failure::own(format!(
            "no directory for the daemon's socket could be made; tried {}. Set XDG_RUNTIME_DIR to a directory of your \
             own that is writable",
            refusals.join("; ")
        )))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        let _outer_lock = lock_outer(&self.outer);
        remove_flat(&self.path);
        // Fails while other runs of the user are alive, and so it should.
        let _ = fs::remove_dir(&self.outer);
    }
}

/// The living runs of this user, and the daemon. Removes stale directories on the way.
pub fn living() -> Vec<Living> {
    let user = geteuid().as_raw();
    places()
        .iter()
        .flat_map(|place| sweep(&place.join(format!("vswap-{user}"))))
        .collect()
}

/// The daemon of this user. If there are several, because their environments differ, the one in the best place.
pub fn daemon() -> Option<Living> {
    living().into_iter().find(|one| one.kind == Kind::Daemon)
}

/// The places where a run's directory may be, best first.
fn places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let system = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    let temporary = std::env::var_os("TMPDIR").map(PathBuf::from);
    let mut places: Vec<PathBuf> = Vec::new();
    for place in runtime
        .into_iter()
        .chain([system, "/tmp".into(), "/dev/shm".into()])
        .chain(temporary)
    {
        if place.is_absolute() && !places.contains(&place) && is_usable(&place) {
            places.push(place);
        }
    }
    places
}

/// A place must exist and must not break LD_PRELOAD's list. Other users must be able to pass through root's.
fn is_usable(place: &Path) -> bool {
    let Ok(metadata) = fs::metadata(place) else {
        return false;
    };
    let listable = place
        .to_str()
        .is_some_and(|path| !path.contains([':', ' ', '\t', '\n', '$']));
    let passable = !geteuid().is_root() || metadata.mode() & 0o001 != 0;
    metadata.is_dir() && listable && passable
}

fn make_for_run(outer: &Path) -> io::Result<RunDir> {
    let dir = RunDir {
        dir: make(outer, Kind::Run)?,
        agent: Agent::InDirectory,
    };
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o555)
        .open(dir.path().join(AGENT_NAME))?;
    file.write_all(AGENT)?;
    file.set_permissions(Permissions::from_mode(0o555))?;
    Ok(dir)
}

/// Makes an empty directory inside the outer one, and makes the outer one if it is missing.
fn make(outer: &Path, kind: Kind) -> io::Result<OwnDir> {
    let outer_lock = make_outer(outer, mode_of(Kind::Run))?;
    let living = sweep_locked(outer);
    if kind == Kind::Daemon && living.iter().any(|one| one.kind == kind) {
        return Err(io::Error::other("there is a daemon already"));
    }
    let mut random = [0; NAME_RANDOM_BYTES];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = outer.join(format!("{}{}-{random}", prefix(kind), std::process::id()));
    if path.as_os_str().len() > PATH_BYTES_MAX {
        return Err(io::Error::other("the path is too long for a socket"));
    }
    DirBuilder::new().mode(mode_of(kind)).create(&path)?;
    let lock = open_dir(&path)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let dir = OwnDir {
        outer: outer.to_owned(),
        path,
        _lock: lock,
    };
    // The umask has changed the mode that was given above.
    let opened = fs::set_permissions(&dir.path, Permissions::from_mode(mode_of(kind)));
    // The lock must be free before this: after an error `dir` is dropped, and dropping it takes the outer lock.
    drop(outer_lock);
    opened.map(|()| dir)
}

/// Root's children may change their user and still have to load the agent. The daemon starts no program.
fn mode_of(kind: Kind) -> u32 {
    if kind == Kind::Run && geteuid().is_root() {
        0o711
    } else {
        0o700
    }
}

fn prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::Run => "run-",
        Kind::Daemon => "daemon-",
    }
}

/// Makes the outer directory if it is missing, and locks it. Others may remove it until it is locked.
fn make_outer(outer: &Path, mode: u32) -> io::Result<File> {
    for _ in 0..OUTER_TRIES_MAX {
        match DirBuilder::new().mode(mode).create(outer) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match lock_outer(outer) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            // The umask has changed the mode that was given above.
            Ok(dir) => {
                return dir
                    .set_permissions(Permissions::from_mode(mode))
                    .map(|()| dir);
            }
        }
    }
    Err(io::Error::other("the directory vanishes again and again"))
}

/// Opens and locks an outer directory, if only this user can have made it. NotFound if it does not exist or was removed
/// meanwhile.
fn lock_outer(outer: &Path) -> io::Result<File> {
    let dir = open_dir(outer)?;
    let opened = dir.metadata()?;
    if opened.uid() != geteuid().as_raw() || opened.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!(
            "{} belongs to somebody else, or others may write it",
            outer.display()
        )));
    }
    flock(&dir, FlockOperation::LockExclusive)?;
    let named = fs::symlink_metadata(outer)?;
    if (named.dev(), named.ino()) == (opened.dev(), opened.ino()) {
        Ok(dir)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn open_dir(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
    #[allow(clippy::cast_possible_wrap)] // a set of bits that the library wants signed
    File::options()
        .read(true)
        .custom_flags(flags as i32)
        .open(path)
}

/// Removes what dead runs left in `outer`, and then `outer` itself if it is empty. Returns the living.
fn sweep(outer: &Path) -> Vec<Living> {
    let Ok(_lock) = lock_outer(outer) else {
        return Vec::new();
    };
    let living = sweep_locked(outer);
    if living.is_empty() {
        let _ = fs::remove_dir(outer);
    }
    living
}

fn sweep_locked(outer: &Path) -> Vec<Living> {
    let mut living = Vec::new();
    for entry in fs::read_dir(outer).into_iter().flatten().flatten() {
        let Some((kind, pid)) = owner(&entry.file_name().to_string_lossy()) else {
            continue;
        };
        let Ok(dir) = open_dir(&entry.path()) else {
            continue;
        };
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => remove_flat(&entry.path()),
            Err(Errno::WOULDBLOCK) => living.push(Living {
                kind,
                pid,
                path: entry.path(),
            }),
            // This file system has no locks, so no directory may be called stale.
            Err(_) => {}
        }
    }
    living
}

fn owner(name: &str) -> Option<(Kind, u32)> {
    [Kind::Run, Kind::Daemon].into_iter().find_map(|kind| {
        let rest = name.strip_prefix(prefix(kind))?;
        Some((kind, rest.split('-').next()?.parse().ok()?))
    })
}

/// Removes a directory and the files in it. A run makes no directories below its own.
fn remove_flat(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
    let _ = fs::remove_dir(path);
}

fn agent_in_memory() -> io::Result<Agent> {
    // Systems may forbid code in memory files unless the caller asks for it. Kernels before 6.3 do not know that flag.
    let fd = memfd_create("vswap-agent", MemfdFlags::CLOEXEC | MemfdFlags::EXEC)
        .or_else(|_| memfd_create("vswap-agent", MemfdFlags::CLOEXEC))?;
    let mut file = File::from(fd);
    file.write_all(AGENT)?;
    if can_map_executable(&file) {
        Ok(Agent::InMemory(file))
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_directory_is_made_while_others_sweep() {
        const MADE: usize = 2000;
        // Far more often than commands come. Without a pause nobody else would ever get the lock.
        const SWEEP_PACE: Duration = Duration::from_micros(20);
        let place = std::env::temp_dir().join(format!("vswap-sweep-{}", std::process::id()));
        fs::create_dir(&place).expect("a new directory");
        let outer = place.join("vswap-0");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let sweepers = [(); 2].map(|()| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        sweep(&outer);
                        thread::sleep(SWEEP_PACE);
                    }
                })
            });
            let failed = (0..MADE).find_map(|_| make(&outer, Kind::Run).err());
            is_over.store(true, Ordering::Relaxed);
            for sweeper in sweepers {
                sweeper.join().expect("no sweeper panics");
            }
            assert!(failed.is_none(), "{failed:?}");
        });
        fs::remove_dir_all(&place).expect("it is there");
    }
}
