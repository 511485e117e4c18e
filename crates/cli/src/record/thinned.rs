//! A list that never has more than so many items: when it is full it keeps every second one, and the pace at which new
//! ones are to come is halved. So it always covers all of the time, evenly. Pure.

use std::time::Duration;

/// The list.
#[derive(Debug, Clone)]
pub struct Thinned<T> {
    items: Vec<T>,
    most: usize,
    pace: Duration,
}

impl<T> Thinned<T> {
    /// An empty list of at most `most` items, at least 2. The first ones are to come this far apart.
    pub fn new(most: usize, pace: Duration) -> Thinned<T> {
        Thinned {
            items: Vec::new(),
            most: most.max(2),
            pace,
        }
    }

    /// How far apart items are to come.
    pub fn pace(&self) -> Duration {
        self.pace
    }

    /// In the order in which they came.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// The items, to change them.
    pub fn items_mut(&mut self) -> &mut [T] {
        &mut self.items
    }

    /// Adds an item. The first one of all always stays.
    pub fn push(&mut self, item: T) {
        if self.items.len() >= self.most {
            let mut place = 0;
            self.items.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.pace *= 2;
        }
        self.items.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Lets time go by, an item whenever the list wants one.
    fn filled(most: usize, seconds: u64) -> Thinned<u64> {
        let mut list = Thinned::new(most, SECOND);
        let mut next = 0;
        for second in 0..seconds {
            if second >= next {
                list.push(second);
                next = second + list.pace().as_secs();
            }
        }
        list
    }

    #[test]
    fn a_list_that_is_not_full_has_everything() {
        let list = filled(8, 8);
        assert_eq!(list.items(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(list.pace(), SECOND);
    }

    #[test]
    fn a_full_list_keeps_every_second_item_and_goes_on_at_half_the_pace() {
        let list = filled(8, 15);
        assert_eq!(list.items(), [0, 2, 4, 6, 8, 10, 12, 14]);
        assert_eq!(list.pace(), 2 * SECOND);
        let list = filled(8, 17);
        assert_eq!(list.items(), [0, 4, 8, 12, 16]);
    }

    #[test]
    fn however_long_it_lasts_it_is_bounded_even_and_whole() {
        for seconds in [1, 2, 9, 100, 1000, 86_400] {
            for most in [2, 3, 8, 511, 512] {
                let list = filled(most, seconds);
                let items = list.items();
                assert!(items.len() <= most, "{most} {seconds}");
                assert_eq!(items[0], 0);
                let pace = list.pace().as_secs();
                let gaps = items.windows(2).map(|pair| pair[1] - pair[0]);
                // An odd number of items leaves one gap that is half as long behind.
                assert!(
                    gaps.clone().all(|gap| gap <= pace && gap >= pace / 2),
                    "{most} {seconds}: {items:?}"
                );
                let last = items[items.len() - 1];
                assert!(seconds - last <= pace, "{most} {seconds}: {items:?}");
            }
        }
    }

    #[test]
    fn an_item_that_comes_late_is_taken_all_the_same() {
        let mut list = Thinned::new(0, SECOND);
        for item in [5, 6, 900, 901, 902] {
            list.push(item);
        }
        assert_eq!(list.items(), [5, 902]);
    }
}
