//! Plays a trace with a policy and so much room.

use crate::policies::Policy;
use crate::trace::Trace;

/// How many touches found their page out that had been in memory before. What is touched for the first time counts for
/// no policy: nobody can have it there.
pub fn misses(trace: &Trace, room: usize, policy: &mut dyn Policy) -> usize {
    let mut is_in = vec![false; trace.pages];
    let mut is_known = vec![false; trace.pages];
    let (mut count, mut misses) = (0, 0);
    for (at, &page) in trace.touches.iter().enumerate() {
        if is_in[page] {
            policy.touched(page, at);
            continue;
        }
        if count == room {
            is_in[policy.leave()] = false;
            count -= 1;
        }
        misses += usize::from(is_known[page]);
        is_known[page] = true;
        is_in[page] = true;
        count += 1;
        policy.came(page, at);
    }
    misses
}
