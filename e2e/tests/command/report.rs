//! `--report`: the page says what the run was like, by the figures of `vswap status` and `--summary`; a browser can
//! read it, whatever programs are called; and what goes wrong with it does no harm to the program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use vswap_e2e::device::Mounted;
use vswap_e2e::ended::last_words;
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Ended, Failure, Job, MIB, Outcome, Running, ensure, require_program};

const LIMIT_BYTES: u64 = 64 * MIB;
/// What the program has, in a form that a pool half as large as the limit can hold.
const FILLED_BYTES: u64 = 160 * MIB;
/// The program is idle when this file is there, and ends when the other one is.
const IDLE: &str = "idle";
const GO: &str = "go";
const EXIT_STATUS: i32 = 3;

/// Calls itself something that a page must not take for markup, fills memory, reads all of it twice, and waits.
const PROGRAM: &str = "
import os, sys, time
with open('/proc/self/comm', 'w') as name:
    name.write('<script>x()')
pages = int(sys.argv[1]) // 4096
memory = bytearray(pages * 4096)
for page in range(pages):
    memory[page * 4096:(page + 1) * 4096] = os.urandom(512) * 8
for lap in range(2):
    for page in range(pages):
        memory[page * 4096]
open(sys.argv[2], 'w').close()
while not os.path.exists(sys.argv[3]):
    time.sleep(0.02)
sys.exit(3)
";

/// Fills memory with what each page's number says, waits, and compares every byte.
const COMPARES: &str = "
import os, random, sys, time
pages = int(sys.argv[1]) // 4096
def content(page):
    return random.Random(page).randbytes(4096)
memory = bytearray(pages * 4096)
for page in range(pages):
    memory[page * 4096:(page + 1) * 4096] = content(page)
open(sys.argv[2], 'w').close()
while not os.path.exists(sys.argv[3]):
    time.sleep(0.02)
for page in range(pages):
    if memory[page * 4096:(page + 1) * 4096] != content(page):
        sys.exit(f'page {page} is other bytes')
sys.exit(3)
";

/// Parses the page as a browser would, is strict where a browser is not, and prints what is in it as JSON: tables by
/// caption, words by id.
const READ_PAGE: &str = "
import html.parser, json, sys

VOID = {'meta', 'br', 'hr', 'img', 'input', 'link'}
ELSEWHERE = {'src', 'href', 'srcset', 'action', 'formaction', 'poster', 'background', 'xlink:href'}

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.tables = [], {}, {}
        self.rows, self.caption, self.plots, self.elements = None, None, 0, set()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.add(tag)
        self.plots += attributes.get('role') == 'img'
        for name, value in attributes.items():
            assert not name.startswith('on'), (tag, name)
            assert name not in ELSEWHERE or value.startswith('#'), (tag, name, value)
        if tag == 'table':
            self.rows, self.caption = [], ''
        elif tag == 'tr':
            self.rows.append([])
        elif tag in ('td', 'th'):
            self.rows[-1].append('')
        elif tag == 'data':
            self.rows[-1][-1] = attributes['value']
        if tag not in VOID:
            self.open.append((tag, attributes.get('id')))
        if attributes.get('id'):
            assert attributes['id'] not in self.ids, attributes
            self.ids[attributes['id']] = ''

    def handle_startendtag(self, tag, attributes):
        assert 'svg' in [name for name, _ in self.open], tag
        self.elements.add(tag)

    def handle_endtag(self, tag):
        opened, _ = self.open.pop()
        assert opened == tag, (opened, tag, self.getpos())
        if tag == 'table':
            self.tables[self.caption] = self.rows

    def handle_data(self, data):
        tags = [tag for tag, _ in self.open]
        if 'caption' in tags:
            self.caption += data
        elif tags and tags[-1] in ('td', 'th', 'bdi') and 'table' in tags:
            self.rows[-1][-1] += data
        for _, of in self.open:
            if of:
                self.ids[of] += data

page = Page()
text = open(sys.argv[1], encoding='utf-8').read()
assert text.startswith('<!DOCTYPE html>'), text[:40]
page.feed(text)
page.close()
assert not page.open, page.open
assert page.elements.isdisjoint({'script', 'iframe', 'object', 'embed', 'link', 'img', 'base', 'form'}), page.elements
json.dump({'tables': page.tables, 'ids': page.ids, 'plots': page.plots}, sys.stdout)
";

