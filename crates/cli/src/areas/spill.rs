//! The spill: where pages go when no area was named and everything else is full.
//!
//! A private file in the first directory that fits. It comes when the pager wishes for it, grows as it is needed,
//! leaves others a reserve of the file system, and is gone with the process. What is chosen is chosen twice: at the
//! start, so that who has no such directory hears of it in time, and again when the file is made.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{StatVfs, statfs, statvfs};
use rustix::process::{Resource, getrlimit};
use vswap_areas::area_file::name;
use vswap_areas::{Medium, SwapOn, TierName};
use vswap_engine::header::PAGES_MAX;
use vswap_engine::{Discard, PRIORITY_DEFAULT};
use vswap_pager::{Store, Wish};
use vswap_sys::disk::{Disk, Options};

use crate::failure::Failure;
use crate::output::figures::{PAGE_BYTES, bytes};
use crate::output::{notice, warning};

/// The variable that names the directory.
const VARIABLE: &str = "VSWAP_SWAP_DIR";
/// Where files go that may be large and outlive a boot, by the standard of file system layouts.
const LAST_RESORT: &str = "/var/tmp";
/// What others find free on the file system in any case: the larger of so many bytes and one part in so many of it.
const RESERVE_BYTES: u64 = 1 << 30;
const RESERVE_PART: u64 = 20;
/// Pause before a directory is looked for again where there was none.
const AGAIN: Duration = Duration::from_secs(1);

/// A directory that a file can grow in.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    directory: PathBuf,
    /// Free room beyond the reserve.
    room_bytes: u64,
    /// The most that the file could ever grow to.
    most_bytes: u64,
    reserve_bytes: u64,
}

/// A directory that is named, and whether its memory may be RAM all the same.
#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    directory: PathBuf,
    is_users_word: bool,
}

/// Has the store use a private file as soon as it wishes for room. Says at once if there will be none, or less than
/// `expected_bytes`.
pub fn stand_by(
    store: &Arc<Store>,
    opening: Options,
    expected_bytes: u64,
    quiet: bool,
) -> Result<(), Failure> {
    if !quiet {
        remark(&choose(candidates()), expected_bytes);
    }
    let store = Arc::clone(store);
    std::thread::Builder::new()
        .name("spill".to_owned())
        .spawn(move || serve(&store, opening, quiet))
        .map(drop)
        .map_err(|error| Failure::own(format!("cannot start a thread: {error}")))
}

/// Until the process ends.
fn serve(store: &Store, opening: Options, quiet: bool) {
    let mut last_refusal = None;
    loop {
        let wish = store.wait_until_room_is_wanted();
        match spill(store, opening, &why(wish)) {
            Ok(said) => {
                last_refusal = None;
                if !quiet {
                    notice(&said);
                }
            }
            Err(refusal) => {
                if last_refusal.as_ref() != Some(&refusal) {
                    warning(&format!(
                        "{}, and there is no place on disk for more: {refusal}",
                        why(wish)
                    ));
                }
                last_refusal = Some(refusal);
                std::thread::sleep(AGAIN);
            }
        }
    }
}

/// What is full, and how large that is: the program may be far from full, and --pool be the reason.
fn why(wish: Wish) -> String {
    match wish {
        Wish::NearlyFull { pool_bytes: 0 } => "--ram is used up, and there is no pool".to_owned(),
        Wish::NearlyFull { pool_bytes } => format!(
            "the pool for compressed pages ({}) is nearly full",
            bytes(pool_bytes)
        ),
        Wish::Stalled => "--ram is used up, and nothing more can be stored in it".to_owned(),
        Wish::Parking => "the run is being parked".to_owned(),
    }
}

