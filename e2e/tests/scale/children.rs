//! Sixty children of 150 MiB in 80 MiB: each keeps and changes its own copy, and together they hold the limit.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

use crate::watch;

const LIMIT_BYTES: u64 = 80 * MIB;
/// MiB, number of children, pages that each checks, pages that each writes, seconds that each lives.
const ARGUMENTS: [&str; 5] = ["150", "60", "16", "4", "4"];

pub fn sixty_children(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let script = context.place().join("children.py");
    let text = include_str!("../../inputs/children.py");
    fs::write(&script, text).during(|| format!("write {}", script.display()))?;
    let swap = context.place().join("swap");
    fs::create_dir(&swap).during(|| format!("make {}", swap.display()))?;
    let job = Job::new(python)
        .arg(script)
        .args(ARGUMENTS)
        .vswap_options(["--swap".to_owned(), format!("{}:2G", swap.display())]);
    let (ended, held) = watch::run(context, &job, LIMIT_BYTES)?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let said = fs::read_to_string(&ended.stdout).during(|| "read the output".to_owned())?;
    ensure!(
        said.ends_with("parent right, 0 children failed\n"),
        "the program said {said}"
    );
    let pages_out = ended.figure("pages_out")?;
    ensure!(pages_out > 20_000, "only {pages_out} pages were moved out");
    held.must_be(context)
}
