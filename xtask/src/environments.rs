//! Where vswap works and where it does not, found by trying: `cargo xtask environments [--write] [NAME...]`.
//!
//! Makes each environment of `list` on this machine, and in it asks `vswap doctor` and runs a workload that verifies
//! every byte in half of the memory that it needs. Prints a Markdown table. With `--write` the table replaces the one
//! in docs/containers.md. A run counts as working only if pages went out. What doctor says must be what the run shows,
//! or the verb fails. Needs root; the machine's own devices, mounts and limits stay as they are.

mod list;

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::checks;
use list::{ENVIRONMENTS, Environment, PRELUDE};

const DOCUMENT: &str = "docs/containers.md";
const BEGIN: &str = "<!-- table: cargo xtask environments --write -->";
const END: &str = "<!-- end of table -->";
/// Installs filters.
const CONFINE: &str = include_str!("environments/confine.py");
/// Where the programs and the swap area are. Not in /tmp, which some environments cover.
const PLACE: &str = "/var/tmp";
const PROGRAMS: [&str; 2] = ["vswap", "vswap-workload"];
const WORKLOAD: [&str; 4] = ["fill-read-write", "--count", "4000", "128M"];
/// Until a command is told to end, and then killed.
const SECONDS_MAX: &str = "180";
/// Status of `vswap run` where it refuses.
const OWN_ERROR: i32 = 125;
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// What was found in one environment.
#[derive(Debug)]
struct Row {
    environment: &'static Environment,
    /// The last line of doctor.
    verdict: String,
    doctor_permits: bool,
    result: Result<(), String>,
}

/// A directory for one environment, removed on drop.
struct Place(PathBuf);

impl Place {
    fn new(root: &Path) -> Result<Place, String> {
        let path = Path::new(PLACE).join(format!("vswap-environments-{}", std::process::id()));
        let place = Place(path);
        place
            .fill(root)
            .map_err(|error| format!("{}: {error}", place.0.display()))?;
        Ok(place)
    }

