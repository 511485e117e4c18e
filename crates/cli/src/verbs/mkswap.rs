//! `vswap mkswap`: makes a swap area in a file or block device, as util-linux's mkswap does.
//!
//! Everything that can be refused is refused before anything is changed. What an error interrupts is undone (see
//! `vswap_sys::disk::new_area`). Of an existing file or device only the first page is written.

use std::path::Path;
use std::process::ExitCode;

use rustix::rand::{GetRandomFlags, getrandom};
use uuid::{Builder, Uuid};

use vswap_areas::area_file::{medium, remark_on_mode};
use vswap_engine::header::{self, BOOT_BYTES, Encoded, Header, Label, Signature};
use vswap_sys::disk::area_file::{AreaError, AreaFile, Ends, Kind};
use vswap_sys::disk::new_area::{NewArea, Reserved};

use crate::args::MkswapArgs;
use crate::failure::Failure;
use crate::output::figures::{PAGE_BYTES, bytes};
use crate::output::{print, warning};

/// Makes the area and says what it is.
pub fn mkswap(args: &MkswapArgs) -> Result<ExitCode, Failure> {
    let made = make(args).map_err(|why| Failure::own(format!("{}: {why}", args.path.display())))?;
    print(&made)
}

/// Makes the area and returns the line that describes it. Errors do not contain the path.
fn make(args: &MkswapArgs) -> Result<String, String> {
    let mut area = open(args).map_err(|error| match error {
        AreaError::Missing if args.size.is_none() => {
            format!("{error}: a new file needs a size, such as --size 2G")
        }
        error => error.to_string(),
    })?;
    let size = wanted_bytes(area.file(), args.size)?;
    let replaced = check_content(area.file(), args.force)?;
    let uuid = match args.uuid {
        Some(uuid) => uuid,
        None => random_uuid().map_err(|error| format!("no random numbers for a UUID: {error}"))?,
    };
    let encoded =
        header::encode(size, args.label, uuid.into_bytes()).map_err(|error| error.to_string())?;
    let reserved = write(&mut area, args.size, &encoded).map_err(|error| error.to_string())?;
    for remark in remarks(area.file(), &encoded, reserved, replaced.as_ref()) {
        warning(&format!("{}: {remark}", args.path.display()));
    }
    area.keep();
    Ok(description(&args.path, encoded.pages - 1, args.label, uuid))
}

/// Opens the file or device. With a size, a missing file is made.
fn open(args: &MkswapArgs) -> Result<NewArea, AreaError> {
    match NewArea::open(&args.path) {
        Err(AreaError::Missing) if args.size.is_some() => NewArea::create(&args.path),
        opened => opened,
    }
}

/// How many bytes the file or device must have.
fn wanted_bytes(area: &AreaFile, size: Option<u64>) -> Result<u64, String> {
    let has = area.bytes();
    match size {
        None => Ok(has),
        Some(_) if area.kind() == Kind::BlockDevice => Err(format!(
            "it is a device of {}, and --size is for files: leave it out",
            bytes(has)
        )),
        Some(size) if size < has => Err(format!(
            "it has {has} bytes already, more than the {size} of --size, and is not made shorter: leave out --size, \
             or remove it first"
        )),
        Some(size) => Ok(size),
    }
}

/// Refuses a file or device with content, unless that may be overwritten. Returns the header of an area that is
/// replaced.
fn check_content(area: &AreaFile, force: bool) -> Result<Option<Header>, String> {
    let ends = area.ends().map_err(|error| error.to_string())?;
    if !force && let Some(loss) = loss(&ends) {
        return Err(format!(
            "{loss}, and that would be lost: give --force if nobody needs it"
        ));
    }
    // A damaged header, or one of another kind, tells nothing.
    Ok(header::decode(&ends.head, medium(area)).ok())
}

/// What overwriting would lose. A swap area that nobody swaps to holds nothing worth keeping.
fn loss(ends: &Ends) -> Option<&'static str> {
    match header::signature(&ends.head) {
        Signature::Suspended => Some("a hibernated system lies in it"),
        Signature::Swap { .. } | Signature::Old => {
            let boot = &ends.head[..BOOT_BYTES];
            boot.iter()
                .any(|byte| *byte != 0)
                .then_some("before its swap header lies something else, a boot loader perhaps")
        }
        Signature::None => (!ends.are_blank())
            .then_some("it holds data: its first MiB and its last 64 KiB are not all zeros"),
    }
}

