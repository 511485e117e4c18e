//! The agent's file as the injector sees it: it has to be a library that its small loader can lay out.

#[allow(unused, reason = "only the agent's file is needed of it")]
mod common;

use common::{agent, is_emulated};
use vswap_sys::inject::Image;

#[test]
fn the_shipped_agent_can_be_put_into_a_program_from_outside() {
    let file = std::fs::read(agent()).unwrap();
    let image = Image::read(&file).unwrap();
    let (low, high) = (image.at(0x1000_0000), image.at(0x7f00_0000_0000));
    assert_ne!(low, high, "it has words that depend on its place");
    let entry = image.entry(0);
    let in_text = |(range, protection): &(std::ops::Range<u64>, u64)| {
        range.contains(&entry)
            && *protection == u64::from((libc::PROT_READ | libc::PROT_EXEC).unsigned_abs())
    };
    assert!(image.segments().any(|segment| in_text(&segment)));
    assert!(
        image
            .segments()
            .all(|(range, _)| range.end <= image.bytes())
    );
}

/// Wherever the file ends: an error or an image, never a panic.
#[test]
fn a_truncated_agent_is_refused_or_read() {
    let file = std::fs::read(agent()).unwrap();
    // Behind the last segment lie symbols that nobody needs. The ends are tried closely where tables begin, and with a
    // step that is no multiple of a table's entry elsewhere.
    // An emulator takes its time: there a part of all ends has to do.
    let step = if is_emulated() { 29 } else { 1 };
    let ends = (0..file.len().min(4096)).step_by(step);
    let ends = ends.chain((4096..file.len()).step_by(37 * step));
    let refused = ends
        .filter(|end| Image::read(&file[..*end]).is_err())
        .count();
    assert!(refused > 4096 / step, "only {refused} were refused");
}
