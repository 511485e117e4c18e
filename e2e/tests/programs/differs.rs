//! What works differently while memory is in swap (`docs/limits.md`) does so in the way that is written there, and in
//! no other. Natively it does not happen at all.
//!
//! Victims check that no byte is wrong meanwhile, and print how often they met the difference.

use std::fs;
use std::path::Path;

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Failure, Job, MIB, Outcome, ensure, need, require_program};

/// Generous: eviction comes from the pager's option.
const LIMIT_BYTES: u64 = 1024 * MIB;
const EVICT: [&str; 4] = ["--debug-evict-every", "5ms", "--swap", "none"];
/// Fills memory, waits until it may be out, touches some of it, and dies with a core dump.
const DUMPED: &str = "
import ctypes, mmap, os, resource, time
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
size = 16 << 20
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, size, 4096):
    memory[at : at + 4096] = ((at + 1) * 0x9e3779b97f4a7c15 % 2**64).to_bytes(8, 'little') * 512
print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), size, flush=True)
time.sleep(1)
for at in range(0, size, 16384):
    memory[at] = memory[at]
os.abort()
";
/// Counts the pages of that memory in a core dump that are right and those that are zeros.
const READ_DUMP: &str = "
import mmap, struct, sys
start, size = int(sys.argv[2]), int(sys.argv[3])
with open(sys.argv[1], 'rb') as file:
    dump = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
place, count = struct.unpack_from('<Q', dump, 32)[0], struct.unpack_from('<H', dump, 56)[0]
right = zeros = 0
for number in range(count):
    kind, _, offset, address, _, length = struct.unpack_from('<IIQQQQ', dump, place + 56 * number)
    if kind != 1:
        continue
    for page in range(max(start, address), min(start + size, address + length), 4096):
        at = offset + page - address
        found = dump[at : at + 4096]
        expected = ((page - start + 1) * 0x9e3779b97f4a7c15 % 2**64).to_bytes(8, 'little') * 512
        if found == expected:
            right += 1
        elif found == bytes(4096):
            zeros += 1
        else:
            sys.exit(f'page {(page - start) // 4096} is neither right nor zeros')
if right + zeros != size // 4096:
    sys.exit(f'only {right + zeros} pages are in the dump')
print('right:', right, 'zeros:', zeros)
";

/// What a victim prints, as numbers. It must succeed natively and under vswap.
fn counts(context: &Context, victim: &str) -> Outcome<(Vec<u64>, Vec<u64>)> {
    let run = |limited| {
        let words = "--megabytes 48 --seconds 4 --grace 60";
        let job = Job::new(need::victims_binary()?)
            .args(words.split(' '))
            .arg(victim)
            .vswap_options(EVICT);
        let launcher = if limited {
            context.limited(LIMIT_BYTES)?
        } else {
            context.native()?
        };
        let ended = launcher.run(&job)?;
        numbers(&ended.stdout)
    };
    let (native, limited) = (run(false)?, run(true)?);
    context.say(format!("natively {native:?}, under vswap {limited:?}"));
    Ok((native, limited))
}

/// All numbers in a file of text.
fn numbers(path: &Path) -> Outcome<Vec<u64>> {
    let text = fs::read_to_string(path).during(|| format!("read {}", path.display()))?;
    let words = text.split(|c: char| !c.is_ascii_digit());
    Ok(words.filter_map(|word| word.parse().ok()).collect())
}

/// `/proc/PID/mem` and ptrace get EIO for pages that are out, and no wrong bytes.
pub fn seen_from_outside(context: &Context) -> Outcome {
    let (native, limited) = counts(context, "peeks")?;
    ensure!(
        matches!(native[..], [(1..), 0]),
        "natively nothing fails: {native:?}"
    );
    ensure!(
        matches!(limited[..], [(1..), (1..)]),
        "no page was out, or all of them: {limited:?}"
    );
    Ok(())
}

/// FUTEX_LOCK_PI and FUTEX_WAKE_OP fail with EFAULT for words that are out. So does FUTEX_UNLOCK_PI for a word that has
/// come back to be read and may not be written yet, which happens with areas.
pub fn futexes_in_swap(context: &Context) -> Outcome {
    let (native, limited) = counts(context, "futexes")?;
    ensure!(native == [0, 0, 0], "natively nothing fails: {native:?}");
    ensure!(
        matches!(limited[..], [(1..), _, (1..)]),
        "no word was out: {limited:?}"
    );
    Ok(())
}

