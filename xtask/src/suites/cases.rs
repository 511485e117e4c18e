//! Reads cases and their outcomes from a suite's output. There is one reader for each kind of output.
//!
//! If a name comes again, it is another case: `name #2`. Lines that are no case are skipped. So a suite that prints
//! nothing has no cases, and the caller takes that for a failure.

use std::collections::BTreeMap;

/// The outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// The suite itself skipped it.
    Skipped,
}

impl Outcome {
    /// The word for the outcome.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Skipped => "skipped",
        }
    }
}

/// The cases of one side.
pub type Cases = BTreeMap<String, Outcome>;

/// The kinds of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Python's unittest with `-v`: `test_a (test.test_b.C.test_a) ... ok`, and more lines in between.
    Unittest,
    /// pytest with `-v`: `path::case PASSED [ 10%]`.
    Pytest,
    /// `ok name` and `not ok name`, optionally with a number and ` # SKIP`: our own scripts.
    Tap,
    /// redis: `[ok]: name (12 ms)`.
    Redis,
    /// Go with `-test.v`: `--- PASS: TestName (0.01s)`, indented further for parts of a test.
    Go,
    /// jemalloc: `test_name (non-reentrant): pass`.
    Jemalloc,
    /// SQLite: `select1-1.1... Ok`, and `! name expected:` for a case that failed.
    Sqlite,
    /// pg_regress: `test name ... ok  12 ms`, or `     name ... FAILED`.
    PgRegress,
    /// automake: `PASS: name`.
    Automake,
}

/// Reads all cases.
pub fn read(reading: Reading, text: &str) -> Cases {
    let mut cases = Cases::new();
    if reading == Reading::Unittest {
        for (name, outcome) in unittest(text) {
            add(&mut cases, &name, outcome);
        }
        return cases;
    }
    let line_of = match reading {
        Reading::Unittest | Reading::Tap => tap,
        Reading::Pytest => pytest,
        Reading::Redis => redis,
        Reading::Go => go,
        Reading::Jemalloc => jemalloc,
        Reading::Sqlite => sqlite,
        Reading::PgRegress => pg_regress,
        Reading::Automake => automake,
    };
    let mut group = "";
    for line in text.lines() {
        group = heading(reading, line).unwrap_or(group);
        if let Some((name, outcome)) = line_of(line) {
            let name = if group.is_empty() {
                name.to_string()
            } else {
                format!("{group}: {name}")
            };
            add(&mut cases, &name, outcome);
        }
    }
    cases
}

fn add(cases: &mut Cases, name: &str, outcome: Outcome) {
    let mut free = name.to_string();
    let mut number = 1;
    while cases.contains_key(&free) {
        number += 1;
        free = format!("{name} #{number}");
    }
    cases.insert(free, outcome);
}

/// A line that says where the cases below it belong.
fn heading(reading: Reading, line: &str) -> Option<&str> {
    match reading {
        Reading::Jemalloc => line.strip_prefix("=== ")?.strip_suffix(" ==="),
        _ => None,
    }
}

/// Between a case's name and its outcome there may be its description and whatever the case prints.
fn unittest(text: &str) -> Vec<(String, Outcome)> {
    let mut found = Vec::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        if let Some(name) = unittest_name(line) {
            current = Some(name);
        }
        let Some(outcome) = unittest_outcome(line) else {
            continue;
        };
        found.extend(current.take().map(|name| (name, outcome)));
    }
    found
}

/// `test_a (test.test_b.C.test_a)`: the text in brackets is the case's name.
fn unittest_name(line: &str) -> Option<String> {
    let (name, rest) = line.split_once(" (")?;
    let (place, _) = rest.split_once(')')?;
    let is_word = |text: &str| {
        text.chars()
            .all(|c| c.is_alphanumeric() || "_.".contains(c))
    };
    let is_name = name.to_lowercase().starts_with("test") && is_word(name);
    (is_name && is_word(place) && place.contains('.')).then(|| place.to_string())
}

fn unittest_outcome(line: &str) -> Option<Outcome> {
    // The outcome ends its line. The case's output may come right before it, without a space.
    let last = line.rsplit_once("... ").map_or(line, |(_, last)| last);
    match last.trim() {
        "expected failure" => Some(Outcome::Passed),
        "FAIL" | "ERROR" | "unexpected success" => Some(Outcome::Failed),
        last if last.starts_with("skipped ") => Some(Outcome::Skipped),
        last => last
            .strip_suffix("ok")
            .is_some_and(|before| !before.ends_with(char::is_alphanumeric))
            .then_some(Outcome::Passed),
    }
}