/// What is in the page. Fails if it is not well-formed.
fn read(path: &Path) -> Outcome<Value> {
    let python = require_program("python3", "apt package python3")?;
    let output = Command::new(&python)
        .args(["-c", READ_PAGE])
        .arg(path)
        .output()
        .during(|| "read the page".to_owned())?;
    ensure!(
        output.status.success(),
        "the page is not as it should be: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    json(&output.stdout)
}

fn json(text: &[u8]) -> Outcome<Value> {
    let shown = || String::from_utf8_lossy(text);
    serde_json::from_slice(text).map_err(|error| Failure::wrong(format!("{error}: {}", shown())))
}

/// The words of the element with this id. Empty if there is none.
fn words<'a>(page: &'a Value, id: &str) -> &'a str {
    page["ids"][id].as_str().unwrap_or_default()
}

/// The rows of a table, its heading the first.
fn rows(page: &Value, caption: &str) -> Outcome<Vec<Vec<String>>> {
    let rows = serde_json::from_value(page["tables"][caption].clone());
    let rows: Option<Vec<Vec<String>>> = rows.ok();
    rows.ok_or_else(|| Failure::wrong(format!("no table {caption:?} in {}", page["tables"])))
}

fn figure(text: &str) -> Outcome<f64> {
    text.parse()
        .map_err(|_| Failure::wrong(format!("{text:?} is no figure")))
}

/// The columns of a plot's table at the time nearest to this one.
fn at(page: &Value, caption: &str, seconds: f64) -> Outcome<Vec<f64>> {
    let mut nearest: Option<Vec<f64>> = None;
    for row in rows(page, caption)?.iter().skip(1) {
        let row = row.iter().map(|cell| figure(cell).or(Ok(0.0)));
        let row = row.collect::<Outcome<Vec<f64>>>()?;
        let apart = |row: &[f64]| row.first().map_or(f64::MAX, |at| (at - seconds).abs());
        if nearest
            .as_deref()
            .is_none_or(|nearest| apart(&row) < apart(nearest))
        {
            nearest = Some(row);
        }
    }
    nearest.ok_or_else(|| Failure::wrong(format!("{caption}: no row")))
}

fn near(what: &str, seen: f64, expected: f64) -> Outcome {
    ensure!(
        (seen - expected).abs() <= expected * 0.1 + MIB as f64,
        "{what}: {seen} in the page, {expected} expected"
    );
    Ok(())
}

fn status(context: &Context, running: &Running) -> Outcome<Value> {
    let pid = running.pid().to_string();
    let output = context.vswap(&["status", "--json", "--run", &pid])?;
    Ok(json(&output.stdout)?[0].clone())
}

fn number(value: &Value) -> String {
    value.to_string()
}

/// Every figure of the summary is in the page.
fn must_have_figures(page: &Value, ended: &Ended) -> Outcome {
    let summary = ended.summary.as_ref().and_then(Value::as_object);
    let summary = summary.ok_or_else(|| Failure::wrong("no summary"))?;
    let figures = rows(page, "Figures at the end of the run")?;
    let shown = |name: &str| {
        let row = figures
            .iter()
            .find(|row| row.first().is_some_and(|cell| cell == name));
        row.and_then(|row| row.get(1)).cloned()
    };
    let numbers = summary.iter().filter(|(_, value)| value.is_number());
    let mut count = 0;
    for (name, value) in numbers {
        let shown = shown(name).ok_or_else(|| Failure::wrong(format!("no {name}: {figures:?}")))?;
        ensure!(
            shown == number(value),
            "{name}: {shown} in the page, {value} in the summary"
        );
        count += 1;
    }
    ensure!(count > 40, "only {count} figures in the summary");
    Ok(())
}

