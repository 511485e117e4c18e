//! A plain user without any capability, who may open /dev/userfaultfd. The kernel tells vswap of no forks then.
//! `postgres` always runs so.

use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

use crate::{attached, cpython, make, redis, rings};

const LIMIT_BYTES: u64 = 64 * MIB;
/// Forks with most of its memory out. `filter` installs a seccomp filter before, which allows everything.
const FORKS: &str = "
import ctypes, os, struct, sys
size = 96 << 20
word = lambda at: (at * 0x9e3779b97f4a7c15 % 2**64).to_bytes(8, 'little')
memory = bytearray(size)
for at in range(0, size, 4096):
    memory[at : at + 8] = word(at)
right = lambda: all(memory[at : at + 4096] == word(at) + bytes(4088) for at in range(0, size, 4096))
if sys.argv[1] == 'filter':
    libc = ctypes.CDLL(None)
    code = ctypes.create_string_buffer(struct.pack('HBBI', 0x06, 0, 0, 0x7fff0000))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(program), 0, 0) == 0
try:
    child = os.fork()
    if not child:
        os._exit(0 if right() else 1)
    print('child', os.waitpid(child, 0)[1])
except OSError as error:
    print('refused', error.errno)
print('right', right())
";

/// A test as a plain user.
fn as_plain_user(context: &Context, test: fn(&Context) -> Outcome) -> Outcome {
    context.be_a_plain_user()?;
    test(context)
}

pub fn redis(context: &Context) -> Outcome {
    as_plain_user(context, redis::fork_while_swapped)
}

pub fn python(context: &Context) -> Outcome {
    as_plain_user(context, cpython::multiprocessing)?;
    as_plain_user(context, cpython::kin_read_what_they_share)
}

pub fn make(context: &Context) -> Outcome {
    as_plain_user(context, make::test)
}

pub fn static_forks(context: &Context) -> Outcome {
    as_plain_user(context, attached::forks)
}

pub fn rings(context: &Context) -> Outcome {
    as_plain_user(context, rings::test)
}

/// What cannot be followed: a fork that a debugger traces fails, and a process with a filter of its own is let go of.
pub fn not_followed(context: &Context) -> Outcome {
    context.be_a_plain_user()?;
    let python = require_program("python3", "apt package python3")?;
    let strace = require_program("strace", "apt package strace")?;
    let forks = |kind: &str| Job::new(&python).args(["-c", FORKS, kind]);
    let traced = Job::new(strace).args(["-f", "-o", "/dev/null"]);
    // EAGAIN.
    forks_say(
        context,
        &traced.append(&forks("traced")),
        "refused 11\nright True\n",
        "traced by another",
    )?;
    forks_say(
        context,
        &forks("filter"),
        "child 0\nright True\n",
        "a seccomp filter of its own",
    )
}

/// Forbids to look into it when half of its memory is filled. Then it forks.
const UNDUMPABLE: &str = "
import ctypes, os
size = 96 << 20
word = lambda at: (at * 0x9e3779b97f4a7c15 % 2**64).to_bytes(8, 'little')
memory = bytearray(size)
def fill(pages):
    for at in pages:
        memory[at : at + 8] = word(at)
right = lambda: all(memory[at : at + 4096] == word(at) + bytes(4088) for at in range(0, size, 4096))
fill(range(0, size // 2, 4096))
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
fill(range(size // 2, size, 4096))
print('right', right(), right(), flush=True)
child = os.fork()
if not child:
    os._exit(0 if right() else 1)
print('child', os.waitpid(child, 0)[1])
print('right', right())
";

/// Pages of a process that may not be traced any more leave and come back. Its child could get no agent, so it is let
/// go of when it forks.
pub fn not_dumpable(context: &Context) -> Outcome {
    context.be_a_plain_user()?;
    let python = require_program("python3", "apt package python3")?;
    forks_say(
        context,
        &Job::new(python).args(["-c", UNDUMPABLE]),
        "right True True\nchild 0\nright True\n",
        "PR_SET_DUMPABLE",
    )
}

/// The program prints this, and vswap says why.
fn forks_say(context: &Context, job: &Job, prints: &str, why: &str) -> Outcome {
    let area = format!("{}:1G", context.place().display());
    let job = job.clone().vswap_options(["--swap", &area]);
    let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
    ended.must_succeed()?;
    let read = |path| fs::read_to_string(path).during(|| "read what was said".to_owned());
    let (printed, said) = (read(&ended.stdout)?, read(&ended.stderr)?);
    ensure!(
        printed == prints,
        "it prints {printed:?}, not {prints:?}: {said}"
    );
    ensure!(said.contains(why), "vswap does not say {why:?}: {said}");
    Ok(())
}
