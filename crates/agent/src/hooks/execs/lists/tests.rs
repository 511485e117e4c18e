//! Arguments that come one by one become a list, however many there are.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int};
use std::cell::RefCell;
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::*;

type Listed = unsafe extern "C" fn(*const c_char, *const c_char, ...) -> c_int;

thread_local! {
    static COLLECTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes the path and the list up to its end, and returns how many there are.
unsafe extern "C" fn collect(path: *const c_char, list: *const *const c_char) -> c_int {
    // SAFETY: the list ends with a null pointer and consists of strings, as the path is one.
    let text = |text: *const c_char| unsafe { CStr::from_ptr(text).to_str().unwrap().to_owned() };
    let mut all = vec![text(path)];
    // SAFETY: as above.
    all.extend(
        (0..)
            .map(|at| unsafe { *list.add(at) })
            .take_while(|each| !each.is_null())
            .map(text),
    );
    let count = all.len();
    COLLECTED.set(all);
    c_int::try_from(count).unwrap()
}

#[unsafe(naked)]
unsafe extern "C" fn list_of() {
    with_list!(collect)
}

fn listed(function: unsafe extern "C" fn()) -> Listed {
    // SAFETY: the function takes any number of arguments.
    unsafe { core::mem::transmute::<unsafe extern "C" fn(), Listed>(function) }
}

/// Calls a function with a path, the arguments, and what comes behind them.
macro_rules! with {
    ($function:expr, $path:expr; $first:expr $(, $rest:expr)*) => {
        // SAFETY: path and arguments are strings or null, and null ends them.
        unsafe { listed($function)($path.as_ptr(), $first $(, $rest)*) }
    };
}

const END: *const c_char = core::ptr::null();

#[test]
fn lists_of_one_to_twelve_arguments_are_whole() {
    let path = c"path";
    let names = [
        c"a", c"b", c"c", c"d", c"e", c"f", c"g", c"h", c"i", c"j", c"k", c"l",
    ];
    let [a, b, c, d, e, f, g, h, i, j, k, l] = names.map(CStr::as_ptr);
    let counts = [
        with!(list_of, path; END),
        with!(list_of, path; a, END),
        with!(list_of, path; a, b, END),
        with!(list_of, path; a, b, c, END),
        with!(list_of, path; a, b, c, d, END),
        with!(list_of, path; a, b, c, d, e, END),
        with!(list_of, path; a, b, c, d, e, f, END),
        with!(list_of, path; a, b, c, d, e, f, g, END),
        with!(list_of, path; a, b, c, d, e, f, g, h, END),
        with!(list_of, path; a, b, c, d, e, f, g, h, i, END),
        with!(list_of, path; a, b, c, d, e, f, g, h, i, j, END),
        with!(list_of, path; a, b, c, d, e, f, g, h, i, j, k, END),
        with!(list_of, path; a, b, c, d, e, f, g, h, i, j, k, l, END),
    ];
    assert!(counts.into_iter().eq(1..=13));
    let all = [path]
        .into_iter()
        .chain(names)
        .map(|name| name.to_str().unwrap());
    assert!(COLLECTED.take().iter().eq(all));
}

/// The status of a child that starts another program by `start`.
fn status(start: impl FnMut() -> c_int + Send + Sync + 'static) -> Option<i32> {
    let mut start = start;
    let mut command = Command::new("/nowhere/at/all");
    // SAFETY: in the child only a function is called that starts another program.
    unsafe {
        command.pre_exec(move || {
            start();
            Err(Error::last_os_error())
        });
    }
    command.status().unwrap().code()
}

#[test]
fn programs_start_with_all_arguments_and_with_their_environment() {
    let path = c"/bin/sh";
    let by_environment = || {
        let environment = [c"WANT=it".as_ptr(), END];
        let script = c"test $WANT$# = it8 && test $8 = h && exit 7";
        let [sh, c, s] = [c"sh", c"-c", script].map(CStr::as_ptr);
        let [zero, a, h] = [c"0", c"a", c"h"].map(CStr::as_ptr);
        with!(execle, path; sh, c, s, zero, a, a, a, a, a, a, a, h, END, environment.as_ptr())
    };
    assert_eq!(status(by_environment), Some(7));
    for (function, path) in [(execl as unsafe extern "C" fn(), path), (execlp, c"sh")] {
        let start = move || {
            let script = c"test $# = 2 && test $2 = h && exit 7";
            let [sh, c, s] = [c"sh", c"-c", script].map(CStr::as_ptr);
            let [zero, a, h] = [c"0", c"a", c"h"].map(CStr::as_ptr);
            with!(function, path; sh, c, s, zero, a, h, END)
        };
        assert_eq!(status(start), Some(7));
    }
    let nothing = || with!(execl, c"/nowhere/at/all"; END);
    assert_eq!(nothing(), -1);
    assert_eq!(Error::last_os_error().kind(), ErrorKind::NotFound);
}
