//! The functions of libc that start programs. Where the agent's file cannot be seen, the new program must not ask for
//! it.
//!
//! The loader complains on standard error of each library in LD_PRELOAD that it does not find, and users would take
//! that for the program's words. After chroot, after pivot_root or in another mount namespace the agent's file is not
//! there. So each of these functions looks for the file. If it is gone, the function takes the agent out of LD_PRELOAD
//! for the new program, which runs without an agent either way. Otherwise everything is passed on unchanged. Not
//! covered: programs started from within libc (`system`, `popen`) or by the bare system call.
//!
//! For program threads only; also in signal handlers, and in children of vfork, whose memory is their parent's. So
//! nothing is allocated, and the new environment lies on the stack.
//!
//! Unsafe is needed here because these are C functions, found by name at run time, and the program's strings may be
//! anywhere: they are addresses that have to be probed, never references.

// `execl`, `execlp` and `execle` themselves.
mod lists;

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::base::kernel::{ENOSYS, PAGE_BYTES, Stat, call, is_readable};
use crate::base::libc;
use crate::state::STATE;

/// Functions of libc.
#[derive(Clone, Copy)]
enum Next {
    Execve,
    Execvpe,
    Fexecve,
    Execveat,
    Spawn,
    Spawnp,
}

const NAMES: [&CStr; 6] = [
    c"execve",
    c"execvpe",
    c"fexecve",
    c"execveat",
    c"posix_spawn",
    c"posix_spawnp",
];

/// Their addresses; 0 until they are looked up.
#[unsafe(link_section = ".data")]
static NEXT: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// The name of the variable, with the `=` before its value.
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Longest LD_PRELOAD, name included, that is changed.
const PRELOAD_BYTES_MAX: usize = 1024;
/// Room for variables in a changed environment comes in these steps. A larger environment is not changed.
const SMALL: usize = 128;
const MEDIUM: usize = 1024;
const LARGE: usize = 16 * 1024;

/// Looks the functions up. Called by the constructor: later one may be called where nothing can be looked up.
pub fn find() {
    for (word, name) in NEXT.iter().zip(NAMES) {
        word.store(libc::next_symbol(name).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Address of libc's function, if libc has one.
fn next(which: Next) -> Option<usize> {
    let word = NEXT.get(which as usize)?;
    let known = word.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let found = libc::next_symbol(NAMES.get(which as usize)?)?;
    word.store(found, Ordering::Relaxed);
    Some(found)
}

fn no_such_function() -> c_int {
    libc::set_errno(ENOSYS);
    -1
}

/// libc's `execve`.
///
/// # Safety
/// As for execve(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: usize, arguments: usize, environment: usize) -> c_int {
    type Function = unsafe extern "C" fn(usize, usize, usize) -> c_int;
    let Some(next) = next(Next::Execve) else {
        return no_such_function();
    };
    // SAFETY: the address is that of libc's function, which has this type.
    let next = unsafe { core::mem::transmute::<usize, Function>(next) };
    // SAFETY: path and arguments are the program's. The environment is too, or it is a copy that outlives the call.
    with_agent_or_without(environment, |environment| unsafe {
        next(path, arguments, environment)
    })
}

/// libc's `execv`.
///
/// # Safety
/// As for exec(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: usize, arguments: usize) -> c_int {
    // SAFETY: execv is execve with the current environment.
    unsafe { execve(path, arguments, libc::environ()) }
}

/// libc's `execvpe`.
///
/// # Safety
/// As for exec(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: usize, arguments: usize, environment: usize) -> c_int {
    type Function = unsafe extern "C" fn(usize, usize, usize) -> c_int;
    let Some(next) = next(Next::Execvpe) else {
        return no_such_function();
    };
    // SAFETY: the address is that of libc's function, which has this type.
    let next = unsafe { core::mem::transmute::<usize, Function>(next) };
    // SAFETY: as in `execve`.
    with_agent_or_without(environment, |environment| unsafe {
        next(file, arguments, environment)
    })
}

/// libc's `execvp`.
///
/// # Safety
/// As for exec(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: usize, arguments: usize) -> c_int {
    // SAFETY: execvp is execvpe with the current environment.
    unsafe { execvpe(file, arguments, libc::environ()) }
}

