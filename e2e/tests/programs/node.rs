//! Node with more objects, buffers and cells than `--ram` holds. The script checks the contents.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 208 * MIB;

pub fn test(context: &Context) -> Outcome {
    let node = require_program("node", "apt package nodejs")?;
    let script = context.place().join("heap.js");
    let text = include_str!("../../inputs/heap.js");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    context.compare(LIMIT_BYTES, |launcher| {
        let ended = launcher.run(&Job::new(&node).arg("--max-old-space-size=700").arg(&script))?;
        let said = fs::read_to_string(&ended.stdout).during(|| "read what node said".to_owned())?;
        ensure!(
            said.ends_with("right\n"),
            "the script found wrong content: {said}"
        );
        Ok(said)
    })
}