fn pytest(line: &str) -> Option<(&str, Outcome)> {
    let (line, _) = line.rsplit_once(" [")?;
    let line = line.trim_end();
    // A reason in brackets may follow.
    let line = line
        .split_once(" SKIPPED (")
        .map_or(line, |(name, _)| &line[..name.len() + " SKIPPED".len()]);
    let (name, word) = line.rsplit_once(' ')?;
    let outcome = match word {
        "PASSED" | "XFAIL" => Outcome::Passed,
        "FAILED" | "ERROR" | "XPASS" => Outcome::Failed,
        "SKIPPED" => Outcome::Skipped,
        _ => return None,
    };
    name.contains("::").then_some((name, outcome))
}

fn tap(line: &str) -> Option<(&str, Outcome)> {
    let (failed, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (true, rest),
        None => (false, line.strip_prefix("ok ")?),
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "- ".contains(c));
    match rest.split_once(" # SKIP") {
        Some((name, _)) => Some((name, Outcome::Skipped)),
        None if failed => Some((rest, Outcome::Failed)),
        None => Some((rest, Outcome::Passed)),
    }
}

fn redis(line: &str) -> Option<(&str, Outcome)> {
    let (mark, rest) = line.strip_prefix('[')?.split_once("]: ")?;
    let outcome = match mark {
        "ok" => Outcome::Passed,
        "err" | "exception" => Outcome::Failed,
        "skip" | "ignore" => Outcome::Skipped,
        _ => return None,
    };
    let name = match outcome {
        Outcome::Passed => rest.rsplit_once(" (").map_or(rest, |(name, _)| name),
        _ => rest.split_once(" in tests/").map_or(rest, |(name, _)| name),
    };
    Some((name, outcome))
}

