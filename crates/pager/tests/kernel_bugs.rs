//! Mistakes that the kernel's swap has made, tried on a space's layout. The numbers are those in `docs/kernel-bugs.md`.

use vswap_engine::Entry;
use vswap_pager::layout::{Direction, Layout};
use vswap_pager::words::{PageState, PageWord};

/// Raw entries of the virtual area begin with this.
const AREA: u64 = 1 << 48;

fn entry(slot: u64) -> Entry {
    Entry::from_raw(AREA + slot).expect("a slot of the virtual area")
}

fn layout() -> Layout {
    let mut layout = Layout::default();
    layout.register(0..4, &mut |_| panic!("nothing to put"));
    for page in 0..4 {
        layout.words.set(page, PageWord::swapped(entry(page)));
    }
    layout
}

/// The mistake: while a process is copied one reference cannot be taken, and the half-made copy is used all the same.
/// Here the copy says which page that is, and nothing is read there.
#[test]
fn bug_27_a_copy_that_lacks_a_reference_says_where() {
    let parent = layout();
    for refused in 0..4 {
        let child = parent.fork(&mut |word| word.entry() != Some(entry(refused)));
        let mut lost = child.lost.iter();
        assert_eq!(
            (lost.next(), lost.next()),
            (Some(refused..refused + 1), None)
        );
        for page in 0..4 {
            let referred = child.words.get(page).entry();
            let expected = (page != refused).then(|| entry(page));
            assert_eq!(referred, expected, "page {page} without {refused}");
        }
    }
}

/// The mistake: the entry is given up before the page is in place, so each further fault reads it once more. Here the
/// word says both until the claim ends: where the content is, and that somebody is bringing it.
#[test]
fn bug_28_an_entry_is_kept_until_its_page_is_in_place() {
    let mut it = layout();
    let ticket = it.claim(1, Direction::In);
    let word = it.words.get(1);
    assert!(word.is_claimed(), "the next fault waits");
    assert_eq!(word.state(), PageState::Swapped(entry(1)));
    assert_eq!(it.finish(ticket), Some(1));
    assert_eq!(
        it.words.get(1),
        PageWord::swapped(entry(1)),
        "ours to write"
    );
}

/// The mistake: a look-up is tried again with a key that the first try has changed. Here a page on its way out, which a
/// mapping carries elsewhere, is finished in its new place under its first ticket.
#[test]
fn bug_15_a_page_under_way_keeps_its_name() {
    let mut it = layout();
    it.words.set(2, PageWord::PLAIN);
    let ticket = it.claim(2, Direction::Out);
    it.remap(0, 10, 4, &mut |_| panic!("nothing is lost"));
    it.remap(10, 20, 4, &mut |_| panic!("nothing is lost"));
    assert_eq!(it.finish(ticket), Some(22));
    assert_eq!(it.finish(ticket), None, "once");
    assert_eq!(it.words.get(23), PageWord::swapped(entry(3)));
}
