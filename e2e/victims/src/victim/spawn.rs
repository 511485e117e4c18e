//! Programs started in all ways: `posix_spawn`, a bare `vfork`, `fork` and exec, `system`, and programs that replace
//! themselves.

use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::pages::Pages;
use crate::run::{Child, Options};
use crate::wrong::{Checked, Wrong, same};

/// How often a program replaces itself.
const GENERATIONS: usize = 3;
/// Pages that each of them fills.
const CHAIN_PAGES: usize = 512;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut pages = Pages::filled(options.pages_per_thread(), options.tag(thread))?;
        let mut random = options.random(thread, 19);
        loop {
            expect_exit("posix_spawn", 0, &mut Command::new("true"))?;
            pages.stir("parent of a spawned program", &mut random, 64)?;
            absent()?;
            let status = Child(bare_vfork("/bin/false")?).wait_status()?;
            same("vfork and exec", 1 << 8, status)?;
            pages.stir("parent of a vforked program", &mut random, 64)?;
            expect_exit("program that replaces itself", 0, &mut chain(GENERATIONS)?)?;
            fork_and_exec()?;
            // SAFETY: the command is constant, and the C library makes system() thread-safe.
            let status = unsafe { libc::system(c"exit 7".as_ptr()) };
            same("system()", 7 << 8, status)?;
            pages.check_all("parent of many programs")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

fn expect_exit(what: &'static str, expected: i32, command: &mut Command) -> Checked {
    let status = command
        .status()
        .map_err(|error| Wrong::Call { what, error })?;
    same(what, expected, status.code().unwrap_or(-1))
}

/// The program does not exist, so the error has to come back to the parent.
fn absent() -> Checked {
    match Command::new("/nonexistent/program").status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Wrong::Call {
            what: "posix_spawn of an absent program",
            error,
        }),
        Ok(_) => Err(Wrong::Result {
            what: "spawn of an absent program",
            expected: -1,
            found: 0,
        }),
    }
}

fn fork_and_exec() -> Checked {
    let child = Child::fork(|| {
        let error = Command::new("true").exec();
        Err(Wrong::Call {
            what: "exec",
            error,
        })
    })?;
    child.wait()
}

/// `vfork` and `execve` by bare system calls, past all hooks of the C library.
fn bare_vfork(program: &str) -> Checked<i32> {
    let path = CString::new(program).unwrap_or_default();
    let arguments = [path.as_ptr(), std::ptr::null()];
    // A copy of the environment's pointers. Nothing changes the environment in this program.
    // SAFETY: environ is a valid, null-terminated array.
    let environment = unsafe { environ };
    let pid: i64;
    // SAFETY: the child runs the instructions up to the second system call or the exit. It uses no stack and changes
    // only registers. The parent goes on when the child has its own memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test eax, eax",
            "jnz 2f",
            "mov eax, {execve}",
            "mov rdi, {path}",
            "mov rsi, {arguments}",
            "mov rdx, {environment}",
            "syscall",
            "mov edi, 127",
            "mov eax, {exit}",
            "syscall",
            "2:",
            execve = const libc::SYS_execve,
            exit = const libc::SYS_exit_group,
            path = in(reg) path.as_ptr(),
            arguments = in(reg) arguments.as_ptr(),
            environment = in(reg) environment,
            inlateout("rax") libc::SYS_vfork => pid,
            out("rcx") _, out("r11") _, out("rdi") _, out("rsi") _, out("rdx") _,
        );
    }
    match i32::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => {
            let error = std::io::Error::from_raw_os_error(i32::try_from(-pid).unwrap_or(0));
            Err(Wrong::Call {
                what: "vfork",
                error,
            })
        }
    }
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

fn chain(generations: usize) -> Checked<Command> {
    let program = std::env::current_exe().map_err(|error| Wrong::Call {
        what: "/proc/self/exe",
        error,
    })?;
    let mut command = Command::new(program);
    command.arg("chain").arg(generations.to_string());
    Ok(command)
}

/// Fills fresh memory, which must be zero first, and becomes the next generation.
pub(crate) fn run_chain(generations: usize, seed: u64) -> Checked {
    let pages = Pages::new(CHAIN_PAGES, seed)?;
    pages.check_all("memory of a program that has just begun")?;
    let pages = Pages::filled(CHAIN_PAGES, seed ^ generations as u64)?;
    pages.check_all("memory of a program that replaces itself")?;
    if generations == 0 {
        return Ok(());
    }
    let error = chain(generations - 1)?.exec();
    Err(Wrong::Call {
        what: "exec of itself",
        error,
    })
}