/// What a program under pressure has done, with an area that is given up meanwhile.
pub fn of_a_run(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let (idle, go) = (launcher.place().join(IDLE), launcher.place().join(GO));
    let path = launcher.place().join("run.html");
    let area = format!("{}:256M", launcher.place().display());
    let job = Job::new(python)
        .args(["-c", PROGRAM])
        .arg(FILLED_BYTES.to_string())
        .args([idle.as_os_str(), go.as_os_str()])
        .vswap_options(["--swap", &area])
        .vswap_options(["--report".as_ref(), path.as_os_str()]);
    let running = launcher.start(&job)?;
    let program = running.program_pid()?;
    running.until("the program to be idle", || Ok(idle.exists().then_some(())))?;
    let before = read(&path)?;
    ensure!(
        words(&before, "no-report").contains("There is no report yet"),
        "while it runs: {before}"
    );
    thread::sleep(Duration::from_secs(2));
    let seen = status(context, &running)?;
    let off = context.vswap(&["swapoff", "--all", "--run", &running.pid().to_string()])?;
    ensure!(off.status.success(), "swapoff: {off:?}");
    thread::sleep(Duration::from_secs(2));
    fs::write(&go, "").during(|| "let the program end".to_owned())?;
    let ended = running.wait()?;
    ended.must_exit_with(EXIT_STATUS)?;
    ended.must_leave_nothing()?;

    let page = read(&path)?;
    ensure!(
        page["plots"] == 7,
        "not six plots and a map: {}",
        page["plots"]
    );
    must_have_figures(&page, &ended)?;
    must_have_plots(&page, &seen)?;
    let events = rows(&page, "What happened")?;
    for event in ["came into use", "is in use no more", "memory became short"] {
        let has = events.iter().flatten().any(|cell| cell.contains(event));
        ensure!(has, "no event {event:?}: {events:?}");
    }
    must_have_map(&page, program, &seen)?;
    let processes = rows(
        &page,
        "The largest processes that were seen, with the most that each of them had",
    )?;
    ensure!(
        processes.iter().flatten().any(|cell| cell == "<script>x()"),
        "the program's name: {processes:?}"
    );
    Ok(())
}

/// The plots have what `vswap status` said at that time, and each has something.
fn must_have_plots(page: &Value, seen: &Value) -> Outcome {
    let of = |name: &str| seen[name].as_f64().unwrap_or(f64::NAN);
    let places = at(page, "What was where", of("wall_seconds"))?;
    near("in memory", places[1], of("resident_bytes"))?;
    near("compressed", places[2], of("compressed_pages") * 4096.0)?;
    near("in areas", places[3], of("physical_pages") * 4096.0)?;
    let limit = at(page, "What counts against the limit", of("wall_seconds"))?;
    near("all", limit[1], of("total_bytes"))?;
    ensure!(limit[2] == LIMIT_BYTES as f64, "the limit is {}", limit[2]);
    for caption in [
        "Moved by the second",
        "Faults by the second",
        "How long faults took",
        "Time lost to paging",
    ] {
        let rows = rows(page, caption)?;
        let largest = rows.iter().skip(1).flat_map(|row| row.iter().skip(1));
        let largest = largest
            .filter_map(|cell| cell.parse::<f64>().ok())
            .fold(0.0, f64::max);
        ensure!(largest > 0.0, "{caption}: nothing but zeros in {rows:?}");
    }
    Ok(())
}

/// The map has what `vswap status` said, a second before or after.
fn must_have_map(page: &Value, program: u32, seen: &Value) -> Outcome {
    let of = |name: &str| seen[name].as_f64().unwrap_or(f64::NAN);
    let caption = format!("Process {program} (<script>x())");
    let sums = at(page, &caption, of("wall_seconds"))?;
    let out: f64 = sums.iter().skip(3).sum();
    near("out, in the map", out, of("swapped_pages") * 4096.0)
}

