//! How much room a file system has.

use std::path::Path;

use rustix::fs::statvfs;

/// The room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub bytes: u64,
    /// What users may still take.
    pub free_bytes: u64,
}

impl Room {
    /// That of the file system with this file or directory. None if there is none, or it does not tell.
    #[must_use]
    pub fn of(path: &Path) -> Option<Room> {
        let found = statvfs(path).ok()?;
        Some(Room {
            bytes: found.f_blocks.saturating_mul(found.f_frsize),
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_room_and_what_is_not_there_has_none() {
        let room = Room::of(Path::new("/")).expect("the root");
        assert!(room.bytes > 0 && room.free_bytes <= room.bytes, "{room:?}");
        assert_eq!(Room::of(Path::new("/no/such/place")), None);
    }
}
