//! Programs in C against the header and both libraries, as `make install` lays them out. They verify every byte
//! themselves, and say where they fail.
//!
//! The library is built by cargo once more, from here: nothing of it can be linked with a test in Rust.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Longer than anything takes under a sanitizer on a loaded machine.
const PATIENCE_SECONDS: &str = "900";
/// What the programs are compiled with.
const FLAGS: [&str; 6] = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{}\n{out}{err}", output.status)
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The prefix that the library is installed below, once for all tests.
fn prefix() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let prefix = own.join("capi");
        let target = own.parent().expect("a target directory");
        // Flags of an outer make are not for this one.
        run(Command::new("make")
            .args([
                "--silent",
                "-C",
                env!("CARGO_MANIFEST_DIR"),
                "install",
                "PROFILE=dev",
            ])
            .arg(format!("CARGO={}", env!("CARGO")))
            .arg(format!("PREFIX={}", prefix.display()))
            .env("CARGO_TARGET_DIR", target)
            .env_remove("MAKEFLAGS"));
        prefix
    })
}

/// A variable of the installed description for pkg-config.
fn described(name: &str) -> Vec<String> {
    let path = prefix().join("lib/pkgconfig/vswap.pc");
    let text = std::fs::read_to_string(path).expect("it is installed");
    let value = |name: &str, sign: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}{sign}")));
        line.unwrap_or_else(|| panic!("no {name}"))
            .trim()
            .to_owned()
    };
    let prefix = value("prefix", "=");
    let expand = |text: String| text.replace("${prefix}", &prefix);
    let (include, lib) = (
        expand(value("includedir", "=")),
        expand(value("libdir", "=")),
    );
    value(name, ":")
        .replace("${includedir}", &include)
        .replace("${libdir}", &lib)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linked {
    Static,
    Shared,
}

/// Compiles a program. Returns where it is.
#[track_caller]
fn compile(file: &Path, linked: Linked, more: &[&str]) -> PathBuf {
    let name = file
        .file_stem()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let kind: String = more
        .iter()
        .flat_map(|flag| flag.chars())
        .filter(char::is_ascii_alphabetic)
        .collect();
    let to = prefix().join(format!("{name}-{linked:?}-{kind}"));
    let mut cc = Command::new("cc");
    cc.args(FLAGS)
        .args(more)
        .arg("-pthread")
        .args(described("Cflags"));
    cc.arg("-o").arg(&to).arg(file);
    match linked {
        Linked::Static => {
            cc.arg(prefix().join("lib/libvswap.a"));
            cc.args(described("Libs.private"));
        }
        Linked::Shared => {
            cc.args(described("Libs"));
            cc.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
        }
    }
    run(&mut cc);
    to
}

/// Does the kernel place memory where the TSan of older compilers does not look for it?
fn randomizes_much() -> bool {
    let bits = std::fs::read_to_string("/proc/sys/vm/mmap_rnd_bits");
    bits.is_ok_and(|bits| bits.trim().parse::<u32>().is_ok_and(|bits| bits > 28))
}

/// Runs a program with the time that it has, and its swap area in a directory of its own.
fn start(program: &Path, arguments: &[&str]) -> Output {
    let place = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS);
    if randomizes_much() {
        command.args(["setarch", "--addr-no-randomize"]);
    }
    command
        .arg(program)
        .args(arguments)
        .current_dir(place.path());
    command.env("TMPDIR", place.path());
    // What docs/library.md says of TSan.
    command.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1");
    command.output().expect("it starts")
}

#[track_caller]
fn passes(name: &str, linked: Linked, more: &[&str]) {
    let program = compile(&source(&format!("tests/c/{name}.c")), linked, more);
    let output = start(&program, &[]);
    let said = said(&output);
    assert!(
        output.status.success() && said.contains("all "),
        "{name}: {said}"
    );
}

#[test]
fn memory_four_times_the_ram_is_as_it_was_written() {
    passes("memory", Linked::Shared, &[]);
    passes("memory", Linked::Static, &["-O2"]);
}

#[test]
fn calls_of_the_system_take_memory_that_is_out() {
    passes("calls", Linked::Shared, &[]);
    passes("calls", Linked::Static, &["-O2"]);
}

#[test]
fn groups_have_so_much_of_each_tier() {
    passes("groups", Linked::Shared, &["-O2"]);
}

#[test]
fn errors_have_codes_and_texts() {
    passes("errors", Linked::Shared, &[]);
    passes("errors", Linked::Static, &[]);
}

#[test]
#[ignore = "takes a minute: `cargo xtask long` runs it"]
fn programs_with_address_sanitizer_work() {
    for name in ["memory", "calls"] {
        passes(name, Linked::Shared, &["-fsanitize=address"]);
        passes(name, Linked::Static, &["-fsanitize=address,undefined"]);
    }
}

#[test]
#[ignore = "takes a minute: `cargo xtask long` runs it"]
fn programs_with_thread_sanitizer_work_with_the_shared_library() {
    for name in ["memory", "calls"] {
        passes(name, Linked::Shared, &["-fsanitize=thread"]);
    }
}

