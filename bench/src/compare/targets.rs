//! The targets for vswap compared with the kernel, and whether they were reached.

use std::fmt;

use serde_json::{Value, json};

use crate::kernel_swap::Backing;

use super::result::Report;
use super::side::Side;

const ZRAM: (Side, Side) = (Side::Vswap(Backing::Zram), Side::Kernel(Backing::Zram));
const FILE: (Side, Side) = (Side::Vswap(Backing::File), Side::Kernel(Backing::File));
/// The size of a page in KB, the unit of throughput.
const PAGE_KB: f64 = 4.0;
const ARENA: (Side, Side) = (Side::Arena, Side::Kernel(Backing::Zram));
const NATIVE: (Side, Side) = (Side::Vswap(Backing::Zram), Side::Native);

/// What limits the figures that may be missed, as far as profiles have shown. docs/where-time-goes.md has the parts.
const FAULT: &str =
    "a fault goes to a reader and back: two switches of threads and three system calls";
const ZIPF: &str =
    "the way of a fault, and a tenth more faults, as memory is left free and tables take some";
const SWITCHES: &str =
    "processors sleep while a disk works, and a fault wakes three threads, the kernel's one";
const STREAM: &str = "the next windows are asked for when the last ones have been used up";
const FORK: &str =
    "parent and child each bring in a page of their own where the kernel maps one for both";
const STARTS: &str = "every process that starts costs 3 ms more, and a fault twice the kernel's";
const HOST: &str = "fresh memory costs more or less from run to run, with vswap and without";
const EVICTOR: &str = "one thread evicts, and waits in turn for moving, copying and serving";
const WINDOW: &str = "counts windows of 16 pages, and faults that wait for the limit";

/// A target for a figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    what: &'static str,
    workload: &'static str,
    row: &'static str,
    figure: Figure,
    bound: Bound,
    /// What limits it.
    because: Option<&'static str>,
}

/// Which figure of a row the target is for.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// One side's median over the other's.
    Ratio((Side, Side)),
    /// The median itself.
    Of(Side),
    /// The throughput of pages divided by that of this row of `device`.
    OfDevice(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// The outcome of a target.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) target: &'static Target,
    /// `None` if the sides did not run.
    pub(super) measured: Option<f64>,
}

/// A target for a ratio to zram that should be small.
const fn at_most(
    what: &'static str,
    workload: &'static str,
    row: &'static str,
    bound: f64,
) -> Target {
    Target {
        what,
        workload,
        row,
        figure: Figure::Ratio(ZRAM),
        bound: Bound::AtMost(bound),
        because: None,
    }
}

/// A target for a ratio to zram that should be large.
const fn at_least(
    what: &'static str,
    workload: &'static str,
    row: &'static str,
    bound: f64,
) -> Target {
    Target {
        bound: Bound::AtLeast(bound),
        ..at_most(what, workload, row, bound)
    }
}

const fn of(what: &'static str, row: &'static str, bound: f64) -> Target {
    Target {
        figure: Figure::Of(Side::Vswap(Backing::Zram)),
        ..at_most(what, "fill-read-write", row, bound)
    }
}

/// A target for a fraction of the device's throughput.
const fn of_device(what: &'static str, row: &'static str, device_row: &'static str) -> Target {
    Target {
        figure: Figure::OfDevice(device_row),
        ..at_least(what, "disk", row, 0.8)
    }
}

const fn on(pair: (Side, Side), target: Target) -> Target {
    Target {
        figure: Figure::Ratio(pair),
        ..target
    }
}

/// A target for an arena's ratio to zram.
const fn of_arena(
    what: &'static str,
    workload: &'static str,
    row: &'static str,
    bound: f64,
) -> Target {
    on(ARENA, at_most(what, workload, row, bound))
}

/// A target for what an arena itself takes.
const fn on_arena(what: &'static str, row: &'static str, bound: f64) -> Target {
    Target {
        figure: Figure::Of(Side::Arena),
        ..at_most(what, "fill-read-write", row, bound)
    }
}

/// The target, with what limits its figure.
const fn limited(because: &'static str, target: Target) -> Target {
    Target {
        because: Some(because),
        ..target
    }
}

