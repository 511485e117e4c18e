//! Size classes: the stride for an object of a given length, and the number of pages in a span of that stride.
//!
//! Strides are multiples of [`STEP_BYTES`]. For each stride the number of pages, up to [`SPAN_PAGES_MAX`], is the one
//! that wastes the smallest part of a span. Strides with the same pages and objects are merged into one class, with the
//! largest of the strides. All of this is computed at compile time.

use crate::base::pages::PAGE_BYTES;

/// Strides are multiples of this. Rounding up loses half of it on average: 0.6 % of a 1400-byte payload.
const STEP_BYTES: usize = 16;

/// Pages of the largest span. 8 keeps the unused tail near 1 % for mid-sized strides. More pages would gain little, and
/// the last object of a span would keep more pages alive.
pub(super) const SPAN_PAGES_MAX: usize = 8;

/// Of the page numbers that waste the same part, the largest up to this one is used. Fewer spans need fewer rows of the
/// span table (64 bytes each; two objects of 2 KiB would share one). But every class has a span that is not full.
const SPAN_PAGES_TIE_MAX: usize = 4;

/// The most objects in a span: four words of its bitmap.
pub(super) const SPAN_OBJECTS_MAX: usize = 256;

/// Bytes before each payload: its row's number and its checksum.
pub(super) const HEADER_BYTES: usize = 8;

/// Longest payload that shares its span with others. From the next stride on fewer than nine objects fit into eight
/// pages, so a page of its own is as dense and needs no header.
pub const PACKED_BYTES_MAX: usize = STRIDE_PACKED_MAX - HEADER_BYTES;

const STRIDE_MIN: usize = 32;
const STRIDE_PACKED_MAX: usize = SPAN_PAGES_MAX * PAGE_BYTES / (SPAN_PAGES_MAX + 1) / 16 * 16;
const STRIDES: usize = STRIDE_PACKED_MAX / STEP_BYTES + 1;

/// What the objects of one class have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeClass {
    /// Bytes from one object to the next.
    pub stride_bytes: u16,
    /// Pages of a span.
    pub pages: u8,
    /// Objects in a span.
    pub objects: u16,
}

/// Pages and objects of the span that wastes its smallest part on `stride`.
const fn best_span(stride: usize) -> (usize, usize) {
    let mut best_pages = 0;
    let mut best_waste = PAGE_BYTES;
    let mut pages = 1;
    while pages <= SPAN_PAGES_MAX {
        let bytes = pages * PAGE_BYTES;
        let objects = bytes / stride;
        if objects > 1 && objects <= SPAN_OBJECTS_MAX {
            let waste = bytes - objects * stride;
            // waste / pages against best_waste / best_pages
            let (now, best) = (waste * best_pages, best_waste * pages);
            if best_pages == 0 || now < best || (now == best && pages <= SPAN_PAGES_TIE_MAX) {
                best_pages = pages;
                best_waste = waste;
            }
        }
        pages += 1;
    }
    (best_pages, best_pages * PAGE_BYTES / stride)
}

struct Layout {
    classes: [SizeClass; STRIDES],
    class_count: usize,
    class_of_stride: [u8; STRIDES],
}

const fn lay_out() -> Layout {
    let none = SizeClass {
        stride_bytes: 0,
        pages: 0,
        objects: 0,
    };
    let mut layout = Layout {
        classes: [none; STRIDES],
        class_count: 0,
        class_of_stride: [0; STRIDES],
    };
    let mut step = STRIDE_MIN / STEP_BYTES;
    while step < STRIDES {
        let stride = step * STEP_BYTES;
        let (pages, objects) = best_span(stride);
        let last = layout.class_count.wrapping_sub(1);
        let merges = layout.class_count > 0
            && layout.classes[last].pages as usize == pages
            && layout.classes[last].objects as usize == objects;
        let at = if merges { last } else { layout.class_count };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "bounded by the constants above"
        )]
        {
            layout.classes[at] = SizeClass {
                stride_bytes: stride as u16,
                pages: pages as u8,
                objects: objects as u16,
            };
            layout.class_of_stride[step] = at as u8;
        }
        layout.class_count = at + 1;
        step += 1;
    }
    // Shorter objects use the smallest class.
    layout
}

const LAYOUT: Layout = lay_out();

