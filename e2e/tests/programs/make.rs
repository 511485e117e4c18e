//! `make -j2` with many short processes and a few large ones: every process joins the run and leaves it.

use std::fmt::Write as _;
use std::fs;

use vswap_e2e::failure::During;
use vswap_e2e::records::{checksum, mix};
use vswap_e2e::{Context, Job, Launcher, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 64 * MIB;
/// Targets that run a shell, `tr` and `sed` each: three short processes.
const SHORT_TARGETS: u64 = 120;
/// Targets that compile one file each.
const COMPILED: u64 = 10;
/// Targets that fill and check much memory each, two of them at a time.
const LARGE_TARGETS: u64 = 6;

/// Fills memory page by page and checks it. Its arguments are `size` in MiB and its own number. It pauses in between,
/// so that the two that run together are full at the same time. Each alone needs less than three times the limit.
const LARGE_STEP: &str = "import sys, time
size, seed = int(sys.argv[1]) << 20, int(sys.argv[2])
memory = bytearray(size)
for at in range(0, size, 4096):
    memory[at : at + 8] = (at * 31 + seed).to_bytes(8, 'little')
time.sleep(0.2)
for at in range(0, size, 4096):
    if int.from_bytes(memory[at : at + 8], 'little') != at * 31 + seed or memory[at + 8]:
        sys.exit(f'page {at // 4096} is wrong')
print('large', seed)
";

pub fn test(context: &Context) -> Outcome {
    let make = require_program("make", "apt package make")?;
    require_program("gcc", "apt packages gcc libc6-dev")?;
    require_program("python3", "apt package python3")?;
    context.compare(LIMIT_BYTES, |launcher| {
        write_tree(launcher)?;
        launcher.run(&Job::new(&make).args(["-j2", "-s", "--no-print-directory"]))?;
        let path = launcher.place().join("all.txt");
        let result = fs::read(&path).during(|| format!("read {}", path.display()))?;
        let text = String::from_utf8_lossy(&result);
        let (mut expected, mut sum) = (0, 0u64);
        for number in 0..COMPILED {
            sum = sum.wrapping_add(mix(number) >> 40);
            expected += 1;
        }
        ensure!(
            text.contains(&format!("compiled {expected} {sum}\n")),
            "the program printed {text}"
        );
        let short = text.matches("SHORT").count();
        let large = text.matches("large").count();
        ensure!(
            short as u64 == SHORT_TARGETS,
            "{short} short targets of {SHORT_TARGETS}"
        );
        ensure!(
            large as u64 == LARGE_TARGETS,
            "{large} large targets of {LARGE_TARGETS}"
        );
        Ok(checksum(&result))
    })
}

fn write_tree(launcher: &Launcher) -> Outcome {
    let write = |name: &str, text: &str| {
        let path = launcher.place().join(name);
        fs::write(&path, text).during(|| format!("write {}", path.display()))
    };
    let (mut shorts, mut larges, mut objects) = (String::new(), String::new(), String::new());
    let mut main = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    // Writing to a String never fails.
    for number in 0..SHORT_TARGETS {
        let _always = write!(shorts, " short{number}.txt");
    }
    for number in 0..LARGE_TARGETS {
        let _always = write!(larges, " large{number}.txt");
    }
    for number in 0..COMPILED {
        let _always = write!(objects, " part{number}.o");
        let _always = writeln!(main, "unsigned long long part{number}(void);");
        let _always = writeln!(calls, "  sum += part{number}(); count++;");
        let value = mix(number) >> 40;
        let part = format!("unsigned long long part{number}(void) {{ return {value}ull; }}\n");
        write(&format!("part{number}.c"), &part)?;
    }
    let _always = writeln!(
        main,
        "int main(void) {{ unsigned long long sum = 0; int count = 0;\n{calls}  \
         printf(\"compiled %d %llu\\n\", count, sum); return 0; }}"
    );
    write("main.c", &main)?;
    write("large.py", LARGE_STEP)?;
    write(
        "Makefile",
        &format!(
            "SHORTS ={shorts}\nLARGES ={larges}\nOBJECTS = main.o{objects}\n\
             all.txt: $(LARGES) $(SHORTS) program\n\
             \t(cat $(LARGES) $(SHORTS) && ./program) > $@\n\
             program: $(OBJECTS)\n\tgcc -o $@ $(OBJECTS)\n\
             %.o: %.c\n\tgcc -O1 -c -o $@ $<\n\
             short%.txt:\n\techo short $* | tr a-z A-Z | sed 's/$$/ done/' > $@\n\
             large%.txt:\n\t/usr/bin/python3 large.py 112 $* > $@\n"
        ),
    )
}
