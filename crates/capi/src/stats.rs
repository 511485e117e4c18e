//! Figures of an arena, for a caller who may know fewer of them, or more.

use std::ffi::c_int;
use std::mem::size_of;

use crate::failure::{Failure, code_of};
use crate::handle::{Handle, handle};

/// `vswap_statistics` of the header. New fields come at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Statistics {
    /// Bytes of the struct, as the caller was compiled.
    size: u64,
    ram_bytes: u64,
    used_bytes: u64,
    allocated_bytes: u64,
    resident_bytes: u64,
    pinned_bytes: u64,
    pool_bytes: u64,
    out_pages: u64,
    area_pages: u64,
    zero_faults: u64,
    pool_faults: u64,
    area_faults: u64,
    write_faults: u64,
    evicted_pages: u64,
    clean_drops: u64,
    cancelled_pages: u64,
    damaged_pages: u64,
}

const _: () = assert!(size_of::<Statistics>() == 17 * 8);
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
    let stats = held.arena.stats();
    Ok(Statistics {
        size,
        ram_bytes: stats.ram_bytes,
        used_bytes: stats.used_bytes,
        allocated_bytes: stats.allocated_bytes,
        resident_bytes: stats.resident_bytes,
        pinned_bytes: stats.pinned_bytes,
        pool_bytes: stats.pool_bytes,
        out_pages: stats.out_pages,
        area_pages: stats.area_pages,
        zero_faults: stats.zero_faults,
        pool_faults: stats.pool_faults,
        area_faults: stats.area_faults,
        write_faults: stats.write_faults,
        evicted_pages: stats.evicted_pages,
        clean_drops: stats.clean_drops,
        cancelled_pages: stats.cancelled_pages,
        damaged_pages: stats.damaged_pages,
    })
}