/// Number of classes.
pub(super) const CLASS_COUNT: usize = LAYOUT.class_count;
const _: () = assert!(CLASS_COUNT <= u8::MAX as usize + 1);

/// All classes, by rising stride.
pub(super) static CLASSES: [SizeClass; CLASS_COUNT] = {
    let mut classes = [LAYOUT.classes[0]; CLASS_COUNT];
    let mut at = 0;
    while at < CLASS_COUNT {
        classes[at] = LAYOUT.classes[at];
        at += 1;
    }
    classes
};

/// Memory of one span of each class, in bytes. After compaction no class has more free room than a span, so more than
/// this is never lost to spans that are not full.
pub(crate) const SPANS_BYTES: u64 = {
    let (mut pages, mut at) = (0, 0);
    while at < CLASS_COUNT {
        pages += CLASSES[at].pages as u64;
        at += 1;
    }
    pages * PAGE_BYTES as u64
};

static CLASS_OF_STRIDE: [u8; STRIDES] = LAYOUT.class_of_stride;

/// The class for a payload of `payload_bytes`. `None` if the payload gets a page of its own.
#[inline]
pub(super) fn class_of(payload_bytes: usize) -> Option<usize> {
    let step = (payload_bytes + HEADER_BYTES).div_ceil(STEP_BYTES);
    CLASS_OF_STRIDE.get(step).map(|&class| usize::from(class))
}

/// Whether a payload of `bytes` is of a smaller size than one of `than_bytes`, so that it takes less of the pool.
pub(crate) fn takes_less(bytes: usize, than_bytes: usize) -> bool {
    let size = |bytes| class_of(bytes).unwrap_or(CLASS_COUNT);
    size(bytes) < size(than_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_fits_its_class_and_no_smaller_one() {
        for bytes in 0..=PACKED_BYTES_MAX {
            let class = class_of(bytes).expect("packed");
            assert!(
                bytes + HEADER_BYTES <= usize::from(CLASSES[class].stride_bytes),
                "{bytes}"
            );
            if let Some(smaller) = class.checked_sub(1) {
                let smaller = CLASSES[smaller];
                assert!(
                    bytes + HEADER_BYTES > usize::from(smaller.stride_bytes),
                    "{bytes}"
                );
            }
        }
        assert_eq!(class_of(PACKED_BYTES_MAX), Some(CLASS_COUNT - 1));
        assert_eq!(class_of(PACKED_BYTES_MAX + 1), None);
        assert_eq!(class_of(PAGE_BYTES), None);
    }

    #[test]
    fn only_another_size_is_less() {
        for bytes in 1..=PACKED_BYTES_MAX {
            let is_first_of_its_size = class_of(bytes - 1) != class_of(bytes);
            assert_eq!(takes_less(bytes - 1, bytes), is_first_of_its_size);
            assert!(takes_less(bytes, PAGE_BYTES) && !takes_less(PAGE_BYTES, bytes));
            assert!(!takes_less(bytes, bytes));
        }
    }

    #[test]
    fn spans_hold_their_objects_within_their_pages() {
        for class in CLASSES {
            let pages = usize::from(class.pages);
            assert!((1..=SPAN_PAGES_MAX).contains(&pages), "{class:?}");
            assert!(
                (2..=SPAN_OBJECTS_MAX).contains(&usize::from(class.objects)),
                "{class:?}"
            );
            let used = usize::from(class.stride_bytes) * usize::from(class.objects);
            assert!(used <= pages * PAGE_BYTES, "{class:?}");
        }
        for pair in CLASSES.windows(2) {
            assert!(pair[0].stride_bytes < pair[1].stride_bytes);
            assert_ne!(
                (pair[0].pages, pair[0].objects),
                (pair[1].pages, pair[1].objects)
            );
        }
    }

    #[test]
    fn full_spans_of_mid_sizes_waste_at_most_three_percent() {
        let (mut payload, mut memory) = (0.0, 0.0);
        for bytes in 256..=3264_u16 {
            let class = CLASSES[class_of(usize::from(bytes)).expect("packed")];
            payload += f64::from(bytes);
            memory += f64::from(class.pages) * 4096.0 / f64::from(class.objects);
        }
        let waste = memory / payload - 1.0;
        assert!(waste < 0.03, "{waste}");
    }
}
