//! What somebody may have meant who wrote an option that does not exist.
//!
//! clap compares names by the letters that they share in about the same place, which finds nothing for short ones:
//! `--rma` has no option like it. Here letters count that are wrong, missing, too many or exchanged.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error};

/// A name with more wrong letters is another word.
const WRONG_LETTERS_MAX: usize = 2;

/// Names the option that was probably meant, if clap knows none, and then leaves out how to pass the wrong one on.
pub fn suggest(error: &mut Error, command: &mut Command, subcommand: Option<&str>) {
    if error.get(ContextKind::SuggestedArg).is_none() {
        let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else {
            return;
        };
        let Some(meant) = nearest(wrong, command, subcommand) else {
            return;
        };
        error.insert(ContextKind::SuggestedArg, ContextValue::String(meant));
    }
    error.remove(ContextKind::Suggested);
}

/// The option of the subcommand that is most like this one.
fn nearest(wrong: &str, command: &mut Command, subcommand: Option<&str>) -> Option<String> {
    let wrong = wrong.strip_prefix("--")?;
    // Adds `--help`.
    command.build();
    let within = subcommand.and_then(|name| command.find_subcommand(name));
    let options = within.unwrap_or(command).get_arguments();
    let shown = options.filter(|option| !option.is_hide_set());
    shown
        .filter_map(|option| option.get_long())
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        // More than half of a short name may be wrong only by chance.
        .filter(|(letters, _)| *letters <= WRONG_LETTERS_MAX && letters * 2 <= wrong.len())
        .min_by_key(|(letters, _)| *letters)
        .map(|(_, name)| format!("--{name}"))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;

    fn command() -> Command {
        let option = |name: &'static str| Arg::new(name).long(name);
        let set = Command::new("set").arg(option("ram")).arg(option("pool"));
        let run = Command::new("run")
            .arg(option("ram"))
            .arg(option("require-managed").action(ArgAction::SetTrue))
            .arg(option("rmb").hide(true));
        Command::new("test").subcommand(set).subcommand(run)
    }

    fn meant(subcommand: &str, wrong: &str) -> Option<String> {
        nearest(wrong, &mut command(), Some(subcommand))
    }

    #[test]
    fn wrong_letters_are_counted() {
        for wrong in ["--rma", "--ra", "--rram", "--rem"] {
            assert_eq!(meant("run", wrong).as_deref(), Some("--ram"), "{wrong}");
        }
        assert_eq!(meant("run", "--hepl").as_deref(), Some("--help"));
        let managed = meant("run", "--requre-manged");
        assert_eq!(managed.as_deref(), Some("--require-managed"));
    }

    #[test]
    fn other_words_are_nothing_like_it() {
        for wrong in ["--zzz", "--mar", "--arm-race", "-rma", "--", "--pool"] {
            assert_eq!(meant("run", wrong), None, "{wrong}");
        }
        assert_eq!(meant("set", "--plo").as_deref(), None);
        assert_eq!(meant("set", "--poll").as_deref(), Some("--pool"));
    }
}
