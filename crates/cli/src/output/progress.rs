//! How far something is that takes longer than a second: a line on standard error, if that is a terminal.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// What is over sooner shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two looks.
const PACE: Duration = Duration::from_millis(200);
const LINE: &str = "{msg} {bar:30} {bytes} of {total_bytes}, {eta} left";

/// Does `work`, and shows how much is left of it: `left_bytes` is asked again and again, and says None if nobody knows.
pub fn shown<T>(
    what: &str,
    left_bytes: impl Fn() -> Option<u64> + Send,
    work: impl FnOnce() -> T,
) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::hidden();
    bar.set_message(what.to_owned());
    // The words are ours, so they are right.
    if let Ok(style) = ProgressStyle::with_template(LINE) {
        bar.set_style(style);
    }
    let draw = |left: u64, most: u64| {
        if bar.is_hidden() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        bar.set_length(most);
        bar.set_position(most - left);
    };
    let done = beside(|over| follow(over, PATIENCE, PACE, left_bytes, draw), work);
    bar.finish_and_clear();
    done
}

/// Does `work`, and `beside` on another thread, which is told when the work is over. If there is no thread, the work is
/// done all the same.
fn beside<T>(beside: impl FnOnce(&Receiver<()>) + Send, work: impl FnOnce() -> T) -> T {
    let (going_on, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let _ = thread::Builder::new().spawn_scoped(scope, move || beside(&over));
        let done = work();
        drop(going_on);
        done
    })
}

/// Looks every `pace` how much is left until the work is over, and draws it from when `patience` is over.
fn follow(
    over: &Receiver<()>,
    patience: Duration,
    pace: Duration,
    left_bytes: impl Fn() -> Option<u64>,
    mut draw: impl FnMut(u64, u64),
) {
    let (since, mut most) = (Instant::now(), 0);
    loop {
        if let Some(left) = left_bytes() {
            // It may also become more: a program goes on meanwhile.
            most = most.max(left);
            if since.elapsed() >= patience {
                draw(left, most);
            }
        }
        if over.recv_timeout(pace) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What is drawn of work that takes `work` and of which this is left at each look.
    fn drawn(left: Vec<Option<u64>>, patience: Duration, work: Duration) -> Vec<(u64, u64)> {
        let (left, mut all) = (Mutex::new(left.into_iter()), Vec::new());
        let next = || left.lock().expect("whole").next().unwrap_or(Some(0));
        let draw = |left, most| all.push((left, most));
        let pace = Duration::from_millis(1);
        let done = beside(
            |over| follow(over, patience, pace, next, draw),
            || {
                thread::sleep(work);
                7
            },
        );
        assert_eq!(done, 7);
        all
    }

    #[test]
    fn what_is_left_is_drawn_out_of_the_most_that_was() {
        let left = vec![Some(10), None, Some(12), Some(4)];
        let all = drawn(left, Duration::ZERO, Duration::from_millis(100));
        assert_eq!(all[..3], [(10, 10), (12, 12), (4, 12)]);
        assert_eq!(all.last(), Some(&(0, 12)));
    }

    #[test]
    fn what_is_over_soon_draws_nothing() {
        let all = drawn(vec![Some(10)], Duration::from_secs(60), Duration::ZERO);
        assert!(all.is_empty(), "{all:?}");
    }
}
