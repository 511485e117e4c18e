//! `vswap mkswap` against util-linux: each reads what the other writes, and nothing that somebody may miss is
//! overwritten.

mod held;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vswap_engine::header::{self, Header, HeaderError, Kind, Medium};

use crate::{Scratch, output, text};

const MIB: u64 = 1 << 20;
const UUID: &str = "3f0a8b62-1f0e-4d4c-9a55-0c6d6f2e7b10";

/// Prints why a test does nothing or not everything. The test then returns.
fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
}

/// A program of the system, also from the administrators' directories. `None`, and a printed reason, if it is missing.
fn tool(name: &str) -> Option<Command> {
    let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        let wanted = std::env::var_os("VSWAP_E2E_NO_SKIP").is_some_and(|value| value == "1");
        assert!(!wanted, "{name} is not installed");
        skip(&format!("{name} is not installed"));
    }
    found.map(Command::new)
}

/// Runs a tool, which must succeed, and returns its standard output.
fn told(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {output:?}");
    text(&output.stdout)
}

fn mkswap(scratch: &Scratch, path: &Path, options: &[&str]) -> Output {
    let mut command = scratch.vswap();
    output(command.arg("mkswap").arg(path).args(options))
}

/// Makes an area, which must succeed, and returns what was printed on standard output and standard error.
fn made(scratch: &Scratch, path: &Path, options: &[&str]) -> (String, String) {
    let output = mkswap(scratch, path, options);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{options:?}: {out}{err}");
    assert_eq!(out.lines().count(), 1, "{out}");
    (out, err)
}

/// Checks that the call is refused with these words.
fn refused(scratch: &Scratch, path: &Path, options: &[&str], expected: &str) {
    let output = mkswap(scratch, path, options);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{options:?}: {message}");
    assert_eq!(text(&output.stdout), "");
    assert!(message.contains(expected), "{options:?}: {message}");
    assert!(!message.contains("panicked"), "{message}");
}