/// libc's `fexecve`.
///
/// # Safety
/// As for fexecve(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(descriptor: c_int, arguments: usize, environment: usize) -> c_int {
    type Function = unsafe extern "C" fn(c_int, usize, usize) -> c_int;
    let Some(next) = next(Next::Fexecve) else {
        return no_such_function();
    };
    // SAFETY: the address is that of libc's function, which has this type.
    let next = unsafe { core::mem::transmute::<usize, Function>(next) };
    // SAFETY: as in `execve`.
    with_agent_or_without(environment, |environment| unsafe {
        next(descriptor, arguments, environment)
    })
}

/// libc's `execveat`.
///
/// # Safety
/// As for execveat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: usize,
    arguments: usize,
    environment: usize,
    flags: c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, usize, usize, usize, c_int) -> c_int;
    let Some(next) = next(Next::Execveat) else {
        return no_such_function();
    };
    // SAFETY: the address is that of libc's function, which has this type.
    let next = unsafe { core::mem::transmute::<usize, Function>(next) };
    // SAFETY: as in `execve`.
    with_agent_or_without(environment, |environment| unsafe {
        next(directory, path, arguments, environment, flags)
    })
}

/// libc's `posix_spawn`.
///
/// # Safety
/// As for posix_spawn(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: usize,
    path: usize,
    actions: usize,
    attributes: usize,
    arguments: usize,
    environment: usize,
) -> c_int {
    let what = [pid, path, actions, attributes, arguments];
    // SAFETY: the caller keeps the promises of posix_spawn, which has these arguments.
    unsafe { spawn(Next::Spawn, what, environment) }
}

/// libc's `posix_spawnp`.
///
/// # Safety
/// As for posix_spawn(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: usize,
    file: usize,
    actions: usize,
    attributes: usize,
    arguments: usize,
    environment: usize,
) -> c_int {
    let what = [pid, file, actions, attributes, arguments];
    // SAFETY: the caller keeps the promises of posix_spawnp, which has these arguments.
    unsafe { spawn(Next::Spawnp, what, environment) }
}

unsafe fn spawn(which: Next, what: [usize; 5], environment: usize) -> c_int {
    type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;
    let Some(next) = next(which) else {
        return ENOSYS;
    };
    // SAFETY: the address is that of libc's function, which has this type.
    let next = unsafe { core::mem::transmute::<usize, Function>(next) };
    let [pid, file, actions, attributes, arguments] = what;
    // SAFETY: as in `execve`.
    with_agent_or_without(environment, |environment| unsafe {
        next(pid, file, actions, attributes, arguments, environment)
    })
}

/// Does the work of `execle`, given the address of its list. The environment comes behind the list.
unsafe extern "C" fn execute_with_environment(path: usize, arguments: usize) -> c_int {
    let mut end = arguments;
    // SAFETY: the caller of execle has ended the list with a null pointer and put the environment behind it.
    let environment = unsafe {
        while word_at(end) != 0 {
            end = end.wrapping_add(size_of::<usize>());
        }
        word_at(end.wrapping_add(size_of::<usize>()))
    };
    // SAFETY: the caller of execle keeps the promises of execve.
    unsafe { execve(path, arguments, environment) }
}

/// Calls `start` with the environment. If the agent's file is not there, it is an environment without the agent.
fn with_agent_or_without(environment: usize, start: impl Fn(usize) -> c_int) -> c_int {
    if is_agent_there() {
        return start(environment);
    }
    let changed = find_preload(environment).and_then(|(at, count)| {
        let mut value = [0; PRELOAD_BYTES_MAX];
        let kept = without_agent(variable_at(environment, at), &mut value)?;
        let new = if kept == 0 { 0 } else { value.as_ptr().addr() };
        match count {
            0..SMALL => Some(start_changed::<SMALL>(environment, at, new, &start)),
            SMALL..MEDIUM => Some(start_changed::<MEDIUM>(environment, at, new, &start)),
            MEDIUM..LARGE => Some(start_changed::<LARGE>(environment, at, new, &start)),
            _ => None,
        }
    });
    changed.unwrap_or_else(|| start(environment))
}

/// Can a program that is started now load the agent? Also true if the agent's path is not known.
fn is_agent_there() -> bool {
    const AT_FDCWD: usize = (-100_isize).cast_unsigned();
    let Some(path) = STATE.agent_path() else {
        return true;
    };
    let mut stat = Stat::default();
    let arguments = [AT_FDCWD, path, stat.as_mut_ptr().addr(), 0, 0, 0];
    // SAFETY: the path is a string, and the buffer has as many bytes as the kernel writes.
    unsafe { call(call::NEWFSTATAT, arguments) }.is_ok()
}