fn go(line: &str) -> Option<(&str, Outcome)> {
    let (word, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
    let outcome = match word {
        "PASS" => Outcome::Passed,
        "FAIL" => Outcome::Failed,
        "SKIP" => Outcome::Skipped,
        _ => return None,
    };
    Some((
        rest.rsplit_once(" (").map_or(rest, |(name, _)| name),
        outcome,
    ))
}

fn jemalloc(line: &str) -> Option<(&str, Outcome)> {
    let (name, word) = line.rsplit_once(": ")?;
    let outcome = match word {
        "pass" => Outcome::Passed,
        "fail" => Outcome::Failed,
        "skip" => Outcome::Skipped,
        _ => return None,
    };
    name.starts_with("test_").then_some((name, outcome))
}

fn sqlite(line: &str) -> Option<(&str, Outcome)> {
    if let Some(rest) = line.strip_prefix("! ") {
        let (name, what) = rest.split_once(' ')?;
        return what
            .starts_with("expected:")
            .then_some((name, Outcome::Failed));
    }
    let (name, word) = line.rsplit_once("... ")?;
    // Threads of a test print dots in between.
    let name = name.trim_start_matches('.');
    (word == "Ok" && !name.contains(' ')).then_some((name, Outcome::Passed))
}

fn pg_regress(line: &str) -> Option<(&str, Outcome)> {
    let (name, rest) = line.split_once(" ... ")?;
    let name = name.trim().trim_start_matches("test ").trim();
    let outcome = match rest.split_whitespace().next()? {
        "ok" => Outcome::Passed,
        "FAILED" | "failed" => Outcome::Failed,
        _ => return None,
    };
    (!name.contains(' ')).then_some((name, outcome))
}

fn automake(line: &str) -> Option<(&str, Outcome)> {
    let (word, name) = line.split_once(": ")?;
    let outcome = match word {
        "PASS" | "XFAIL" => Outcome::Passed,
        "FAIL" | "ERROR" | "XPASS" => Outcome::Failed,
        "SKIP" => Outcome::Skipped,
        _ => return None,
    };
    Some((name, outcome))
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Failed, Passed, Skipped};
    use super::*;

    fn check(reading: Reading, text: &str, expected: &[(&str, Outcome)]) {
        let cases = read(reading, text);
        let found: Vec<(&str, Outcome)> = cases
            .iter()
            .map(|(name, it)| (name.as_str(), *it))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unittest_with_descriptions_and_prints() {
        let text = "test_a (test.test_x.C.test_a) ... ok\n\
            test_b (test.test_x.C.test_b)\nWhat it is about. ... skipped 'no (such) thing'\n\
            test_c (test.test_x.C.test_c) ... waiting\nall tasks done\nok\n\
            test_d (test.test_x.C.test_d) ... ERROR\n\
            ERROR: test_d (test.test_x.C.test_d)\n\
            test_e (test.test_x.C.test_e) ... task 3..ok\n\
            test_f (test.test_x.C.test_f) ... cut off";
        check(
            Reading::Unittest,
            text,
            &[
                ("test.test_x.C.test_a", Passed),
                ("test.test_x.C.test_b", Skipped),
                ("test.test_x.C.test_c", Passed),
                ("test.test_x.C.test_d", Failed),
                ("test.test_x.C.test_e", Passed),
            ],
        );
    }

    #[test]
    fn pytest_with_spaces_in_names() {
        let text = "numpy/t.py::T::test_a[x y] PASSED   [  1%]\nnumpy/t.py::test_b SKIPPED (slow) [  2%]\n\
            numpy/t.py::test_c FAILED [100%]\nFAILED numpy/t.py::test_c - assert";
        check(
            Reading::Pytest,
            text,
            &[
                ("numpy/t.py::T::test_a[x y]", Passed),
                ("numpy/t.py::test_b", Skipped),
                ("numpy/t.py::test_c", Failed),
            ],
        );
    }

    #[test]
    fn tap_with_and_without_numbers() {
        let text = "ok 1 - one\nnot ok two\nok three # SKIP not here\nokay\nok one";
        check(
            Reading::Tap,
            text,
            &[
                ("one", Passed),
                ("one #2", Passed),
                ("three", Skipped),
                ("two", Failed),
            ],
        );
    }

    #[test]
    fn redis_marks() {
        let text = "[ok]: PING (1 ms)\n[ok]: LPUSH (big) list (12 ms)\n\
            [err]: SAVE in tests/integration/rdb.tcl\n[skip]: Active defrag\n[done]: unit/x\n[testing unit/x]";
        check(
            Reading::Redis,
            text,
            &[
                ("Active defrag", Skipped),
                ("LPUSH (big) list", Passed),
                ("PING", Passed),
                ("SAVE", Failed),
            ],
        );
    }

    #[test]
    fn go_tests_and_their_parts() {
        let text = "=== RUN   TestA\n--- PASS: TestA (0.10s)\n\
                --- FAIL: TestB/part (0.00s)\n--- SKIP: TestC (0.00s)";
        check(
            Reading::Go,
            text,
            &[
                ("TestA", Passed),
                ("TestB/part", Failed),
                ("TestC", Skipped),
            ],
        );
    }

    #[test]
    fn jemalloc_names_its_programs() {
        let text = "=== test/unit/a0 ===\ntest_a0 (non-reentrant): pass\n--- pass: 1/1, skip: 0/1 ---\n\
            === test/unit/b ===\ntest_b: skip";
        check(
            Reading::Jemalloc,
            text,
            &[
                ("test/unit/a0: test_a0 (non-reentrant)", Passed),
                ("test/unit/b: test_b", Skipped),
            ],
        );
    }

    #[test]
    fn sqlite_cases() {
        let text = "..select1-1.1... Ok\nselect1-1.2...\n! select1-1.2 expected: [1]\n\
            ! select1-1.2 got:      [2]\nTime: 3 ms";
        check(
            Reading::Sqlite,
            text,
            &[("select1-1.1", Passed), ("select1-1.2", Failed)],
        );
    }

    #[test]
    fn pg_regress_cases() {
        let text = "test tablespace                   ... ok          302 ms\n\
            parallel group (2 tests):  char boolean\n     boolean                      ... ok           67 ms\n\
            \x20    char                         ... FAILED       70 ms\n============== running ... ok ==============";
        check(
            Reading::PgRegress,
            text,
            &[
                ("boolean", Passed),
                ("char", Failed),
                ("tablespace", Passed),
            ],
        );
    }

    #[test]
    fn automake_cases() {
        let text = "PASS: a_test\nFAIL: b_test.sh\nSKIP: c\n# PASS:  1";
        check(
            Reading::Automake,
            text,
            &[("a_test", Passed), ("b_test.sh", Failed), ("c", Skipped)],
        );
    }
}