const TARGETS: &[Target] = &[
    at_most("fill, 1 task", "fill-read-write", "fill us/op", 0.6),
    at_most(
        "sequential read, 1 task",
        "fill-read-write",
        "seq_read us/op",
        0.6,
    ),
    limited(
        FAULT,
        at_most(
            "random read, 1 task",
            "fill-read-write",
            "random_read us/op",
            0.8,
        ),
    ),
    limited(
        FAULT,
        at_most(
            "random write, 1 task",
            "fill-read-write",
            "random_write us/op",
            0.8,
        ),
    ),
    limited(
        ZIPF,
        at_most("zipf 0.8, 1 task", "zipf-0.8", "zipf us/op", 0.8),
    ),
    limited(
        ZIPF,
        at_most("zipf 0.99, 1 task", "zipf-0.99", "zipf us/op", 0.8),
    ),
    limited(
        ZIPF,
        at_most("zipf 1.2, 1 task", "zipf-1.2", "zipf us/op", 0.8),
    ),
    at_least("usemem throughput, 2 tasks", "usemem-2", "touch KB/s", 1.3),
    at_least(
        "usemem throughput, 31 tasks",
        "usemem-31",
        "touch KB/s",
        1.3,
    ),
    at_most(
        "free latency, mostly swapped",
        "usemem-1",
        "free us/op",
        0.5,
    ),
    limited(FAULT, at_least("redis GET", "redis", "get ops/s", 1.1)),
    limited(FAULT, at_most("redis GET, p99", "redis", "get p99 us", 1.0)),
    limited(
        FORK,
        at_least("redis GET during BGSAVE", "redis", "get_bgsave ops/s", 1.1),
    ),
    limited(
        FORK,
        at_most(
            "redis GET during BGSAVE, p99",
            "redis",
            "get_bgsave p99 us",
            1.0,
        ),
    ),
    limited(
        FAULT,
        at_most("redis zipf mix, p99", "redis", "zipf p99 us", 1.0),
    ),
    limited(STARTS, at_most("build", "build", "wall s", 0.95)),
    limited(
        EVICTOR,
        on(
            FILE,
            at_most("disk, pool off: fill", "disk", "fill us/op", 0.5),
        ),
    ),
    on(
        FILE,
        at_most(
            "disk, pool off: sequential read",
            "disk",
            "seq_read us/op",
            0.5,
        ),
    ),
    limited(
        SWITCHES,
        on(
            FILE,
            at_most(
                "disk, pool off: random read",
                "disk",
                "random_read us/op",
                1.05,
            ),
        ),
    ),
    limited(
        EVICTOR,
        of_device(
            "disk: fill, share of what fio gets",
            "fill us/op",
            "write KB/s",
        ),
    ),
    limited(
        STREAM,
        of_device(
            "disk: sequential read, share of fio",
            "seq_read us/op",
            "read KB/s",
        ),
    ),
    limited(
        FAULT,
        of("swap-in, p50 of all faults, us", "vswap fault p50 us", 5.0),
    ),
    limited(
        WINDOW,
        of("swap-in, p99 of all faults, us", "vswap fault p99 us", 30.0),
    ),
    limited(
        FAULT,
        of(
            "a miss as the program sees it, p50, us",
            "miss p50 us",
            10.0,
        ),
    ),
    limited(
        WINDOW,
        of(
            "a miss as the program sees it, p99, us",
            "miss p99 us",
            40.0,
        ),
    ),
    at_most(
        "total CPU, fill-read-write",
        "fill-read-write",
        "CPU s",
        1.1,
    ),
    at_most("total CPU, zipf 0.99", "zipf-0.99", "CPU s", 1.1),
    at_most("total CPU, usemem 2 tasks", "usemem-2", "CPU s", 1.1),
    limited(FORK, at_most("total CPU, redis", "redis", "CPU s", 1.1)),
    at_most("total CPU, build", "build", "CPU s", 1.1),
    limited(
        HOST,
        on(
            NATIVE,
            at_most("overhead when all of it fits", "fits", "wall s", 1.01),
        ),
    ),
    of_arena("arena: fill", "fill-read-write", "fill us/op", 0.6),
    of_arena(
        "arena: sequential read",
        "fill-read-write",
        "seq_read us/op",
        0.5,
    ),
    of_arena(
        "arena: random read",
        "fill-read-write",
        "random_read us/op",
        0.55,
    ),
    of_arena(
        "arena: random write",
        "fill-read-write",
        "random_write us/op",
        0.55,
    ),
    on_arena("arena: a random miss, p50, us", "miss p50 us", 7.5),
    on_arena("arena: a random miss, p99, us", "miss p99 us", 30.0),
    of_arena("arena: zipf 0.99", "zipf-0.99", "zipf us/op", 0.6),
];

impl Figure {
    fn find(self, report: &Report, target: &Target) -> Option<f64> {
        let row = report.workload(target.workload)?.samples.row(target.row)?;
        match self {
            Self::Ratio((ours, theirs)) => row.ratio(ours, theirs).map(|ratio| ratio.of_medians),
            Self::Of(side) => row.spread(side).map(|spread| spread.median),
            Self::OfDevice(of_device) => {
                let us = row.spread(FILE.0)?.median;
                let device = report.workload("device")?.samples.row(of_device)?;
                Some(PAGE_KB * 1e6 / us / device.spread(Side::Native)?.median)
            }
        }
    }
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtMost(bound) => figure <= bound,
            Self::AtLeast(bound) => figure >= bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::AtMost(bound) => format!("<= {bound}"),
            Self::AtLeast(bound) => format!(">= {bound}"),
        };
        f.pad(&text)
    }
}

