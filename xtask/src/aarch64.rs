//! What there is for aarch64, built on another machine, and its unit tests by qemu-user.
//!
//! qemu-user answers ENOSYS to userfaultfd, ptrace, seccomp, `process_vm_readv` and the queries of /proc, so tests that
//! need these are left out, each by its name and with the reason. If a part of the toolchain is missing, the check is
//! skipped and prints how to install it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::checks::{cargo, tests};
use crate::command;
use crate::nightly::succeeds;
use crate::step::Report;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where the emulator finds the C library: `-L` of its command line.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// What is built. The command has the agent and the pager in itself.
const BUILT: [&str; 3] = ["vswap", "vswap-arena", "vswap-capi"];

/// Tests of a package that do not work by the emulator.
type LeftOut = &'static [&'static str];

/// Packages, where their tests are, and what is left out of them.
const TESTED: &[(&str, &str, LeftOut)] = &[
    ("vswap-sys", "--lib", &NOT_OF_SYS),
    ("vswap-pager", "--lib", &NOT_OF_PAGER),
    ("vswap-arena", "--lib", &NOT_OF_ARENA),
    // Those that the emulator cannot run skip themselves.
    ("vswap-agent", "--tests", &[]),
    ("vswap", "--bins", &[]),
    ("vswap-engine", "--lib", &[]),
];
/// Sizes of pages that kernels for aarch64 may have and vswap refuses. The emulator can have them.
const OTHER_PAGES: [&str; 2] = ["16384", "65536"];

const NOT_OF_SYS: [&str; 15] = [
    // Executed files are the emulator's, not the program's.
    "a_running_program_is_in_use",
    // A seccomp filter.
    "where_io_uring_is_refused",
    // The emulator does not know MAP_FIXED_NOREPLACE.
    "this_process_lies_below_the_end",
    // /proc/PID/maps is made up, and has neither ioctls nor flags.
    "the_own_process_reads_and_parses",
    "procmap::tests::a_query_finds",
    "procmap::tests::private_memory",
    "procmap::tests::the_file_of_a_mapping",
    // So is /proc/PID/environ.
    "the_environment_says",
    // /proc/PID/syscall is that of the emulator.
    "a_call_under_way_says",
    "a_thread_is_seen_to_wait_and_to_run",
    // `get_robust_list`.
    "has_a_robust_list_until_it_ends",
    // `process_vm_readv`.
    "a_hole_ends_the_read_before_it",
    "scattered_spans_are_read_in_order",
    // userfaultfd.
    "watched::tests::rows_are_taken_away",
    "watched::tests::what_is_locked_stays",
];
const NOT_OF_PAGER: [&str; 4] = [
    // `get_robust_list`.
    "the_list_of_who_has_got_the_id",
    // Addresses by the TiB are reserved, and the emulator keeps a note of each page: it would take all memory there is.
    "simulator::",
    "an_entry_that_waits_twice",
    "a_limit_of_512_gib",
];
/// Each of them makes an arena, and that needs a userfaultfd.
const NOT_OF_ARENA: [&str; 2] = ["allowance_tests::", "protect_tests::"];

/// Builds and tests.
///
/// # Errors
/// Something does not build, or a test failed.
pub fn check(root: &Path, limit: Duration) -> Result<Report, String> {
    if let Some(missing) = missing(root) {
        return Ok(Report {
            skipped: Some(missing),
            ..Report::default()
        });
    }
    let mut build = across(root, &["build", "--target", TARGET]);
    build.args(BUILT.iter().flat_map(|package| ["--package", package]));
    command::run(&mut build, limit)?;
    OTHER_PAGES
        .iter()
        .try_for_each(|bytes| is_refused(root, bytes))?;
    let mut all = Report::default();
    for (package, kind, left_out) in TESTED {
        let words = ["test", "--target", TARGET, "--package", package, kind];
        let mut command = across(root, &words);
        if *package == "vswap-sys" {
            command.arg("--all-features");
        }
        command.arg("--");
        command.args(left_out.iter().flat_map(|name| ["--skip", name]));
        let found = tests(command, limit)?.tests;
        all.tests.passed += found.passed;
        all.tests.ignored += found.ignored;
        all.tests.skips.extend(found.skips);
    }
    Ok(all)
}

/// Does the command refuse a kernel whose pages have so many bytes?
fn is_refused(root: &Path, bytes: &str) -> Result<(), String> {
    const WORDS: &str = "vswap works with pages of 4 KiB alone";
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    let program = root.join(target).join(TARGET).join("debug/vswap");
    let mut command = Command::new(EMULATOR);
    command.args(["-p", bytes, "-L", LIBRARIES]).arg(program);
    command.arg("doctor");
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1) || !said.contains(WORDS) {
        let shown = command::shell_words(&command);
        let status = output.status;
        return Err(format!(
            "`{shown}` does not refuse such pages: {status}\n{said}"
        ));
    }
    println!("pages of {bytes} bytes are refused: {}", said.trim());
    Ok(())
}

/// A cargo that links and runs for the other machine.
fn across(root: &Path, words: &[&str]) -> Command {
    let mut command = cargo(root, words);
    command
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            format!("{EMULATOR} -L {LIBRARIES}"),
        );
    command
}

/// The first part that is not there, and how to have it.
fn missing(root: &Path) -> Option<String> {
    let runs = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version");
        succeeds(command)
    };
    let mut library = Command::new("rustc");
    library
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(root);
    let library = library.output().ok();
    let has_library = library
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .is_some_and(|path| Path::new(path.trim()).is_dir());
    if !has_library {
        return Some(format!(
            "no Rust for {TARGET} here; to have it: rustup target add {TARGET}"
        ));
    }
    let package = match (runs(LINKER), runs(EMULATOR)) {
        (false, _) => "gcc-aarch64-linux-gnu",
        (_, false) => "qemu-user",
        _ => return None,
    };
    Some(format!(
        "no compiler or no emulator for {TARGET} here; to have it: apt-get install {package}"
    ))
}
