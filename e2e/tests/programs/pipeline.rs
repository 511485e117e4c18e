//! A shell pipeline: several programs run at once and pass on their data. One of them is large. All share one limit.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 50 * MIB;
const LINES: u64 = 1_200_000;
const GROUPS: u64 = 1_000;

pub fn test(context: &Context) -> Outcome {
    for program in ["seq", "sort", "uniq"] {
        require_program(program, "apt package coreutils")?;
    }
    require_program("awk", "apt package mawk")?;
    require_program("gzip", "apt package gzip")?;
    let script = format!(
        "seq 0 {last} \
         | awk '{{ printf \"group %04d of the northern line, delivered before noon and paid in full\\n\", \
                   ($1 * 7919) % {GROUPS} }}' \
         | gzip -1 | gunzip \
         | LC_ALL=C sort -S 600M -T /nonexistent \
         | uniq -c \
         | awk '{{ lines += $1; groups += 1; if ($1 != {each} || $3 + 0 != groups - 1) wrong += 1 }} \
                END {{ print lines, groups, wrong + 0 }}'",
        last = LINES - 1,
        each = LINES / GROUPS,
    );
    context.compare(LIMIT_BYTES, |launcher| {
        let ended = launcher.run(&Job::shell(&script).vswap_options(["--codec", "zstd"]))?;
        let said =
            fs::read_to_string(&ended.stdout).during(|| "read the pipeline's output".to_owned())?;
        ensure!(
            said == format!("{LINES} {GROUPS} 0\n"),
            "the pipeline counted {said}"
        );
        Ok(said)
    })
}
