//! Programs of 32 bits are not swapped, and run as they do natively, also behind the filter of the program that starts
//! them: it refuses some of their calls to programs of 64 bits alone (victim `compat`).

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 64 * MIB;
/// Fills three times the limit, and starts the program again and again. Prints how many filters the started ones have.
const STARTER: &str = "
import subprocess, sys
memory = bytearray(200 << 20)
for at in range(0, len(memory), 4096):
    memory[at] = at // 4096 % 251
for turn in range(8):
    status = subprocess.run([sys.argv[1]]).returncode
    if status != 7:
        sys.exit(f'the program of 32 bits ended with {status}')
    if any(memory[at] != at // 4096 % 251 for at in range(0, len(memory), 4096)):
        sys.exit('memory is wrong')
print(subprocess.run(['grep', '-c', '^Seccomp:.2', '/proc/self/status'], capture_output=True, text=True).stdout)
";

pub fn test(context: &Context) -> Outcome {
    let python = require_program("python3", "apt package python3")?;
    let source = include_str!("../../inputs/of_32_bits.c");
    let options = "-m32 -O1 -nostdlib -static -ffreestanding -fno-pic -fno-stack-protector";
    let options: Vec<&str> = options.split(' ').collect();
    let program = compile(context, GCC, source, "of_32_bits", &options)?;
    let job = Job::new(python).args(["-c", STARTER]).arg(&program);
    // A child of vfork has its parent's memory until it runs the program, so the sum of both is not checked.
    let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    ensure!(ended.figure("pages_out")? > 0, "nothing was swapped");
    let printed = std::fs::read_to_string(&ended.stdout).unwrap_or_default();
    ensure!(
        printed.trim() == "1",
        "the filter was not there: {printed:?}"
    );
    Ok(())
}
