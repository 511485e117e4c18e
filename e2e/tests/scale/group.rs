//! A vswap that is started in a control group.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use vswap_e2e::context::vswap_binary;
use vswap_e2e::failure::During;
use vswap_e2e::launch::How;
use vswap_e2e::{Context, Launcher, Outcome};

/// A launcher that starts vswap by a script that ends in `exec`.
pub fn launcher(context: &Context, limit_bytes: u64, script: &str) -> Outcome<Launcher> {
    let vswap = vswap_binary()?;
    let path = context.place().join("vswap-by-script");
    let text = format!("#!/bin/sh\n{script} {} \"$@\"\n", vswap.display());
    fs::write(&path, text).during(|| format!("write {}", path.display()))?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, mode).during(|| format!("chmod {}", path.display()))?;
    let how = How::Limited {
        vswap: path,
        limit_bytes,
    };
    Ok(Launcher::new(
        how,
        context.place(),
        context.deadline(),
        false,
    ))
}
