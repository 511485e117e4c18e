//! Looks at /proc while no descriptor is left. This test has a process of its own, because all threads share one table.

use std::fs::File;
use std::thread;

use vswap_sys::{looks, process, process::procfs, process::task};

/// Takes all descriptors that are left.
fn take_all() -> Vec<File> {
    let mut taken = Vec::new();
    while let Ok(one) = File::open("/dev/null") {
        taken.push(one);
    }
    taken
}

#[test]
fn looks_find_a_descriptor_when_there_is_none() {
    let own = std::process::id();
    let limit = rustix::process::Rlimit {
        current: Some(64),
        ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();

    let taken = take_all();
    assert_eq!(task::process_of(own), None, "nothing is kept yet");
    drop(taken);

    looks::keep().unwrap();
    looks::keep().unwrap();
    assert!(process::could_have_descriptors(8) && !process::could_have_descriptors(64));
    let taken = take_all();
    assert!(!process::could_have_descriptors(1));
    assert!(std::fs::read("/proc/self/stat").is_err());
    let looks: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..200 {
                    assert_eq!(task::process_of(own), Some(own));
                    assert!(!procfs::threads(own).unwrap().is_empty());
                    assert!(procfs::stat(own).unwrap().alive());
                }
            })
        })
        .collect();
    for look in looks {
        look.join().unwrap();
    }
    assert!(
        std::fs::read("/proc/self/stat").is_err(),
        "the thread has opened none of this one's"
    );
    drop(taken);
    assert!(std::fs::read("/proc/self/stat").is_ok());
}