/// Arguments that a program has moved to memory that is out end early in /proc, and are right so far.
pub fn moved_names(context: &Context) -> Outcome {
    let (native, limited) = counts(context, "names")?;
    ensure!(
        matches!(native[..], [(1..), 0]),
        "natively all arguments can be read: {native:?}"
    );
    ensure!(
        matches!(limited[..], [_, (1..)]),
        "no arguments were out: {limited:?}"
    );
    Ok(())
}

/// Readers of a pipe see pages that were given to it as they were then, if the pages went out since.
pub fn given_pages(context: &Context) -> Outcome {
    let (native, limited) = counts(context, "gifts")?;
    ensure!(
        matches!(native[..], [0, (1..)]),
        "natively pages are shared: {native:?}"
    );
    ensure!(
        matches!(limited[..], [(1..), _]),
        "no page went out of a pipe: {limited:?}"
    );
    Ok(())
}

/// A program that moves pages out of its memory with a userfaultfd of its own (UFFDIO_MOVE) finds those that are out
/// missing. With areas it is stopped when it touches a page again of which vswap still has a copy. It never reads
/// anything wrong.
pub fn own_moves(context: &Context) -> Outcome {
    const NOT_POSSIBLE: i32 = 3;
    let source = include_str!("../../inputs/own_moves.c");
    let program = compile(context, GCC, source, "own_moves", &["-O2"])?;
    let job = Job::new(program).arg("4");
    let native = context.native()?.start(&job)?.wait()?;
    if native.status.code() == Some(NOT_POSSIBLE) {
        return Err(Failure::Skip(
            "the kernel has no UFFDIO_MOVE (Linux 6.8)".to_owned(),
        ));
    }
    native.must_succeed()?;
    let natively = numbers(&native.stdout)?;
    ensure!(
        matches!(natively[..], [(1..), 0, 0]),
        "natively no page is missing: {natively:?}"
    );
    let launcher = context.limited(LIMIT_BYTES)?;
    let ended = launcher.run(&job.clone().vswap_options(EVICT))?;
    let limited = numbers(&ended.stdout)?;
    context.say(format!("natively {natively:?}, under vswap {limited:?}"));
    ensure!(
        matches!(limited[..], [(1..), (1..), 0]),
        "no page was out, or all of them: {limited:?}"
    );
    let area = context.place().join("area");
    fs::create_dir(&area).during(|| format!("make {}", area.display()))?;
    let options = ["--debug-evict-every", "5ms", "--pool", "4M", "--swap"];
    let kept = job.vswap_options(options).vswap_options([area]);
    let ended = launcher.start(&kept)?.wait()?;
    let printed = fs::read_to_string(&ended.stdout).unwrap_or_default();
    let said = fs::read_to_string(&ended.stderr).unwrap_or_default();
    ensure!(!printed.contains("WRONG"), "{printed}");
    if ended.status.success() {
        return Ok(());
    }
    ended.must_be_ended_by(rustix::process::Signal::KILL)?;
    ensure!(
        said.contains("it has gone from memory without an event"),
        "it was stopped for another reason: {said}"
    );
    Ok(())
}

/// Pages that are out are zeros in a core dump, and all others are right.
pub fn core_dump(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with("core") {
        return Err(Failure::Skip(format!(
            "core dumps go elsewhere: kernel.core_pattern is {}",
            pattern.trim()
        )));
    }
    let zeros = |limited| {
        let launcher = if limited {
            context.limited(LIMIT_BYTES)?
        } else {
            context.native()?
        };
        let dumped = Job::new(&python).args(["-c", DUMPED]).vswap_options(EVICT);
        let ended = launcher.start(&dumped)?.wait()?;
        ended.must_be_ended_by(rustix::process::Signal::ABORT)?;
        ended.must_leave_nothing()?;
        let Ok([start, size]) = <[u64; 2]>::try_from(numbers(&ended.stdout)?) else {
            return Err(Failure::wrong(
                "the program did not say where its memory was",
            ));
        };
        let core = fs::read_dir(launcher.place())
            .during(|| "list the test's directory".to_owned())?
            .filter_map(Result::ok)
            .find(|entry| entry.file_name().to_string_lossy().starts_with("core"));
        let Some(core) = core else {
            return Err(Failure::Skip(
                "the kernel writes no core dump here".to_owned(),
            ));
        };
        let reader = Job::new(&python)
            .args(["-c", READ_DUMP])
            .arg(core.path())
            .args([start.to_string(), size.to_string()]);
        let read = context.native()?.run(&reader)?;
        let found = numbers(&read.stdout)?;
        context.say(format!("right and zeros: {found:?}"));
        Ok(found.last().copied().unwrap_or(0))
    };
    ensure!(zeros(false)? == 0, "the native dump has zeros");
    ensure!(zeros(true)? > 0, "no page was out");
    Ok(())
}
