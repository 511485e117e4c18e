//! A program gives up root while its memory is in swap, as daemons do, and then forks. It does so also after it has
//! left vswap's family of processes.

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Outcome, ensure, require_program, require_root};

const SCRIPT: &str = "
import os, sys, time
size = 40 << 20
seeded = lambda at: (at * 0x9e3779b97f4a7c15 % 2**64).to_bytes(8, 'little') + bytes(4088)
memory = bytearray(size)
for at in range(0, size, 4096):
    memory[at : at + 8] = seeded(at)[:8]
right = lambda: all(memory[at : at + 4096] == seeded(at) for at in range(0, size, 4096))
log = open(sys.argv[2], 'w')
if sys.argv[1] == 'daemon' and os.fork():
    os._exit(0)
if sys.argv[1] == 'daemon':
    os.setsid()
    if os.fork():
        os._exit(0)
time.sleep(0.5)
os.setgid(65534)
os.setuid(65534)
ends = []
for round in range(4):
    child = os.fork()
    if not child:
        grandchild = os.fork()
        if not grandchild:
            os._exit(0 if right() else 1)
        os._exit(0 if os.waitpid(grandchild, 0)[1] == 0 and right() else 1)
    ends.append(os.waitpid(child, 0)[1])
log.write(f'{ends} {right()}')
log.close()
";

pub fn test(context: &Context) -> Outcome {
    require_root("to give it up")?;
    let python = require_program("python3", "apt package python3")?;
    let python = python.display().to_string();
    for kind in ["child", "daemon"] {
        let log = context.place().join(kind);
        let path = log.display().to_string();
        let options = [
            "run",
            "--quiet",
            "--ram",
            "1G",
            "--debug-evict-every",
            "5ms",
        ];
        let program = ["--", &python, "-c", SCRIPT, kind, &path];
        let output = context.vswap(&[&options[..], &program[..]].concat())?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let ended = std::fs::read_to_string(&log).during(|| format!("read {path}"))?;
        ensure!(
            output.status.success() && ended == "[0, 0, 0, 0] True",
            "{kind}: {}, children ended with {ended:?}: {errors}",
            output.status
        );
    }
    Ok(())
}