/// Where pages are by tier: in a plot over time, and in a table of the end.
pub fn of_tiers(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let (idle, go) = (launcher.place().join(IDLE), launcher.place().join(GO));
    let path = launcher.place().join("run.html");
    let place = launcher.place().display();
    let tier = |name: &str, size: &str| format!("--tier={name}={place}:{size}");
    let job = Job::new(python)
        .args(["-c", COMPARES])
        .arg(FILLED_BYTES.to_string())
        .args([idle.as_os_str(), go.as_os_str()])
        .vswap_options([tier("fast", "48M"), tier("slow", "256M")])
        .vswap_options(["--pool", "off"])
        .vswap_options(["--report".as_ref(), path.as_os_str()]);
    let running = launcher.start(&job)?;
    running.until("the program to be idle", || Ok(idle.exists().then_some(())))?;
    thread::sleep(Duration::from_secs(2));
    let seen = status(context, &running)?;
    thread::sleep(Duration::from_secs(1));
    fs::write(&go, "").during(|| "let the program end".to_owned())?;
    let ended = running.wait()?;
    ended.must_exit_with(EXIT_STATUS)?;
    ended.must_leave_nothing()?;

    let page = read(&path)?;
    ensure!(page["plots"] == 8, "not eight plots: {}", page["plots"]);
    let columns = rows(&page, "What was in which tier")?.swap_remove(0);
    ensure!(
        columns == ["time", "the pool", "fast", "slow"],
        "the columns are {columns:?}"
    );
    let wall_seconds = seen["wall_seconds"].as_f64().unwrap_or(f64::NAN);
    let held = at(&page, "What was in which tier", wall_seconds)?;
    for (name, held) in ["fast", "slow"].into_iter().zip(&held[2..]) {
        let mut tiers = seen["tiers"].as_array().into_iter().flatten();
        let used = tiers.find(|tier| tier["name"] == name);
        let used = used.and_then(|tier| tier["used_bytes"].as_f64());
        let used = used.ok_or_else(|| Failure::wrong(format!("no tier {name} in {seen}")))?;
        ensure!(used > 8.0 * MIB as f64, "{name} has only {used}");
        near(name, *held, used)?;
    }
    let caption = "Tiers as they were at the end, and pages by the second of the whole run";
    let tiers = rows(&page, caption)?;
    let names: Vec<&str> = tiers.iter().skip(1).map(|row| row[0].as_str()).collect();
    ensure!(names == ["fast", "slow"], "the tiers are {tiers:?}");
    for tier in &tiers[1..] {
        let moves = |cell: &str| cell != "0" && cell != "-";
        ensure!(
            moves(&tier[5]) && moves(&tier[6]),
            "nothing moved: {tier:?}"
        );
        ensure!(tier[7].ends_with('s'), "no latency: {tier:?}");
    }
    Ok(())
}

/// Runs that end at once, that a signal ends, and that vswap is killed in.
pub fn of_ends(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let path = launcher.place().join("run.html");
    fs::write(&path, "an old page").during(|| "write a file".to_owned())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).during(|| "chmod".to_owned())?;
    let with_report = |job: Job| job.vswap_options(["--report".as_ref(), path.as_os_str()]);
    let run = |job: Job| launcher.start(&with_report(job))?.wait();

    let ended = run(Job::new("/bin/true"))?;
    ended.must_succeed()?;
    let page = read(&path)?;
    must_have_figures(&page, &ended)?;
    let text = fs::read_to_string(&path).during(|| "read the page".to_owned())?;
    ensure!(
        text.contains("exited with status 0") && !text.contains("an old page"),
        "{text}"
    );
    let mode = fs::metadata(&path).during(|| "look at the page".to_owned())?;
    ensure!(
        mode.permissions().mode() & 0o777 == 0o600,
        "other permissions than before"
    );

    run(Job::shell("kill -9 $$"))?.must_be_ended_by(Signal::KILL)?;
    let page = read(&path)?;
    let text = fs::read_to_string(&path).during(|| "read the page".to_owned())?;
    ensure!(text.contains("was ended by signal 9"), "{page}");

    run(Job::new("/none/such"))?.must_exit_with(127)?;
    let text = fs::read_to_string(&path).during(|| "read the page".to_owned())?;
    ensure!(
        text.contains("was ended by signal 9"),
        "replaced by a run that was none"
    );

    let running = launcher.start(&with_report(Job::new("/bin/sleep").arg("60")))?;
    running.program_pid()?;
    running.signal(Signal::KILL)?;
    running.wait()?.must_be_ended_by(Signal::KILL)?;
    let page = read(&path)?;
    ensure!(
        words(&page, "no-report").contains("vswap itself was killed"),
        "{page}"
    );
    Ok(())
}

