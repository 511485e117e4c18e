//! VSWAP_LOG: what vswap says, and how.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use serde_json::Value;

use crate::Scratch;

/// What vswap says of a program that lives long enough to say hello, and the exit status.
fn said(words: &str) -> (String, Option<i32>) {
    let scratch = Scratch::new();
    let ended = scratch
        .run()
        .args(["sleep", "0.5"])
        .env("VSWAP_LOG", words)
        .output()
        .expect("vswap starts");
    let text = String::from_utf8(ended.stderr).expect("text");
    (text, ended.status.code())
}

#[test]
fn levels_and_forms() {
    let (text, status) = said("");
    assert_eq!(status, Some(0));
    assert!(text.starts_with("vswap: peak "), "{text:?}");
    assert_eq!(said("warn"), (String::new(), Some(0)));
    let (text, _) = said("debug");
    let hello = text.lines().next().unwrap_or_default();
    assert!(
        hello.starts_with("vswap: debug: a process has said hello space=1 pid="),
        "{text:?}"
    );
    let (text, _) = said("journal");
    assert!(text.starts_with("<6>peak "), "{text:?}");
}

#[test]
fn each_line_of_json_is_an_object() {
    let (text, _) = said("json,debug");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let of = |level: &str| lines.iter().find(|line| line["level"] == level);
    let hello = of("DEBUG").expect("a debug message");
    assert!(hello["pid"].as_u64().is_some_and(|pid| pid > 1), "{hello}");
    assert_eq!(hello["message"], "a process has said hello");
    let summary = of("INFO").expect("the summary");
    assert!(
        summary["message"]
            .as_str()
            .is_some_and(|it| it.starts_with("peak ")),
        "{summary}"
    );
    assert_eq!(summary["target"], "vswap");
}

#[test]
fn wrong_words_are_refused() {
    for words in ["loud", "debug,xml", "tokio=debug"] {
        let (text, status) = said(words);
        assert_eq!(status, Some(125), "{text:?}");
        assert!(text.starts_with("vswap: VSWAP_LOG: "), "{text:?}");
    }
}

/// systemd names the device and the inode of the stream that it reads.
#[test]
fn the_journal_gets_priorities() {
    let scratch = Scratch::new();
    let path = scratch.path().join("journal");
    let journal = File::create(&path).expect("a file");
    let stream = journal.metadata().expect("metadata");
    let status = scratch
        .run()
        .arg("true")
        .env(
            "JOURNAL_STREAM",
            format!("{}:{}", stream.dev(), stream.ino()),
        )
        .stderr(journal)
        .status()
        .expect("vswap starts");
    assert!(status.success());
    let text = fs::read_to_string(&path).expect("what it said");
    assert!(text.starts_with("<6>peak "), "{text:?}");
}
