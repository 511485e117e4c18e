//! What the `vswap run` that this process is in grants to its arenas: the side of the program. The words lie in the
//! ring of the agent, if the agent was preloaded. One that was attached from outside is not found.
//!
//! Unsafe is needed here because a function of the agent is found by name.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::ring::{ARENAS_SYMBOL, Arenas};

/// Between two looks for an answer.
const LOOK: Duration = Duration::from_millis(2);

type Find = extern "C" fn() -> *const Arenas;

/// What one arena wishes for, and where the answer comes. The wish ends when this is dropped. A child of the process
/// that made it has another ring or none: there it hears nothing, and to drop it does nothing.
#[derive(Debug)]
pub struct Grant {
    find: Find,
    wish_bytes: u64,
    /// The process that wishes.
    pid: u32,
    /// Where the wish was said.
    words: Option<&'static Arenas>,
}

impl Grant {
    /// Wishes for so much RAM. None if this process is in no run, or is none that would hear of it.
    #[must_use]
    pub fn new(wish_bytes: u64) -> Option<Grant> {
        let find = found()?;
        Some(Grant::with(find, wish_bytes))
    }

    fn with(find: Find, wish_bytes: u64) -> Grant {
        let mut grant = Grant {
            find,
            wish_bytes,
            pid: std::process::id(),
            words: None,
        };
        grant.say();
        grant
    }

    /// The words, in the process whose they are. In a child the ring of its parent is not mapped any more.
    fn words(&self) -> Option<&'static Arenas> {
        self.words.filter(|_| std::process::id() == self.pid)
    }

    /// Says the wish, if it is not said and the agent can hear it. The agent may still be setting up.
    fn say(&mut self) {
        if self.words.is_none()
            && std::process::id() == self.pid
            && let Some(words) = words(self.find)
        {
            words.wished.fetch_add(self.wish_bytes, Ordering::SeqCst);
            self.words = Some(words);
        }
    }

    /// Waits for the first answer, for so long.
    pub fn wait(&mut self, patience: Duration) {
        let began = Instant::now();
        while self.bytes().is_none() && began.elapsed() < patience {
            std::thread::sleep(LOOK);
        }
    }

    /// What this arena may take, which changes with the limit of the run and with the arenas in it. None if the run
    /// has not said it yet.
    pub fn bytes(&mut self) -> Option<u64> {
        self.say();
        let words = self.words()?;
        let granted = words.granted.load(Ordering::SeqCst);
        let wished = words.wished.load(Ordering::SeqCst);
        // Until the pager has looked again a new arena and those before it share what these had.
        (granted != 0).then(|| portion(self.wish_bytes, wished, granted))
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(words) = self.words() {
            words.wished.fetch_sub(self.wish_bytes, Ordering::SeqCst);
        }
    }
}

/// The share in `budget_bytes` of one who wishes for `wish_bytes`, where all together wish for `all_bytes`. All of its
/// wish, if there is enough.
#[must_use]
pub fn portion(wish_bytes: u64, all_bytes: u64, budget_bytes: u64) -> u64 {
    if all_bytes <= budget_bytes {
        return wish_bytes;
    }
    let share = u128::from(wish_bytes) * u128::from(budget_bytes) / u128::from(all_bytes.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(wish_bytes)
}

fn words(find: Find) -> Option<&'static Arenas> {
    let words = NonNull::new(find().cast_mut())?;
    // SAFETY: the words lie in the ring, which is mapped as long as this process runs this program, and are atomic.
    Some(unsafe { words.as_ref() })
}

/// The agent's function.
fn found() -> Option<Find> {
    // SAFETY: the name is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, ARENAS_SYMBOL.as_ptr()) };
    let address = NonNull::new(address)?;
    // SAFETY: a function of this name has this type: another type would get another name.
    Some(unsafe { core::mem::transmute::<*mut libc::c_void, Find>(address.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    static WORDS: Arenas = Arenas {
        wished: AtomicU64::new(0),
        granted: AtomicU64::new(0),
    };

    extern "C" fn here() -> *const Arenas {
        &raw const WORDS
    }

    extern "C" fn nowhere() -> *const Arenas {
        core::ptr::null()
    }

    #[test]
    fn arenas_of_a_process_share_what_it_is_granted() {
        let (mut large, mut small) = (Grant::with(here, 3000), Grant::with(here, 1000));
        assert_eq!(
            (large.bytes(), small.bytes()),
            (None, None),
            "nobody looked"
        );
        assert_eq!(WORDS.wished.load(Ordering::SeqCst), 4000);
        WORDS.granted.store(4000, Ordering::SeqCst);
        assert_eq!((large.bytes(), small.bytes()), (Some(3000), Some(1000)));
        WORDS.granted.store(2000, Ordering::SeqCst);
        assert_eq!((large.bytes(), small.bytes()), (Some(1500), Some(500)));
        // As in a child, where the words may not be touched.
        large.pid = 0;
        assert_eq!(large.bytes(), None);
        drop(large);
        assert_eq!(WORDS.wished.load(Ordering::SeqCst), 4000);
        WORDS.wished.fetch_sub(3000, Ordering::SeqCst);
        assert_eq!(WORDS.wished.load(Ordering::SeqCst), 1000);
        assert_eq!(small.bytes(), Some(1000));
        drop(small);
        assert_eq!(WORDS.wished.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn who_is_in_no_run_hears_nothing() {
        assert!(Grant::new(1 << 20).is_none());
        let mut early = Grant::with(nowhere, 1 << 20);
        early.wait(Duration::from_millis(5));
        assert_eq!(early.bytes(), None);
    }

    #[test]
    fn no_numbers_are_too_large_to_share() {
        assert_eq!(portion(u64::MAX, u64::MAX, 1000), 1000);
        assert_eq!(portion(0, 0, 0), 0);
        assert_eq!(portion(10, 0, 5), 10);
        assert_eq!(portion(14, 7, 5), 10, "they lie");
    }
}
