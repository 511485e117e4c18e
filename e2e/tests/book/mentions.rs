//! The verbs and options that pages name in their other blocks exist. Those commands are not run: they want packages, a
//! cluster, or an hour.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Outcome, ensure};

use crate::blocks::{Block, blocks};
use crate::chapters::docs;

/// How a clone without an installed vswap calls it.
const BY_CARGO: &str = "cargo run --release -- ";

/// Where a synopsis stops naming options one by one.
const OF_ANOTHER: &str = "[options of ";

/// Options that every verb has, and those that help hides because they are for tests.
const ALWAYS: [&str; 2] = ["--help", "--version"];
const HIDDEN: &str = "--debug-";

fn pages() -> Outcome<Vec<PathBuf>> {
    let mut pages = vec![docs().join("../README.md")];
    let entries = fs::read_dir(docs()).during(|| "list docs".to_owned())?;
    for entry in entries {
        let path = entry.during(|| "list docs".to_owned())?.path();
        if path.extension().is_some_and(|dot| dot == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

/// Holds each command of vswap in a block of a shell or of no language against `vswap help VERB`.
pub fn verbs_and_options_exist(context: &Context) -> Outcome {
    let mut helps: HashMap<String, String> = HashMap::new();
    let (mut commands, mut options) = (0, 0);
    for page in pages()? {
        let text = fs::read_to_string(&page).during(|| format!("read {}", page.display()))?;
        for block in blocks(&text) {
            if !["sh", ""].contains(&block.language.as_str()) {
                continue;
            }
            for command in calls(&block) {
                let at = format!("{}, block at line {}", page.display(), block.line);
                let (verb, named) = verb_and_options(&command);
                let Some(verb) = verb else { continue };
                if !helps.contains_key(verb) {
                    let asked = context.vswap(&["help", verb])?;
                    ensure!(asked.status.success(), "{at}: there is no `vswap {verb}`");
                    let help = String::from_utf8_lossy(&asked.stdout).into_owned();
                    helps.insert(verb.to_owned(), help);
                }
                for option in named {
                    ensure!(
                        has_option(&helps[verb], option),
                        "{at}: `vswap {verb}` has no {option}"
                    );
                    options += 1;
                }
                commands += 1;
            }
        }
    }
    context.say(format!("{commands} commands with {options} options"));
    ensure!(
        commands > 20,
        "only {commands} commands were found in docs: are blocks still marked sh?"
    );
    Ok(())
}

/// The calls of vswap in a block, each in one line. A line that is indented goes on with the one before it.
fn calls(block: &Block) -> Vec<String> {
    let mut calls: Vec<String> = Vec::new();
    for line in &block.lines {
        let line = line.replace(BY_CARGO, "vswap ");
        let code = line.split(" #").next().unwrap_or("");
        match calls.last_mut() {
            Some(call) if code.starts_with(' ') => call.push_str(code),
            _ => calls.push(code.to_owned()),
        }
    }
    calls.retain(|call| call.starts_with("vswap "));
    calls
}

/// Verb and options of a call, without what follows `--` or belongs to another command.
fn verb_and_options(call: &str) -> (Option<&str>, Vec<&str>) {
    let own = [" -- ", " | ", "; ", " && ", OF_ANOTHER]
        .iter()
        .fold(call, |rest, end| rest.split(end).next().unwrap_or(rest));
    let mut words = own.split_whitespace().skip(1);
    let is_verb = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    let verb = words.next().filter(is_verb);
    let options = own
        .split(|each: char| !(each.is_ascii_lowercase() || each == '-'))
        .filter(|word| word.len() > 2 && word.starts_with("--"));
    let options = options.filter(|word| !ALWAYS.contains(word) && !word.starts_with(HIDDEN));
    (verb, options.collect())
}

fn has_option(help: &str, option: &str) -> bool {
    help.split(|each: char| !(each.is_ascii_lowercase() || each == '-'))
        .any(|word| word == option)
}