/// Makes the file and has it used.
fn spill(store: &Store, opening: Options, why: &str) -> Result<String, String> {
    let place = choose(candidates())?;
    let directory = place.directory.display();
    let refused = |why: String| format!("{directory}: {why}");
    let area = area(&place, opening).map_err(refused)?;
    let private = if area.medium.encrypted {
        "private, encrypted"
    } else {
        "private"
    };
    let done = store.swap_on(area);
    done.map_err(|error| refused(error.to_string()))?;
    Ok(format!(
        "{why}: further pages go to a {private} file in {directory}, with {} free; {VARIABLE} or --swap names another \
         place",
        bytes(place.room_bytes)
    ))
}

fn area(place: &Place, opening: Options) -> Result<SwapOn, String> {
    let slots = (place.most_bytes / PAGE_BYTES).min(PAGES_MAX);
    let options = Options {
        keep_free_bytes: place.reserve_bytes,
        ..opening
    };
    let disk = Disk::private(&place.directory, slots * PAGE_BYTES, options);
    Ok(SwapOn {
        name: name(&place.directory).map_err(|error| error.to_string())?,
        medium: Medium::disk(disk.map_err(|error| error.to_string())?),
        slots,
        bad: Vec::new(),
        priority: PRIORITY_DEFAULT,
        tier: TierName::default(),
        discard: Discard::Pages,
    })
}

/// What is to be said before anything is full.
fn remark(chosen: &Result<Place, String>, expected_bytes: u64) {
    match chosen {
        Ok(place) if place.room_bytes >= expected_bytes => {}
        Ok(place) => warning(&format!(
            "should memory become full, {} has room for {} more only; --swap or {VARIABLE} names a larger place",
            place.directory.display(),
            bytes(place.room_bytes)
        )),
        Err(why) => warning(&format!(
            "should memory become full, the program will wait, for there is no place on disk: {why}; --swap DIR or \
             {VARIABLE} names one, --swap none says that none is wanted"
        )),
    }
}

/// Where it is looked for, in this order.
fn candidates() -> Vec<Candidate> {
    named(|variable| std::env::var_os(variable))
}

fn named(variable: impl Fn(&str) -> Option<OsString>) -> Vec<Candidate> {
    let from = |name, is_users_word| {
        let directory = variable(name).filter(|value| !value.as_bytes().is_empty())?;
        Some(Candidate {
            directory: directory.into(),
            is_users_word,
        })
    };
    let last = Candidate {
        directory: LAST_RESORT.into(),
        is_users_word: false,
    };
    let all = [from(VARIABLE, true), from("TMPDIR", false), Some(last)];
    all.into_iter().flatten().collect()
}

/// The first that fits, or why none does.
fn choose(candidates: Vec<Candidate>) -> Result<Place, String> {
    let mut reasons = Vec::new();
    for candidate in candidates {
        let shown = candidate.directory.display().to_string();
        match look(candidate) {
            Ok(place) => return Ok(place),
            Err(why) => reasons.push(format!("{shown}: {why}")),
        }
    }
    Err(reasons.join("; "))
}

/// What a directory has to offer.
fn look(candidate: Candidate) -> Result<Place, String> {
    let directory = candidate.directory;
    let cannot = |errno: rustix::io::Errno| std::io::Error::from(errno).to_string();
    if !candidate.is_users_word && is_in_memory(&directory).map_err(cannot)? {
        return Err("it lies in memory (tmpfs)".to_owned());
    }
    let found = statvfs(&directory).map_err(cannot)?;
    let limit = getrlimit(Resource::Fsize).current;
    let place = place(directory, &found, limit.unwrap_or(u64::MAX))?;
    // The only way to know that a file can be made there.
    area(&place, Options::default())?;
    Ok(place)
}

fn place(directory: PathBuf, found: &StatVfs, file_limit_bytes: u64) -> Result<Place, String> {
    let size = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let whole_bytes = size(found.f_blocks);
    let reserve_bytes = RESERVE_BYTES.max(whole_bytes / RESERVE_PART);
    let left = |bytes: u64| bytes.saturating_sub(reserve_bytes).min(file_limit_bytes);
    let room_bytes = left(size(found.f_bavail));
    // Less than a request is nothing.
    if room_bytes < vswap_sys::disk::LANE_PAGES as u64 * PAGE_BYTES {
        return Err(format!(
            "{} are free there, and {} of these are left to others",
            bytes(size(found.f_bavail)),
            bytes(reserve_bytes)
        ));
    }
    Ok(Place {
        directory,
        room_bytes,
        most_bytes: left(whole_bytes),
        reserve_bytes,
    })
}

