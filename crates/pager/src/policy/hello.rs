//! What to believe of a hello before anything is done for it.
//!
//! Pure. Whoever can reach the socket can say anything. So every number is bounded here, and a hello that makes no
//! sense is turned away. The socket tells who the sender is, never the hello.

use vswap_sys::ring::{
    ASIDE_PAGES, COPIED, Hello, INHERITED, RING_BYTES, RING_MAGIC, STAGING_PAGES, hello,
};

use crate::base::page_run::{PAGE_BYTES, PAGES_END, PageRun};

const RING_PAGES: u64 = (RING_BYTES as u64).div_ceil(PAGE_BYTES);
const STAGED_PAGES: u64 = (2 * STAGING_PAGES + ASIDE_PAGES) as u64;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// A process whose memory nobody watches yet.
    Begin,
    /// A forked child whose memory is under a userfaultfd already.
    Join,
    /// A forked child whose memory is to be put under its userfaultfd before it runs.
    Copied,
    /// A thread is about to fork.
    ForkBegin,
    /// A thread is about to install a seccomp filter of its own.
    Filter,
    /// A forked child needs a userfaultfd for its own staging, and may not make one.
    Device,
    /// A process may not have fork events on its userfaultfd.
    Handshake,
}

impl Greeting {
    /// What the hello asks for. `None` if it belongs to another protocol.
    #[must_use]
    pub fn of(hello: &Hello) -> Option<Greeting> {
        if hello.magic != RING_MAGIC {
            return None;
        }
        match hello.kind {
            hello::EXEC => Some(Greeting::Begin),
            hello::FORKED if hello.flags & COPIED != 0 => Some(Greeting::Copied),
            hello::FORKED if hello.flags & INHERITED == 0 => Some(Greeting::Begin),
            hello::FORKED => Some(Greeting::Join),
            hello::FORK_BEGIN => Some(Greeting::ForkBegin),
            hello::FILTER => Some(Greeting::Filter),
            hello::DEVICE => Some(Greeting::Device),
            hello::HANDSHAKE => Some(Greeting::Handshake),
            _ => None,
        }
    }
}

/// The pages that the agent keeps for itself. `None` if staging, aside or the ring is not inside them, or if no program
/// can have such pages.
#[must_use]
pub fn own_pages(hello: &Hello) -> Option<PageRun> {
    let own_pages = PageRun {
        first: hello.agent_base / PAGE_BYTES,
        pages: hello.agent_bytes.div_ceil(PAGE_BYTES),
    };
    let has = |address: u64, pages: u64| {
        let first = address / PAGE_BYTES;
        address.is_multiple_of(PAGE_BYTES)
            && own_pages.first <= first
            && first + pages <= own_pages.range().end
    };
    let fits = own_pages.range().end <= PAGES_END
        && has(hello.staging, STAGED_PAGES)
        && has(hello.ring, RING_PAGES);
    fits.then_some(own_pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(kind: u32, flags: u32) -> Hello {
        Hello {
            magic: RING_MAGIC,
            kind,
            flags,
            ..Hello::default()
        }
    }

    #[test]
    fn every_kind_is_told_apart_and_no_other_is_heard() {
        let of = |kind, flags| Greeting::of(&hello(kind, flags));
        assert_eq!(of(hello::EXEC, 0), Some(Greeting::Begin));
        assert_eq!(of(hello::FORKED, 0), Some(Greeting::Begin));
        assert_eq!(of(hello::FORKED, INHERITED), Some(Greeting::Join));
        assert_eq!(of(hello::FORKED, COPIED), Some(Greeting::Copied));
        assert_eq!(of(hello::FORK_BEGIN, 0), Some(Greeting::ForkBegin));
        assert_eq!(of(hello::FILTER, 0), Some(Greeting::Filter));
        assert_eq!(of(hello::DEVICE, 0), Some(Greeting::Device));
        assert_eq!(of(hello::HANDSHAKE, 0), Some(Greeting::Handshake));
        assert_eq!(of(0, 0), None);
        assert_eq!(of(hello::HANDSHAKE + 1, 0), None);
        let other_version = Hello {
            magic: RING_MAGIC + 1,
            ..hello(hello::EXEC, 0)
        };
        assert_eq!(Greeting::of(&other_version), None);
    }

    #[test]
    fn staging_and_ring_must_lie_in_the_agents_own_memory() {
        let pages = RING_PAGES + STAGED_PAGES;
        let (bytes, base) = (pages * PAGE_BYTES, 0x7000_0000);
        let of = |agent_base, agent_bytes, ring, staging| {
            own_pages(&Hello {
                agent_base,
                agent_bytes,
                ring,
                staging,
                ..Hello::default()
            })
        };
        let behind_ring = base + RING_BYTES as u64;
        let whole = Some(PageRun {
            first: base / PAGE_BYTES,
            pages,
        });
        assert_eq!(of(base, bytes, base, behind_ring), whole);
        for step in [1, PAGE_BYTES] {
            assert_eq!(of(base, bytes, base, behind_ring + step), None);
            assert_eq!(of(base, bytes, base - step, behind_ring), None);
            assert_eq!(of(base, bytes, base, base - step), None);
        }
        assert_eq!(of(base, bytes - PAGE_BYTES, base, behind_ring), None);
        assert_eq!(of(u64::MAX, u64::MAX, 0, 0), None);
        assert_eq!(of(0, u64::MAX, u64::MAX - 4095, 0), None);
        assert_eq!(of(0, u64::MAX, 0, 1 << 56), None);
    }
}
