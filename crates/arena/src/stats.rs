//! What an arena says of itself.

/// Figures of an arena. Bytes and pages are those of now, unless they are said to be so far; the rest is counted since
/// the arena was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// RAM that it may take: what was asked for, or less inside of `vswap run`, if the run has less for it now.
    pub ram_bytes: u64,
    /// RAM that it takes at the most: resident pages, pool, frames and tables.
    pub used_bytes: u64,
    /// Pages that were allocated, wherever they are.
    pub allocated_bytes: u64,
    /// Of these, in memory.
    pub resident_bytes: u64,
    /// Counted as not to leave. A page that is pinned twice counts twice.
    pub pinned_bytes: u64,
    /// Pages behind an entry: in the pool or an area, those included that are in memory as well.
    pub out_pages: u64,
    /// Memory of the pool.
    pub pool_bytes: u64,
    /// Pages in areas.
    pub area_pages: u64,
    /// Pages that were touched for the first time.
    pub zero_faults: u64,
    /// Pages that came back from the pool.
    pub pool_faults: u64,
    /// Pages that came back by way of a reading thread.
    pub area_faults: u64,
    /// Writes that found a page protected.
    pub write_faults: u64,
    /// Pages moved out so far.
    pub evicted_pages: u64,
    /// Of these, dropped without being compressed or written, because the same was still behind their entry.
    pub clean_drops: u64,
    /// Pages that stayed because they were written to while they were leaving.
    pub cancelled_pages: u64,
    /// Stored pages found damaged.
    pub damaged_pages: u64,
    /// Pages that stay in memory because they do not compress and there is no area for them. Those that nobody wrote to
    /// since that was found.
    pub raw_pages: u64,
    /// Pages that came along with one that was touched, because pages are touched in order.
    pub pages_brought_along: u64,
    /// Pages of the pool that were packed again with zstd, because it was nearly full.
    pub packed_again_pages: u64,
}

/// Figures of a swap area.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AreaStats {
    /// Its path, or its store without the password.
    pub name: String,
    /// `file`, `partition` or `far`.
    pub kind: &'static str,
    /// Its tier.
    pub tier: String,
    /// Its priority: the highest is used first.
    pub priority: i16,
    /// What it can hold.
    pub size_bytes: u64,
    /// What it holds.
    pub used_bytes: u64,
    /// Pages read so far.
    pub pages_read: u64,
    /// Pages written so far.
    pub pages_written: u64,
    /// Requests that failed so far.
    pub errors: u64,
}

/// Figures of a group, those inside of it included.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStats {
    /// Its name.
    pub name: String,
    /// Bytes in the pool, as they are packed.
    pub pool_bytes: u64,
    /// Bytes in areas.
    pub swap_bytes: u64,
    /// How often a limit has held up a page so far. One that waits counts each time.
    pub refused_pages: u64,
}

impl Stats {
    /// How many figures there are.
    pub const COUNT: usize = 19;

    /// All figures with their names, for whoever prints them or hands them on. Later versions have more, at the end.
    #[must_use]
    pub fn figures(&self) -> [(&'static str, u64); Stats::COUNT] {
        [
            ("ram_bytes", self.ram_bytes),
            ("used_bytes", self.used_bytes),
            ("allocated_bytes", self.allocated_bytes),
            ("resident_bytes", self.resident_bytes),
            ("pinned_bytes", self.pinned_bytes),
            ("pool_bytes", self.pool_bytes),
            ("out_pages", self.out_pages),
            ("area_pages", self.area_pages),
            ("zero_faults", self.zero_faults),
            ("pool_faults", self.pool_faults),
            ("area_faults", self.area_faults),
            ("write_faults", self.write_faults),
            ("evicted_pages", self.evicted_pages),
            ("clean_drops", self.clean_drops),
            ("cancelled_pages", self.cancelled_pages),
            ("damaged_pages", self.damaged_pages),
            ("raw_pages", self.raw_pages),
            ("pages_brought_along", self.pages_brought_along),
            ("packed_again_pages", self.packed_again_pages),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_figure_is_left_out() {
        assert_eq!(size_of::<Stats>(), Stats::COUNT * size_of::<u64>());
        let stats = Stats::default();
        let shown = format!("{stats:?}");
        for (name, _) in stats.figures() {
            assert!(shown.contains(&format!("{name}: 0")), "{name}");
        }
    }
}
