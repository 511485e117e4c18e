//! Runs that really swap: what vswap reports about them, and that none outlives vswap.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::{Scratch, eventually, output, state, text, wait};

/// The interpreter itself: PATH may lead to a script that chooses one.
const PYTHON: &str = "/usr/bin/python3";
/// Fills 96 MiB with a pattern and checks it twice, forwards.
const FILL_AND_CHECK: &str = "\
blocks = [bytearray([n % 251]) * 1048576 for n in range(96)]
for _ in range(2):
    for n, block in enumerate(blocks):
        assert block.count(n % 251) == len(block), n
print('all there')";

#[test]
fn a_run_that_swaps_says_so() {
    let scratch = Scratch::new();
    let file = scratch.path().join("summary.json");
    let mut command = scratch.vswap();
    command
        .args(["run", "--ram", "48M", "--debug-checksums", "--summary"])
        .arg(&file);
    let output = output(command.args(["--", PYTHON, "-c", FILL_AND_CHECK]));
    let message = text(&output.stderr);
    assert_eq!(text(&output.stdout), "all there\n", "{message}");
    let lines: Vec<&str> = message.lines().rev().take(2).collect();
    let said = [
        [" compressed to ", "; faults ", "p99 "],
        ["peak ", " of 48 MiB (needed ", "pages out "],
    ];
    for (line, parts) in lines.into_iter().zip(said) {
        for part in parts {
            assert!(line.contains(part), "\"{part}\" in {line}");
        }
    }
    let json = std::fs::read_to_string(&file).expect("summary");
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let figure = |name: &str| {
        value[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {json}"))
    };
    assert!(figure("pages_out") > 0 && figure("pages_in") > 0, "{json}");
    assert!(figure("peak_needed_bytes") >= 96 << 20, "{json}");
}

#[test]
fn every_codec_brings_everything_back() {
    for codec in ["lz4", "zstd", "zstd:-3", "zstd:9", "none"] {
        let scratch = Scratch::new();
        let mut command = scratch.vswap();
        command.args([
            "run",
            "--ram",
            "256M",
            "--codec",
            codec,
            "--debug-evict-every",
            "20ms",
        ]);
        command.arg("--debug-checksums");
        let output = output(command.args(["--", PYTHON, "-c", FILL_AND_CHECK]));
        assert_eq!(
            text(&output.stdout),
            "all there\n",
            "{codec}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn the_program_does_not_outlive_vswap() {
    let scratch = Scratch::new();
    let script = format!(
        "import os, time\nprint(os.getpid(), flush=True)\n{FILL_AND_CHECK}\ntime.sleep(1000)"
    );
    let mut vswap = scratch
        .vswap()
        .args(["run", "--ram", "48M", "--", PYTHON, "-u", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("vswap starts");
    let mut reader = BufReader::new(vswap.stdout.take().expect("stdout"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a pid");
    let program: u32 = line.trim().parse().expect("a pid");
    line.clear();
    reader.read_line(&mut line).expect("a line");
    assert_eq!(line, "all there\n");
    vswap.kill().expect("killed");
    wait(&mut vswap);
    eventually("the end of the program", || {
        state(program)
            .is_none_or(|state| state == 'Z')
            .then_some(())
    });
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest, "", "it did nothing more");
}
