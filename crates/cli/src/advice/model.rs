//! What a run would do with less memory: vswap's own policy, played with the watched pages.
//!
//! A miniature simulation (Waldspurger 2017): the watched pages stand for all others, each for as many as its weight
//! says, and memory shrinks with them. The hand sweeps in address order, and pages that came back early twice in a row
//! are passed over, by the very code that the pager has. What is out takes memory too: compressed, in the pool.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vswap_pager::Sampled;
use vswap_pager::sampling::{BLOCK_PAGES, mix};
use vswap_pager::working_set::{Heat, Shadow, WorkingSet};

use crate::advice::lives::{Life, lives};
use crate::output::figures::PAGE_BYTES;

/// Streams that the pager follows at once (`policy/stream.rs` of the pager), and pages of the longest window.
const STREAMS: f64 = 8.0;
const WINDOW_MOST: u64 = BLOCK_PAGES;

/// Space by space, pages with what there was at each moment.
#[derive(Debug, Clone)]
pub struct Model {
    /// By space and address.
    lives: Vec<Life>,
    /// How many pages each of them stands for.
    weights: Vec<f64>,
    /// Memory that never leaves, from these moments on.
    fixed: Vec<(u64, f64)>,
    /// First touches so far at these moments.
    touches: Vec<(u64, u64)>,
    /// Pages that there were at these moments.
    totals: Vec<(u64, f64)>,
    /// What happens before then does not count.
    warm_us: u64,
    end_us: u64,
}

/// How much memory there is, and what is beside the program.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// What `--ram` says.
    pub ram_bytes: f64,
    /// What is taken by vswap itself, and left free.
    pub own_bytes: f64,
    /// What a page takes that is out.
    pub out_page_bytes: f64,
}

/// What happened in a simulation, scaled to all pages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// Pages that came in by themselves.
    pub lone: f64,
    /// Pages that came in behind another.
    pub streamed: f64,
    /// Pages that went out.
    pub out: f64,
    /// It was given up, because more came in than anybody would wait for.
    pub is_hopeless: bool,
    /// At some moment there was no room even with all of it out.
    pub is_overfull: bool,
}

impl Model {
    /// The model of what was sampled.
    pub fn of(sampled: &Sampled) -> Model {
        let lives = lives(&sampled.events, sampled.end_us);
        let weights = vec![1.0; lives.len()];
        let mut model = Model {
            lives,
            weights,
            fixed: Vec::new(),
            touches: Vec::new(),
            totals: Vec::new(),
            warm_us: 0,
            end_us: sampled.end_us,
        };
        model.take_looks(sampled);
        model.weigh(sampled);
        model
    }

    /// The same with one part in `parts` of the blocks alone.
    pub fn part(&self, sampled: &Sampled, part: u64, parts: u64) -> Model {
        let mut model = self.clone();
        model
            .lives
            .retain(|life| mix(!life.block()) % parts == part);
        model.weigh(sampled);
        model
    }

    /// The same of which the first `percent` of the time does not count.
    pub fn warm(mut self, percent: u64) -> Model {
        self.warm_us = self.end_us / 100 * percent;
        self
    }

    /// Watched pages.
    pub fn pages(&self) -> usize {
        self.lives.len()
    }

    /// Blocks that were chosen.
    pub fn blocks(&self) -> usize {
        let mut blocks: Vec<u64> = self.lives.iter().map(Life::block).collect();
        blocks.dedup();
        blocks.len()
    }

    /// The most memory that there was at a moment, without vswap's own.
    pub fn peak_bytes(&self) -> f64 {
        let totals = self.totals.iter();
        let all = totals.map(|(at, pages)| pages * PAGE_BYTES as f64 + value_at(&self.fixed, *at));
        all.fold(0.0, f64::max)
    }

    /// First touches from the moment on at which there was more than `bytes` in all.
    pub fn touches_above(&self, bytes: f64) -> u64 {
        let is_above = |at: &u64| {
            let pages = value_at(&self.totals, *at);
            pages * PAGE_BYTES as f64 + value_at(&self.fixed, *at) > bytes
        };
        let last = self.touches.last().map_or(0, |(_, touches)| *touches);
        let counts = |at: &u64| *at >= self.warm_us && is_above(at);
        let first = self.touches.iter().find(|(at, _)| counts(at));
        first.map_or(0, |(_, touches)| last - touches)
    }