/// A file that only its owner may read.
fn file(scratch: &Scratch, name: &str, content: &[u8]) -> PathBuf {
    let path = scratch.path().join(name);
    fs::write(&path, content).expect("file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
    path
}

/// A file of zeros.
fn zeros(scratch: &Scratch, name: &str, bytes: u64) -> PathBuf {
    file(
        scratch,
        name,
        &vec![0; usize::try_from(bytes).expect("size")],
    )
}

/// What `header::decode` makes of a file.
fn decoded(path: &Path) -> Result<Header, HeaderError> {
    let content = fs::read(path).expect("content");
    let medium = Medium {
        kind: Kind::RegularFile,
        bytes: content.len() as u64,
    };
    header::decode(&content[..content.len().min(header::HEAD_BYTES)], medium)
}

#[test]
fn a_new_area_is_read_by_util_linux() {
    let scratch = Scratch::new();
    let path = scratch.path().join("swap");
    let options = ["--size", "1M", "--label", "spare", "--uuid", UUID];
    let (line, remarks) = made(&scratch, &path, &options);
    let expected = "swap area of 255 pages, 1 MiB (1044480 bytes), LABEL=spare, UUID=3f0a8b62-";
    assert!(line.contains(expected), "{line}");
    assert_eq!(remarks, "");
    let metadata = fs::metadata(&path).expect("metadata");
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (MIB, 0o600));
    assert!(metadata.blocks() * 512 >= MIB);
    if let Some(mut blkid) = tool("blkid") {
        let told = told(blkid.args(["--probe", "--output", "export"]).arg(&path));
        for line in [
            "TYPE=swap",
            "VERSION=1",
            "LABEL=spare",
            &format!("UUID={UUID}"),
        ] {
            assert!(told.lines().any(|told| told == line), "{line}: {told}");
        }
    }
    if let Some(mut swaplabel) = tool("swaplabel") {
        let told = told(swaplabel.arg(&path));
        assert!(told.contains("spare") && told.contains(UUID), "{told}");
    }
    if let Some(mut file) = tool("file") {
        let told = told(file.arg("--brief").arg(&path));
        for part in [
            "4k page size, little endian, version 1, size 255 pages",
            "0 bad pages",
            UUID,
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}

#[test]
fn without_options_there_is_no_label_and_a_new_uuid() {
    let scratch = Scratch::new();
    let path = zeros(&scratch, "swap", MIB);
    let (line, remarks) = made(&scratch, &path, &[]);
    let (_, uuid) = line.trim().split_once(", no label, UUID=").expect("both");
    assert_eq!(remarks, "");
    let header = decoded(&path).expect("an area");
    assert_eq!(
        (header.pages, header.usable_pages, header.label),
        (256, 255, None)
    );
    if let Some(mut blkid) = tool("blkid") {
        let told = told(blkid.args(["--probe", "--output", "export"]).arg(&path));
        assert!(told.contains(&format!("UUID={uuid}")), "{told}");
        assert!(!told.contains("LABEL="), "{told}");
    }
    // Made again: the UUID is new, and the user is told that the old area is gone.
    let (line, remarks) = made(&scratch, &path, &[]);
    assert!(!line.contains(uuid), "{line}");
    assert!(
        remarks.contains(&format!("replaces a swap area (no label, UUID={uuid})")),
        "{remarks}"
    );
}

#[test]
fn what_util_linux_makes_is_decoded() {
    let scratch = Scratch::new();
    let Some(mut theirs) = tool("mkswap") else {
        return;
    };
    let path = zeros(&scratch, "labelled", MIB + 100);
    told(
        theirs
            .args(["-L", "fifteen bytes!!", "-U", UUID])
            .arg(&path),
    );
    let header = decoded(&path).expect("an area");
    assert_eq!(
        (header.pages, header.usable_pages, header.foreign_endian),
        (256, 255, false)
    );
    assert_eq!(
        header.label.map(|label| label.to_string()).as_deref(),
        Some("fifteen bytes!!")
    );
    assert_eq!(header.uuid[..4], [0x3f, 0x0a, 0x8b, 0x62]);

    let path = zeros(&scratch, "plain", 40_960);
    told(tool("mkswap").expect("found before").arg(&path));
    let header = decoded(&path).expect("an area");
    assert_eq!((header.pages, header.label), (10, None));

    let path = zeros(&scratch, "larger", MIB);
    told(
        tool("mkswap")
            .expect("found before")
            .args(["-p", "16384"])
            .arg(&path),
    );
    assert_eq!(
        decoded(&path),
        Err(HeaderError::OtherPageSize { page_bytes: 16384 })
    );
}

#[test]
fn both_byte_orders_of_util_linux_are_decoded() {
    let scratch = Scratch::new();
    let Some(mut theirs) = tool("mkswap") else {
        return;
    };
    if !told(theirs.arg("--help")).contains("--endianness") {
        return skip("this mkswap knows no --endianness");
    }
    for (order, foreign) in [("little", false), ("big", true)] {
        let path = zeros(&scratch, order, MIB);
        let mut theirs = tool("mkswap").expect("found before");
        told(theirs.args(["--endianness", order, "-L", order]).arg(&path));
        let header = decoded(&path).expect("an area");
        assert_eq!((header.pages, header.foreign_endian), (256, foreign));
        assert_eq!(
            header.label.map(|label| label.to_string()).as_deref(),
            Some(order)
        );
    }
}

#[test]
fn util_linux_reads_the_other_byte_order_as_we_do() {
    let scratch = Scratch::new();
    let path = zeros(&scratch, "swap", MIB);
    made(&scratch, &path, &["--label", "turned", "--uuid", UUID]);
    let mut content = fs::read(&path).expect("content");
    // Version and last page.
    for at in [1024, 1028] {
        content[at..at + 4].reverse();
    }
    fs::write(&path, &content).expect("written");
    let header = decoded(&path).expect("an area");
    assert_eq!((header.pages, header.foreign_endian), (256, true));
    if let Some(mut blkid) = tool("blkid") {
        let told = told(blkid.args(["--probe", "--output", "export"]).arg(&path));
        assert!(
            told.contains("LABEL=turned") && told.contains(UUID),
            "{told}"
        );
    }
    if let Some(mut file) = tool("file") {
        let told = told(file.arg("--brief").arg(&path));
        assert!(
            told.contains("big endian, version 1, size 255 pages"),
            "{told}"
        );
    }
}

#[test]
fn data_is_refused_and_unchanged_unless_forced() {
    let scratch = Scratch::new();
    let mut content = vec![0; 2 << 20];
    let last = content.len() - 1;
    for (name, at) in [("start", 0), ("first MiB", (1 << 20) - 1), ("end", last)] {
        content.fill(0);
        content[at] = 9;
        let path = file(&scratch, name, &content);
        refused(&scratch, &path, &[], "it holds data");
        refused(&scratch, &path, &["--size", "3M"], "give --force");
        assert_eq!(fs::read(&path).expect("content"), content);
        made(&scratch, &path, &["--force"]);
        let now = fs::read(&path).expect("content");
        assert_eq!(now[4096..], content[4096..], "{name}");
        assert!(now[..1024].iter().all(|byte| *byte == 0));
        assert!(decoded(&path).is_ok());
    }
}

#[test]
fn a_hibernated_system_and_a_boot_loader_are_not_overwritten() {
    let scratch = Scratch::new();
    let path = zeros(&scratch, "swap", MIB);
    made(&scratch, &path, &[]);
    let mut content = fs::read(&path).expect("content");
    content[510] = 0x55;
    fs::write(&path, &content).expect("written");
    refused(
        &scratch,
        &path,
        &[],
        "a boot loader perhaps, and that would be lost",
    );
    content[510] = 0;
    content[4086..4096].copy_from_slice(b"S1SUSPEND\0");
    fs::write(&path, &content).expect("written");
    refused(&scratch, &path, &[], "a hibernated system lies in it");
    assert_eq!(fs::read(&path).expect("content"), content);
    made(&scratch, &path, &["--force"]);
}

#[test]
fn files_grow_and_never_shrink() {
    let scratch = Scratch::new();
    let path = scratch.path().join("swap");
    made(&scratch, &path, &["--size", "1M"]);
    let (line, _) = made(&scratch, &path, &["--size", "2M", "--label", "grown"]);
    assert!(line.contains("511 pages"), "{line}");
    let metadata = fs::metadata(&path).expect("metadata");
    assert_eq!(metadata.len(), 2 * MIB);
    assert!(metadata.blocks() * 512 >= 2 * MIB);
    let before = fs::read(&path).expect("content");
    refused(&scratch, &path, &["--size", "1M"], "is not made shorter");
    refused(
        &scratch,
        &path,
        &["--force", "--size", "1M"],
        "is not made shorter",
    );
    assert_eq!(fs::read(&path).expect("content"), before);
}

#[test]
fn links_are_followed() {
    let scratch = Scratch::new();
    let path = zeros(&scratch, "swap", MIB);
    let link = scratch.path().join("link");
    symlink("swap", &link).expect("link");
    made(&scratch, &link, &["--label", "behind"]);
    assert!(fs::symlink_metadata(&link).expect("metadata").is_symlink());
    assert!(decoded(&path).is_ok());
    let nowhere = scratch.path().join("nowhere");
    symlink("missing", &nowhere).expect("link");
    refused(&scratch, &nowhere, &[], "there is no such file");
    refused(
        &scratch,
        &nowhere,
        &["--size", "1M"],
        "a symbolic link to nothing",
    );
}

#[test]
fn what_is_no_place_for_an_area_is_refused() {
    let scratch = Scratch::new();
    refused(
        &scratch,
        scratch.path(),
        &["--size", "1M"],
        "it is a directory",
    );
    refused(
        &scratch,
        Path::new("/dev/zero"),
        &["--force"],
        "it is a character device",
    );
    refused(
        &scratch,
        &scratch.path().join("none"),
        &[],
        "a new file needs a size, such as --size 2G",
    );
    refused(
        &scratch,
        &scratch.path().join("no/ne"),
        &["--size", "1M"],
        "it cannot be made",
    );
    let small = zeros(&scratch, "small", 40_959);
    refused(&scratch, &small, &[], "40959 bytes are too few");
    assert_eq!(fs::read(&small).expect("content"), [0; 40_959]);
    made(&scratch, &small, &["--size", "40K"]);
    assert_eq!(scratch.names(), ["small"]);
}

#[test]
fn wrong_options_are_explained_and_make_nothing() {
    let scratch = Scratch::new();
    let path = scratch.path().join("swap");
    for (options, expected) in [
        (&["--size", "8K"][..], "at least 40 KiB (10 pages)"),
        (&["--size", "16T"], "a swap area can have"),
        (&["--size", "50%"], "is no unit of size"),
        (
            &["--size", "1M", "--label", "sixteen bytes!!!"],
            "16 bytes is too long",
        ),
        (
            &["--size", "1M", "--uuid", "spare"],
            "expected a UUID, for example",
        ),
    ] {
        refused(&scratch, &path, options, expected);
    }
    assert!(scratch.names().is_empty());
}

#[test]
fn a_file_that_may_only_be_read_is_refused() {
    let scratch = Scratch::new();
    let path = zeros(&scratch, "swap", MIB);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("mode");
    let is_root = fs::metadata(scratch.path()).expect("metadata").uid() == 0;
    let vswap = env!("CARGO_BIN_EXE_vswap");
    // Root may write it anyway, and nobody may not.
    let mut command = if is_root {
        let Some(mut command) = tool("setpriv") else {
            return;
        };
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", vswap]);
        command
    } else {
        Command::new(vswap)
    };
    let output = output(
        command
            .args(["mkswap", "--force"])
            .arg(&path)
            .current_dir("/"),
    );
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert!(
        message.contains("cannot be opened for reading and writing: Permission"),
        "{message}"
    );
    assert!(
        fs::read(&path)
            .expect("content")
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn holes_and_other_readers_are_remarked_on() {
    let scratch = Scratch::new();
    let path = scratch.path().join("swap");
    File::create(&path)
        .expect("file")
        .set_len(MIB)
        .expect("length");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
    let (_, remarks) = made(&scratch, &path, &[]);
    assert!(
        remarks.contains("has holes") && remarks.contains("--size 1048576"),
        "{remarks}"
    );
    assert!(
        remarks.contains("(mode 0644)") && remarks.contains("chmod 600"),
        "{remarks}"
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
    let (_, remarks) = made(&scratch, &path, &["--size", "1048576"]);
    assert!(
        !remarks.contains("has holes") && !remarks.contains("chmod"),
        "{remarks}"
    );
}
