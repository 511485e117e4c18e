//! `vswap bench`: figures and verdicts of real runs, with sizes that take only seconds.

use serde_json::Value;

use super::Scratch;

/// Runs `vswap bench` with `words`. Returns its status, its output and its `--json`.
fn bench(words: &[&str]) -> (Option<i32>, String, Value) {
    let scratch = Scratch::new();
    let json = scratch.path().join("samples.json");
    let mut command = scratch.vswap();
    command.args(["bench", "--json"]).arg(&json).args(words);
    let output = command.output().expect("vswap bench");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    let json = std::fs::read_to_string(&json).unwrap_or_default();
    let json = serde_json::from_str(&json).unwrap_or(Value::Null);
    (output.status.code(), said, json)
}

fn row<'a>(json: &'a Value, name: &str) -> &'a Value {
    let rows = json["workloads"][0]["rows"].as_array().expect("rows");
    let found = rows.iter().find(|row| row["row"] == name);
    found.unwrap_or_else(|| panic!("no row {name}: {json:#}"))
}

#[test]
fn a_quick_run_has_every_figure_of_every_phase() {
    let words = [
        "--quick",
        "--rounds",
        "1",
        "fill-read-write",
        "--on",
        "vswap,native",
    ];
    let (status, said, json) = bench(&words);
    assert_eq!(status, Some(0), "{said}");
    for phase in ["fill", "seq_read", "random_read", "random_write", "verify"] {
        for figure in ["us/op", "p50 us", "p99 us"] {
            let row = row(&json, &format!("{phase} {figure}"));
            let sides = row["sides"].as_array().expect("sides");
            assert_eq!(sides.len(), 2, "{row:#}");
            for side in sides {
                let samples = side["samples"].as_array().expect("samples");
                assert_eq!(samples.len(), 1, "{side:#}");
                assert!(
                    samples[0].as_f64().is_some_and(|sample| sample >= 0.0),
                    "{side:#}"
                );
            }
        }
    }
    for name in [
        "wall s",
        "CPU s",
        "memory MiB",
        "vswap fault p50 us",
        "vswap fault p99 us",
    ] {
        row(&json, name);
    }
    let ratio = &row(&json, "wall s")["ratios"][0];
    assert_eq!(
        (ratio["ours"].as_str(), ratio["theirs"].as_str()),
        (Some("vswap"), Some("native"))
    );
    let summary = &json["workloads"][0]["summaries"][0];
    assert!(
        summary["pages_out"].as_u64().is_some_and(|pages| pages > 0),
        "{summary:#}"
    );
    assert!(
        said.contains("target") && said.contains("not measured"),
        "{said}"
    );
}

#[test]
fn a_wrong_byte_fails_the_benchmark_and_has_no_time() {
    let program = env!("CARGO_BIN_EXE_vswap");
    let words = [
        "--ram",
        "64M",
        "--rounds",
        "1",
        "--on",
        "vswap,native",
        "--",
        program,
        "bench-workload",
        "fill-read-write",
        "16M",
        "--json",
        "--sabotage",
    ];
    let (status, said, json) = bench(&words);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("wrong byte at"), "{said}");
    assert_eq!(
        json["workloads"][0]["rows"],
        Value::Array(Vec::new()),
        "{json:#}"
    );
    assert_eq!(json["workloads"][0]["failed"]["vswap"], 1, "{json:#}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_runs() {
    let (status, said, _) = bench(&["memory"]);
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("no workload memory: expected one of fill-read-write"),
        "{said}"
    );
    let (status, said, _) = bench(&["zipf", "--html", "/no/such/dir/report.html"]);
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("cannot write /no/such/dir/report.html"),
        "{said}"
    );
    let (status, said, _) = bench(&[]);
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("WORKLOAD"), "{said}");
}