    fn take_looks(&mut self, sampled: &Sampled) {
        let mut spaces: std::collections::BTreeMap<u32, (u64, u64)> = Default::default();
        for look in &sampled.looks {
            spaces.insert(look.space, (look.present_pages, look.out_pages));
            let present: u64 = spaces.values().map(|(present, _)| present).sum();
            let out: u64 = spaces.values().map(|(_, out)| out).sum();
            let fixed = look.run_resident_bytes.saturating_sub(present * PAGE_BYTES);
            self.fixed.push((look.at_us, fixed as f64));
            self.totals.push((look.at_us, (present + out) as f64));
            self.touches.push((look.at_us, look.first_touches));
        }
    }

    /// How many pages each watched one stands for: on the average of all looks at its space.
    fn weigh(&mut self, sampled: &Sampled) {
        let mut begin = 0;
        self.weights.clear();
        while begin < self.lives.len() {
            let space = self.lives[begin].space;
            let count = self.lives[begin..]
                .iter()
                .take_while(|l| l.space == space)
                .count();
            let weight = weight(&self.lives[begin..begin + count], space, sampled);
            self.weights.extend(std::iter::repeat_n(weight, count));
            begin += count;
        }
    }

    /// Plays the run with this room, until `is_hopeless` says that nobody would wait for it.
    pub fn play(&self, room: &Room, is_hopeless: impl Fn(&Outcome) -> bool) -> Outcome {
        Play::new(self, room).run(is_hopeless)
    }
}

fn weight(lives: &[Life], space: u32, sampled: &Sampled) -> f64 {
    let mut born: Vec<u64> = lives.iter().map(|life| life.born_us).collect();
    let mut died: Vec<u64> = lives.iter().map(|life| life.died_us).collect();
    born.sort_unstable();
    died.sort_unstable();
    let (mut all, mut watched) = (0, 0);
    for look in sampled.looks.iter().filter(|look| look.space == space) {
        let living = born.partition_point(|at| *at <= look.at_us)
            - died.partition_point(|at| *at <= look.at_us);
        watched += living as u64;
        all += look.present_pages + look.out_pages;
    }
    if watched == 0 {
        1.0
    } else {
        all as f64 / watched as f64
    }
}

fn value_at(steps: &[(u64, f64)], at_us: u64) -> f64 {
    let next = steps.partition_point(|(at, _)| *at <= at_us);
    next.checked_sub(1).map_or(0.0, |at| steps[at].1)
}

/// Where a page is in a simulation.
#[derive(Debug, Clone, Copy)]
enum Place {
    Absent,
    In { heat: Heat, laps: u8 },
    Out { shadow: Shadow },
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Dies,
    Touched,
    Born,
}

/// Faults that follow one another in a block.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The page that would continue it.
    next: u64,
    window: u64,
    /// How many had come in by themselves by then.
    lone: f64,
}

/// The hand of one space.
#[derive(Debug)]
struct Hand {
    begin: usize,
    end: usize,
    at: usize,
    /// Its pages in memory.
    present: f64,
    /// How much of what has to leave falls to it.
    share: f64,
}

struct Play<'a> {
    model: &'a Model,
    room: &'a Room,
    steps: BinaryHeap<Reverse<(u64, Step, usize)>>,
    places: Vec<Place>,
    /// The block of each page, and the newest stream in each block.
    blocks: Vec<usize>,
    streams: Vec<Stream>,
    hands: Vec<Hand>,
    hand_of: Vec<usize>,
    set: WorkingSet,
    present: f64,
    present_count: u64,
    out: f64,
    /// Which step of the fixed memory holds.
    fixed_at: usize,
    outcome: Outcome,
    /// What of it does not count, once that is known.
    before: Option<Outcome>,
}

