//! What to believe of a hello before anything is done for it.
//!
//! Pure. Whoever can reach the socket can say anything. So every number is bounded here, and a hello that makes no
//! sense is turned away. The socket tells who the sender is, never the hello.

use vswap_sys::ring::{COPIED, Hello, INHERITED, RING_MAGIC, STAGING_PAGES, hello};

use crate::base::page_run::{PAGE_BYTES, PageRun};

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

/// The pages that the agent keeps for itself. `None` if staging is not inside them.
#[must_use]
pub fn own_pages(hello: &Hello) -> Option<PageRun> {
    let own_pages = PageRun {
        first: hello.agent_base / PAGE_BYTES,
        pages: hello.agent_bytes.div_ceil(PAGE_BYTES),
    };
    let staging = hello.staging / PAGE_BYTES;
    let inside = own_pages.range();
    let fits = inside.contains(&staging) && inside.end - staging >= STAGING_PAGES as u64;
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
    fn staging_must_lie_in_the_agents_own_memory() {
        let staging_bytes = STAGING_PAGES as u64 * PAGE_BYTES;
        let of = |agent_base, agent_bytes, staging| {
            own_pages(&Hello {
                agent_base,
                agent_bytes,
                staging,
                ..Hello::default()
            })
        };
        let base = 0x7000_0000;
        let whole = Some(PageRun {
            first: base / PAGE_BYTES,
            pages: STAGING_PAGES as u64,
        });
        assert_eq!(of(base, staging_bytes, base), whole);
        assert_eq!(of(base, staging_bytes, base + PAGE_BYTES), None);
        assert_eq!(of(base, staging_bytes, base - PAGE_BYTES), None);
        assert_eq!(of(base, staging_bytes - PAGE_BYTES, base), None);
        assert_eq!(of(u64::MAX, u64::MAX, 0), None);
    }
}
