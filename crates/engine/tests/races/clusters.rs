//! A cluster that is emptied, given back and used again while several threads are working in it.

use super::{assert_empty, engine, out, read, spawn, written};
use vswap_engine::{Engine, Entry, Scratch, WriteOutError};

/// Two threads swap in a page each of one cluster and put its last reference, which empties the cluster. Another thread
/// takes slots and frames for pages of its own, and writes some out. One more thread writes out what is there, and may
/// come with an entry that is gone.
pub fn faults_against_clusters_that_go_and_come() {
    let engine = engine(10);
    // A full cluster of four, of which two pages stay. One slot in the next, which is the current one from then on.
    let (stored, cached) = (written(&engine, 1), out(&engine, 2));
    let rest = [3, 4].map(|byte| out(&engine, byte));
    let kept = out(&engine, 5);
    rest.into_iter().for_each(|entry| engine.put(entry));
    let fault = |entry: Entry, byte| {
        spawn(&engine, move |engine| {
            assert_eq!(read(engine, entry), Some(byte));
            engine.put(entry);
        })
    };
    let (first, second) = (fault(stored, 1), fault(cached, 2));
    let taker = spawn(&engine, |engine| {
        // Fills the second cluster and takes the first again, or a third.
        let entries: Vec<Entry> = (6..=10).map(|byte| out(engine, byte)).collect();
        entries[3..]
            .iter()
            .for_each(|&entry| write_out(engine, entry));
        entries
    });
    // 9 or 10 went where 1 was, if we are late enough.
    assert!(matches!(read(&engine, stored), None | Some(1 | 9 | 10)));
    // If a page is still there, another page gets its frame while it is read.
    [stored, cached]
        .into_iter()
        .for_each(|entry| write_out(&engine, entry));
    first.join().expect("no panic");
    second.join().expect("no panic");
    let taken = taker.join().expect("no panic");
    for (byte, entry) in (5..).zip([kept].into_iter().chain(taken)) {
        assert_eq!(read(&engine, entry), Some(byte));
        engine.put(entry);
    }
    // Only the CPU's current cluster may be left.
    assert!(engine.stats().clusters <= 1);
    assert_empty(&engine);
}

/// Writes an entry out that another thread may also write out, or that may be gone.
fn write_out(engine: &Engine, entry: Entry) {
    let result = engine.write_out(entry, &mut Scratch::new());
    let is_good = matches!(
        result,
        Ok(_) | Err(WriteOutError::Busy | WriteOutError::NotCached)
    );
    assert!(is_good, "{result:?}");
}