/// The verdicts on the targets of the requested workloads. Those of the arena are only of interest where it ran: no
/// workload has it among its own sides.
pub(super) fn verdicts(report: &Report) -> Vec<Verdict> {
    let is_of_side = |target: &&Target| {
        !matches!(
            target.figure,
            Figure::Ratio(ARENA) | Figure::Of(Side::Arena)
        ) || report
            .workload(target.workload)
            .is_some_and(|result| result.samples.sides().contains(&Side::Arena))
    };
    let was_asked_for = |target: &&Target| {
        report.workload(target.workload).is_some()
            || report
                .left_out
                .iter()
                .any(|left| left.workload == target.workload)
    };
    let verdict = |target: &'static Target| Verdict {
        target,
        measured: target.figure.find(report, target),
    };
    TARGETS
        .iter()
        .filter(was_asked_for)
        .filter(is_of_side)
        .map(verdict)
        .collect()
}

impl Verdict {
    pub(super) const fn what(&self) -> &'static str {
        self.target.what
    }

    /// The workload, row and sides that the verdict is about.
    pub(super) fn place(&self) -> String {
        let Target { workload, row, .. } = self.target;
        match self.target.figure {
            Figure::Ratio((ours, theirs)) => format!("{workload}: {row}, {ours}/{theirs}"),
            Figure::Of(side) => format!("{workload}: {row}, {side}"),
            Figure::OfDevice(of) => format!("{workload}: {row}, as throughput, / device: {of}"),
        }
    }

    pub(super) fn wanted(&self) -> String {
        self.target.bound.to_string()
    }

    pub(super) fn met(&self) -> Option<bool> {
        self.measured.map(|figure| self.target.bound.holds(figure))
    }

    pub(super) fn word(&self) -> &'static str {
        match self.met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        }
    }

    /// What limits the figure, if the target was missed.
    pub(super) fn because(&self) -> Option<&'static str> {
        self.target.because.filter(|_| self.met() == Some(false))
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "target": self.what(),
            "place": self.place(),
            "wanted": self.wanted(),
            "measured": self.measured,
            "met": self.met(),
            "because": self.because(),
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = self
            .measured
            .map_or("-".to_owned(), |figure| format!("{figure:.2}"));
        let (what, wanted) = (self.what(), self.wanted());
        write!(f, "{what:<36} {wanted:>10} {measured:>10}  {}", self.word())?;
        match self.because() {
            Some(because) => write!(f, ": {because}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::one_run_one_left_out;
    use super::super::samples::tests::ended;
    use super::*;

    #[test]
    fn targets_are_met_missed_or_not_measured() {
        let report = one_run_one_left_out("true");
        let verdicts = verdicts(&report);
        let word = |what: &str| {
            let found = verdicts.iter().find(|verdict| verdict.what() == what);
            found.map(Verdict::word)
        };
        assert_eq!(word("fill, 1 task"), Some("met"));
        assert_eq!(word("sequential read, 1 task"), Some("not measured"));
        assert_eq!(word("swap-in, p50 of all faults, us"), Some("met"));
        assert_eq!(word("build"), Some("not measured"));
        assert_eq!(word("redis GET"), None);
        assert_eq!(verdicts[0].to_json()["met"], true);
        assert_eq!(
            verdicts[0].place(),
            "fill-read-write: fill us/op, vswap/zram"
        );
    }

    #[test]
    fn an_arena_is_judged_where_it_ran() {
        let mut report = one_run_one_left_out("true");
        let arena = |report: &Report| {
            let verdicts = verdicts(report);
            let found = verdicts
                .iter()
                .find(|verdict| verdict.what() == "arena: fill");
            found.map(|verdict| (verdict.word(), verdict.place()))
        };
        assert_eq!(arena(&report), None);
        let line = "{\"phase\":\"fill\",\"us_per_op\":13}\n";
        let samples = &mut report.workloads[0].samples;
        samples.add(Side::Arena, &ended(line, 13.0), None, None);
        let place = "fill-read-write: fill us/op, arena/zram".to_owned();
        // 13 of 20 microseconds.
        assert_eq!(arena(&report), Some(("missed", place)));
    }

    #[test]
    fn what_was_missed_says_what_limits_it() {
        let target = TARGETS
            .iter()
            .find(|target| target.what == "build")
            .expect("build");
        let verdict = |measured| Verdict { target, measured };
        assert!(
            verdict(Some(1.2))
                .to_string()
                .ends_with(&format!("missed: {STARTS}"))
        );
        assert_eq!(verdict(Some(0.9)).because(), None);
        assert_eq!(verdict(None).because(), None);
    }

    #[test]
    fn every_target_is_of_a_workload_that_exists() {
        for target in TARGETS {
            let known = super::super::jobs::NAMED
                .iter()
                .any(|named| named.name == target.workload);
            assert!(known, "{}", target.workload);
        }
    }

    #[test]
    fn bounds_hold_at_their_edge() {
        assert!(Bound::AtMost(0.6).holds(0.6) && !Bound::AtMost(0.6).holds(0.61));
        assert!(Bound::AtLeast(1.3).holds(1.3) && !Bound::AtLeast(1.3).holds(1.29));
    }
}
