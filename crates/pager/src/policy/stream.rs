//! Sequential streams among the faults of a space, and how far to reach ahead of them.
//!
//! Reaching ahead in fixed groups ruins random access. So only a fault that continues a stream gets a window, and the
//! window doubles while the stream goes on, as in the kernel's readahead. Pure, guarded by the space lock.

/// Streams followed at once: a few cursors for each of a few threads (copying, merging).
const STREAMS: usize = 8;

/// One kind of fault (first touches or swap-ins) and its streams.
#[derive(Debug)]
pub struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
    first_pages: u64,
    most_pages: u64,
    /// A stream may go on behind pages that do not fault.
    with_gaps: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The page whose fault would continue the stream.
    next: u64,
    /// Pages that the newest fault reached for.
    window: u64,
    last_used: u64,
}

impl Streams {
    /// Streams whose first fault gets `first_pages` pages and whose windows end at `most_pages`.
    pub fn new(first_pages: u64, most_pages: u64) -> Streams {
        Streams {
            streams: [Stream::default(); STREAMS],
            clock: 0,
            first_pages,
            most_pages,
            with_gaps: false,
        }
    }

    /// The same, for faults that leave out pages which need none. A fault up to one window further on then continues a
    /// stream.
    pub fn with_gaps(self) -> Streams {
        Streams {
            with_gaps: true,
            ..self
        }
    }

    /// How many pages a fault at `page` may reach for, itself included.
    pub fn window(&mut self, page: u64) -> u64 {
        self.window_up_to(page, self.most_pages)
    }

    /// The same with another bound, for a fault whose pages lie elsewhere than usual.
    pub fn window_up_to(&mut self, page: u64, most_pages: u64) -> u64 {
        self.clock += 1;
        let gaps = self.with_gaps;
        let goes_on = |stream: &&mut Stream| {
            let gap = page.checked_sub(stream.next);
            gap.is_some_and(|gap| gap == 0 || gaps && gap < stream.window)
        };
        if let Some(stream) = self.streams.iter_mut().find(goes_on) {
            stream.window = (stream.window * 2)
                .clamp(2, most_pages.max(2))
                .min(most_pages);
            stream.next = page + stream.window;
            stream.last_used = self.clock;
            return stream.window;
        }
        let oldest = self
            .streams
            .iter_mut()
            .min_by_key(|stream| stream.last_used);
        if let Some(stream) = oldest {
            let next = page + self.first_pages;
            *stream = Stream {
                next,
                window: self.first_pages,
                last_used: self.clock,
            };
        }
        self.first_pages
    }

    /// `pages` pages behind the window of the fault at `page` are on their way too. The stream goes on behind them.
    pub fn ahead(&mut self, page: u64, pages: u64) {
        let newest = self.clock;
        let followed = self.streams.iter_mut();
        for stream in followed.filter(|stream| stream.last_used == newest && stream.next > page) {
            stream.next += pages;
        }
    }

    /// The fault at `page` reached only `pages` pages. The stream goes on behind them.
    pub fn reached(&mut self, page: u64, pages: u64) {
        for stream in &mut self.streams {
            if stream.next == page + stream.window && stream.last_used == self.clock {
                stream.next = page + pages.max(1);
                stream.window = pages.max(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_doubles_up_to_the_bound_and_random_faults_stay_single() {
        let mut streams = Streams::new(1, 16);
        let mut page = 100;
        let mut windows = Vec::new();
        for _ in 0..6 {
            let window = streams.window(page);
            windows.push(window);
            page += window;
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16]);
        for random in [7, 5000, 90, 123_456, 42] {
            assert_eq!(streams.window(random), 1);
        }
    }

    #[test]
    fn a_stream_goes_on_behind_pages_that_need_no_fault() {
        let mut streams = Streams::new(1, 16).with_gaps();
        assert_eq!([10, 11, 14].map(|page| streams.window(page)), [1, 2, 4]);
        assert_eq!(streams.window(18 + 3), 8);
        assert_eq!(streams.window(29 + 8), 1, "a whole window further on");
        let mut exact = Streams::new(1, 16);
        assert_eq!([10, 11, 14].map(|page| exact.window(page)), [1, 2, 1]);
    }

    #[test]
    fn two_streams_at_once() {
        let mut streams = Streams::new(1, 8);
        let (mut a, mut b) = (1000, 9000);
        for _ in 0..4 {
            a += streams.window(a);
            b += streams.window(b);
        }
        assert_eq!((a, b), (1015, 9015));
    }

    #[test]
    fn a_stream_goes_on_behind_what_is_on_its_way() {
        let mut streams = Streams::new(1, 4);
        assert_eq!((streams.window(10), streams.window(11)), (1, 2));
        streams.ahead(11, 6);
        assert_eq!(streams.window(19), 4);
        assert_eq!(streams.window(13), 1);
    }

    #[test]
    fn a_stream_has_the_bound_of_each_fault() {
        let mut streams = Streams::new(1, 4);
        let mut page = 100;
        let windows = [64, 64, 64, 64, 4, 64].map(|most| {
            let window = streams.window_up_to(page, most);
            page += window;
            window
        });
        assert_eq!(windows, [1, 2, 4, 8, 4, 8]);
    }

    #[test]
    fn a_stream_cut_short_goes_on_where_it_was_cut() {
        let mut streams = Streams::new(1, 16);
        assert_eq!(streams.window(10), 1);
        assert_eq!(streams.window(11), 2);
        streams.reached(11, 1);
        assert_eq!(streams.window(12), 2);
    }
}
