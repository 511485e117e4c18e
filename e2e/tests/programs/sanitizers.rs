//! Programs built with gcc's sanitizers. AddressSanitizer wants to be the first library, and at the end stops all
//! threads to look for leaks. ThreadSanitizer is the other.

use std::fs;
use std::path::{Path, PathBuf};

use vswap_e2e::compile::{GCC, compile};
use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure};

/// A third of what the program fills.
const LIMIT_BYTES: u64 = 63 * MIB;
/// ThreadSanitizer itself keeps more memory than the program.
const TSAN_LIMIT_BYTES: u64 = 160 * MIB;

/// Fills 192 MiB with seeded words that compress three times, and reads them back twice beside a thread. Then it frees
/// all blocks but one, which stays in use.
const SOURCE: &str = r#"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
enum { BLOCKS = 192, WORDS = (1 << 20) / 8 };
static uint64_t *blocks[BLOCKS];
static uint64_t word(uint64_t at) {
    at = (at + 1) * 0x9e3779b97f4a7c15u;
    at = (at ^ at >> 30) * 0xbf58476d1ce4e5b9u;
    return at >> 55;
}
static void *check(void *from) {
    uintptr_t wrong = 0;
    for (uint64_t block = (uintptr_t)from; block < BLOCKS; block += 2)
        for (uint64_t i = 0; i < WORDS; i++) wrong += blocks[block][i] != word(block * WORDS + i);
    return (void *)wrong;
}
int main(void) {
    for (uint64_t block = 0; block < BLOCKS; block++) {
        blocks[block] = malloc(WORDS * 8);
        for (uint64_t i = 0; i < WORDS; i++) blocks[block][i] = word(block * WORDS + i);
    }
    uintptr_t wrong = 0;
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, check, (void *)1);
        wrong += (uintptr_t)check((void *)0);
        pthread_join(thread, &result);
        wrong += (uintptr_t)result;
    }
    printf("%lu wrong\n", (unsigned long)wrong);
    return wrong != 0;
}
"#;

pub fn gcc_address_sanitizer(context: &Context) -> Outcome {
    let program = build(context, "address")?;
    test(context, &program, LIMIT_BYTES)?;
    // At its end it looks for leaks from a process that shares its memory. A sampler would count that memory again.
    let limit = LIMIT_BYTES.to_string();
    let path = program.to_string_lossy();
    let options = [
        "run", "--ram", &limit, "--codec", "zstd", "--quiet", "--", &path,
    ];
    let output = context.vswap(&options)?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && said == "0 wrong\n",
        "with a search for leaks: {}, {said}",
        output.status
    );
    Ok(())
}

pub fn thread(context: &Context) -> Outcome {
    let program = build(context, "thread")?;
    test(context, &program, TSAN_LIMIT_BYTES)
}

fn build(context: &Context, sanitizer: &str) -> Outcome<PathBuf> {
    let options = ["-O1", "-g", &format!("-fsanitize={sanitizer}")];
    compile(context, GCC, SOURCE, "sanitized", &options)
}

fn test(context: &Context, program: &Path, limit_bytes: u64) -> Outcome {
    context.compare(limit_bytes, |launcher| {
        let job = Job::new(program).env("ASAN_OPTIONS", "detect_leaks=0");
        let ended = launcher.run(&job.vswap_options(["--codec", "zstd"]))?;
        let said = fs::read_to_string(&ended.stdout).during(|| "read its output".to_owned())?;
        ensure!(said == "0 wrong\n", "the program says {said}");
        Ok(said)
    })
}
