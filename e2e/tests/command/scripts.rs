//! What packages install beside the program: shells accept the completions, groff the man pages.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Outcome, ensure, require_program};

/// Completes the words that it is given, the last of them as far as it goes, and prints what may follow.
const COMPLETE: &str = r#"
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
previous=${COMP_WORDS[COMP_CWORD - 1]}
$(complete -p vswap | sed -E 's/.*-F ([^ ]+).*/\1/') vswap "${COMP_WORDS[COMP_CWORD]}" "$previous"
printf '%s\n' "${COMPREPLY[@]}"
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(command: &mut Command) -> Outcome<Output> {
    command.output().during(|| format!("run {command:?}"))
}

/// vswap's script for a shell, as a file.
fn script(context: &Context, shell: &str) -> Outcome<PathBuf> {
    let made = context.vswap(&["completions", shell])?;
    ensure!(made.status.success(), "{shell}: {}", text(&made.stderr));
    let path = context.place().join(format!("completions.{shell}"));
    fs::write(&path, &made.stdout).during(|| format!("write {}", path.display()))?;
    Ok(path)
}

pub fn completions_of_bash(context: &Context) -> Outcome {
    let bash = require_program("bash", "apt package bash")?;
    let script = script(context, "bash")?;
    let checked = output(Command::new(&bash).arg("-n").arg(&script))?;
    ensure!(
        checked.status.success(),
        "bash -n: {}",
        text(&checked.stderr)
    );
    for (words, expected) in [
        (&["vswap", "ru"][..], "run"),
        (&["vswap", "swapo"], "swapon\nswapoff"),
        (&["vswap", "run", "--on"], "--on-full"),
        (&["vswap", "run", "--codec", "z"], "zstd"),
        (&["vswap", "ben"], "bench"),
    ] {
        let mut shell = Command::new(&bash);
        shell.args(["--norc", "-c", COMPLETE, "bash"]).arg(&script);
        let completed = output(shell.args(words))?;
        let (found, said) = (text(&completed.stdout), text(&completed.stderr));
        ensure!(
            found.trim() == expected && said.is_empty(),
            "{words:?} may go on with {found:?}, expected {expected:?}: {said}"
        );
    }
    Ok(())
}

pub fn completions_of_other_shells(context: &Context) -> Outcome {
    for (shell, check) in [("zsh", "-n"), ("fish", "--no-execute")] {
        let program = require_program(shell, &format!("apt package {shell}"))?;
        let checked = output(
            Command::new(program)
                .arg(check)
                .arg(script(context, shell)?),
        )?;
        let said = text(&checked.stderr);
        ensure!(
            checked.status.success() && said.is_empty(),
            "{shell} {check}: {said}"
        );
    }
    Ok(())
}

pub fn man_pages(context: &Context) -> Outcome {
    let groff = require_program("groff", "apt package groff-base")?;
    let missing = context.vswap(&["man", "no/such/place"])?;
    let said = text(&missing.stderr);
    ensure!(
        missing.status.code() == Some(125) && said.contains("no/such/place/vswap.1"),
        "{said}"
    );
    let made = context.vswap(&["man", "."])?;
    ensure!(made.status.success(), "{}", text(&made.stderr));
    let help = text(&context.vswap(&["--help"])?.stdout);
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = verbs.map_while(|line| line.split_whitespace().next());
    let verbs: Vec<&str> = verbs.filter(|verb| *verb != "help").collect();
    ensure!(
        verbs.contains(&"run") && verbs.len() > 10,
        "verbs: {verbs:?}"
    );
    let pages = verbs.iter().map(|verb| format!("vswap-{verb}.1"));
    for page in pages.chain(["vswap.1".to_owned()]) {
        // As man(1) shows it on 80 columns, with all warnings.
        let mut shown = Command::new(&groff);
        shown
            .args(["-ww", "-man", "-Tascii", "-rLL=80n"])
            .arg(context.place().join(&page));
        let shown = output(&mut shown)?;
        let said = text(&shown.stderr);
        ensure!(shown.status.success() && said.is_empty(), "{page}: {said}");
        // However the lines are broken and filled.
        let shown = text(&shown.stdout);
        let shown: Vec<&str> = shown.split_whitespace().collect();
        let shown = shown.join(" ");
        let heading = format!("{} - ", page.trim_end_matches(".1"));
        ensure!(shown.contains(&heading), "no {heading:?} in {page}");
    }
    Ok(())
}
