//! `vswap advise`: a program whose pages are sampled loses no byte, and what is said of it makes sense.

use serde_json::Value;
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Outcome, ensure};

/// Fills memory with seeded content, reads and writes it for a while, and verifies all of it.
const FILE: &str = "advice.json";

pub fn keeps_every_byte(context: &Context) -> Outcome {
    let vswap = context.require_vswap()?;
    let workload = vswap.display().to_string();
    let program = [
        &workload,
        "bench-workload",
        "memhog",
        "--seconds",
        "6",
        "64M",
    ];
    let advise = ["advise", "--ram", "1G", "--json", FILE, "--"];
    let output = context.vswap(&[&advise[..], &program[..]].concat())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "the program found a wrong byte, or ended badly: {}: {said}",
        output.status
    );
    for word in [
        "--ram",
        "likely between",
        "--codec zstd",
        "an area of 100 us",
    ] {
        ensure!(
            said.contains(word),
            "the advice says nothing of {word}: {said}"
        );
    }
    let long = said.lines().find(|line| line.chars().count() > 80);
    ensure!(
        long.is_none(),
        "a line is too long for a terminal: {long:?}"
    );
    let file = context.place().join(FILE);
    let text = std::fs::read(&file).during(|| "read the advice".to_owned())?;
    let advice: Value = serde_json::from_slice(&text).unwrap_or_default();
    let number = |name: &str| advice[name].as_f64().unwrap_or(0.0);
    ensure!(advice["schema"] == 1, "no schema: {advice}");
    ensure!(
        number("watched_pages") > 100.0,
        "hardly a page was watched: {advice}"
    );
    let mib = number("peak_bytes") / f64::from(1 << 20);
    ensure!(
        (64.0..96.0).contains(&mib),
        "it had {mib} MiB at the most: {advice}"
    );
    let sizes: Option<Vec<f64>> = advice["sizes"]
        .as_array()
        .and_then(|all| all.iter().map(|size| size["ram_bytes"].as_f64()).collect());
    let sizes = sizes.unwrap_or_default();
    let falls = sizes.windows(2).all(|pair| pair[0] >= pair[1]);
    ensure!(
        sizes.len() == 3 && falls,
        "more loss takes more memory: {advice}"
    );
    Ok(())
}

pub fn of_nothing(context: &Context) -> Outcome {
    let output = context.vswap(&["advise", "--", "sh", "-c", "exit 7"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(7), "{}: {said}", output.status);
    ensure!(said.contains("there is no advice"), "{said}");
    Ok(())
}
