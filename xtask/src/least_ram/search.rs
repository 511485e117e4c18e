//! Looks for the least size that is enough, by halving. Pure: it says which size to try next and is told what came of
//! it, so that several searches can take turns.
//!
//! Sizes are whole steps. Nothing is known to be not enough. A size is what most of its runs say. Runs take different
//! times on a busy machine, and one wrong answer early on would lead the whole search astray. So both sides of the
//! boundary are tried again when they have been found, and where the answers differ a further run decides.

use std::collections::BTreeMap;

/// Steps in the native peak: each is 4 % of it.
pub const STEPS: u32 = 25;
/// The first sizes, in steps: some more than the peak, because vswap needs memory too, and then half as much more.
const FIRST: [u32; 2] = [28, 38];
/// More runs than this are not made, however much their answers differ.
pub const RUNS_MAX: usize = 20;

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It ended in time.
    InTime,
    /// It did not.
    TooSlow,
    /// It waited for memory and got none.
    Full,
    /// vswap did not begin, or gave up.
    Refused,
}

/// One search.
#[derive(Debug)]
pub struct Search {
    /// How often the sizes at the boundary are tried at least.
    rounds: usize,
    tried: BTreeMap<u32, Vec<Outcome>>,
}

/// What a search has found.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// The least size that is enough, in steps.
    pub least: Option<u32>,
    /// What came of the size below it. Without one, all sizes were enough.
    pub below: Option<Outcome>,
    /// Do most runs agree, at that size and at the one below?
    pub is_settled: bool,
}

impl Search {
    /// Nothing was tried yet.
    pub fn new(rounds: usize) -> Search {
        Search {
            rounds,
            tried: BTreeMap::new(),
        }
    }

    /// The size to try next, in steps. `None`: the boundary is found, or will not be.
    pub fn next(&self) -> Option<u32> {
        if self.runs() >= RUNS_MAX {
            return None;
        }
        let mut all = self.tried.iter();
        if let Some((size, _)) = all.find(|(_, runs)| is_enough(runs).is_none()) {
            return Some(*size);
        }
        let low = self.low();
        let Some(high) = self.high() else {
            return FIRST.into_iter().find(|size| *size > low);
        };
        if high - low > 1 {
            return Some(u32::midpoint(low, high));
        }
        [low, high].into_iter().find(|size| self.wants_more(*size))
    }

    /// Says what came of a run.
    pub fn tell(&mut self, size: u32, outcome: Outcome) {
        self.tried.entry(size).or_default().push(outcome);
    }

    /// How many runs there were.
    pub fn runs(&self) -> usize {
        self.tried.values().map(Vec::len).sum()
    }

    /// What is known by now.
    pub fn found(&self) -> Found {
        let (low, least) = (self.low(), self.high());
        let runs = self.tried.get(&low).into_iter().flatten();
        Found {
            least,
            below: runs.copied().rfind(|outcome| *outcome != Outcome::InTime),
            is_settled: self.next().is_none()
                && least.is_none_or(|high| high - low == 1)
                && self.agrees(),
        }
    }

    fn agrees(&self) -> bool {
        self.tried.values().all(|runs| is_enough(runs).is_some())
    }

    /// The largest size that is not enough.
    fn low(&self) -> u32 {
        let mut sizes = self.tried.iter().rev();
        let found = sizes.find(|(_, runs)| is_enough(runs) == Some(false));
        found.map_or(0, |(size, _)| *size)
    }

    /// The least size above that is enough.
    fn high(&self) -> Option<u32> {
        let mut sizes = self.tried.range(self.low() + 1..);
        let found = sizes.find(|(_, runs)| is_enough(runs) == Some(true));
        found.map(|(size, _)| *size)
    }

    /// A size at the boundary is tried again. What was refused is refused again.
    fn wants_more(&self, size: u32) -> bool {
        self.tried
            .get(&size)
            .is_some_and(|runs| runs.len() < self.rounds && !runs.contains(&Outcome::Refused))
    }
}

