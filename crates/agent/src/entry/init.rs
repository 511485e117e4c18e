//! The constructor: runs in every program of a run before main, on the program's main thread.
//!
//! It leaves the program as it was: no descriptor, signal mask, errno or environment variable changes. The agent's
//! thread does everything that takes time, while the program already starts.

use core::sync::atomic::Ordering;

use crate::base::kernel::has_small_pages;
use crate::base::{libc, rules};
use crate::entry::attached;
use crate::hooks::{clones, execs, fork, signals, unseen};
use crate::ring::{SOCKET_ENV, SOCKET_PATH_BYTES_MAX};
use crate::state::{STATE, phase};
use crate::thread::{self, Origin};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    libc::keeping_errno(|| {
        clones::find();
        rules::read();
        unseen::look_up();
        unseen::remember_path();
        execs::find();
        signals::find();
        if !begin() {
            STATE.phase.store(phase::OFF, Ordering::SeqCst);
        }
    });
}

fn begin() -> bool {
    if !remember_socket() || !has_small_pages() {
        return false;
    }
    // The hooks come before the thread: a process with an agent and without hooks would corrupt its children.
    if !libc::register_atfork(fork::prepare, fork::parent, fork::child) {
        return false;
    }
    attached::remember_own_entry();
    thread::start(Origin::Exec).is_ok()
}

/// Copies the path of the socket, because programs change their environment or write over it.
fn remember_socket() -> bool {
    const PREFIX_BYTES: usize = SOCKET_ENV.len() + 1;
    let mut prefix = [b'='; PREFIX_BYTES];
    for (to, from) in prefix.iter_mut().zip(SOCKET_ENV.bytes()) {
        *to = from;
    }
    let Some(path) = libc::environment(&prefix).map(|path| path.to_bytes()) else {
        return false;
    };
    if path.is_empty() || path.len() > SOCKET_PATH_BYTES_MAX {
        return false;
    }
    STATE.remember_socket_path(path);
    true
}
