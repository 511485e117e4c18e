//! What paging costs, and what memory goes to other things than the program's pages.

use crate::advice::model::{Outcome, Room};

const MIB: f64 = 1_048_576.0;

/// vswap itself, without frames, tables and pool: text, stacks, buffers (docs/advise.md says how it was measured).
const OWN_BYTES: f64 = 8.5 * MIB;
/// Frames take one part in this many of the limit, within bounds (`store/config.rs` of the pager).
const FRAMES_PART: f64 = 128.0;
const FRAMES_BYTES: (f64, f64) = (0.5 * MIB, 8.0 * MIB);
/// What is left free: the low watermark (`run/bounds.rs` of the pager) and half of the quarter above it.
const WATERMARK_PART: f64 = 16.0;
const WATERMARK_BYTES: (f64, f64) = (2.0 * MIB, 16.0 * MIB);
const LEFT_FREE: f64 = 1.125;
/// Memory is registered when less than this is free.
const ACTIVATE_PART: f64 = 5.0;
const ACTIVATE_BYTES: (f64, f64) = (20.0 * MIB, 64.0 * MIB);
/// Tables for a page that is out, and what the pool does not use of its memory.
const TABLE_BYTES: f64 = 45.0;
const POOL_WASTE: f64 = 1.08;

/// Microseconds that one of each costs the program.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// A page that comes in by itself.
    pub lone_us: f64,
    /// A page that comes in behind another one.
    pub streamed_us: f64,
    /// A page that goes out.
    pub out_us: f64,
    /// A first touch of memory that is registered, which brings several pages.
    pub touch_us: f64,
}

/// What they are on the machine on which vswap was measured (docs/advise.md), and how long a swap-in takes there at the
/// median, from reading the fault to the page's return.
const USUAL: Costs = Costs {
    lone_us: 14.0,
    streamed_us: 3.0,
    out_us: 2.5,
    touch_us: 9.0,
};
const USUAL_SWAP_IN_US: f64 = 5.8;
/// A machine is no faster or slower than this. A figure beyond it is of something else.
const SPEEDS: (f64, f64) = (0.5, 4.0);

impl Costs {
    /// Those of a run whose swap-ins took so long at the median, or 0 if there were none: that says how fast the
    /// machine is.
    pub fn measured(swap_in_us: f64) -> Costs {
        let is_known = swap_in_us > 0.0;
        let times = if is_known {
            swap_in_us / USUAL_SWAP_IN_US
        } else {
            1.0
        };
        let times = times.clamp(SPEEDS.0, SPEEDS.1);
        Costs {
            lone_us: USUAL.lone_us * times,
            streamed_us: USUAL.streamed_us * times,
            out_us: USUAL.out_us * times,
            touch_us: USUAL.touch_us * times,
        }
    }

    /// The same with so much more for each page that comes in or goes out, and for each request to a device.
    pub fn and(self, in_us: f64, out_us: f64, request_us: f64) -> Costs {
        Costs {
            lone_us: self.lone_us + in_us + request_us,
            // Sixteen pages are one request.
            streamed_us: self.streamed_us + in_us + request_us / 16.0,
            out_us: self.out_us + out_us,
            touch_us: self.touch_us,
        }
    }

    /// Seconds that all of it takes.
    pub fn seconds(&self, outcome: &Outcome, touches: u64) -> f64 {
        let us = outcome.lone * self.lone_us
            + outcome.streamed * self.streamed_us
            + outcome.out * self.out_us
            + touches as f64 * self.touch_us;
        us / 1e6
    }
}

/// What is left of a limit for the program, where a page that is out takes the share `packed` of a page.
pub fn room(ram_bytes: f64, packed: f64) -> Room {
    let frames = (ram_bytes / FRAMES_PART).clamp(FRAMES_BYTES.0, FRAMES_BYTES.1);
    let watermark = (ram_bytes / WATERMARK_PART).clamp(WATERMARK_BYTES.0, WATERMARK_BYTES.1);
    Room {
        ram_bytes,
        own_bytes: OWN_BYTES + frames + watermark * LEFT_FREE,
        out_page_bytes: packed * 4096.0 * POOL_WASTE + TABLE_BYTES,
    }
}

/// From how much memory of the program on a run with this limit registers it.
pub fn registered_from(ram_bytes: f64) -> f64 {
    let free = (ram_bytes / ACTIVATE_PART).clamp(ACTIVATE_BYTES.0, ACTIVATE_BYTES.1);
    ram_bytes - OWN_BYTES - free.min(ram_bytes / 2.0)
}