    fn fill(&self, root: &Path) -> std::io::Result<()> {
        fs::create_dir(&self.0)?;
        fs::set_permissions(&self.0, Permissions::from_mode(0o777))?;
        for program in PROGRAMS {
            // A copy, because an environment may give it rights.
            fs::copy(
                root.join("target/release").join(program),
                self.0.join(program),
            )?;
        }
        fs::write(self.0.join("confine.py"), CONFINE)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Mounts below it were those of namespaces that have ended.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Tries the environments whose names contain one of the words, or all of them. `Ok(false)`: doctor was wrong.
///
/// # Errors
/// vswap does not build, or the place cannot be made.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let is_write = arguments.iter().any(|word| word == "--write");
    let words: Vec<&String> = arguments.iter().filter(|word| *word != "--write").collect();
    if is_write && !words.is_empty() {
        return Err("--write wants the whole table, so give no names".to_owned());
    }
    if !is_root() {
        println!("SKIP: environments: needs root, to make namespaces, filters and mounts");
        return Ok(true);
    }
    checks::build_release(root, BUILD_LIMIT)?;
    let chosen = ENVIRONMENTS
        .iter()
        .filter(|one| words.is_empty() || words.iter().any(|word| one.name.contains(*word)));
    let mut rows = Vec::new();
    for environment in chosen {
        if let Some((_, what)) = environment.needs.filter(|(test, _)| !succeeds(test)) {
            println!("SKIP: {}: this machine has no {what}", environment.name);
            continue;
        }
        let row = try_out(root, environment)?;
        println!("{}", line(&row));
        rows.push(row);
    }
    let lies: Vec<&Row> = rows.iter().filter(|row| row.is_lie()).collect();
    for row in &lies {
        println!("{}: doctor and run disagree", row.environment.name);
    }
    if is_write {
        write(&root.join(DOCUMENT), &table(&rows))?;
    }
    Ok(lies.is_empty() && !rows.is_empty())
}

impl Row {
    /// Doctor cannot know that the program will give up root, but it says when such programs are not swapped.
    fn is_lie(&self) -> bool {
        let is_told = self.verdict.contains("userfaultfd-device");
        let promises = self.doctor_permits && (self.environment.inside.is_empty() || !is_told);
        promises != self.result.is_ok()
    }
}

/// Does this process run as root?
pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

fn succeeds(test: &str) -> bool {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", test])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}

fn try_out(root: &Path, environment: &'static Environment) -> Result<Row, String> {
    let place = Place::new(root)?;
    let vswap = place.0.join("vswap").display().to_string();
    let doctor = inside(&place, environment, &[&vswap, "doctor"])?;
    let summary = place.0.join("summary.json");
    let swap = format!("{}:1G", place.0.display());
    let workload = place.0.join("vswap-workload").display().to_string();
    let summary_path = summary.display().to_string();
    let mut words = vec![&*vswap, "run", "--ram", environment.ram, "--swap", &swap];
    words.extend(["--summary", &summary_path, "--"]);
    words.extend(environment.inside);
    words.push(&workload);
    words.extend(WORKLOAD);
    let ran = inside(&place, environment, &words)?;
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let said = if text.is_empty() {
        String::from_utf8_lossy(&doctor.stderr).into_owned()
    } else {
        text
    };
    Ok(Row {
        environment,
        verdict: short(said.lines().last().unwrap_or_default()).to_owned(),
        doctor_permits: doctor.status.success(),
        result: judge(&ran, &fs::read_to_string(summary).unwrap_or_default()),
    })
}

/// What doctor says in the end, without what to do.
fn short(verdict: &str) -> &str {
    let verdict = verdict.split(';').next().unwrap_or(verdict);
    verdict.trim_start_matches("vswap run ")
}

/// Runs a command in the environment.
fn inside(
    place: &Place,
    environment: &Environment,
    command: &[&str],
) -> Result<std::process::Output, String> {
    let script = format!("{PRELUDE}\n{}", environment.script);
    let mut shell = Command::new("timeout");
    shell
        .args(["--kill-after=5", SECONDS_MAX])
        .args(["unshare", "--mount", "--propagation=private", "sh", "-c"])
        .args([&script, "sh"])
        .args(command)
        .env("HERE", &place.0)
        .env("HOME", &place.0)
        .env_remove("XDG_RUNTIME_DIR")
        .current_dir("/")
        .stdin(Stdio::null());
    shell
        .output()
        .map_err(|error| format!("cannot start timeout: {error}"))
}

/// Did the run end well, and were pages out meanwhile?
fn judge(ran: &std::process::Output, summary: &str) -> Result<(), String> {
    let errors = String::from_utf8_lossy(&ran.stderr);
    let first = errors
        .lines()
        .filter(|line| !line.trim_end().ends_with(':'))
        .map(|line| {
            line.trim()
                .trim_start_matches("vswap: ")
                .trim_start_matches("* ")
        })
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .next()
        .unwrap_or_default();
    if ran.status.code() == Some(OWN_ERROR) {
        let first = first.trim_start_matches("missing ");
        return Err(format!("refused: {first}"));
    }
    if !ran.status.success() {
        return Err(format!("{}: {first}", ran.status));
    }
    let figures: serde_json::Value = serde_json::from_str(summary).unwrap_or_default();
    match figures["pages_out"].as_u64() {
        Some(pages) if pages > 0 => Ok(()),
        _ => Err(format!(
            "the program ran without swap and without limit: {first}"
        )),
    }
}

fn table(rows: &[Row]) -> String {
    let mut text =
        "| environment | how it was made | `vswap doctor` | a run |\n|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        let _ = writeln!(text, "{}", line(row));
    }
    text
}

fn line(row: &Row) -> String {
    let words: Vec<&str> = row
        .environment
        .script
        .split_whitespace()
        .filter(|word| *word != "\\")
        .collect();
    let mut made = words.join(" ");
    if !row.environment.inside.is_empty() {
        let _ = write!(made, " -- {} ...", row.environment.inside.join(" "));
    }
    let result = match &row.result {
        Ok(()) => "works".to_owned(),
        Err(why) => format!("does not: {why}"),
    };
    let cell = |text: &str| text.replace('|', "\\|");
    format!(
        "| {} | `{}` | {} | {} |",
        row.environment.name,
        cell(&made),
        cell(&row.verdict),
        cell(&result)
    )
}

fn write(path: &Path, table: &str) -> Result<(), String> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let text = replaced(&text, table)
        .ok_or_else(|| format!("{shown}: expected the lines {BEGIN} and {END}"))?;
    fs::write(path, text).map_err(|error| format!("{shown}: {error}"))
}

/// The document with this table between the marks.
fn replaced(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn output(code: i32, errors: &str) -> std::process::Output {
        std::process::Output {
            status: std::process::ExitStatus::from_raw(code << 8),
            stdout: Vec::new(),
            stderr: errors.as_bytes().to_owned(),
        }
    }

    #[test]
    fn a_run_works_only_if_pages_went_out() {
        assert_eq!(judge(&output(0, ""), "{\"pages_out\": 3}"), Ok(()));
        assert!(judge(&output(0, ""), "{\"pages_out\": 0}").is_err());
        assert!(judge(&output(0, ""), "").is_err());
        let refused = judge(
            &output(125, "vswap: what is missing:\n* missing  move  no\n"),
            "",
        );
        assert_eq!(refused.unwrap_err(), "refused: move no");
    }

    #[test]
    fn the_table_is_replaced_and_nothing_else() {
        let document = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&document, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(replaced("no marks", "new"), None);
        let root = crate::workspace_root();
        let document = fs::read_to_string(root.join(DOCUMENT)).unwrap();
        assert!(replaced(&document, "").is_some(), "{DOCUMENT} has no marks");
    }
}
