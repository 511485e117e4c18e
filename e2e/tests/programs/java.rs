//! OpenJDK with a heap larger than `--ram` and the collector at work. The program checks sums and contents.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 216 * MIB;
/// The whole heap is committed from the start, and the collector touches it. It is far larger than the limit.
const HEAP: [&str; 3] = ["-Xms608m", "-Xmx608m", "-XX:+UseG1GC"];

pub fn test(context: &Context) -> Outcome {
    let java = require_program("java", "apt package openjdk-17-jdk-headless")?;
    require_program("javac", "apt package openjdk-17-jdk-headless")?;
    let source = context.place().join("Heap.java");
    let text = include_str!("../../inputs/Heap.java");
    fs::write(&source, text).during(|| format!("write {}", source.display()))?;
    context.compare(LIMIT_BYTES, |launcher| {
        let ended = launcher.run(&Job::new(&java).args(HEAP).arg(&source))?;
        let said = fs::read_to_string(&ended.stdout).during(|| "read what java said".to_owned())?;
        ensure!(
            said.ends_with("right\n"),
            "the program found wrong content: {said}"
        );
        Ok(said)
    })
}
