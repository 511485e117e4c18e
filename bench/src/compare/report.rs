//! The measurements as text and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::result::Report;
use super::table;
use super::targets::{Verdict, verdicts};

impl Report {
    pub(super) fn to_json(&self) -> Value {
        let machine = json!({
            "kernel": self.machine.kernel,
            "processor": self.machine.processor,
            "processors": self.machine.processors,
            "memory_mib": self.machine.memory_mib,
            "load_average": self.machine.load_average,
        });
        let workloads: Vec<Value> = self
            .workloads
            .iter()
            .map(|result| {
                let mut json = result.samples.to_json();
                json["workload"] = result.name.clone().into();
                json["command"] = result.command.clone().into();
                json["ram_bytes"] = result.ram_bytes.into();
                json
            })
            .collect();
        let left_out: Vec<Value> = self
            .left_out
            .iter()
            .map(|left| json!({ "workload": left.workload, "side": left.side, "reason": left.reason }))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "arguments": self.arguments,
            "rounds": self.rounds,
            "machine": machine,
            "workloads": workloads,
            "left_out": left_out,
            "targets": verdicts(self).iter().map(Verdict::to_json).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        for result in &self.workloads {
            writeln!(
                f,
                "\n{} ({}): {}",
                result.name,
                result.limit(),
                result.command
            )?;
            table::write(f, &result.samples)?;
        }
        let verdicts = verdicts(self);
        if !verdicts.is_empty() {
            writeln!(f, "\n{:<36} {:>10} {:>10}", "target", "wanted", "measured")?;
        }
        for verdict in &verdicts {
            writeln!(f, "{verdict}")?;
        }
        if !self.left_out.is_empty() {
            writeln!(f, "\nleft out")?;
        }
        for left in &self.left_out {
            writeln!(f, "  {left}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::one_run_one_left_out;
    use super::*;

    #[test]
    fn json_says_how_it_was_made_and_what_is_missing() {
        let report = Report {
            arguments: vec!["bench".to_owned(), "zipf".to_owned()],
            rounds: 3,
            ..one_run_one_left_out("true")
        };
        let json = report.to_json();
        assert_eq!(json["arguments"], json!(["bench", "zipf"]));
        assert_eq!(json["rounds"], 3);
        assert_eq!(json["workloads"][0]["workload"], "fill-read-write");
        assert_eq!(json["left_out"][0]["reason"], "no compiler");
    }
}
