//! Checks of what holds for a pool while nobody else uses it.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::class::{ClassState, row_of};
use super::fullness::FullnessLists;
use super::handle::Handle;
use super::pool::{Pool, lock};
use super::sizes::{CLASS_COUNT, CLASSES, SizeClass, class_of};
use super::span::SpanTable;
use crate::base::pages::PAGE_BYTES;

/// A number of objects, and the bytes of their payloads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    objects: usize,
    payload_bytes: usize,
}

impl ClassState {
    /// Checks that the spans have room for all objects. Cheap.
    pub(super) fn are_counters_valid(&self, class: SizeClass) -> Result<(), String> {
        let capacity = self.spans * usize::from(class.objects);
        if self.live <= capacity {
            Ok(())
        } else {
            Err(format!("{} objects in {} spans", self.live, self.spans))
        }
    }

    /// Checks that every list leads to its end and back, over spans as full as the list says.
    fn are_lists_valid(&self, class: SizeClass, spans: &SpanTable) -> Result<(), String> {
        let mut listed = 0;
        for (id, group, before) in self.lists.walk(spans, self.spans) {
            let span = spans.get(id).ok_or("a span that never was is on a list")?;
            let is_right = span.group() == group
                && FullnessLists::group_of(span, class.objects) == group
                && span.prev() == before
                && span.live() < class.objects
                && span.live() == span.taken(class.objects);
            if !is_right {
                return Err(format!("span {id:?} on list {group}: {span:?}"));
            }
            listed += 1;
        }
        if listed > self.spans {
            return Err(format!("{listed} of {} spans are on lists", self.spans));
        }
        Ok(())
    }
}

impl Pool {
    /// Checks that counters and lists agree with the rows, and that every row leads to an object that leads back. Goes
    /// through everything.
    pub(crate) fn is_valid(&self) -> Result<(), String> {
        let (mut packed, mut whole) = ([Sum::default(); CLASS_COUNT], Sum::default());
        let mut spans = HashSet::new();
        let mut objects = HashSet::new();
        for (index, location) in self.rows.live() {
            let wrong = |what: &str| Err(format!("row {index}, {location:?}: {what}"));
            if !objects.insert((location.span.raw(), location.object, location.is_whole())) {
                return wrong("another row has the object");
            }
            let payload_bytes = usize::from(location.payload_bytes);
            let sum = if let Some(class) = class_of(payload_bytes) {
                let span = self.spans.get(location.span);
                let Some(span) = span.filter(|span| !span.base().is_null()) else {
                    return wrong("there is no such span");
                };
                // Under the lock that guards the content of the span.
                let _class = lock(&self.classes[class]);
                if row_of(span, location.object, CLASSES[class]) != index {
                    return wrong("the object is of another row");
                }
                if span.pages() != CLASSES[class].pages {
                    return wrong("the span is of another class");
                }
                spans.insert((location.span.raw(), class));
                &mut packed[class]
            } else {
                let page = self.whole.get(location.span);
                if page.is_none_or(|page| page.base().is_null()) {
                    return wrong("there is no such page");
                }
                &mut whole
            };
            sum.objects += 1;
            sum.payload_bytes += payload_bytes;
        }
        let mut pages = whole.objects;
        for (number, (class, state)) in CLASSES.iter().zip(&self.classes).enumerate() {
            let state = lock(state);
            let valid = state
                .are_counters_valid(*class)
                .and_then(|()| state.are_lists_valid(*class, &self.spans));
            valid.map_err(|what| format!("class {number}: {what}"))?;
            let says = Sum {
                objects: state.live,
                payload_bytes: state.payload_bytes,
            };
            let used = spans.iter().filter(|(_, class)| *class == number).count();
            if says != packed[number] || state.spans != used {
                let is = packed[number];
                return Err(format!(
                    "class {number} has {is:?} in {used} spans, and says {says:?}"
                ));
            }
            pages += used * usize::from(class.pages);
        }
        let says = {
            let state = self.whole.lock();
            Sum {
                objects: state.live,
                payload_bytes: state.payload_bytes,
            }
        };
        if says != whole {
            return Err(format!(
                "{whole:?} in pages of their own, and {says:?} said"
            ));
        }
        let span_bytes = self.span_bytes.load(Ordering::Relaxed);
        if span_bytes != (pages * PAGE_BYTES) as u64 {
            return Err(format!("{pages} pages, and {span_bytes} bytes said"));
        }
        Ok(())
    }

    /// Whether the handle names a payload.
    pub(crate) fn holds(&self, handle: Handle) -> bool {
        self.row(handle)
            .is_some_and(|(_, row)| row.location().is_some())
    }

    /// Number of payloads stored.
    pub(crate) fn payloads(&self) -> usize {
        self.rows.live().count()
    }
}
