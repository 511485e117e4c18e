//! Tests of pages that cannot be given back: what the others of the space do meanwhile, and that nobody reads anything
//! in their place.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use vswap_engine::Entry;

use super::actors::{self, Stage, world};
use super::clock;
use super::memory::{Memory, PROGRAM, Watch, World};
use super::program;
use super::run::Lab;
use super::uffd::Userfaultfd;
use crate::events::fork;
use crate::fault::{FaultServer, Outcome};
use crate::layout::Layout;
use crate::layout::words::PageWord;
use crate::life::lifecycle;
use crate::life::run::Run;
use crate::space::Space;
use crate::space::fault::Fault;
use crate::space::kin::Kin;
use crate::space::wait::Wait;

/// A page that cannot be given back.
const LOST: u64 = PROGRAM.start + 3;
/// An entry of the virtual area. Nothing is behind it.
const AN_ENTRY: u64 = (1 << 48) + 5;
/// A page that was never touched.
const OTHER: u64 = PROGRAM.start + 20;

fn read_of(page: u64) -> Fault {
    Fault {
        page,
        write: false,
        protected: false,
        urgent: false,
        ahead: false,
        since: clock::now(),
        wait: Wait::nobody(),
    }
}

/// A space with a lost page. Its process may not have told its pid.
fn space_with_a_lost_page(run: &Run, has_process: bool) -> Arc<Space> {
    let id = run.listening.spaces.next_id();
    let kin = Arc::new(Kin::default());
    let space = Space::new(id, Userfaultfd::of(0), Layout::default(), kin);
    if has_process {
        let _ = space.process.set(program::process_of(0));
    }
    run.serving.limit.look_now();
    let entry = Entry::from_raw(AN_ENTRY).expect("a slot of the virtual area");
    let mut state = space.lock();
    state
        .layout
        .register(PROGRAM, &mut |_| actors::fail("an entry"));
    // Without a process nobody can see that a page is missing. Then it is out, and its entry is none.
    let word = if has_process {
        PageWord::kept(entry)
    } else {
        PageWord::swapped(entry)
    };
    state.layout.words.set(LOST, word);
    drop(state);
    space
}

fn serve(run: &Run, space: &Arc<Space>, page: u64) -> Outcome {
    let mut server = FaultServer::new(&run.serving, space);
    let (state, outcome) = server.serve(space.lock(), &read_of(page));
    server.release(state);
    outcome
}

fn is_there(page: u64) -> bool {
    world(|world| world.memories[0].pages.contains_key(&page))
}

/// Play with a space that has a lost page.
fn play(
    has_process: bool,
    body: impl FnOnce(&Arc<Run>, &Arc<Space>) + Send + 'static,
) -> Result<u64, String> {
    let run = Arc::new(Lab::new().new_run(1));
    let mut memory = Memory::default();
    memory.map(PROGRAM);
    memory.set_watch(PROGRAM, Watch::Program);
    let kernel = World {
        memories: vec![memory],
        ..World::default()
    };
    Stage::new(1, kernel, None).play(move || {
        let space = space_with_a_lost_page(&run, has_process);
        body(&run, &space);
    })
}

