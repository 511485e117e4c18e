//! What happened in a run, found by comparing each look with the one before. What comes and goes between two looks is
//! not seen, but for waits, which are counted.

use std::collections::BTreeSet;
use std::fmt;

use vswap_pager::Status;
use vswap_pager::status::State;

use crate::output::figures::{bytes, count};

/// Most events that are kept, the first ones. Further ones are counted.
const EVENTS_MAX: usize = 256;
/// A limit has changed when it differs by one part in this many: one that is approached or follows what the machine can
/// spare changes all the time.
const LIMIT_PART: u64 = 16;
/// Less time than this is not worth a word, in seconds.
const WAIT_LEAST_S: f64 = 0.05;
/// A pause between looks of at least so long and so many times their pace is an event, in seconds and paces.
const GAP_LEAST_S: f64 = 5.0;
const GAP_PACES: f64 = 20.0;

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Seconds since the program was started, when it was seen.
    pub seconds: f64,
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Memory became short for the first time.
    Active,
    /// The run gets on in another way.
    State(State),
    /// The program has waited so many seconds for memory because everything was full.
    Waited(f64),
    /// An area came into use, of so many bytes.
    AreaOn(String, u64),
    /// An area is in use no more.
    AreaOff(String),
    /// An area could not take a page.
    AreaFails(String),
    /// The limit is another one.
    Limit(u64),
    /// So many pages could not be read back.
    Lost(u64),
    /// So many pages could not be moved to an area.
    NotWritten(u64),
    /// There are so many processes without an agent.
    Unmanaged(u64),
    /// Nobody looked for so many seconds.
    Gap(f64),
}

/// All events.
#[derive(Debug, Clone, Default)]
pub struct Events {
    list: Vec<Event>,
    /// Events that came when the list was full.
    more: u64,
    last: Option<Last>,
}

/// What the next look is compared with.
#[derive(Debug, Clone)]
struct Last {
    seconds: f64,
    status: Status,
    /// The limit that was said last.
    limit_bytes: u64,
}

impl Events {
    /// Takes in a look. Looks are `pace` seconds apart, as a rule.
    pub fn note(&mut self, status: &Status, seconds: f64, pace: f64) {
        let mut found = Vec::new();
        let mut limit_bytes = status.wanted_limit_bytes;
        match &self.last {
            Some(last) => {
                let gap = seconds - last.seconds;
                if gap >= (pace * GAP_PACES).max(GAP_LEAST_S) {
                    found.push(What::Gap(gap));
                }
                changes(&last.status, status, &mut found);
                if limit_bytes.abs_diff(last.limit_bytes) > last.limit_bytes / LIMIT_PART {
                    found.push(What::Limit(limit_bytes));
                } else {
                    limit_bytes = last.limit_bytes;
                }
            }
            None => changes(&Status::default(), status, &mut found),
        }
        for what in found {
            self.push(Event { seconds, what });
        }
        // Not the list of processes, which may be long.
        let status = Status {
            processes: Vec::new(),
            ..status.clone()
        };
        self.last = Some(Last {
            seconds,
            status,
            limit_bytes,
        });
    }

    /// The first events, in order.
    pub fn list(&self) -> &[Event] {
        &self.list
    }

    /// How many more there were.
    pub fn more(&self) -> u64 {
        self.more
    }

    fn push(&mut self, event: Event) {
        if self.list.len() < EVENTS_MAX {
            self.list.push(event);
        } else {
            self.more += 1;
        }
    }
}

fn changes(before: &Status, now: &Status, found: &mut Vec<What>) {
    if now.active && !before.active {
        found.push(What::Active);
    }
    areas(before, now, found);
    let waited = now.stalled_seconds - before.stalled_seconds;
    let was_full = before.state == State::Full;
    if waited >= WAIT_LEAST_S && (was_full != (now.state == State::Full) || !was_full) {
        found.push(What::Waited(now.stalled_seconds));
    }
    if now.state != before.state {
        found.push(What::State(now.state));
    }
    let mut grown = |before: u64, now: u64, what: fn(u64) -> What| {
        if now > before {
            found.push(what(now));
        }
    };
    grown(before.pages_lost, now.pages_lost, What::Lost);
    let (failed, fail) = (before.write_back_failures, now.write_back_failures);
    grown(failed, fail, What::NotWritten);
    let (had, has) = (before.processes_unmanaged, now.processes_unmanaged);
    grown(had, has, What::Unmanaged);
}

