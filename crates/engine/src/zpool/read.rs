//! Reading payloads in place.

use super::checksum::checksum;
use super::class::{checksum_of, payload_start};
use super::handle::Handle;
use super::pool::Pool;
use super::row::{Location, Row};
use super::sizes::{CLASSES, class_of};

use std::sync::atomic::Ordering;

/// Why a payload could not be read. Its page is lost; the caller must not use zeros instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not the ones that were stored.
    #[error(
        "stored payload {} has checksum {found:#010x} instead of {stored:#010x}: pool memory was overwritten, \
         its page is lost",
        handle.raw()
    )]
    Damaged {
        /// The payload's name.
        handle: Handle,
        /// Checksum when it was stored.
        stored: u32,
        /// Checksum now.
        found: u32,
    },
    /// The pool holds no payload of this name: it was freed, or was never stored here.
    #[error("the pool holds no payload {}: it was freed already, or the handle is another pool's", handle.raw())]
    NotStored {
        /// The name that was asked for.
        handle: Handle,
    },
}

/// An object that is neither moved nor freed until this is dropped.
struct Pinned<'p> {
    pool: &'p Pool,
    index: u32,
    row: &'p Row,
    location: Location,
}

impl Pinned<'_> {
    /// The payload and its checksum. `None` only if the row leads nowhere, which no live row does.
    #[inline]
    fn payload(&self) -> Option<(&[u8], u32)> {
        let location = self.location;
        let payload_bytes = usize::from(location.payload_bytes);
        let (start, checksum) = match class_of(payload_bytes) {
            Some(class) => {
                let span = self.pool.spans.get(location.span)?;
                let class = CLASSES[class];
                (
                    payload_start(span, location.object, class),
                    checksum_of(span, location.object, class),
                )
            }
            None => {
                let page = self.pool.whole.get(location.span)?;
                (page.base(), page.checksum())
            }
        };
        // SAFETY: The location is that of a live object, so `payload_bytes` initialised bytes of its span or page start
        // at `start`. The pin keeps the object from being moved or freed, so nobody writes there while `self` lives.
        let bytes = unsafe { std::slice::from_raw_parts(start, payload_bytes) };
        Some((bytes, checksum))
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(location) = self.row.unpin() {
            self.pool.give_back(self.index, location);
        }
    }
}

impl Pool {
    /// Calls `read` with the payload in place.
    ///
    /// Takes no lock. The payload is neither moved nor reused while `read` runs, and a `free` in that time takes effect
    /// when `read` returns. Waits only for a compaction that is just copying this payload. Any number of threads may
    /// read at once, but at most 255 the same payload.
    ///
    /// # Errors
    /// [`ReadError`] if the payload is missing or damaged. `read` is not called then.
    pub fn with<R>(&self, handle: Handle, read: impl FnOnce(&[u8]) -> R) -> Result<R, ReadError> {
        let pinned = self.pin(handle).ok_or(ReadError::NotStored { handle })?;
        let (payload, stored) = pinned.payload().ok_or(ReadError::NotStored { handle })?;
        if self.checksums {
            let found = checksum(payload);
            if stored != found {
                self.counters.damaged.fetch_add(1, Ordering::Relaxed);
                return Err(ReadError::Damaged {
                    handle,
                    stored,
                    found,
                });
            }
        }
        Ok(read(payload))
    }

    #[inline]
    fn pin(&self, handle: Handle) -> Option<Pinned<'_>> {
        let (index, row) = self.row(handle)?;
        let location = row.pin()?;
        Some(Pinned {
            pool: self,
            index,
            row,
            location,
        })
    }
}