/// The first block of C of a page.
fn block_of(page: &str) -> String {
    let page = std::fs::read_to_string(source(page)).expect("the page");
    let (_, rest) = page.split_once("```c\n").expect("a block of C");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn the_program_of_the_book_works() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("book.c");
    std::fs::write(&file, block_of("../../docs/library.md")).expect("a file");
    for linked in [Linked::Shared, Linked::Static] {
        let output = start(&compile(&file, linked, &[]), &[]);
        assert!(
            output.status.success() && said(&output).contains("16000000\n"),
            "{}",
            said(&output)
        );
    }
}

#[test]
fn the_example_verifies_a_table_of_four_times_its_ram() {
    let output = start(
        &compile(&source("../../examples/c/table.c"), Linked::Static, &[]),
        &[],
    );
    let said = said(&output);
    assert!(
        output.status.success() && said.contains("32000 values are as they were put in"),
        "{said}"
    );
    // Its Makefile links what the description for pkg-config says.
    let makefile =
        std::fs::read_to_string(source("../../examples/c/Makefile")).expect("it is there");
    assert!(makefile.contains(&described("Libs.private").join(" ")));
}

#[test]
fn misuse_of_memory_ends_the_process_with_a_message() {
    let program = compile(&source("tests/c/misuse.c"), Linked::Shared, &[]);
    for (what, words) in [
        (
            "small-twice",
            "vswap_free(0x[..]): no allocation begins at this address",
        ),
        (
            "large-twice",
            "vswap_free(0x[..]): no allocation begins at this address",
        ),
        (
            "inside-small",
            "vswap_free(0x[..]): no allocation begins at this address",
        ),
        (
            "inside-large",
            "vswap_free(0x[..]): no allocation begins at this address",
        ),
        (
            "range",
            "vswap_free(0x[..]): no allocation begins at this address",
        ),
        (
            "foreign",
            "vswap_free(0x[..]): the memory is not the arena's",
        ),
        ("no-arena", "vswap_free(0x[..]): arena is NULL"),
        (
            "realloc-freed",
            "vswap_realloc(0x[..]): no allocation begins at this address",
        ),
        (
            "realloc-foreign",
            "vswap_realloc(0x[..]): the memory is not the arena's",
        ),
    ] {
        let output = start(&program, &[what]);
        let said = said(&output);
        // `timeout` passes the signal on.
        assert!(
            !output.status.success() && !said.contains("went on"),
            "{what}: {said}"
        );
        let has_all = words.split("[..]").all(|piece| said.contains(piece));
        assert!(
            has_all && said.contains("The program is ended here"),
            "{what}: {said}"
        );
    }
}

#[test]
fn the_header_stands_alone_in_c_and_in_cplusplus() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("alone.c");
    let text = "#include <vswap.h>\n#include <vswap.h>\n\
                vswap_options options = VSWAP_OPTIONS_INIT;\n\
                vswap_statistics statistics = VSWAP_STATISTICS_INIT;\n\
                int advice = VSWAP_DROP, codec = VSWAP_ZSTD;\n\
                int code(void);\nint code(void) { return VSWAP_ERROR_FORKED; }\n";
    std::fs::write(&file, text).expect("a file");
    for (compiler, language, standard) in [
        ("cc", "c", "-std=c11"),
        ("cc", "c", "-std=c99"),
        ("c++", "c++", "-std=c++11"),
        ("c++", "c++", "-std=c++20"),
    ] {
        let mut command = Command::new(compiler);
        command.args([
            "-x",
            language,
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ]);
        command
            .args(["-fsyntax-only"])
            .args(described("Cflags"))
            .arg(&file);
        run(&mut command);
    }
}

/// Functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(source("include/vswap.h")).expect("the header");
    let code: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    let code: Vec<&str> = code.lines().filter(|line| !line.starts_with('#')).collect();
    let code = code.join("\n");
    let mut names = BTreeSet::new();
    for statement in code.split(';') {
        let Some((before, _)) = statement.split_once('(') else {
            continue;
        };
        let name = before
            .rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            .next();
        names.extend(
            name.filter(|name| name.starts_with("vswap_"))
                .map(str::to_owned),
        );
    }
    names
}

/// Names that a library defines for others.
fn defined(library: &str, options: &[&str]) -> BTreeSet<String> {
    let listed = run(Command::new("nm")
        .args(options)
        .arg(prefix().join("lib").join(library)));
    let name = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    listed.lines().filter_map(name).collect()
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    let declared = declared();
    assert!(
        declared.len() >= 30 && declared.contains("vswap_create"),
        "{declared:?}"
    );
    assert_eq!(
        defined("libvswap.so", &["--dynamic", "--defined-only"]),
        declared
    );
    let of_archive = defined("libvswap.a", &["--extern-only", "--defined-only"]);
    let ours: BTreeSet<String> = of_archive
        .into_iter()
        .filter(|name| name.starts_with("vswap_"))
        .collect();
    assert_eq!(ours, declared);
}
