//! How much is measured: threads, rounds, and the time of one measurement.

use std::time::Duration;

/// Numbers of threads: one, one for each processor of a small machine, and two that exceed its processors.
pub(crate) const THREADS: [usize; 4] = [1, 2, 8, 32];

/// Rounds of a run that can be trusted: the fewest with a median that one bad round cannot move.
const ROUNDS: usize = 5;
/// Rounds of a quick run, which only shows that everything works.
const ROUNDS_QUICK: usize = 1;
/// Time of one measurement: a hundred scheduler slices of two threads. 160 measurements fit into two minutes.
const CELL: Duration = Duration::from_millis(150);
const CELL_QUICK: Duration = Duration::from_millis(15);
/// Slots of the area that is filled to weigh its tables: 32 GiB. The cost of a table per slot does not depend on it.
const FILLED_SLOTS: u64 = 1 << 23;
const FILLED_SLOTS_QUICK: u64 = 1 << 20;

/// How often four areas are filled for one measurement: a tenth of a second in memory.
const AREA_FILLS: usize = 4;

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How often each measurement is repeated. A round takes every variant in turn.
    pub(crate) rounds: usize,
    /// How long one measurement takes.
    pub(crate) cell: Duration,
    /// Slots of the full area.
    pub(crate) filled_slots: u64,
    /// How often the four areas are filled for one measurement.
    pub(crate) area_fills: usize,
    /// Is this a short run that only shows that everything works?
    pub(crate) quick: bool,
    /// Measurements whose name does not contain this are left out.
    pub(crate) only: String,
}

impl Plan {
    pub(crate) const FULL: Plan = Plan {
        rounds: ROUNDS,
        cell: CELL,
        filled_slots: FILLED_SLOTS,
        area_fills: AREA_FILLS,
        quick: false,
        only: String::new(),
    };
    pub(crate) const QUICK: Plan = Plan {
        rounds: ROUNDS_QUICK,
        cell: CELL_QUICK,
        filled_slots: FILLED_SLOTS_QUICK,
        area_fills: 1,
        quick: true,
        only: String::new(),
    };

    /// Is the measurement of `variant` under `load` wanted?
    pub(crate) fn wants(&self, load: &str, variant: &str) -> bool {
        format!("{load}: {variant}").contains(&self.only)
    }

    /// For each round, whether it goes through the variants backwards, so that it is not always the same variant that
    /// goes first.
    pub(crate) fn backwards_by_round(&self) -> impl Iterator<Item = bool> + use<> {
        (0..self.rounds).map(|round| round % 2 == 1)
    }
}

/// `items` in a round's order.
pub(crate) fn in_order<T: Copy>(items: &[T], backwards: bool) -> Vec<T> {
    let mut items = items.to_vec();
    if backwards {
        items.reverse();
    }
    items
}