/// What most runs say.
fn is_enough(runs: &[Outcome]) -> Option<bool> {
    let good = runs.iter().filter(|run| **run == Outcome::InTime).count();
    match good.cmp(&(runs.len() - good)) {
        std::cmp::Ordering::Equal => None,
        order => Some(order.is_gt()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches with a runner that gets the size and how often it was asked about it before.
    fn search(rounds: usize, runner: impl Fn(u32, usize) -> Outcome) -> Search {
        let mut search = Search::new(rounds);
        while let Some(size) = search.next() {
            let before = search.tried.get(&size).map_or(0, Vec::len);
            search.tell(size, runner(size, before));
        }
        search
    }

    fn enough_from(least: u32) -> impl Fn(u32, usize) -> Outcome {
        move |size, _| match size {
            _ if size >= least => Outcome::InTime,
            _ if size + 2 >= least => Outcome::TooSlow,
            _ => Outcome::Full,
        }
    }

    #[test]
    fn every_boundary_is_found_with_few_runs() {
        for least in 2..=38 {
            for rounds in 1..=3 {
                let done = search(rounds, enough_from(least));
                let found = Found {
                    least: Some(least),
                    below: Some(Outcome::TooSlow),
                    is_settled: true,
                };
                assert_eq!(done.found(), found);
                // Two first sizes, five halvings, and the rounds of two sizes.
                let most = 7 + 2 * (rounds - 1);
                assert!(done.runs() <= most, "{least}: {} runs", done.runs());
                for (size, runs) in &done.tried {
                    let at_boundary = [least, least - 1].contains(size);
                    assert_eq!(runs.len(), if at_boundary { rounds } else { 1 }, "{size}");
                }
            }
        }
    }

    #[test]
    fn a_program_that_is_never_or_always_in_time_says_so() {
        let never = search(2, |_, _| Outcome::Full);
        let found = never.found();
        assert_eq!((found.least, found.below), (None, Some(Outcome::Full)));
        assert_eq!(never.runs(), FIRST.len());
        let always = search(2, |_, _| Outcome::InTime).found();
        assert_eq!((always.least, always.below), (Some(1), None));
        assert!(always.is_settled);
    }

    #[test]
    fn a_slow_run_at_the_boundary_takes_further_ones() {
        // The first run of the least size was unlucky.
        let unlucky = search(2, |size, before| match (size, before) {
            (12, 0) => Outcome::TooSlow,
            _ => enough_from(12)(size, before),
        });
        assert_eq!(unlucky.found().least, Some(12));
        assert_eq!(unlucky.tried[&12].len(), 3);
        // The first run of the size below was lucky.
        let lucky = search(2, |size, before| match (size, before) {
            (11, 0) => Outcome::InTime,
            _ => enough_from(12)(size, before),
        });
        assert_eq!(lucky.found().least, Some(12));
        assert!(lucky.found().is_settled);
        // With one round, one run is believed.
        let once = search(1, |size, before| match (size, before) {
            (12, 0) => Outcome::TooSlow,
            _ => enough_from(12)(size, before),
        });
        assert_eq!(once.found().least, Some(13));
    }

    #[test]
    fn what_was_refused_is_not_tried_again() {
        let done = search(2, |size, _| match size {
            10.. => Outcome::InTime,
            _ => Outcome::Refused,
        });
        assert_eq!(done.found().below, Some(Outcome::Refused));
        assert_eq!((done.tried[&9].len(), done.tried[&10].len()), (1, 2));
    }

    #[test]
    fn answers_that_always_differ_come_to_an_end() {
        let done = search(2, |_, before| match before % 2 {
            0 => Outcome::InTime,
            _ => Outcome::TooSlow,
        });
        assert!(done.runs() <= RUNS_MAX, "{} runs", done.runs());
        let mut undecided = Search::new(2);
        for run in 0..RUNS_MAX {
            undecided.tell(FIRST[0], [Outcome::TooSlow, Outcome::InTime][run % 2]);
        }
        assert_eq!(undecided.next(), None);
        assert!(!undecided.found().is_settled);
    }
}