/// A UUID of version 4, like those that util-linux makes.
fn random_uuid() -> rustix::io::Result<Uuid> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(Builder::from_random_bytes(random).into_uuid())
}

/// Gives the file the size that was asked for, if any, and writes the header.
fn write(
    area: &mut NewArea,
    size: Option<u64>,
    encoded: &Encoded,
) -> Result<Option<Reserved>, AreaError> {
    let reserved = size.map(|size| area.reserve(size)).transpose()?;
    area.write_first_page(&encoded.page)?;
    Ok(reserved)
}

/// What the user should know besides.
fn remarks(
    area: &AreaFile,
    encoded: &Encoded,
    reserved: Option<Reserved>,
    replaced: Option<&Header>,
) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(old) = replaced {
        let name = name(old.label, Uuid::from_bytes(old.uuid));
        remarks.push(format!("replaces a swap area ({name})"));
    }
    if encoded.dropped_pages > 0 {
        remarks.push(format!(
            "is larger than a swap area can be: {} of it are used, {} are not",
            bytes(encoded.pages * PAGE_BYTES),
            bytes(encoded.dropped_pages * PAGE_BYTES)
        ));
    }
    if reserved == Some(Reserved::Written) {
        remarks.push("its file system cannot reserve blocks, so zeros were written".to_owned());
    }
    if area.has_holes() {
        remarks.push(format!(
            "has holes: writing to it may find the disk full, and the kernel's swapon refuses it; \
             fill them with vswap mkswap --size {}",
            area.bytes()
        ));
    }
    remarks.extend(remark_on_mode(area));
    remarks
}

/// The line about the new area. The header's page is not counted, because it can hold nothing else.
fn description(path: &Path, pages: u64, label: Option<Label>, uuid: Uuid) -> String {
    let size = pages * PAGE_BYTES;
    format!(
        "{}: swap area of {pages} pages, {} ({size} bytes), {}\n",
        path.display(),
        bytes(size),
        name(label, uuid)
    )
}

/// Label and UUID, worded as in util-linux.
fn name(label: Option<Label>, uuid: Uuid) -> String {
    match label {
        Some(label) => format!("LABEL={label}, UUID={uuid}"),
        None => format!("no label, UUID={uuid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ends of a 2 MiB file with `bytes` at `at`.
    fn ends(at: usize, bytes: &[u8]) -> Ends {
        let mut head = vec![0; 1 << 20];
        head[at..at + bytes.len()].copy_from_slice(bytes);
        let tail = vec![0; 64 << 10];
        Ends { head, tail }
    }

    #[test]
    fn only_what_somebody_may_miss_is_a_loss() {
        for (at, content, expected) in [
            (0, &b""[..], None),
            (4086, b"SWAPSPACE2", None),
            (65526, b"SWAPSPACE2", None),
            (4086, b"SWAP-SPACE", None),
            (4086, b"S1SUSPEND\0", Some("hibernated")),
            (500_000, b"text", Some("holds data")),
        ] {
            let found = loss(&ends(at, content));
            assert_eq!(
                found.is_some(),
                expected.is_some(),
                "{content:?}: {found:?}"
            );
            assert!(found.is_none_or(|found| found.contains(expected.unwrap_or_default())));
        }
        let mut booted = ends(4086, b"SWAPSPACE2");
        booted.head[510] = 0x55;
        assert!(loss(&booted).is_some_and(|found| found.contains("boot loader")));
        let mut tail = ends(0, b"");
        tail.tail[9] = 1;
        assert!(loss(&tail).is_some());
    }

    #[test]
    fn random_uuids_are_of_version_4_and_differ() {
        let (one, other) = (random_uuid().unwrap(), random_uuid().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.get_version_num(), 4);
    }

    #[test]
    fn descriptions_count_what_can_be_used() {
        let uuid = Uuid::from_bytes([0x11; 16]);
        let label = Label::new(b"spare").ok();
        assert_eq!(
            description(Path::new("/swap"), 255, label, uuid),
            "/swap: swap area of 255 pages, 1 MiB (1044480 bytes), LABEL=spare, \
             UUID=11111111-1111-1111-1111-111111111111\n"
        );
        assert!(description(Path::new("/swap"), 9, None, uuid).contains(", no label, UUID="));
    }
}
