//! Measures the pages of docs/results: `cargo xtask results [NAME...] [--list] [--render] [--quick]`.
//!
//! Builds vswap, runs the command of each page of `list`, stores what it wrote, and makes the page from that. A run
//! that fails or lacks a side changes nothing. `--render` makes the pages anew from what is stored. `--quick` tries
//! everything out with one short round and writes below `target` instead of docs.

pub mod files;
mod list;
mod page;
mod stored;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{checks, command, environments};
use list::{PAGES, Page, Program};
pub use page::MARK;
#[cfg(test)]
pub use stored::tests::one_workload;
use stored::{Made, Outcome, Stored};

const USAGE: &str = "usage: cargo xtask results [NAME...] [--list] [--render] [--quick]";
/// The most time for building vswap, on two slow processors that others use as well.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// How long a program that was told to end may undo what it did to the machine, before it is killed.
const END_SECONDS: u64 = 60;
/// The status of timeout(1) for a command that took too long.
const TIMED_OUT: i32 = 124;
/// Where the pages are.
pub const DOCS: &str = "docs";
/// Where a quick run writes.
const QUICK: &str = "target/results";
/// What the programs write, before it is stored.
const RAW: &str = "target/results.json";

/// What the user asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    names: Vec<String>,
    list: bool,
    render: bool,
    quick: bool,
}

/// Does what the user asked for. `Ok(false)`: a page could not be measured or made.
///
/// # Errors
/// The command line makes no sense, vswap does not build, or git does not tell the commit.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let options = read(arguments)?;
    let chosen = choose(&options.names)?;
    if options.list {
        show_list(&chosen);
        return Ok(true);
    }
    let place = root.join(if options.quick { QUICK } else { DOCS });
    if options.render {
        return write_all(&place).map(|()| true);
    }
    let needs_root = chosen.iter().find(|page| page.program == Program::Bench);
    if let Some(page) = needs_root.filter(|_| !environments::is_root()) {
        let what = "needs root, because the kernel's side is a control group and swap on zram";
        return Err(format!(
            "{} {what}: run as root, or name pages of the engine only",
            page.name
        ));
    }
    // The pages that are written change the tree, so this comes first.
    let commit = commit(root)?;
    build(root)?;
    let mut is_whole = true;
    for page in chosen {
        println!("\n==> {}: {}", page.name, page.about);
        if let Err(what) = measure(root, &place, page, &commit, options.quick) {
            println!("{}: {what}. Its page stays as it is", page.name);
            is_whole = false;
            continue;
        }
        write_all(&place)?;
    }
    Ok(is_whole)
}

fn show_list(pages: &[&Page]) {
    for page in pages {
        println!("{:<18} {:>4} s  {}", page.name, page.seconds, page.about);
        println!("{:<18}         {}", "", page.command(false).join(" "));
    }
    let seconds: u64 = pages.iter().map(|page| page.seconds).sum();
    println!(
        "together some {} minutes, on two idle processors",
        seconds.div_ceil(60)
    );
}

/// Measures one page and stores the result.
fn measure(
    root: &Path,
    place: &Path,
    page: &Page,
    commit: &str,
    quick: bool,
) -> Result<(), String> {
    let raw = root.join(RAW);
    // The result of another run would be taken for this one's.
    let _ = fs::remove_file(&raw);
    let made = made(page, commit, quick)?;
    let longest = page.limit() + Duration::from_secs(2 * END_SECONDS);
    let status = command::run_to_end(&mut bounded(root, page, quick), longest)?.0;
    if status.code() == Some(TIMED_OUT) {
        let seconds = page.limit().as_secs();
        return Err(format!("not ended after {seconds} s; is the machine busy?"));
    }
    if !status.success() {
        return Err(format!("ended with {status}; it says why above"));
    }
    let text =
        fs::read_to_string(&raw).map_err(|error| format!("{RAW} cannot be read: {error}"))?;
    let text = without_places(&text, root, std::env::var("HOME").ok().as_deref());
    let result =
        serde_json::from_str(&text).map_err(|error| format!("{RAW} is no JSON: {error}"))?;
    let stored = Stored { made, result };
    complete(&stored.outcome()?)?;
    let path = place.join(files::stored_path(page));
    write(&path, &stored.to_text())
}

/// The command, ended if it takes too long. In the foreground, so that an interrupt reaches it too.
fn bounded(root: &Path, page: &Page, quick: bool) -> Command {
    let words = page.command(quick);
    let mut command = Command::new("timeout");
    command
        .args(["--foreground", "--kill-after"])
        .arg(END_SECONDS.to_string())
        .arg(page.limit().as_secs().to_string())
        .arg(root.join("target/release").join(words[0]))
        .args(&words[1..])
        .args(["--json", RAW])
        .current_dir(root);
    command
}

/// A page that compares nothing must not replace one that does.
fn complete(outcome: &Outcome) -> Result<(), String> {
    let mut left_out = outcome.left_out.iter();
    match left_out.find(|left| left.side.is_some()) {
        Some(left) => Err(format!("a side is missing: {}", left.line())),
        None => Ok(()),
    }
}