/// While the loss of a page waits for its explanation, other faults of the space are served. Then the process turns out
/// to be ending, and goes on ending.
#[test]
fn others_are_served_while_a_lost_page_waits_for_its_explanation() {
    let served: Arc<OnceLock<(Instant, Instant)>> = Arc::default();
    let noted = Arc::clone(&served);
    let played = play(true, move |run, space| {
        let begun = clock::now();
        let (first_run, first_space) = (Arc::clone(run), Arc::clone(space));
        actors::spawn("first", move || {
            let outcome = serve(&first_run, &first_space, LOST);
            assert_eq!(outcome, Outcome::Done);
        });
        clock::sleep(Duration::from_millis(1));
        assert_eq!(serve(run, space, OTHER), Outcome::Done);
        let _ = noted.set((begun, clock::now()));
        // Another thread that touches the page waits too. What it would read is not the page.
        assert_eq!(serve(run, space, LOST), Outcome::Done);
        assert!(is_there(OTHER) && !is_there(LOST));
        clock::sleep(Duration::from_millis(100));
        lifecycle::hang_up(space);
        clock::sleep(Duration::from_secs(1));
        assert!(!is_there(LOST));
        space
            .lock()
            .layout
            .clear(&mut |word| assert!(word.entry().is_some()));
    });
    assert_eq!(played.map(drop), Ok(()));
    let (begun, served) = *served.get().unwrap();
    let waited = served.duration_since(begun);
    assert!(waited < Duration::from_millis(100), "{waited:?}");
}

/// The simulated kernel fails when the process is stopped, and when the pager stops itself.
fn fails_with(played: Result<u64, String>, why: &str) {
    let failure = played.expect_err("the page is given up");
    assert!(failure.starts_with(why), "{failure}");
}

#[test]
fn a_process_that_loses_a_page_for_no_reason_is_stopped() {
    let lived: Arc<OnceLock<()>> = Arc::default();
    let noted = Arc::clone(&lived);
    let played = play(true, move |run, space| {
        serve(run, space, LOST);
        clock::sleep(Duration::from_millis(480));
        let _ = noted.set(());
        clock::sleep(Duration::from_millis(100));
        actors::fail("the process lives");
    });
    fails_with(played, "the pager has stopped the process");
    assert!(
        lived.get().is_some(),
        "nobody has waited for an explanation"
    );
}

/// A child of a fork meanwhile would read zeros there. Its entry could not even be counted once more.
#[test]
fn a_child_is_not_given_a_kept_page_whose_loss_is_unexplained() {
    let played = play(true, |run, space| {
        serve(run, space, LOST);
        let state = space.lock();
        assert!(state.is_unexplained(LOST));
        let child = fork::copy_layout(&run.serving.references, &state);
        assert!(child.lost.contains(LOST), "it would read zeros");
        assert_eq!(child.words.get(LOST), PageWord::PLAIN);
        drop(state);
        // The child is in the same memory here.
        world(|world| world.memories[0].poisoned = Some(BTreeSet::new()));
        fork::new_child(&run.listening, space, child, Userfaultfd::of(0));
        let poisoned = world(|world| world.memories[0].poisoned.take());
        assert_eq!(poisoned, Some(BTreeSet::from([LOST])));
        lifecycle::hang_up(space);
        clock::sleep(Duration::from_secs(1));
    });
    assert_eq!(played.map(drop), Ok(()));
}

/// It cannot be stopped alone, and the simulated kernel cannot poison a page.
#[test]
fn a_child_without_a_pid_that_loses_a_page_stops_the_pager() {
    let played = play(false, |run, space| {
        serve(run, space, LOST);
        clock::sleep(Duration::from_secs(1));
        actors::fail("the child lives");
    });
    fails_with(played, "the pager has stopped itself");
}

/// What a lost page held is needed no more, and the faults on it are served again.
#[test]
fn a_lost_page_of_a_child_that_is_unmapped_stops_nobody() {
    let played = play(false, |run, space| {
        serve(run, space, LOST);
        let mut state = space.lock();
        assert_eq!(state.waiting.len(), 1);
        state.layout.unmap(LOST..LOST + 1, &mut |word| {
            assert!(word.entry().is_some());
        });
        let ready = state.take_ready();
        assert_eq!(ready.first().map(|fault| fault.page), Some(LOST));
        drop(state);
        clock::sleep(Duration::from_secs(1));
        let state = space.lock();
        assert!(state.unexplained.pages.is_empty() && !state.unexplained.is_awaited);
        assert!(!is_there(LOST));
    });
    assert_eq!(played.map(drop), Ok(()));
}
