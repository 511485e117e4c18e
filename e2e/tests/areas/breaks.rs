//! Areas that break: only pages on them are lost, and only processes that need a lost page suffer.

use std::fs::File;

use vswap_e2e::device::Mounted;
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

use crate::used::{list, traffic, with_areas, workload};

const LIMIT_BYTES: u64 = 96 * MIB;
/// How much of an area is left when it is cut.
const KEPT_BYTES: u64 = 64 * MIB;

/// A private file on a file system that is smaller than the file may become. What does not fit goes elsewhere.
pub fn full_file_system(context: &Context) -> Outcome {
    let small = Mounted::new(context, "small", 48 * MIB)?;
    let areas = [
        format!("{}:1G,prio=5", small.path().display()),
        format!("{}:1G,prio=1", context.place().display()),
    ];
    let job = with_areas(workload("320M")?, &areas).vswap_options(["--pool", "off"]);
    let launcher = context.limited(LIMIT_BYTES)?;
    let ended = launcher.run(&job)?;
    let written = traffic(&ended, "small")?.0;
    context.say(format!(
        "{written} bytes written to a file system of 48 MiB"
    ));
    ensure!(written > 8 * MIB, "it was hardly used: {written} bytes");
    let said = std::fs::read_to_string(&ended.stderr).unwrap_or_default();
    ensure!(
        said.contains("no space is left"),
        "nothing was said: {said}"
    );
    Ok(())
}

/// Fills memory, waits until its area was cut short, and makes children look at every page. Children that touch a lost
/// page get SIGBUS. The others and the parent go on.
const LOOKS: &str = r#"
import ctypes, mmap, os, random, signal, sys, time
page, children = 4096, 8
def content(number):
    return random.Random(number).randbytes(64) * (page // 64)
def fill(pages):
    memory = mmap.mmap(-1, pages * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for number in range(pages):
        memory[number * page:(number + 1) * page] = content(number)
    return memory
def look(memory, start, step):
    pid = os.fork()
    if pid == 0:
        for number in range(start, len(memory) // page, step):
            if memory[number * page:(number + 1) * page] != content(number):
                os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]
# What the interpreter itself needs is made by a rehearsal, and stays in memory.
if look(fill(64), 0, 1) != 0 or ctypes.CDLL(None).mlockall(1) != 0:
    sys.exit(3)
memory = fill(40960)
open(sys.argv[1], "w").close()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
lost = whole = 0
for child in range(children):
    status = look(memory, child, 256)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS:
        lost += 1
    elif status == 0:
        whole += 1
    else:
        print("a child ended with", status)
        sys.exit(1)
print(lost, "met a lost page,", whole, "did not")
sys.exit(0 if lost > 0 else 2)
"#;

/// The file of an area is cut, so its pages cannot be read. Whoever touches one gets SIGBUS. Nobody reads zeros.
pub fn unreadable_page(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let area = context.place().join("area").display().to_string();
    let made = context.vswap(&["mkswap", &area, "--size", "256M"])?;
    ensure!(made.status.success(), "mkswap: {made:?}");
    let (filled, cut) = (context.place().join("filled"), context.place().join("cut"));
    let job = Job::new(python).args(["-c", LOOKS]).arg(&filled).arg(&cut);
    // What the broken area no longer takes goes to another one.
    let areas = [
        format!("{area},prio=5"),
        format!("{}:1G,prio=1", context.place().display()),
    ];
    let job = with_areas(job, &areas).vswap_options(["--pool", "off"]);
    let launcher = context.limited(64 * MIB)?;
    let running = launcher.start(&job)?;
    running.until("memory to be filled", || Ok(filled.exists().then_some(())))?;
    ensure!(
        list(context, running.pid())?.contains("MiB"),
        "nothing is on the area"
    );
    let file = File::options().write(true).open(&area);
    file.and_then(|file| file.set_len(KEPT_BYTES))
        .during(|| format!("cut {area}"))?;
    File::create(&cut).during(|| format!("make {}", cut.display()))?;
    let ended = running.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let said = std::fs::read_to_string(&ended.stdout).unwrap_or_default();
    context.say(said.trim());
    ensure!(
        ended.figure("pages_lost")? > 0,
        "the summary counts no lost page"
    );
    let errors = std::fs::read_to_string(&ended.stderr).unwrap_or_default();
    ensure!(
        errors.contains("is lost") && errors.contains("SIGBUS"),
        "stderr: {errors}"
    );
    Ok(())
}