fn areas(before: &Status, now: &Status, found: &mut Vec<What>) {
    let names = |status: &Status| -> BTreeSet<String> {
        status.areas.iter().map(|area| area.name.clone()).collect()
    };
    let (had, has) = (names(before), names(now));
    let gone = had.difference(&has).cloned();
    found.extend(gone.map(What::AreaOff));
    for area in &now.areas {
        if !had.contains(&area.name) {
            found.push(What::AreaOn(area.name.clone(), area.size_bytes));
        }
        let failed = |other: &vswap_pager::AreaStatus| other.name == area.name && other.failing;
        if area.failing && !before.areas.iter().any(failed) {
            found.push(What::AreaFails(area.name.clone()));
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Active => {
                f.write_str("memory became short: vswap began to watch the program's memory")
            }
            What::State(State::Running) => f.write_str("runs as it should"),
            What::State(State::Thrashing) => {
                f.write_str("thrashes: spends more time on paging than on work")
            }
            What::State(State::Full) => {
                f.write_str("everything is full: the program waits for memory")
            }
            What::State(State::Parked) => {
                f.write_str("is parked: stopped, with its memory moved out")
            }
            What::State(State::Stopped) => f.write_str("all its processes are stopped"),
            What::Waited(seconds) => write!(
                f,
                "has waited {seconds:.1} s for memory so far, because everything was full"
            ),
            What::AreaOn(name, size) => {
                write!(f, "swap area {name} came into use ({})", bytes(*size))
            }
            What::AreaOff(name) => write!(f, "swap area {name} is in use no more"),
            What::AreaFails(name) => write!(f, "swap area {name} could not take a page"),
            What::Limit(limit) => write!(f, "the limit is {} now", bytes(*limit)),
            What::Lost(pages) => write!(f, "{} pages could not be read back so far", count(*pages)),
            What::NotWritten(pages) => write!(
                f,
                "{} pages could not be moved to an area so far",
                count(*pages)
            ),
            What::Unmanaged(processes) => write!(
                f,
                "{processes} processes without an agent: counted, not managed"
            ),
            What::Gap(seconds) => write!(
                f,
                "nobody looked for {seconds:.1} s: vswap was stopped, or looks took long"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vswap_pager::AreaStatus;

    fn area(name: &str, failing: bool) -> AreaStatus {
        AreaStatus {
            name: name.to_owned(),
            kind: "file",
            size_bytes: 1 << 20,
            used_bytes: 0,
            held_bytes: 0,
            priority: 0,
            read_bytes: 0,
            written_bytes: 0,
            errors: 0,
            failing,
            io: "direct",
            encrypted: true,
            tier: vswap_areas::TierName::default(),
            latency_us: None,
            far: None,
        }
    }

    fn said(looks: &[Status]) -> Vec<String> {
        let mut events = Events::default();
        for (look, seconds) in looks.iter().zip(0_u32..) {
            events.note(look, f64::from(seconds), 1.0);
        }
        let events = events.list.iter();
        events
            .map(|event| format!("{} {}", event.seconds, event.what))
            .collect()
    }

    #[test]
    fn areas_come_fail_and_go() {
        let look = |areas: &[AreaStatus]| Status {
            areas: areas.to_vec(),
            ..Status::default()
        };
        let looks = [
            look(&[area("/a", false)]),
            look(&[area("/a", false), area("/b", false)]),
            look(&[area("/a", false), area("/b", true)]),
            look(&[area("/b", true)]),
        ];
        assert_eq!(
            said(&looks),
            [
                "0 swap area /a came into use (1 MiB)",
                "1 swap area /b came into use (1 MiB)",
                "2 swap area /b could not take a page",
                "3 swap area /a is in use no more",
            ]
        );
    }

    #[test]
    fn waits_and_states_are_said_when_they_change() {
        let look = |state, stalled_seconds| Status {
            state,
            stalled_seconds,
            active: true,
            ..Status::default()
        };
        let looks = [
            look(State::Running, 0.0),
            look(State::Full, 0.4),
            look(State::Full, 1.4),
            look(State::Full, 2.4),
            look(State::Running, 2.5),
            look(State::Running, 2.9),
            look(State::Running, 2.9),
        ];
        let short = "memory became short: vswap began to watch the program's memory";
        let waited = |at: u32, seconds: f64| {
            format!("{at} has waited {seconds:.1} s for memory so far, because everything was full")
        };
        assert_eq!(
            said(&looks),
            [
                format!("0 {short}"),
                waited(1, 0.4),
                "1 everything is full: the program waits for memory".to_owned(),
                waited(4, 2.5),
                "4 runs as it should".to_owned(),
                waited(5, 2.9),
            ]
        );
    }

    #[test]
    fn a_limit_that_creeps_is_said_in_large_steps() {
        let look = |wanted_limit_bytes| Status {
            wanted_limit_bytes,
            ..Status::default()
        };
        let looks = [1600, 1601, 1650, 1701, 1750, 900].map(|mib| look(mib << 20));
        assert_eq!(
            said(&looks),
            ["3 the limit is 1.66 GiB now", "5 the limit is 900 MiB now"]
        );
    }

    #[test]
    fn what_goes_wrong_and_pauses_are_said_and_all_of_it_is_bounded() {
        let mut events = Events::default();
        let look = |pages_lost| Status {
            pages_lost,
            ..Status::default()
        };
        events.note(&look(0), 0.0, 0.1);
        events.note(&look(0), 4.0, 0.1);
        events.note(&look(2), 60.0, 0.1);
        let whats: Vec<&What> = events.list().iter().map(|event| &event.what).collect();
        assert_eq!(whats, [&What::Gap(56.0), &What::Lost(2)]);
        for lost in 3..1000 {
            events.note(&look(lost), 61.0, 0.1);
        }
        assert_eq!(events.list().len(), EVENTS_MAX);
        assert_eq!(events.more(), 997 + 2 - EVENTS_MAX as u64);
    }
}
