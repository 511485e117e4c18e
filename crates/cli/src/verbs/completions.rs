//! `vswap completions`: a script that has a shell complete verbs and options, made from the definition of the command
//! line.

use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

use crate::args::Args;
use crate::args::scripts::CompletionsArgs;
use crate::failure::Failure;
use crate::output::print;

/// Prints the script on standard output.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    print(&String::from_utf8_lossy(&script(args.shell)))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut command = visible(&Args::command_line());
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// The command without what its help hides. clap_complete would offer that as well.
fn visible(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|each| !each.is_hide_set());
    let verbs = command.get_subcommands().filter(|each| !each.is_hide_set());
    let mut shown = Command::new(command.get_name().to_owned())
        .disable_help_flag(command.is_disable_help_flag_set())
        .args(arguments.cloned())
        .subcommands(verbs.map(visible));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_offered_and_what_is_hidden_is_not() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish] {
            let script = String::from_utf8(script(shell)).expect("text");
            for offered in ["swapoff", "on-full", "version", "lz4"] {
                assert!(script.contains(offered), "{shell}: no {offered}");
            }
            for hidden in ["debug", "bench-workload"] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
        }
    }
}