/// What cannot be written is refused before the program starts; a disk that is full at the end is said.
pub fn not_written(context: &Context) -> Outcome {
    let launcher = context.limited(LIMIT_BYTES)?;
    let mark = launcher.place().join("started");
    let marks = |report: &Path| {
        Job::shell(format!("touch {}", mark.display()))
            .vswap_options(["--report".as_ref(), report.as_os_str()])
    };
    for (report, why) in [
        (launcher.place().to_owned(), "name a file in it"),
        (
            launcher.place().join("none/run.html"),
            "make its directory first",
        ),
    ] {
        let ended = launcher.start(&marks(&report))?.wait()?;
        ended.must_exit_with(125)?;
        let said = last_words(&ended.stderr);
        ensure!(said.contains(why), "{}: {said}", report.display());
        ensure!(!mark.exists(), "the program was started");
    }
    let disk = Mounted::new(context, "small", 8 * MIB)?;
    let path = disk.path().join("run.html");
    let fills = format!("cat /dev/zero > {}/rest; exit 7", disk.path().display());
    let job = Job::shell(fills).vswap_options(["--report".as_ref(), path.as_os_str()]);
    let ended = launcher.start(&job)?.wait()?;
    ended.must_exit_with(7)?;
    let said = last_words(&ended.stderr);
    ensure!(
        said.contains("cannot write the report") && said.contains("No space left"),
        "{said}"
    );
    let page = read(&path)?;
    ensure!(
        words(&page, "no-report").contains("could not be written"),
        "{page}"
    );
    Ok(())
}

/// Would change the title if a browser took it for markup.
const HOSTILE: [&str; 2] = [
    "</code></title><script>document.title='ran'</script>",
    "<img src=x onerror=\"document.title='ran'\">",
];
/// What `--dump-dom` has if it did.
const RAN: &str = "<title>ran</title>";
/// Colours behind the page, see `crates/cli/src/page/style.rs`.
const LIGHT: [u8; 3] = [255, 255, 255];
const DARK: [u8; 3] = [22, 24, 29];

/// The first pixel of a PNG. It is the same with each filter of the first row.
const FIRST_PIXEL: &str = "
import struct, sys, zlib
png = open(sys.argv[1], 'rb').read()
at, data = 8, b''
while at < len(png):
    length, kind = struct.unpack('>I4s', png[at:at + 8])
    if kind == b'IDAT':
        data += png[at + 8:at + 8 + length]
    at += length + 12
row = zlib.decompress(data)
sys.stdout.buffer.write(row[1:4])
";

/// Has the browser do something with the page. Returns its output. It must have nothing to complain about.
fn browse(context: &Context, options: &[&str], page: &Path) -> Outcome<String> {
    let chromium = require_program("chromium", "apt package chromium")?;
    let home = context.place().join("home");
    let output = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", home.display()))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .env("HOME", &home)
        .output()
        .during(|| "start chromium".to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && !said.contains("CONSOLE"),
        "chromium: {said}"
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A real browser shows the page, light and dark, and runs nothing of it.
pub fn in_a_browser(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    require_program("chromium", "apt package chromium")?;
    let launcher = context.limited(LIMIT_BYTES)?;
    let (idle, go) = (launcher.place().join(IDLE), launcher.place().join(GO));
    fs::write(&go, "").during(|| "write a file".to_owned())?;
    let path = launcher.place().join("run.html");
    let job = Job::new(&python)
        .args(["-c", PROGRAM])
        .arg(FILLED_BYTES.to_string())
        .args([idle.as_os_str(), go.as_os_str()])
        .args(HOSTILE)
        .vswap_options(["--report".as_ref(), path.as_os_str()]);
    launcher.start(&job)?.wait()?.must_exit_with(EXIT_STATUS)?;

    // The same text as markup: the test would see it if it ran.
    let ran = launcher.place().join("ran.html");
    fs::write(&ran, format!("<title>x</title>{}", HOSTILE[1])).during(|| "write".to_owned())?;
    let dom = browse(context, &["--dump-dom"], &ran)?;
    ensure!(
        dom.contains(RAN),
        "the browser runs no script at all: {dom}"
    );

    let dom = browse(context, &["--dump-dom"], &path)?;
    ensure!(!dom.contains(RAN), "a name was run as a script: {dom}");
    ensure!(
        dom.matches("role=\"img\"").count() == 7,
        "plots are missing: {dom}"
    );
    for (scheme, paper) in [("1", LIGHT), ("0", DARK)] {
        let image = launcher.place().join("page.png");
        let screenshot = format!("--screenshot={}", image.display());
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        browse(
            context,
            &[&screenshot, &scheme, "--window-size=1000,900"],
            &path,
        )?;
        let pixel = Command::new(&python)
            .args(["-c", FIRST_PIXEL])
            .arg(&image)
            .output()
            .during(|| "look at the screenshot".to_owned())?;
        ensure!(
            pixel.stdout == paper,
            "{scheme}: the page is on {:?}, not on {paper:?}",
            pixel.stdout
        );
    }
    Ok(())
}
