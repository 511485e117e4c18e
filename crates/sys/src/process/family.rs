//! The end of a family: processes that are known, and all that descend from them.
//!
//! To find who descends from whom, all of /proc is walked, which costs ten milliseconds with a thousand processes. So
//! one walk is for the whole family, however many processes are known.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::process::procfs::{self, Stat};
use crate::process::{PidFd, could_have_descriptors, kill};

/// Descriptors that are held at a time: as many of these as there is room for.
const AT_A_TIME: [usize; 4] = [4096, 1024, 128, 16];
/// Walks on which somebody new may be found who was started meanwhile.
const WALKS_MAX: usize = 8;

/// SIGKILL to these processes and to every process that descends from one of them.
pub fn kill_family(members: &[(u32, &PidFd)]) {
    let fits = |count: &usize| could_have_descriptors(*count);
    let most = AT_A_TIME.into_iter().find(fits).unwrap_or(1);
    // First, because nobody descends from a process that is gone.
    kill_others(members, most, || procfs::processes().unwrap_or_default());
    for (_, process) in members {
        // It may be gone already.
        let _ = process.kill();
    }
}

/// SIGKILL to those that descend from members and are none. `list` shows all processes, and at most `most` are held.
fn kill_others(members: &[(u32, &PidFd)], most: usize, mut list: impl FnMut() -> Vec<Stat>) {
    if members.iter().all(|(_, process)| !is_alive(process)) {
        return;
    }
    let mut found = others(members, &list());
    let mut done = HashSet::new();
    for _ in 0..WALKS_MAX + found.len() / most {
        let left = found.iter().filter(|one| !done.contains(&(*one.0, *one.1)));
        let opened: Vec<_> = left
            .take(most)
            .map(|(&pid, &start)| ((pid, start), PidFd::open(pid)))
            .collect();
        if opened.is_empty() {
            return;
        }
        // A number may have been given to another process before it was opened. So what is killed is listed once more.
        let still = others(members, &list());
        for ((pid, start), opened) in opened {
            if still.get(&pid) != Some(&start) {
                continue;
            }
            let _ = match opened {
                Ok(process) => process.kill(),
                // There is no descriptor. It must end all the same.
                Err(_) => kill(pid),
            };
            done.insert((pid, start));
        }
        found = still;
    }
}

/// Those of `all` that descend from members and are none, with the times at which they were started.
fn others(members: &[(u32, &PidFd)], all: &[Stat]) -> HashMap<u32, u64> {
    // A member that lives after the walk had its number during the walk.
    let alive = members.iter().filter(|(_, process)| is_alive(process));
    let alive: Vec<u32> = alive.map(|(pid, _)| *pid).collect();
    let starts: HashMap<u32, u64> = all.iter().map(|it| (it.pid, it.start_ticks)).collect();
    // Those from whom they descend are not among them.
    procfs::descendants_in(all, &alive)
        .into_iter()
        .filter_map(|pid| Some((pid, *starts.get(&pid)?)))
        .collect()
}

fn is_alive(process: &PidFd) -> bool {
    process.exited(Some(Duration::ZERO)) == Ok(false)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Instant;

    use super::*;

    /// What was a shell, with so many children.
    struct Shell {
        process: Child,
        pidfd: PidFd,
        children: Vec<u32>,
    }

    impl Shell {
        fn with(children: usize) -> Shell {
            let script = format!("for i in $(seq {children}); do sleep 60 & done; exec sleep 60");
            let process = Command::new("sh").args(["-c", &script]).spawn().unwrap();
            let pidfd = PidFd::open(process.id()).unwrap();
            let since = Instant::now();
            let is_sleeping = |stat: &Stat| stat.parent == process.id() && stat.comm == "sleep";
            let children = loop {
                assert!(since.elapsed() < Duration::from_secs(60));
                let all = procfs::processes().unwrap();
                let found: Vec<u32> = all
                    .iter()
                    .filter(|s| is_sleeping(s))
                    .map(|s| s.pid)
                    .collect();
                if found.len() == children {
                    break found;
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            Shell {
                process,
                pidfd,
                children,
            }
        }

        fn member(&self) -> (u32, &PidFd) {
            (self.process.id(), &self.pidfd)
        }

        /// Does any of the children live?
        fn has_living(&self) -> bool {
            let lives = |pid: &u32| procfs::stat(*pid).is_ok_and(|stat| stat.alive());
            self.children.iter().any(lives)
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            kill_family(&[self.member()]);
            let _ = self.process.wait();
        }
    }

    /// Walks that it takes to kill all children of these shells.
    fn walks(shells: &[Shell], most: usize) -> usize {
        let members: Vec<_> = shells.iter().map(Shell::member).collect();
        let mut walks = 0;
        kill_others(&members, most, || {
            walks += 1;
            procfs::processes().unwrap()
        });
        let since = Instant::now();
        while shells.iter().any(Shell::has_living) {
            assert!(since.elapsed() < Duration::from_secs(60), "a child lives");
            std::thread::sleep(Duration::from_millis(5));
        }
        walks
    }

    #[test]
    fn a_family_costs_as_many_walks_as_one_process() {
        let shells: Vec<Shell> = (0..12).map(|_| Shell::with(3)).collect();
        assert_eq!(
            walks(&shells, 64),
            2,
            "one that finds, and one that makes sure"
        );
    }

    #[test]
    fn few_descriptors_take_more_walks_and_reach_everybody() {
        let shells = [Shell::with(20)];
        // It starts no others.
        assert_eq!(walks(&shells, 7), 4);
    }

    #[test]
    fn members_end_too_and_nobody_else() {
        let mut family = [Shell::with(1), Shell::with(1)];
        let stranger = Shell::with(1);
        kill_family(&family.each_ref().map(Shell::member));
        for shell in &mut family {
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(shell.process.wait().unwrap().signal(), Some(libc::SIGKILL));
        }
        assert!(is_alive(&stranger.pidfd) && stranger.has_living());
    }

    /// Its number may be another process's by now.
    #[test]
    fn nobody_is_looked_for_once_the_members_are_gone() {
        let mut shell = Shell::with(0);
        shell.pidfd.kill().unwrap();
        shell.process.wait().unwrap();
        assert_eq!(walks(&[shell], 16), 0);
    }

    /// A number that has another process by the second walk is left alone.
    #[test]
    fn a_number_that_was_given_away_is_left_alone() {
        let shell = Shell::with(1);
        let mut walks = 0;
        kill_others(&[shell.member()], 16, || {
            walks += 1;
            let mut all = procfs::processes().unwrap();
            for stat in all.iter_mut().filter(|stat| stat.pid == shell.children[0]) {
                stat.start_ticks += walks;
            }
            all
        });
        assert!(shell.has_living());
        assert_eq!(walks, 1 + WALKS_MAX as u64, "and the search has an end");
    }
}
