//! The figures as text, in the two formats that are read everywhere. Made anew a few times a second at most, however
//! often somebody asks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

use crate::metrics::families::Families;
use crate::metrics::figures::Figures;

/// How long a text serves. Nobody scrapes as often, and whoever does costs the run no more.
const FRESH: Duration = Duration::from_millis(200);

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, 0.0.4, for those who do not read OpenMetrics.
    Prometheus,
}

impl Format {
    /// The format for whoever sends this header `Accept`: OpenMetrics, unless only the other one is named.
    pub fn accepted(header: &str) -> Format {
        let header = header.to_ascii_lowercase();
        if header.contains("text/plain") && !header.contains("application/openmetrics-text") {
            Format::Prometheus
        } else {
            Format::OpenMetrics
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }

    /// The figures in this format.
    pub fn write(self, figures: Figures) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Families::of(figures)));
        let mut written = String::new();
        // Writing to a string does not fail.
        let _ = match self {
            Format::OpenMetrics => text::encode(&mut written, &registry),
            Format::Prometheus => prometheus_text::encode(&mut written, &registry),
        };
        written
    }
}

/// The last text of each format, and from when it is.
#[derive(Debug, Default)]
pub struct Texts([Mutex<Last>; 2]);

type Last = Option<(Instant, Arc<str>)>;

impl Texts {
    /// A text that is not old. None if there are no figures. Who comes meanwhile waits for the same text.
    pub fn fresh(
        &self,
        format: Format,
        figures: impl FnOnce() -> Option<Figures>,
    ) -> Option<Arc<str>> {
        let [open_metrics, prometheus] = &self.0;
        let last = match format {
            Format::OpenMetrics => open_metrics,
            Format::Prometheus => prometheus,
        };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        if let Some((_, text)) = known {
            return Some(Arc::clone(text));
        }
        let text: Arc<str> = format.write(figures()?).into();
        *last = Some((Instant::now(), Arc::clone(&text)));
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_what_the_client_can_read() {
        for (header, expected) in [
            ("", Format::OpenMetrics),
            ("*/*", Format::OpenMetrics),
            ("text/plain", Format::Prometheus),
            (
                "Text/Plain;version=0.0.4;q=0.3, */*;q=0.2",
                Format::Prometheus,
            ),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::accepted(header), expected, "{header}");
        }
    }

    #[test]
    fn a_text_serves_for_a_while() {
        let texts = Texts::default();
        let asked = std::cell::Cell::new(0);
        let figures = || {
            asked.set(asked.get() + 1);
            Some(Figures::default())
        };
        for _ in 0..1000 {
            let text = texts.fresh(Format::OpenMetrics, figures).expect("a text");
            assert!(text.ends_with("# EOF\n"));
        }
        assert!(asked.get() < 100, "asked {} times", asked.get());
        assert!(texts.fresh(Format::Prometheus, || None).is_none());
    }
}
