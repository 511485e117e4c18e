//! Tests of command inspection: real programs, scripts, hostile headers.

use super::*;
use proptest::prelude::*;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("vswap-elf-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn header(class: u8, data: u8, machine: u16) -> Vec<u8> {
    let mut bytes = vec![0u8; 64];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, data, 1]);
    bytes[16] = 2;
    let machine = if data == 1 {
        machine.to_le_bytes()
    } else {
        machine.to_be_bytes()
    };
    bytes[18..20].copy_from_slice(&machine);
    bytes[20] = 1;
    bytes[52] = 64;
    bytes[54] = 56;
    bytes
}

#[test]
fn this_test_is_a_dynamic_program() {
    let own = std::env::current_exe().unwrap();
    let program = inspect(own.as_os_str(), None).unwrap();
    let folder = if cfg!(target_arch = "x86_64") {
        "/lib64"
    } else {
        "/lib"
    };
    assert!(matches!(&program.kind, Kind::Dynamic { loader } if loader.starts_with(folder)));
    assert!(program.takes_preload() && program.scripts.is_empty());
    assert!(is_musl(Path::new("/lib/ld-musl-x86_64.so.1")));
}

#[test]
fn scripts_are_followed_also_through_env() {
    let directory = Directory::new("scripts");
    let own = std::env::current_exe().unwrap();
    let target = directory.0.join("target");
    std::os::unix::fs::symlink(&own, &target).unwrap();
    let inner = directory.file(
        "inner",
        format!("#! {} -x\n", target.display()).as_bytes(),
        0o755,
    );
    let outer = directory.file("outer", b"#!/usr/bin/env -S A=1 inner -u\nbody", 0o755);
    let path = directory.0.as_os_str();
    let program = inspect(OsStr::new("outer"), Some(path)).unwrap();
    assert_eq!(
        (&program.path, &program.scripts),
        (&target, &vec![outer, inner])
    );
    assert!(program.takes_preload());
    let looped = directory.0.join("loop");
    let text = format!("#!{}\n", looped.display());
    directory.file("loop", text.as_bytes(), 0o755);
    let error = inspect(looped.as_os_str(), None).unwrap_err();
    assert!(matches!(error, ElfError::TooManyScripts { .. }));
}

#[test]
fn what_cannot_run_is_told_apart() {
    let directory = Directory::new("files");
    let inspect_file = |path: &Path| inspect(path.as_os_str(), None);
    let plain = directory.file("plain", b"text", 0o644);
    assert!(matches!(
        inspect_file(&plain),
        Err(ElfError::NotExecutable { .. })
    ));
    assert!(matches!(
        inspect_file(&directory.0),
        Err(ElfError::NotExecutable { .. })
    ));
    let path = Some(directory.0.as_os_str());
    for missing in ["plain", "none", "", "/none/at/all"] {
        assert!(matches!(
            inspect(OsStr::new(missing), path),
            Err(ElfError::NotFound { .. })
        ));
    }
    let text = directory.file("text", b"echo hello", 0o755);
    assert_eq!(inspect_file(&text).unwrap().kind, Kind::Unknown);
    let stat = directory.file("static", &header(2, 1, ELF_MACHINE), 0o755);
    assert_eq!(inspect_file(&stat).unwrap().kind, Kind::Static);
    // Both of those that vswap is for, and RISC-V.
    for machine in [62, 183, 243] {
        let file = directory.file(&machine.to_string(), &header(2, 1, machine), 0o755);
        let expected = if machine == ELF_MACHINE {
            Kind::Static
        } else {
            Kind::OtherMachine { machine, bits: 64 }
        };
        assert_eq!(inspect_file(&file).unwrap().kind, expected);
    }
    let i386 = directory.file("i386", &header(1, 1, 3), 0o755);
    assert_eq!(
        inspect_file(&i386).unwrap().kind,
        Kind::OtherMachine {
            machine: 3,
            bits: 32
        }
    );
    let x32 = directory.file("x32", &header(1, 1, 62), 0o755);
    assert_eq!(
        inspect_file(&x32).unwrap().kind,
        Kind::OtherMachine {
            machine: 62,
            bits: 32
        }
    );
    assert!(!inspect_file(&stat).unwrap().takes_preload());
}

#[test]
fn rights_that_are_gained_are_seen() {
    let directory = Directory::new("rights");
    let path = directory.file("program", &header(2, 1, ELF_MACHINE), 0o4755);
    assert_eq!(
        inspect(path.as_os_str(), None).unwrap().elevation,
        None,
        "own file"
    );
    if rustix::process::geteuid().as_raw() != 0 {
        return eprintln!("SKIPPED: only root can make another user's set-user-id file");
    }
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    for (mode, expected) in [
        (0o4755, Some(Elevation::SetUid)),
        (0o2755, Some(Elevation::SetGid)),
        (0o2745, None),
        (0o755, None),
    ] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(
            inspect(path.as_os_str(), None).unwrap().elevation,
            expected,
            "{mode:o}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = interpreter(&bytes);
        let _ = kind_of(&bytes[..]);
    }

    #[test]
    fn no_hostile_header_panics(
        places in proptest::collection::vec((16usize..64, any::<u8>()), 0..12),
        tail in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = header(2, 1, ELF_MACHINE);
        for (place, value) in places {
            bytes[place] = value;
        }
        bytes.extend(tail);
        let _ = kind_of(&bytes[..]);
    }

    #[test]
    fn no_first_line_panics(line in "#![ \ta-z/=-]{0,30}(env)?[ \ta-z=-]{0,20}\n?") {
        let _ = interpreter(line.as_bytes());
    }
}
