//! A swap area in an export of a block store: a server of network block devices, such as nbdkit or qemu-nbd.
//!
//! A slot lies where a swap area of the kernel has it: at its number times the page size. Pages are encrypted as
//! payloads for other stores are ([`cipher`](crate::cipher)), but nothing is left of a place for the tag that proves
//! them, and a place that follows no other would cost a request of its own. So pages lie there as they are long,
//! neighbours travel in one request, and the tags stay in memory with the versions: 20 bytes for a page.
//!
//! An export is treated as a device of this machine is. One with the header of a swap area is used as that says. A
//! blank one gets a header, as `mkswap` would write it. One that holds anything else is refused.

// The floors, lowest first.

// How an export is named.
pub(crate) mod spec;
// Bytes of the protocol.
pub(crate) mod protocol;
// A socket.
mod stream;
// A connection with requests of several threads.
mod connection;
// Connections, and requests that are sent until they are served.
mod link;
// What says in an area that it is used.
mod mark;
// What an export is and holds.
pub(crate) mod export;
// Who uses an area.
mod claim;
// The storage.
pub(crate) mod storage;