/// The index of LD_PRELOAD among the variables, and the number of variables. None if there is no LD_PRELOAD, or if the
/// environment cannot be read; then the kernel reports that.
fn find_preload(environment: usize) -> Option<(usize, usize)> {
    let (mut found, mut count) = (None, 0);
    loop {
        let variable = variable_at(environment, count);
        if variable == 0 {
            return found.map(|at| (at, count));
        }
        if variable == UNREADABLE || count > LARGE {
            return None;
        }
        if found.is_none() && starts_with(variable, PRELOAD) {
            found = Some(count);
        }
        count = count.wrapping_add(1);
    }
}

/// Stands for a variable that cannot be read.
const UNREADABLE: usize = usize::MAX;

fn variable_at(environment: usize, index: usize) -> usize {
    let place = environment.wrapping_add(index.wrapping_mul(size_of::<usize>()));
    if !is_readable(place) {
        return UNREADABLE;
    }
    // SAFETY: the kernel has just read a word there.
    unsafe { word_at(place) }
}

/// # Safety
/// There is a word at `address`.
unsafe fn word_at(address: usize) -> usize {
    // SAFETY: the caller promises that there is a word. It may be unaligned, and is the program's, so it is read by
    // address.
    unsafe { core::ptr::with_exposed_provenance::<usize>(address).read_unaligned() }
}

fn starts_with(text: usize, prefix: &[u8]) -> bool {
    let mut at = text;
    prefix.iter().all(|byte| {
        let is_same = is_readable_at_page(at, text) && byte_at(at) == *byte;
        at = at.wrapping_add(1);
        is_same
    })
}

/// Can the byte be read? Asks the kernel only at the beginning of a text and at each new page.
fn is_readable_at_page(address: usize, start: usize) -> bool {
    // Rounded down, because a word that begins here may extend into a page that is not there.
    let word = address & !(size_of::<usize>() - 1);
    (address != start && !address.is_multiple_of(PAGE_BYTES)) || is_readable(word)
}

/// The byte at an address that is known to be readable.
fn byte_at(address: usize) -> u8 {
    // SAFETY: the callers have asked the kernel whether its page can be read.
    unsafe { core::ptr::with_exposed_provenance::<u8>(address).read() }
}

/// Writes LD_PRELOAD without the agent to `value`, with a zero at the end. Returns how many libraries are left. None if
/// the agent is not in the list, or if there is no room.
fn without_agent(variable: usize, value: &mut [u8; PRELOAD_BYTES_MAX]) -> Option<usize> {
    let mut text = [0; PRELOAD_BYTES_MAX];
    let mut bytes = 0_usize;
    loop {
        let at = variable.wrapping_add(bytes);
        let place = text.get_mut(bytes)?;
        if !is_readable_at_page(at, variable) {
            return None;
        }
        *place = byte_at(at);
        if *place == 0 {
            break;
        }
        bytes = bytes.wrapping_add(1);
    }
    let list = text.get(PRELOAD.len()..bytes)?;
    let mut written = PRELOAD.len();
    value.get_mut(..written)?.copy_from_slice(PRELOAD);
    let (mut kept, mut had_agent) = (0_usize, false);
    for name in list.split(|byte| matches!(byte, b':' | b' ')) {
        if STATE.is_agent_path(name) {
            had_agent = true;
        } else if !name.is_empty() {
            if kept > 0 {
                *value.get_mut(written)? = b':';
                written = written.wrapping_add(1);
            }
            let end = written.wrapping_add(name.len());
            value.get_mut(written..end)?.copy_from_slice(name);
            written = end;
            kept = kept.wrapping_add(1);
        }
    }
    *value.get_mut(written)? = 0;
    had_agent.then_some(kept)
}

/// Calls `start` with a copy of the environment, which has less than `ROOM` variables. The variable at `at` is replaced
/// by `new`, or left out if `new` is 0.
#[inline(never)]
fn start_changed<const ROOM: usize>(
    environment: usize,
    at: usize,
    new: usize,
    start: &impl Fn(usize) -> c_int,
) -> c_int {
    let mut changed = [0_usize; ROOM];
    let (mut index, mut places) = (0_usize, changed.iter_mut());
    loop {
        let variable = if index == at {
            new
        } else {
            // SAFETY: the environment was read to its end just before.
            unsafe { word_at(environment.wrapping_add(index.wrapping_mul(size_of::<usize>()))) }
        };
        if index != at && variable == 0 {
            break;
        }
        if variable != 0
            && let Some(place) = places.next()
        {
            *place = variable;
        }
        index = index.wrapping_add(1);
    }
    start(changed.as_ptr().addr())
}
