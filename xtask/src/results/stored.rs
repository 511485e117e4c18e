//! What is stored of a run: how it was made, and the JSON that the program wrote.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A stored run.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Stored {
    /// The circumstances.
    pub made: Made,
    /// What the program wrote, as it is.
    pub result: Value,
}

/// How a run was made.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Made {
    /// The commit's short name, with `+changes` if the tree had changes outside docs.
    pub commit: String,
    /// The day, as YYYY-MM-DD.
    pub date: String,
    /// The kernel's release.
    pub kernel: String,
    /// Number of processors.
    pub processors: usize,
    /// Runnable processes over the last minute, when the command began.
    pub load_average: String,
    /// The command, without the option that names the file for its JSON.
    pub command: String,
}

/// The parts of a result that pages show. A program writes some of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Outcome {
    pub rounds: usize,
    pub workloads: Vec<Workload>,
    pub left_out: Vec<LeftOut>,
    pub targets: Vec<Target>,
    pub tables: Vec<Table>,
}

/// A workload on its sides.
#[derive(Debug, Deserialize)]
pub struct Workload {
    pub workload: String,
    pub ram_bytes: u64,
    pub rows: Vec<Row>,
    /// Runs that have no figures, by side.
    pub failed: std::collections::BTreeMap<String, u64>,
    pub killed: std::collections::BTreeMap<String, u64>,
}

/// A figure of all sides.
#[derive(Debug, Deserialize)]
pub struct Row {
    pub row: String,
    pub sides: Vec<Figures>,
    pub ratios: Vec<Ratio>,
}

/// A figure of one side, over the rounds.
#[derive(Debug, Deserialize)]
pub struct Figures {
    pub side: String,
    pub spread: Spread,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

/// One side's median over another's.
#[derive(Debug, Deserialize)]
pub struct Ratio {
    pub ours: String,
    pub theirs: String,
    pub of_medians: f64,
}

/// A workload, or a side of one, that did not run.
#[derive(Debug, Deserialize)]
pub struct LeftOut {
    pub workload: String,
    pub side: Option<String>,
    pub reason: String,
}

/// A target and its outcome.
#[derive(Debug, Deserialize)]
pub struct Target {
    pub target: String,
    pub wanted: String,
    pub measured: Option<f64>,
    pub met: Option<bool>,
    pub because: Option<String>,
}

/// A table that the program has made itself.
#[derive(Debug, Deserialize)]
pub struct Table {
    pub heads: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Stored {
    /// Reads a stored run.
    ///
    /// # Errors
    /// The text is not what `to_text` writes.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("is no stored run: {error}"))
    }

    /// The text of the file, one value a line, so that versions can be compared.
    pub fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }

    /// What pages show of it.
    ///
    /// # Errors
    /// The program wrote something else than expected, or no figures.
    pub fn outcome(&self) -> Result<Outcome, String> {
        let outcome = Outcome::deserialize(&self.result)
            .map_err(|error| format!("holds a result that cannot be read: {error}"))?;
        let has_figures = outcome.workloads.iter().any(|of| !of.rows.is_empty());
        if has_figures || !outcome.tables.is_empty() {
            return Ok(outcome);
        }
        let reasons: Vec<String> = outcome.left_out.iter().map(LeftOut::line).collect();
        Err(format!("holds no figures. {}", reasons.join("; "))
            .trim_end()
            .to_owned())
    }
}

impl LeftOut {
    /// What is left out, and why.
    pub fn line(&self) -> String {
        match &self.side {
            Some(side) => format!("{} without {side}: {}", self.workload, self.reason),
            None => format!("{}: {}", self.workload, self.reason),
        }
    }
}

impl Target {
    /// The measured value.
    pub fn figure(&self) -> String {
        let measured = self.measured;
        measured.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"))
    }

    /// The verdict.
    pub fn word(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// A stored run of one workload on two sides, with one target, and a workload that was left out.
    pub fn one_workload() -> Stored {
        let spread =
            |median: f64| json!({"min": median / 2.0, "median": median, "max": median * 2.0});
        let made = json!({
            "commit": "abc1234", "date": "2026-11-24", "kernel": "6.18", "processors": 2, "load_average": "0.31",
            "command": "target/release/vswap bench memhog",
        });
        let result = json!({
            "rounds": 5,
            "workloads": [{
                "workload": "memhog", "ram_bytes": 256 << 20, "failed": {}, "killed": {"zram": 1},
                "rows": [
                    {
                        "row": "fill us/op",
                        "sides": [
                            {"side": "zram", "samples": [600, 1200], "spread": spread(1200.0)},
                            {"side": "vswap", "samples": [3, 6], "spread": spread(6.0)},
                        ],
                        "ratios": [{"ours": "vswap", "theirs": "zram", "of_medians": 0.005, "of_rounds": null}],
                    },
                    {
                        "row": "vswap fault p50 us",
                        "sides": [{"side": "vswap", "samples": [5], "spread": spread(5.0)}],
                        "ratios": [],
                    },
                ],
            }],
            "left_out": [{"workload": "redis", "side": null, "reason": "no program redis-server"}],
            "targets": [{
                "target": "fill, 1 task", "wanted": "<= 0.6", "measured": 0.7, "met": false, "because": "a | b",
            }],
        });
        Stored::read(&json!({"made": made, "result": result}).to_string()).unwrap()
    }

    #[test]
    fn what_is_stored_can_be_read_again() {
        let text = one_workload().to_text();
        assert_eq!(Stored::read(&text).unwrap().to_text(), text);
        assert!(Stored::read("{}").unwrap_err().contains("made"));
    }

    #[test]
    fn a_run_without_figures_says_why() {
        let mut stored = one_workload();
        stored.result["workloads"] = json!([]);
        let said = stored.outcome().unwrap_err();
        assert!(
            said.ends_with("no figures. redis: no program redis-server"),
            "{said}"
        );
        stored.result["workloads"] = json!("none");
        assert!(stored.outcome().unwrap_err().contains("cannot be read"));
    }
}
