//! `vswap man`: writes a man page for vswap and one for each verb, made from the definition of the command line.
//!
//! Packages call it. The help hides it, because users have the pages.

use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::Args;
use crate::args::scripts::ManArgs;
use crate::failure::Failure;

/// What the examples in a help text begin with.
const EXAMPLES: &str = "Examples:";
/// From this many spaces on a line goes on with the entry of the list above it.
const CONTINUES_SPACES: usize = 8;

/// Writes all pages.
pub fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    for (name, page) in pages() {
        let path = args.directory.join(name);
        std::fs::write(&path, page).map_err(|error| not_written(&path, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::own(format!(
        "cannot write the man page {}: {error}; the directory must exist and be yours",
        path.display()
    ))
}

/// Names and texts of the pages, of vswap first.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut command = Args::command_line().disable_help_subcommand(true);
    command.build();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs = verbs.map(|verb| page(verb, false));
    std::iter::once(page(&command, true)).chain(verbs).collect()
}

/// clap_mangen's own layout, but for what stands below the options: it would run that together.
fn page(command: &Command, has_verbs: bool) -> (String, Vec<u8>) {
    let man = Man::new(command.clone())
        // No date, so that pages depend on nothing but the command. An argument that is empty would be left out.
        .date(" ")
        .source(format!("vswap {}", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render_title(&mut page);
    let _ = man.render_name_section(&mut page);
    let _ = man.render_synopsis_section(&mut page);
    let _ = man.render_description_section(&mut page);
    let _ = man.render_options_section(&mut page);
    if has_verbs {
        let _ = man.render_subcommands_section(&mut page);
    }
    let mut rest = Roff::new();
    let text = command.get_after_long_help();
    if let Some(text) = text.or_else(|| command.get_after_help()) {
        notes(&mut rest, &text.to_string());
    }
    if !has_verbs {
        rest.control("SH", ["SEE ALSO"]);
        rest.text([bold("vswap"), roman("(1)")]);
    }
    let _ = rest.to_writer(&mut page);
    (man.get_filename(), page)
}

/// What a help says below the options: paragraphs, lists whose entries are indented, and examples at the end.
fn notes(roff: &mut Roff, text: &str) {
    let (notes, examples) = text.split_once(EXAMPLES).unwrap_or((text, ""));
    if !notes.trim().is_empty() {
        roff.control("SH", ["NOTES"]);
    }
    let mut in_list = false;
    for line in notes.trim_end().lines() {
        let spaces = line.len() - line.trim_start().len();
        let entry = line.trim().split_once("  ");
        match (spaces, entry) {
            (_, _) if line.is_empty() => {
                roff.control("PP", []);
                in_list = false;
            }
            (1..CONTINUES_SPACES, Some((term, meaning))) => {
                roff.control("TP", []);
                roff.text([bold(term)]);
                roff.text([roman(meaning.trim_start())]);
                in_list = true;
            }
            _ => {
                if in_list && spaces == 0 {
                    roff.control("PP", []);
                    in_list = false;
                }
                roff.text([roman(line.trim_start())]);
            }
        }
    }
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        // As they are: a command that is broken in the middle cannot be copied.
        roff.control("nf", []);
        for line in examples.trim().lines() {
            roff.text([roman(line.trim_start())]);
        }
        roff.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_vswap_and_for_each_verb_that_is_seen() {
        let pages = pages();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.first(), Some(&"vswap.1"));
        for verb in Args::command_line().get_subcommands() {
            let name = format!("vswap-{}.1", verb.get_name());
            let is_there = names.contains(&name.as_str());
            assert_eq!(is_there, !verb.is_hide_set(), "{name}");
        }
        for (name, page) in &pages {
            let page = String::from_utf8(page.clone()).expect("text");
            let has_hidden = page.contains("\\-\\-debug");
            assert!(!has_hidden, "{name} shows what is hidden");
            assert!(
                page.contains(".SH EXAMPLES") || name == "vswap-doctor.1",
                "{name}"
            );
        }
    }

    #[test]
    fn lists_paragraphs_and_examples_stay_apart() {
        let mut roff = Roff::new();
        let text = "Sizes are\nsizes.\n  50%   a share\n          of it\nWithout it.\n\nMore.\n\n\
                    Examples:\n  vswap top\n  vswap a";
        notes(&mut roff, text);
        let expected = ".SH NOTES\nSizes are\nsizes.\n.TP\n\\fB50%\\fR\na share\nof it\n.PP\nWithout it.\n.PP\nMore.\n\
                        .SH EXAMPLES\n.nf\nvswap top\nvswap a\n.fi\n";
        assert_eq!(roff.to_roff(), expected);
    }
}
