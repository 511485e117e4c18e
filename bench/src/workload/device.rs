//! `device`: what fio gets from the disk of the swap files and areas, to compare the streams of `disk` with.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use serde_json::Value;

use crate::size::parse_bytes;

use super::print_line;

/// Requests as large as those that pages are written with, and a few of them at a time.
const REQUEST: &str = "--bs=256k";
const DEPTH: &str = "--iodepth=8";

/// Options of `device`.
#[derive(Args, Debug)]
pub struct Device {
    /// The file on the disk that is written and read; its owner removes it.
    file: PathBuf,
    /// Bytes to write and to read.
    #[arg(long, value_parser = parse_bytes)]
    size: usize,
    /// The program fio.
    #[arg(long, default_value = "fio")]
    fio: PathBuf,
}

pub(super) fn run(options: &Device) -> Result<(), String> {
    for direction in ["write", "read"] {
        let kb_per_s = stream(options, direction)?;
        print_line(&format!(
            r#"{{"phase":"{direction}","kb_per_s":{kb_per_s}}}"#
        ));
    }
    Ok(())
}

/// Throughput in one direction, from one end of the file to the other.
fn stream(options: &Device, direction: &str) -> Result<u64, String> {
    let output = Command::new(&options.fio)
        .args([
            "--name=stream",
            "--ioengine=libaio",
            "--direct=1",
            "--end_fsync=1",
        ])
        .args([REQUEST, DEPTH, "--output-format=json"])
        .arg(format!("--rw={direction}"))
        .arg(format!("--size={}", options.size))
        .arg(format!("--filename={}", options.file.display()))
        .output()
        .map_err(|error| format!("cannot run {}: {error}", options.fio.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    bandwidth(&said, direction).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("fio gave no figures but: {said}{errors}")
    })
}

/// The bandwidth in KB/s that fio reports for its only job.
fn bandwidth(json: &str, direction: &str) -> Option<u64> {
    // Warnings may precede the JSON.
    let json: Value = serde_json::from_str(&json[json.find('{')?..]).ok()?;
    let job = json.get("jobs")?.get(0)?;
    let failed = job.get("error")?.as_u64()? != 0;
    let kb_per_s = job.get(direction)?.get("bw")?.as_u64()?;
    (!failed && kb_per_s > 0).then_some(kb_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_that_of_the_direction() {
        let said = r#"note: x
            {"jobs": [{"error": 0, "read": {"bw": 0}, "write": {"bw": 2048}}]}"#;
        assert_eq!(bandwidth(said, "write"), Some(2048));
        assert_eq!(bandwidth(said, "read"), None);
        assert_eq!(bandwidth("fio: no such option", "read"), None);
    }
}
