//! A program that installs a seccomp filter before it uses memory is kept within its limit like any other.

use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 96 * MIB;
/// The filter kills for userfaultfd, socket and connect, and allows everything else.
const SCRIPT: &str = "
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
rules = [(0x20, 0, 0, 0)]
for number in (323, 41, 42):
    rules += [(0x15, 0, 1, number), (0x06, 0, 0, 0x80000000)]
rules += [(0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(rules), ctypes.addressof(code)))
word = ctypes.c_ulong
assert libc.prctl(38, word(1), word(0), word(0), word(0)) == 0
assert libc.prctl(22, word(2), ctypes.byref(program), word(0), word(0)) == 0, ctypes.get_errno()
size = 208 << 20
memory = bytearray(size)
for at in range(0, size, 4096):
    memory[at : at + 8] = (at * 0x9e3779b97f4a7c15 % 2**64).to_bytes(8, 'little')
for lap in range(2):
    for at in range(0, size, 4096):
        right = (at * 0x9e3779b97f4a7c15 % 2**64).to_bytes(8, 'little') + bytes(4088)
        assert memory[at : at + 4096] == right, at
print('right')
";

pub fn test(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let job = Job::new(python).args(["-c", SCRIPT]);
    let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
    ended.must_succeed()?;
    ended.must_hold_limit()?;
    let out = ended.figure("pages_out")?;
    ensure!(out > 0, "nothing was swapped");
    Ok(())
}
