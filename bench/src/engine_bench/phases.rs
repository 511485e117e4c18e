//! Prints areas and metadata as lines of JSON, like the phases of workloads, so that `vswap bench` can show them.

use std::fmt::Write;

use super::record::{AreaSample, Results, Weight};

/// Bytes in the unit that throughput is printed in, and in the one that it was measured in.
const KB: f64 = 1024.0;
const MB: f64 = 1e6;
const MIB: f64 = (1 << 20) as f64;

/// One line for each measurement.
pub(crate) fn lines(results: &Results) -> String {
    let mut text = String::new();
    for sample in &results.areas {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", of_areas(sample));
    }
    for weight in &results.metadata {
        let _ = writeln!(text, "{}", of_weight(weight));
    }
    text
}

fn of_areas(sample: &AreaSample) -> serde_json::Value {
    // The text behind the comma or in parentheses explains the name and would fill the table.
    let short = |name: &str| {
        name.split([',', '('])
            .next()
            .unwrap_or(name)
            .trim()
            .to_owned()
    };
    let (storage, policy) = (short(&sample.storage), short(&sample.policy));
    serde_json::json!({
        "phase": format!("{storage}, {policy}, {} threads:", sample.threads),
        "kb_per_s": sample.out_mb_per_s * MB / KB,
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes of tables are far below 2^53"
)]
fn of_weight(weight: &Weight) -> serde_json::Value {
    let bytes = weight.table_bytes as f64;
    let mut line = serde_json::json!({ "phase": format!("{}:", weight.what), "mib": bytes / MIB });
    if weight.slots_used > 0 {
        line["bytes_per_slot"] = (bytes / weight.slots_used as f64).into();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_and_weights_become_phases() {
        let results = Results {
            areas: vec![AreaSample {
                storage: "device, 50 us a request".to_owned(),
                policy: "default priority (take turns)".to_owned(),
                threads: 2,
                out_mb_per_s: 1.024,
                thread_mb_per_s: 1.0,
                cpu_s: 1.0,
                free_us: 1.0,
                used_percent: vec![1.0],
            }],
            metadata: vec![Weight {
                what: "an idle area".to_owned(),
                slots: 8,
                slots_used: 4,
                table_bytes: 1 << 20,
                source_bytes: 0,
                resident_bytes: 0,
                fill_s: 0.0,
            }],
            ..Results::default()
        };
        let text = lines(&results);
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["phase"], "device, default priority, 2 threads:");
        assert_eq!(lines[0]["kb_per_s"], 1000.0);
        assert_eq!(lines[1]["mib"], 1.0);
        assert_eq!(lines[1]["bytes_per_slot"], 262_144.0);
    }
}
