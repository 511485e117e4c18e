//! bubblewrap makes its child by a bare clone into a new pid namespace, immediately after its start. The agent may
//! still be starting when the child is made, and the child is pid 1, as its parent may be too. The started program may
//! not see the agent's file, and a network of its own hides the pager from an agent that is attached.

use std::time::{Duration, Instant};

use vswap_e2e::{Context, Outcome, ensure, require_program};

const STARTS: u32 = 40;
/// A start takes some milliseconds. A start that waits for something that never comes takes for ever.
const START_WITHIN: Duration = Duration::from_secs(10);

pub fn test(context: &Context) -> Outcome {
    let bwrap = require_program("bwrap", "apt package bubblewrap")?;
    let bwrap = bwrap.display().to_string();
    let sandbox = [
        "--unshare-pid",
        "--dev-bind",
        "/",
        "/",
        "/bin/sh",
        "-c",
        "exit 7",
    ];
    for start in 0..STARTS {
        let mut args = vec!["run", "--quiet", "--ram", "1G"];
        if start % 2 == 1 {
            args.extend(["--debug-evict-every", "5ms"]);
        }
        args.extend(["--", &bwrap]);
        args.extend(sandbox);
        let since = Instant::now();
        let output = context.vswap(&args)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(7) && since.elapsed() < START_WITHIN,
            "start {start} ended with {} after {:?}: {errors}",
            output.status,
            since.elapsed()
        );
    }
    without_the_agent(context, &bwrap)
}

/// A sandbox with its own file systems and network. The program in it runs without an agent that works, and with
/// --quiet nobody complains about that.
fn without_the_agent(context: &Context, bwrap: &str) -> Outcome {
    let mut args = vec!["run", "--quiet", "--ram", "1G", "--", bwrap];
    for path in ["/usr", "/bin", "/lib", "/lib64"] {
        args.extend(["--ro-bind-try", path, path]);
    }
    args.extend(["--proc", "/proc", "--unshare-all", "--"]);
    args.extend(["/bin/sh", "-c", "/bin/echo in; exec /bin/sh -c 'exit 7'"]);
    let output = context.vswap(&args)?;
    ensure!(
        output.status.code() == Some(7) && output.stdout == b"in\n" && output.stderr.is_empty(),
        "a sandbox without the agent: {}, {:?}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
