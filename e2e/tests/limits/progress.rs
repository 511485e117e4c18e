//! A program for which there is hardly any room goes on all the same.

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::{Context, Job, MIB, Outcome, Running};

use crate::ask::must_say;

const LIMIT_BYTES: u64 = 72 * MIB;

fn has_filled(running: &Running) -> bool {
    std::fs::read_to_string(running.stdout()).is_ok_and(|said| said.contains("filled"))
}

/// Two threads whose instructions need several pages each, while as good as nothing can be moved but these pages: the
/// limit is lowered to what nothing has room for. No page may leave before the thread that it came for has run.
pub fn in_no_room(context: &Context) -> Outcome {
    let text = include_str!("../../inputs/two_pages.c");
    let program = compile(context, GCC, text, "two_pages", &["-O2", "-pthread"])?;
    let begin = context.place().join("begin");
    let job = Job::new(program)
        .args([&begin])
        .vswap_options(["--swap", "none"]);
    let running = context.limited(LIMIT_BYTES)?.start(&job)?;
    running.until("the memory to be filled", || {
        Ok(has_filled(&running).then_some(()))
    })?;
    let words = ["until it comes to 48 MiB"];
    let options = ["--ram", "48M", "--wait", "1"];
    must_say(context, &running, &options, 1, &words)?;
    std::fs::write(&begin, "").map_err(|error| vswap_e2e::Failure::wrong(error.to_string()))?;
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()
}
