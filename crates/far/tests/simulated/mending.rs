//! Pages that are replaced or discarded at just the moment at which a copy that lacks them is written again. What comes
//! back by that is not to stay in the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_engine::{Storage, StorageError};
use vswap_far::FarStorage;

use crate::pages::{SPAN, check, near, open, options, write};
use crate::simulated::{At, Change, Gate, Simulated};

/// Pages of the cluster of slots that is mended.
const PAGES: u64 = 32;
/// How long a thread may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

fn seeds(from: u64) -> Vec<u64> {
    (from..from + PAGES).collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// All keys of pages that a client can find, with the names of their fields.
fn held(net: &Simulated) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let keys = net.world().page_keys();
    let world = net.world();
    let fields = |shard: usize, key: &Vec<u8>| {
        let held = &world.machine(world.master(shard)).data.keys;
        let fields = held.get(key).into_iter().flat_map(|key| key.fields.keys());
        fields.cloned().collect()
    };
    keys.into_iter()
        .map(|(shard, key)| (key.clone(), fields(shard, &key)))
        .collect()
}

/// How many fields each key has, in order.
fn counts(net: &Simulated) -> Vec<usize> {
    held(net).iter().map(|(_, fields)| fields.len()).collect()
}

/// A store with a cluster of slots whose first copy has lost its key. What is to be written there again waits;
/// `while_it` is done, and what was written before comes back.
fn mended(while_it: impl FnOnce(&FarStorage)) -> (Arc<Simulated>, FarStorage) {
    let net = Simulated::new(6, true, 7, near());
    let storage = open(&net, options(4 * SPAN, 2));
    write(&storage, 0, &seeds(0)).expect("written");
    assert_eq!(counts(&net), [32, 32]);
    let mut keys = net.world().page_keys();
    // The second copy's key has more behind what the first one's is called.
    keys.sort_by_key(|(_, key)| key.len());
    let (shard, key) = keys.swap_remove(0);
    net.world().change_both(shard, &Change::Unlink(key));
    net.world().gate = Gate::Closed(At { shard, machine: 0 });
    check(&storage, 0, &seeds(0)).expect("the other copy");
    let gate = || net.world().gate;
    until("a copy is written again", || gate() == Gate::Held);
    while_it(&storage);
    net.world().gate = Gate::Open;
    until("it is written", || gate() == Gate::Passed);
    (net, storage)
}

#[test]
fn a_key_that_was_given_up_meanwhile_does_not_stay() {
    let (net, storage) = mended(|storage| {
        storage.discard(0..SPAN).expect("discarded");
    });
    until("the store is empty", || held(&net).is_empty());
    assert_eq!(check(&storage, 0, &[0]), Err(StorageError::Lost));
}

#[test]
fn the_key_that_has_followed_another_one_stays_alone() {
    let (net, storage) = mended(|storage| {
        storage.discard(0..SPAN).expect("discarded");
        write(storage, 0, &seeds(100)).expect("written");
    });
    until("the old key is gone", || counts(&net) == [32, 32]);
    check(&storage, 0, &seeds(100)).expect("what was written last");
    let both = (0..32).all(|at| net.world().copies_of(0, at) == 2);
    assert!(both, "the new key lacks pages");
}

#[test]
fn pages_that_were_replaced_meanwhile_go_with_the_next_write() {
    let (net, storage) = mended(|storage| {
        write(storage, 0, &[100, 101, 102, 103]).expect("written");
    });
    assert!(counts(&net).contains(&36), "nothing has come back");
    goes_with_the_next_write(&net, &storage, 32);
    check(&storage, 0, &[100, 101, 102, 103]).expect("what was written last");
    check(&storage, 4, &seeds(0)[4..]).expect("what was written first");
}

#[test]
fn pages_that_were_discarded_meanwhile_go_with_the_next_write() {
    let (net, storage) = mended(|storage| {
        storage.discard(28..32).expect("discarded");
    });
    assert!(counts(&net).contains(&32), "nothing has come back");
    goes_with_the_next_write(&net, &storage, 28);
    check(&storage, 0, &seeds(0)[..28]).expect("what was written first");
    for slot in 28..32 {
        assert_eq!(check(&storage, slot, &[slot]), Err(StorageError::Lost));
    }
}

/// Writes a page again and again behind the first `pages` ones, until both copies have what they should, and nothing
/// else.
fn goes_with_the_next_write(net: &Simulated, storage: &FarStorage, pages: usize) {
    // When the copy was written, nobody has looked yet whether it still should have been.
    until("what has come back is gone", || {
        write(storage, 500, &[7]).expect("written");
        check(storage, 500, &[7]).expect("what was written");
        counts(net) == [pages + 1, pages + 1]
    });
    let all = (0..pages).chain([500]);
    for at in all {
        let at = u16::try_from(at).expect("small");
        assert_eq!(net.world().copies_of(0, at), 2, "copies of page {at}");
    }
}
