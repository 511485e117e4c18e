//! An area that was opened: where its bytes are, and all that the engine and people are told of it.

use vswap_engine::{Codec, Discard, Storage};
use vswap_sys::disk::Disk;
use vswap_sys::disk::area_file::Kind;
use vswap_sys::memory::MemoryError;

use crate::ask_far::AskFar;
use crate::on_disk::OnDisk;
use crate::packed::PackedDisk;
use crate::tier_name::TierName;

/// Where the bytes of an area are, and what people are told of that.
#[derive(Debug)]
pub struct Medium {
    /// Its bytes.
    pub storage: Box<dyn Storage>,
    /// `file` or `partition`, as swapon says, or `far`.
    pub kind: &'static str,
    /// How it is read and written.
    pub io: &'static str,
    /// Its pages are encrypted.
    pub encrypted: bool,
    /// It is a disk that turns.
    pub rotating: bool,
    /// How to ask it, if it lies on other machines.
    pub far: Option<AskFar>,
}

impl Medium {
    /// A file or block device.
    #[must_use]
    pub fn disk(disk: Disk) -> Medium {
        Medium::on(&disk)(Box::new(OnDisk::new(disk)))
    }

    /// A private file in which pages are kept packed. Returns how many slots it has as well. `codec` is the engine's.
    ///
    /// # Errors
    /// No address space for its tables.
    pub fn packed(disk: Disk, codec: Codec) -> Result<(Medium, u64), MemoryError> {
        let medium = Medium::on(&disk);
        let storage = PackedDisk::new(disk, codec)?;
        let slots = storage.slots();
        Ok((medium(Box::new(storage)), slots))
    }

    /// What people are told of a disk. It goes into the storage, which is added then.
    fn on(disk: &Disk) -> impl FnOnce(Box<dyn Storage>) -> Medium + use<> {
        let kind = match disk.kind() {
            Kind::RegularFile => "file",
            Kind::BlockDevice => "partition",
        };
        let (io, encrypted, rotating) = (disk.engine(), disk.is_encrypted(), disk.is_rotating());
        move |storage| Medium {
            storage,
            kind,
            io,
            encrypted,
            rotating,
            far: None,
        }
    }

    /// Storage on other machines, spoken to and asked in these ways. It encrypts.
    #[must_use]
    pub fn far(storage: Box<dyn Storage>, io: &'static str, ask: AskFar) -> Medium {
        Medium {
            storage,
            kind: "far",
            io,
            encrypted: true,
            rotating: false,
            far: Some(ask),
        }
    }
}

/// An area to be added. It was opened and checked.
#[derive(Debug)]
pub struct SwapOn {
    /// What the user calls it: its path.
    pub name: String,
    /// Where its bytes are.
    pub medium: Medium,
    /// Its slots, the header's included.
    pub slots: u64,
    /// Slots that must never be used.
    pub bad: Vec<u64>,
    /// 0 to 32767, or `vswap_engine::PRIORITY_DEFAULT`.
    pub priority: i16,
    /// The tier that it belongs to.
    pub tier: TierName,
    /// When to tell the device what is free.
    pub discard: Discard,
}