/// Names of directories of this machine say nothing to others.
fn without_places(text: &str, root: &Path, home: Option<&str>) -> String {
    let text = text.replace(&format!("{}/", root.display()), "");
    match home.filter(|home| home.len() > 1) {
        Some(home) => text.replace(&format!("{home}/"), "~/"),
        None => text,
    }
}

/// The circumstances of a run that begins now.
fn made(page: &Page, commit: &str, quick: bool) -> Result<Made, String> {
    let of = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let load = of("/proc/loadavg");
    Ok(Made {
        commit: commit.to_owned(),
        date: said(Command::new("date").args(["--utc", "+%F"]))?,
        kernel: of("/proc/sys/kernel/osrelease").trim().to_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        load_average: load.split(' ').next().unwrap_or_default().to_owned(),
        command: format!("target/release/{}", page.command(quick).join(" ")),
    })
}

/// The short name of the commit, and whether anything but docs differs from it.
fn commit(root: &Path) -> Result<String, String> {
    let git = |words: &[&str]| said(Command::new("git").current_dir(root).args(words));
    let name = git(&["rev-parse", "--short", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--", ".", ":!docs"])?;
    Ok(if changes.is_empty() {
        name
    } else {
        name + "+changes"
    })
}

fn said(command: &mut Command) -> Result<String, String> {
    let shown = command::shell_words(command);
    let output = command
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "`{shown}` ended with {}: {}",
            output.status,
            errors.trim_end()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Builds what is measured to where it is run from, whatever the user's own directory for builds is.
fn build(root: &Path) -> Result<(), String> {
    let words = [
        "build",
        "--release",
        "--package",
        "vswap",
        "--package",
        "vswap-bench",
    ];
    let mut cargo = checks::cargo(root, &words);
    cargo.env("CARGO_TARGET_DIR", root.join("target"));
    command::run(&mut cargo, BUILD_LIMIT).map(|_| ())
}

/// Writes every file that is made from stored runs.
fn write_all(place: &Path) -> Result<(), String> {
    for (path, text) in files::all(&|path| fs::read_to_string(place.join(path)).ok()) {
        let path = place.join(path);
        write(&path, &text?)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let write = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    };
    write().map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn choose(names: &[String]) -> Result<Vec<&'static Page>, String> {
    if names.is_empty() {
        return Ok(PAGES.iter().collect());
    }
    let known = |name: &String| {
        let found = PAGES.iter().find(|page| page.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = PAGES.iter().map(|page| page.name).collect();
            format!(
                "there is no page {name:?}: expected one of {}",
                names.join(", ")
            )
        })
    };
    names.iter().map(known).collect()
}

fn read(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    for word in arguments {
        match word.as_str() {
            "--list" => options.list = true,
            "--render" => options.render = true,
            "--quick" => options.quick = true,
            option if option.starts_with('-') => {
                return Err(format!("there is no option {option:?}\n{USAGE}"));
            }
            name => options.names.push(name.to_owned()),
        }
    }
    if options.render && !options.names.is_empty() {
        return Err("--render makes every page that has a stored run, so give no names".to_owned());
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn options_are_read_and_nonsense_refused() {
        let options = read(&words(&["zipf", "--quick"])).unwrap();
        assert_eq!(options.names, ["zipf"]);
        assert!(options.quick && !options.render && !options.list);
        assert!(read(&words(&["--fast"])).unwrap_err().contains("--fast"));
        assert!(
            read(&words(&["--render", "zipf"]))
                .unwrap_err()
                .contains("no names")
        );
        let said = choose(&words(&["zip"])).unwrap_err();
        assert!(
            said.contains("no page \"zip\"") && said.contains("memhog"),
            "{said}"
        );
    }

    #[test]
    fn a_command_is_ended_when_it_takes_too_long() {
        let chosen = choose(&words(&["engine-areas"])).unwrap();
        let command = bounded(Path::new("/r"), chosen[0], true);
        let shown = command::shell_words(&command);
        let seconds = chosen[0].limit().as_secs();
        let expected = format!(
            "timeout --foreground --kill-after 60 {seconds} /r/target/release/vswap-engine-bench areas --quick --json \
             target/results.json"
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_missing_side_is_an_error_and_a_missing_workload_is_not() {
        let mut stored = one_workload();
        assert_eq!(complete(&stored.outcome().unwrap()), Ok(()));
        stored.result["left_out"][0]["side"] = "zram".into();
        let said = complete(&stored.outcome().unwrap()).unwrap_err();
        assert!(said.contains("redis without zram: no program"), "{said}");
    }

    #[test]
    fn places_of_this_machine_are_not_stored() {
        let text = r#"["/a/b/target/release/vswap", "/home/c/.cargo/x", "/d"]"#;
        let left = without_places(text, Path::new("/a/b"), Some("/home/c"));
        assert_eq!(left, r#"["target/release/vswap", "~/.cargo/x", "/d"]"#);
    }
}
