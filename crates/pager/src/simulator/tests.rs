//! What is run: some seeds that must pass, seeds that somebody asks for, and schedules without a rule, which must fail.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::actors::WHOLE_ENV;
use super::memory::PROGRAM;
use super::plan::{Call, Plan, kind};
use super::run::Lab;
use super::shrink;
use crate::base::rules::Rule;

/// Seeds of an ordinary test run.
const SEEDS: u64 = 800;
/// Other seeds to run: `VSWAP_SIM_SEED` is the first, `VSWAP_SIM_SEEDS` is how many. With `VSWAP_SIM_WHOLE` a failure
/// is shown with all its steps and not shrunk.
const FIRST_ENV: &str = "VSWAP_SIM_SEED";
const COUNT_ENV: &str = "VSWAP_SIM_SEEDS";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn programs_read_what_they_wrote_in_every_schedule() {
    let first = number(FIRST_ENV).unwrap_or(0);
    let count = number(COUNT_ENV).unwrap_or(if number(FIRST_ENV).is_some() {
        1
    } else {
        SEEDS
    });
    let mut lab = Lab::new();
    let since = Instant::now();
    let plans = (first..first + count).map(|seed| (seed, Plan::new(seed)));
    let failure = shrink::search(&mut lab, plans, None);
    let seconds = since.elapsed().as_secs_f64();
    println!("{count} schedules in {seconds:.1} s");
    if let Some(failure) = failure {
        if std::env::var_os(WHOLE_ENV).is_some() {
            panic!("{failure}");
        }
        panic!("{}", failure.shrink(&mut lab, None));
    }
}

/// There are few slots, and no memory for tables of more. Pages without a slot stay where they are, and no program is
/// stopped. When memory is back, they leave.
#[test]
fn no_page_leaves_without_a_slot() {
    let (mut lab, shortage) = Lab::short_of_memory();
    let plans = (0..400).map(|seed| (seed, Plan::new(seed)));
    if let Some(failure) = shrink::search(&mut lab, plans, None) {
        panic!("{failure}");
    }
    let [refused, before, all] = [
        &shortage.seen.refused,
        &shortage.seen.out_before,
        &shortage.seen.out,
    ]
    .map(|count| count.load(Ordering::Relaxed));
    println!("{refused} windows found no slot; {before} of {all} pages left meanwhile");
    assert!(refused > 0 && before > 0 && all > before);
}

#[test]
fn a_seed_gives_one_schedule() {
    let mut lab = Lab::new();
    for seed in 0..20 {
        let plan = Plan::new(seed);
        let first = lab.run(&plan, seed, None);
        assert_eq!(first, lab.run(&plan, seed, None), "seed {seed}");
    }
}

/// Plans of the first seeds, with only some kinds of calls.
fn plans(kinds: u64, seeds: u64) -> impl Iterator<Item = (u64, Plan)> {
    (0..seeds).map(move |seed| (seed, Plan::of(seed, kinds)))
}

/// Without the rule one of these schedules has to fail.
fn notices(rule: Rule, plans: impl Iterator<Item = (u64, Plan)>) {
    let mut lab = Lab::new();
    let since = Instant::now();
    let failure = shrink::search(&mut lab, plans, Some(rule));
    let failure = failure.unwrap_or_else(|| panic!("{rule:?} is left out, and nobody notices"));
    let why = failure.why.lines().next().unwrap_or_default();
    println!(
        "{rule:?}: seed {} fails after {:?}: {why}",
        failure.seed,
        since.elapsed()
    );
}

#[test]
fn discarded_pages_that_move_out_are_noticed() {
    notices(Rule::Stale, plans(kind::DISCARD, 2000));
}

#[test]
fn moves_at_the_same_time_are_noticed() {
    notices(Rule::OneMove, plans(kind::REMAP | kind::MAP, 4000));
}

/// Schedules of one plan: threads that discard pages and write to them at once.
fn discards_and_writes(seeds: u64) -> impl Iterator<Item = (u64, Plan)> {
    let pages = PROGRAM.start + 2..PROGRAM.start + 8;
    let again = |page: u64| {
        let one = page..page + 1;
        [Call::Discard(one.clone()), Call::Write(one)]
    };
    let mut thread = vec![Call::Write(pages.clone())];
    thread.extend((0..6).flat_map(|_| pages.clone().flat_map(again)));
    let plan = Plan {
        threads: vec![thread.clone(), thread],
    };
    (0..seeds).map(move |seed| (seed, plan.clone()))
}

