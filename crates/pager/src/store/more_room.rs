//! The wish for more room: pages will soon have nowhere to go.
//!
//! Whoever sees that (the governor of a run) wishes; whoever has areas to give waits for it. The pager knows of no
//! directories, and goes on whether somebody waits or not. The lock is innermost.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::work::Work;

/// Why an area is wished for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// The limit is reached and the pool, which may be no larger than this, has no room for what is to go out.
    NearlyFull {
        /// 0 where there is no pool.
        pool_bytes: u64,
    },
    /// The limit is reached, and what is to go out finds no room, though the pool may be larger.
    Stalled,
    /// A run is to be parked.
    Parking,
}

/// Whether somebody wishes for an area.
#[derive(Debug)]
pub struct MoreRoom {
    wish: Work<Option<Wish>>,
    has_giver: AtomicBool,
}

impl Default for MoreRoom {
    fn default() -> MoreRoom {
        MoreRoom {
            wish: Work::new("the wish for an area"),
            has_giver: AtomicBool::new(false),
        }
    }
}

impl MoreRoom {
    /// Wish for an area.
    pub fn want(&self, wish: Wish) {
        self.wish.lock().get_or_insert(wish);
        self.wish.wake_one();
    }

    /// Is there somebody who has areas to give?
    pub fn has_giver(&self) -> bool {
        self.has_giver.load(Ordering::Acquire)
    }

    /// Wait for a wish, and take it.
    pub fn wait(&self) -> Wish {
        self.has_giver.store(true, Ordering::Release);
        let mut wish = self.wish.wait_while(Option::is_none);
        // At the end there is none.
        wish.take().unwrap_or(Wish::NearlyFull { pool_bytes: 0 })
    }
}