impl<'a> Play<'a> {
    fn new(model: &'a Model, room: &'a Room) -> Play<'a> {
        let mut hands: Vec<Hand> = Vec::new();
        let mut hand_of = Vec::with_capacity(model.lives.len());
        let mut blocks: Vec<usize> = Vec::with_capacity(model.lives.len());
        let mut steps = BinaryHeap::with_capacity(model.lives.len() * 2);
        for (at, life) in model.lives.iter().enumerate() {
            let is_new = at == 0 || model.lives[at - 1].space != life.space;
            if is_new {
                hands.push(Hand {
                    begin: at,
                    end: at,
                    at,
                    present: 0.0,
                    share: 0.0,
                });
            }
            if let Some(hand) = hands.last_mut() {
                hand.end = at + 1;
            }
            hand_of.push(hands.len() - 1);
            let before = at
                .checked_sub(1)
                .filter(|b| model.lives[*b].block() == life.block());
            blocks.push(before.map_or(at, |before| blocks[before]));
            steps.push(Reverse((life.born_us, Step::Born, at)));
            steps.push(Reverse((life.died_us, Step::Dies, at)));
        }
        Play {
            model,
            room,
            steps,
            places: vec![Place::Absent; model.lives.len()],
            streams: vec![Stream::default(); model.lives.len()],
            blocks,
            hands,
            hand_of,
            set: WorkingSet::default(),
            present: 0.0,
            present_count: 0,
            out: 0.0,
            fixed_at: 0,
            outcome: Outcome::default(),
            before: None,
        }
    }

    fn run(mut self, is_hopeless: impl Fn(&Outcome) -> bool) -> Outcome {
        while let Some(Reverse((at_us, step, page))) = self.steps.pop() {
            if at_us >= self.model.end_us {
                break;
            }
            if at_us >= self.model.warm_us && self.before.is_none() {
                self.before = Some(self.outcome);
            }
            match step {
                Step::Born => self.comes(page, Heat::COLD),
                Step::Touched => self.touched(page),
                Step::Dies => self.dies(page),
            }
            if step != Step::Dies {
                self.make_room(at_us);
            }
            if is_hopeless(&self.counted()) {
                self.outcome.is_hopeless = true;
                break;
            }
        }
        self.counted()
    }

    /// What counts. Until it is warm, all of it does, so that a hopeless run does not go on for long.
    fn counted(&self) -> Outcome {
        let (all, before) = (self.outcome, self.before.unwrap_or_default());
        Outcome {
            lone: all.lone - before.lone,
            streamed: all.streamed - before.streamed,
            out: all.out - before.out,
            ..all
        }
    }

    fn comes(&mut self, page: usize, heat: Heat) {
        let weight = self.model.weights[page];
        let laps = heat.laps();
        self.places[page] = Place::In { heat, laps };
        self.present += weight;
        self.present_count += 1;
        self.hands[self.hand_of[page]].present += weight;
    }

    fn leaves(&mut self, page: usize) {
        let weight = self.model.weights[page];
        self.present -= weight;
        self.present_count -= 1;
        self.hands[self.hand_of[page]].present -= weight;
    }

    /// A touch brings its page in, and those behind it if it continues a stream. Where the block ends, its beginning
    /// stands for the next block, which may not be watched.
    fn touched(&mut self, page: usize) {
        if !self.comes_back(page) {
            return;
        }
        let weight = self.model.weights[page];
        let window = self.window(page);
        if window == 1 {
            self.outcome.lone += weight;
        } else {
            self.outcome.streamed += weight;
        }
        self.streams[self.blocks[page]].lone = self.outcome.lone;
        let number = self.model.lives[page].page;
        for behind in number + 1..number + window {
            let in_block = number / BLOCK_PAGES * BLOCK_PAGES + behind % BLOCK_PAGES;
            if let Some(page) = self.find(self.blocks[page], in_block)
                && self.comes_back(page)
            {
                self.outcome.streamed += weight;
            }
        }
    }

    /// The life of a page of the block that begins at `first`, if the page is out.
    fn find(&self, first: usize, number: u64) -> Option<usize> {
        let block = self.model.lives[first..].iter().zip(first..);
        let mut block = block.take_while(|(_, at)| self.blocks[*at] == first);
        let is_out = |at: &usize| matches!(self.places[*at], Place::Out { .. });
        block.find_map(|(life, at)| Some(at).filter(|at| life.page == number && is_out(at)))
    }

    /// Bring a page in, if it is out.
    fn comes_back(&mut self, page: usize) -> bool {
        let Place::Out { shadow } = self.places[page] else {
            return false;
        };
        self.out -= self.model.weights[page];
        let heat = self.set.come_back(shadow, self.present_count);
        self.comes(page, heat);
        true
    }

    /// How many pages a touch brings in. The pager follows a few streams at once, and forgets the one that was longest
    /// without a fault. Of the faults in between only the watched ones are seen, and stand for the others.
    fn window(&mut self, page: usize) -> u64 {
        let number = self.model.lives[page].page;
        let stream = &mut self.streams[self.blocks[page]];
        let gap = number.checked_sub(stream.next);
        let is_near = gap.is_some_and(|gap| gap == 0 || gap < stream.window);
        let goes_on = is_near && self.outcome.lone - stream.lone <= STREAMS;
        stream.window = if goes_on {
            (stream.window * 2).min(WINDOW_MOST)
        } else {
            1
        };
        stream.next = number + stream.window;
        stream.window
    }

    fn dies(&mut self, page: usize) {
        match self.places[page] {
            Place::In { .. } => self.leaves(page),
            Place::Out { .. } => self.out -= self.model.weights[page],
            Place::Absent => {}
        }
        self.places[page] = Place::Absent;
    }

    fn is_over(&mut self, at_us: u64) -> bool {
        // Time goes on, so the step is the one of last time or a later one.
        let steps = &self.model.fixed;
        while steps
            .get(self.fixed_at + 1)
            .is_some_and(|(since, _)| *since <= at_us)
        {
            self.fixed_at += 1;
        }
        let fixed = steps.get(self.fixed_at).map_or(0.0, |(_, bytes)| *bytes);
        let taken = self.present * PAGE_BYTES as f64 + self.out * self.room.out_page_bytes;
        fixed + self.room.own_bytes + taken > self.room.ram_bytes
    }

    fn make_room(&mut self, at_us: u64) {
        while self.is_over(at_us) {
            let Some(hand) = self.next_hand() else {
                self.outcome.is_overfull = true;
                return;
            };
            let found = self.sweep(hand, true).or_else(|| self.sweep(hand, false));
            let Some(page) = found else {
                self.outcome.is_overfull = true;
                return;
            };
            self.hands[hand].share -= self.model.weights[page];
            self.evict(at_us, page);
        }
    }

    /// Each hand moves out as much as its space has in memory.
    fn next_hand(&mut self) -> Option<usize> {
        let all: f64 = self.hands.iter().map(|hand| hand.present).sum();
        let weight = self.model.weights.first().copied().unwrap_or(1.0);
        for hand in &mut self.hands {
            hand.share += weight * hand.present / all.max(1.0);
        }
        let hands = self.hands.iter().enumerate();
        let living = hands.filter(|(_, hand)| hand.present > 0.5);
        let next = living.max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share));
        next.map(|(number, _)| number)
    }

    /// The next page that the hand takes, going once around.
    fn sweep(&mut self, hand: usize, spares: bool) -> Option<usize> {
        let hand = &mut self.hands[hand];
        for _ in hand.begin..hand.end {
            let at = hand.at;
            hand.at = if at + 1 < hand.end {
                at + 1
            } else {
                hand.begin
            };
            match &mut self.places[at] {
                Place::In { laps, .. } if *laps > 0 && spares => *laps -= 1,
                Place::In { .. } => return Some(at),
                Place::Out { .. } | Place::Absent => {}
            }
        }
        None
    }

    fn evict(&mut self, at_us: u64, page: usize) {
        let Place::In { heat, .. } = self.places[page] else {
            return;
        };
        let weight = self.model.weights[page];
        self.leaves(page);
        let shadow = self.set.leave(heat);
        self.places[page] = Place::Out { shadow };
        self.out += weight;
        self.outcome.out += weight;
        let next = self.model.lives[page].next_touch(at_us);
        if next < self.model.end_us {
            self.steps
                .push(Reverse((next.max(at_us + 1), Step::Touched, page)));
        }
    }
}