#[test]
fn messages_that_are_read_while_pages_move_are_noticed() {
    notices(Rule::ReadInOrder, discards_and_writes(20_000));
}

#[test]
fn messages_that_are_read_while_pages_are_given_are_noticed() {
    notices(Rule::GiveInOrder, discards_and_writes(20_000));
}

#[test]
fn moves_that_nobody_admits_are_noticed() {
    notices(Rule::MovedUnsaid, plans(kind::ALL, 500));
}

#[test]
fn unmaps_that_are_believed_are_noticed() {
    notices(Rule::AskAfterUnmap, plans(kind::UNMAP, 2000));
}

#[test]
fn words_of_memory_that_is_gone_are_noticed() {
    notices(Rule::FreshWords, plans(kind::UNMAP | kind::MAP, 2000));
}

/// Two threads wait for pages whose entries a child also refers to, and another thread unmaps the pages.
#[test]
fn late_faults_that_are_not_asked_about_are_noticed() {
    let pages = PROGRAM.start + 2..PROGRAM.start + 18;
    let one = |page: u64| Call::Read(page..page + 1);
    let unmap = |page: u64| Call::Unmap {
        range: page..page + 1,
        fails: false,
    };
    let child = vec![Call::Read(pages.clone()); 4];
    let mut first = vec![Call::Write(pages.clone())];
    first.push(Call::Fork {
        announced: true,
        child,
    });
    first.extend(pages.clone().flat_map(|page| [one(page), unmap(page)]));
    let mut second = vec![Call::Read(pages.clone()); 2];
    second.extend(pages.flat_map(|page| [one(page), one(page)]));
    let discards = vec![Call::Discard(PROGRAM.start..PROGRAM.start + 1); 40];
    let plan = Plan {
        threads: vec![first, second.clone(), second, discards],
    };
    let plans = (0..3000).map(|seed| (seed, plan.clone()));
    notices(Rule::LateFault, plans);
}

/// Every schedule of a plan has to pass.
fn passes(plan: &Plan, seeds: u64) {
    let mut lab = Lab::new();
    let plans = (0..seeds).map(|seed| (seed, plan.clone()));
    if let Some(failure) = shrink::search(&mut lab, plans, None) {
        panic!("{failure}");
    }
}

/// One thread forks while another maps new memory in place of some that is in swap.
#[test]
fn a_child_has_what_is_replaced_during_its_fork() {
    let pages = PROGRAM.start + 2..PROGRAM.start + 18;
    let discards = vec![Call::Discard(PROGRAM.start..PROGRAM.start + 1); 8];
    let replace = |page: u64| Call::Map {
        at: Some(page),
        pages: 1,
    };
    let mut first = vec![Call::Write(pages.clone())];
    first.extend(discards.clone());
    first.extend(pages.map(replace));
    let mut second = discards;
    let fork = Call::Fork {
        announced: true,
        child: Vec::new(),
    };
    second.extend(vec![fork; 3]);
    let plan = Plan {
        threads: vec![first, second],
    };
    passes(&plan, 400);
}

/// A child without an agent unmaps memory that is in swap, and grows its neighbour into the place.
#[test]
fn a_child_reads_zeros_in_memory_that_has_grown() {
    let kept = PROGRAM.start + 2..PROGRAM.start + 4;
    let gone = kept.end..kept.end + 4;
    let child = vec![
        Call::Unmap {
            range: gone.clone(),
            fails: false,
        },
        Call::Remap {
            old: kept.clone(),
            pages: gone.end - kept.start,
            to: None,
        },
        Call::Read(gone.clone()),
    ];
    let discards = vec![Call::Discard(PROGRAM.start..PROGRAM.start + 1); 20];
    let mut first = vec![Call::Write(kept.start..gone.end)];
    first.extend(discards.clone());
    first.push(Call::Fork {
        announced: false,
        child,
    });
    let plan = Plan {
        threads: vec![first, discards],
    };
    passes(&plan, 400);
}
