//! Programs that cannot take the agent, and users without the permissions that a run needs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Scratch, output, text};

/// User and group id of nobody, who owns nothing here.
const NOBODY: u32 = 65_534;

/// An ELF file with nothing but a header: `class` 1 is 32-bit, 2 is 64-bit; `machine` 62 is x86-64.
fn elf(scratch: &Scratch, name: &str, class: u8, machine: u8) -> PathBuf {
    let mut bytes = vec![0_u8; 64];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    bytes[16] = 2; // executable
    bytes[18] = machine;
    bytes[20] = 1;
    bytes[52] = 64; // bytes of this header
    let path = scratch.path().join(format!("{name}.bytes"));
    fs::write(&path, bytes).expect("file");
    scratch.program(&path, name, 0o755)
}

fn refused(scratch: &Scratch, program: &Path) -> String {
    let output = output(scratch.run().arg(program));
    let message = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(126),
        "{}: {message}",
        program.display()
    );
    message
}

#[test]
fn programs_of_another_word_size_or_machine() {
    let scratch = Scratch::new();
    for program in [elf(&scratch, "narrow", 1, 3), elf(&scratch, "arm", 2, 183)] {
        let message = refused(&scratch, &program);
        assert!(
            message.contains("another machine or word size"),
            "{message}"
        );
    }
}

#[test]
fn setuid_and_setgid_programs() {
    let scratch = Scratch::new();
    let is_root = fs::metadata(scratch.path()).expect("metadata").uid() == 0;
    for mode in [0o4755, 0o2755] {
        let program = if is_root {
            let copy = scratch.program(Path::new("/bin/true"), &format!("gains-{mode:o}"), 0o755);
            chown(&copy, Some(NOBODY), Some(NOBODY)).expect("owner");
            fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).expect("mode");
            copy
        } else {
            "/usr/bin/su".into()
        };
        let message = refused(&scratch, &program);
        assert!(message.contains("setuid or setgid"), "{message}");
    }
}

#[test]
fn a_program_that_is_setuid_to_its_user_is_run() {
    let scratch = Scratch::new();
    let copy = scratch.program(Path::new("/bin/true"), "own", 0o4755);
    assert_eq!(output(scratch.run().arg(copy)).status.code(), Some(0));
}

#[test]
fn doctor_and_run_agree_and_use_the_same_words() {
    let scratch = Scratch::new();
    let is_root = fs::metadata(scratch.path()).expect("metadata").uid() == 0;
    let as_user = |other: bool, arguments: &[&str]| {
        let vswap = env!("CARGO_BIN_EXE_vswap");
        let mut command = if other {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", vswap]);
            command
        } else {
            Command::new(vswap)
        };
        output(
            command
                .args(arguments)
                .env("XDG_RUNTIME_DIR", "/nonexistent")
                .current_dir("/"),
        )
    };
    // Root can pose as another user. Other users can only be themselves.
    for other in if is_root {
        &[false, true][..]
    } else {
        &[false]
    } {
        let doctor = as_user(*other, &["doctor"]);
        let list = text(&doctor.stdout);
        let marked: Vec<&str> = list
            .lines()
            .filter_map(|line| line.strip_prefix("* "))
            .collect();
        let run = as_user(*other, &["run", "--ram", "64M", "--quiet", "true"]);
        let refusal = text(&run.stderr);
        if marked.is_empty() {
            assert_eq!(doctor.status.code(), Some(0), "{list}");
            assert_eq!(run.status.code(), Some(0), "{refusal}");
        } else {
            assert_eq!(doctor.status.code(), Some(1), "{list}");
            assert_eq!(run.status.code(), Some(125), "{refusal}");
            for line in marked {
                let words = line
                    .split_whitespace()
                    .skip(2)
                    .collect::<Vec<_>>()
                    .join(" ");
                assert!(refusal.contains(&words), "\"{words}\" in {refusal}");
            }
            assert!(refusal.contains("to do: "), "{refusal}");
        }
    }
}
