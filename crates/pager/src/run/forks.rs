//! Forks under way, and which child belongs to which fork.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vswap_engine::Entry;

use crate::base::lock::{Mutex, MutexGuard, Row};
use crate::layout::Layout;
use crate::layout::words::PageState;
use crate::space::Space;

/// Announced forks whose children have not said hello, keyed by the fork's token.
#[derive(Debug)]
pub struct Forks {
    announced: Mutex<HashMap<u64, Announced>>,
}

/// An announced fork.
#[derive(Debug)]
struct Announced {
    parent: Arc<Space>,
    /// All children born between FORK_BEGIN and the end of the fork. A bare clone in another thread raises the same
    /// event as the announced fork, so each of them may be the child.
    children: Vec<Arc<Space>>,
    /// What the child has of its parent's layout, where the kernel tells of no forks.
    copy: Option<Layout>,
    is_open: bool,
}

impl Default for Forks {
    fn default() -> Forks {
        Forks {
            announced: Mutex::new(Row::Innermost, "the list of forks", HashMap::new()),
        }
    }
}

impl Forks {
    /// FORK_BEGIN: open a fork if there `is_room` for one more than are under way. A fork is under way until its child
    /// has its agent.
    pub fn try_open(
        &self,
        token: u64,
        parent: &Arc<Space>,
        is_room: impl Fn(usize) -> bool,
    ) -> bool {
        let mut forks = self.lock();
        let may_begin = is_room(forks.len() + 1);
        if may_begin && token != 0 {
            let announced = Announced {
                parent: Arc::clone(parent),
                children: Vec::new(),
                copy: None,
                is_open: true,
            };
            forks.insert(token, announced);
        }
        may_begin
    }

    /// The fork is over. Its child may say hello later.
    pub fn close(&self, token: u64) {
        let mut forks = self.lock();
        if let Some(fork) = forks.get_mut(&token) {
            fork.is_open = false;
        }
        forks.retain(|_, fork| fork.is_awaited());
    }

    /// A child was made during the fork `token`. The child of an unannounced fork (token 0) has no agent: its faults
    /// are served, but none of its pages move out.
    pub fn expect(&self, token: u64, child: Arc<Space>) {
        if let Some(fork) = self.lock().get_mut(&token) {
            fork.children.push(child);
        }
    }

    /// Lay by what the child of the fork `token` has of its parent's layout, until it is taken.
    pub fn lay_by(&self, token: u64, copy: Layout) {
        if let Some(fork) = self.lock().get_mut(&token) {
            fork.copy = Some(copy);
        }
    }

    /// Take what was laid by.
    pub fn take_copy(&self, token: u64) -> Option<Layout> {
        self.lock().get_mut(&token)?.copy.take()
    }

    /// The entry of a page that is out, in what was laid by.
    pub fn entry_in_copy(&self, token: u64, page: u64) -> Option<Entry> {
        match self
            .lock()
            .get(&token)?
            .copy
            .as_ref()?
            .words
            .get(page)
            .state()
        {
            PageState::Swapped(entry) => Some(entry),
            PageState::Plain | PageState::Kept(_) => None,
        }
    }

    /// The space that announced the fork `token`.
    pub fn parent(&self, token: u64) -> Option<Arc<Space>> {
        let forks = self.lock();
        forks.get(&token).map(|fork| Arc::clone(&fork.parent))
    }

    /// The spaces that may be the child of the fork `token`.
    pub fn candidates(&self, token: u64) -> Vec<Arc<Space>> {
        let forks = self.lock();
        forks
            .get(&token)
            .map_or_else(Vec::new, |fork| fork.children.clone())
    }

    /// The child of the fork `token` has its agent. The other candidates have none.
    pub fn found(&self, token: u64, child: &Space) {
        let Some(fork) = self.lock().remove(&token) else {
            return;
        };
        for other in fork.children.iter().filter(|other| other.id != child.id) {
            other.is_bare.store(true, Ordering::Release);
        }
    }

    /// A space has ended. If it was a child that never said hello, nobody waits for it any more.
    pub fn forget(&self, id: u64) {
        let mut forks = self.lock();
        for fork in forks.values_mut() {
            fork.children.retain(|child| child.id != id);
        }
        forks.retain(|_, fork| fork.is_awaited());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Announced>> {
        self.announced.lock()
    }
}

impl Announced {
    fn is_awaited(&self) -> bool {
        self.is_open || !self.children.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::bare_space as space;

    /// A bare clone of another thread during an announced fork raises the same event.
    #[test]
    fn each_child_that_is_born_during_a_fork_may_be_its_child() {
        const TOKEN: u64 = 5;
        let forks = Forks::default();
        assert!(forks.try_open(TOKEN, &space(1), |_| true));
        let children = [space(2), space(3)];
        for child in &children {
            forks.expect(TOKEN, Arc::clone(child));
        }
        let ids: Vec<u64> = forks.candidates(TOKEN).iter().map(|c| c.id).collect();
        assert_eq!(ids, [2, 3]);
        forks.close(TOKEN);
        forks.found(TOKEN, &children[1]);
        let is_bare = children.map(|child| child.is_bare.load(Ordering::Acquire));
        assert_eq!(is_bare, [true, false]);
        assert!(forks.candidates(TOKEN).is_empty());
    }
}
