//! `vswap set --pool`: what is in a pool that is taken away goes to areas.

use vswap_e2e::{Context, MIB, Outcome, ensure};

use crate::ask::{figure, hog, must_set};

pub fn off_and_on(context: &Context) -> Outcome {
    let place = context.place().display().to_string();
    let job = hog("240M", "15")?.vswap_options(["--swap", &place]);
    let launcher = context.limited(96 * MIB)?;
    let running = launcher.start(&job)?;
    let holds = |least: u64| {
        running.until("the pool to hold something", || {
            let bytes = figure(context, &running, "pool_bytes")?;
            Ok((bytes > least).then_some(()))
        })
    };
    holds(8 * MIB)?;
    must_set(context, &running, &["--pool", "off", "--wait", "20"])?;
    let left = figure(context, &running, "pool_bytes")?;
    ensure!(left == 0, "{left} bytes are left in the pool");
    must_set(context, &running, &["--pool", "30%"])?;
    holds(MIB)?;
    let limit = figure(context, &running, "pool_limit_bytes")?;
    ensure!(limit == 96 * MIB * 3 / 10, "the pool may have {limit}");
    launcher.finish(running).map(drop)
}
