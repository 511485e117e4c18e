//! Figures of an arena, for a caller who may know fewer of them, or more.

use std::ffi::c_int;
use std::mem::size_of;

use vswap_arena::Stats;

use crate::failure::{Failure, code_of};
use crate::handle::{Handle, handle};

/// `vswap_statistics` of the header. New fields come at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Statistics {
    /// Bytes of the struct, as the caller was compiled.
    size: u64,
    /// In the order of [`Stats::figures`].
    figures: [u64; Stats::COUNT],
}

/// A `size` above this was never set.
const SIZE_MOST_BYTES: u64 = 4096;

/// Writes the figures.
///
/// # Safety
/// `arena` is null or a handle that is not destroyed meanwhile. `to` is null or has as many bytes as its first field
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vswap_stats(arena: *mut Handle, to: *mut Statistics) -> c_int {
    // SAFETY: the caller's promise.
    code_of(unsafe { handle(arena) }.and_then(|held| {
        if to.is_null() {
            return Err(Failure::argument(
                "the place for the figures is NULL: pass the address of a vswap_statistics",
            ));
        }
        // SAFETY: the caller's struct has its first field.
        let size = unsafe { (&raw const (*to).size).read() };
        if !(16..=SIZE_MOST_BYTES).contains(&size) {
            return Err(Failure::argument(format!(
                "size of the vswap_statistics is {size}: begin with VSWAP_STATISTICS_INIT"
            )));
        }
        let figures = figures(held, size)?;
        let size = usize::try_from(size).unwrap_or(0);
        let known = size.min(size_of::<Statistics>());
        // SAFETY: the caller's struct has `size` bytes, and the one here `known`.
        unsafe {
            let to = to.cast::<u8>();
            to.copy_from_nonoverlapping((&raw const figures).cast(), known);
            to.add(known).write_bytes(0, size - known);
        }
        Ok(())
    }))
}

fn figures(held: &Handle, size: u64) -> Result<Statistics, Failure> {
    if held.heap.is_of_parent() {
        return Err(vswap_arena::ArenaError::Forked.into());
    }
    let figures = held.arena.stats().figures();
    Ok(Statistics {
        size,
        figures: figures.map(|(_, figure)| figure),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_all_figures_in_their_order() {
        let header = include_str!("../include/vswap.h");
        let (_, fields) = header.split_once("    uint64_t size;\n").unwrap();
        let (fields, _) = fields.split_once("} vswap_statistics;").unwrap();
        let named = fields
            .lines()
            .filter_map(|line| line.trim().strip_prefix("uint64_t ")?.split_once(';'));
        let named: Vec<&str> = named.map(|(name, _)| name).collect();
        let known = Stats::default().figures().map(|(name, _)| name);
        assert_eq!(named, known);
    }
}