/// Is what is written there kept in RAM?
fn is_in_memory(directory: &Path) -> Result<bool, rustix::io::Errno> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let kind = statfs(directory)?.f_type;
    Ok([TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::StatVfsMountFlags;

    const GIB: u64 = 1 << 30;

    fn file_system(gib: u64, free_bytes: u64) -> StatVfs {
        StatVfs {
            f_bsize: 4096,
            f_frsize: 4096,
            f_blocks: gib * GIB / 4096,
            f_bfree: free_bytes / 4096,
            f_bavail: free_bytes / 4096,
            f_files: 0,
            f_ffree: 0,
            f_favail: 0,
            f_fsid: 0,
            f_flag: StatVfsMountFlags::empty(),
            f_namemax: 255,
        }
    }

    #[test]
    fn what_is_full_is_named() {
        let of = |pool_bytes| why(Wish::NearlyFull { pool_bytes });
        assert_eq!(
            of(2 << 20),
            "the pool for compressed pages (2 MiB) is nearly full"
        );
        assert_eq!(of(0), "--ram is used up, and there is no pool");
        assert_eq!(
            why(Wish::Stalled),
            "--ram is used up, and nothing more can be stored in it"
        );
    }

    #[test]
    fn the_users_directory_comes_first_and_empty_names_are_none() {
        let directories = |variables: &[(&str, &str)]| {
            let found = named(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.into())
            });
            let text = |one: Candidate| (one.directory.display().to_string(), one.is_users_word);
            found.into_iter().map(text).collect::<Vec<_>>()
        };
        let last = ("/var/tmp".to_owned(), false);
        assert_eq!(directories(&[]), std::slice::from_ref(&last));
        assert_eq!(
            directories(&[("TMPDIR", "/t"), (VARIABLE, "/big")]),
            [
                ("/big".to_owned(), true),
                ("/t".to_owned(), false),
                last.clone()
            ]
        );
        assert_eq!(directories(&[("TMPDIR", ""), (VARIABLE, "")]), [last]);
    }

    #[test]
    fn others_keep_a_gibibyte_or_a_twentieth() {
        let of = |gib, free_bytes, file_limit| {
            place("/d".into(), &file_system(gib, free_bytes), file_limit)
        };
        let small = of(10, 3 * GIB, u64::MAX).expect("there is room");
        assert_eq!(
            (small.room_bytes, small.most_bytes, small.reserve_bytes),
            (2 * GIB, 9 * GIB, GIB)
        );
        let large = of(100, 50 * GIB, u64::MAX).expect("there is room");
        assert_eq!(
            (large.room_bytes, large.most_bytes, large.reserve_bytes),
            (45 * GIB, 95 * GIB, 5 * GIB)
        );
        let short = of(100, 50 * GIB, GIB).expect("there is room");
        assert_eq!((short.room_bytes, short.most_bytes), (GIB, GIB));
        let full = of(100, 5 * GIB, u64::MAX).expect_err("there is none");
        assert!(full.contains("5 GiB are free"), "{full}");
        assert!(of(1, GIB, u64::MAX).is_err());
    }

    #[test]
    fn the_first_that_fits_is_taken_and_each_that_does_not_is_told() {
        let candidate = |directory: &str| Candidate {
            directory: directory.into(),
            is_users_word: true,
        };
        let why = choose(vec![candidate("/no/such"), candidate("/proc")]).expect_err("none fits");
        assert!(
            why.contains("/no/such: ") && why.contains("; /proc: "),
            "{why}"
        );
    }
}
