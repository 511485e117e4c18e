//! Runs the commands of a chapter and compares what they print with what the chapter says.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use snapbox::IntoData as _;
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Failure, Outcome, ensure, require_program};

use crate::blocks::{Block, Command, blocks, ended_once};
use crate::session::{Did, Session};

/// How long a command that may be run again has until it prints what is expected.
const AGAIN_BOUND: Duration = Duration::from_secs(60);
/// Time between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The folder of the pages.
pub fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn console_blocks(page: &Path) -> Outcome<Vec<Block>> {
    let text = fs::read_to_string(page).during(|| format!("read {}", page.display()))?;
    let mut found = blocks(&text);
    found.retain(|block| block.language == "console");
    Ok(found)
}

/// Runs all blocks of a chapter as one session.
pub fn run(context: &Context, name: &str) -> Outcome {
    require_program("perl", "apt package perl")?;
    let blocks = console_blocks(&docs().join(name))?;
    ensure!(!blocks.is_empty(), "{name} has no block marked console");
    let mut session = Session::start(context)?;
    let mut count = 0;
    for block in &blocks {
        let commands = block
            .commands()
            .map_err(|error| Failure::wrong(format!("docs/{name}, {error}")))?;
        let mut status = 0;
        for (index, command) in commands.iter().enumerate() {
            let until = block.again.then(|| Instant::now() + AGAIN_BOUND);
            // A status other than 0 is shown by the command that follows.
            let is_shown = commands
                .get(index + 1)
                .is_some_and(|next| next.text == "echo $?");
            status = expect(&mut session, command, status, is_shown, until)
                .map_err(|why| Failure::wrong(format!("docs/{name}:{}: {why}", command.line)))?;
            count += 1;
        }
    }
    context.say(format!("{count} commands"));
    Ok(())
}

/// Runs a command, again until the time is over if there is one, and returns its exit status.
fn expect(
    session: &mut Session,
    command: &Command,
    status_before: i32,
    is_shown: bool,
    until: Option<Instant>,
) -> Result<i32, String> {
    loop {
        let did = session
            .run(&command.text, status_before)
            .map_err(|failure| failure.to_string())?;
        let judged = judge(command, &did, is_shown);
        if judged.is_ok() || until.is_none_or(|until| Instant::now() > until) {
            return judged.map(|()| did.status);
        }
        thread::sleep(AGAIN_AFTER);
    }
}

fn judge(command: &Command, did: &Did, is_shown: bool) -> Result<(), String> {
    let text = &command.text;
    // Programs fill columns with blanks; the pages have none at the end of a line.
    let printed: Vec<&str> = did.printed.lines().map(str::trim_end).collect();
    let printed = ended_once(&printed.join("\n"));
    snapbox::Assert::new()
        .action(snapbox::assert::Action::Verify)
        .normalize_paths(false)
        .try_eq(
            Some(text),
            printed.as_str().into_data(),
            command.prints.as_str().into_data(),
        )
        .map_err(|difference| format!("`{text}` prints something else\n{difference}"))?;
    match did.status {
        0 => Ok(()),
        _ if is_shown => Ok(()),
        status => Err(format!("`{text}` ends with status {status}")),
    }
}

/// Every page with commands has a test of its name among `tests`.
pub fn all_are_run(tests: &[&str]) -> Outcome {
    let entries = fs::read_dir(docs()).during(|| "list docs".to_owned())?;
    for entry in entries {
        let path = entry.during(|| "list docs".to_owned())?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let (Some(stem), true) = (stem, path.extension().is_some_and(|dot| dot == "md")) else {
            continue;
        };
        let has_test = tests.contains(&stem.replace('-', "_").as_str());
        ensure!(
            has_test || console_blocks(&path)?.is_empty(),
            "docs/{stem}.md has commands that no test runs: add it to e2e/tests/book/main.rs"
        );
    }
    Ok(())
}
