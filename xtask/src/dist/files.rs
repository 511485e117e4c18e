//! The files of a package, as they lie below a prefix such as /usr or /usr/local.

use std::path::Path;
use std::process::Command;

use super::{Dist, copy, licences, printed, said};

/// Shell, and where its completions are.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/vswap"),
    ("zsh", "share/zsh/site-functions/_vswap"),
    ("fish", "share/fish/vendor_completions.d/vswap.fish"),
];
const MAN: &str = "share/man/man1";
const DOCUMENTS: &str = "share/doc/vswap";
/// In the tree, and below the prefix.
const COPIED: [(&str, &str); 6] = [
    ("README.md", DOCUMENTS),
    ("CHANGELOG.md", DOCUMENTS),
    ("LICENSE-APACHE", DOCUMENTS),
    ("LICENSE-MIT", DOCUMENTS),
    ("packaging/vswap.service", "lib/systemd/user"),
    ("packaging/vswap@.service", "lib/systemd/system"),
];

/// Lays them out anew.
///
/// # Errors
/// A file is missing or cannot be written, or the binary does not run.
pub fn lay_out(dist: &Dist, binary: &Path) -> Result<(), String> {
    let prefix = dist.prefix();
    let _ = std::fs::remove_dir_all(&prefix);
    copy(binary, &prefix.join("bin/vswap"))?;
    for (from, to) in COPIED {
        let name = Path::new(from).file_name().unwrap_or_default();
        copy(&dist.root.join(from), &prefix.join(to).join(name))?;
    }
    for (shell, to) in COMPLETIONS {
        let script = printed(Command::new(binary).args(["completions", shell]))?;
        write(&prefix.join(to), &script)?;
    }
    let man = prefix.join(MAN);
    std::fs::create_dir_all(&man).map_err(|error| said(&man, &error))?;
    printed(Command::new(binary).arg("man").arg(&man))?;
    let others = licences::of_dependencies(&dist.root)?;
    write(
        &prefix.join(DOCUMENTS).join("LICENSES-OF-OTHERS"),
        others.as_bytes(),
    )
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let above = path.parent().unwrap_or(path);
    std::fs::create_dir_all(above).map_err(|error| said(above, &error))?;
    std::fs::write(path, bytes).map_err(|error| said(path, &error))
}
