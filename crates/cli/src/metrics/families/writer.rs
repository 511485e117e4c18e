//! Writes one family after the other.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// What a family is.
#[derive(Debug)]
pub struct Family {
    /// Its name, without unit and `_total`.
    pub name: &'static str,
    pub unit: Option<Unit>,
    pub kind: Kind,
    /// What it means, for people.
    pub help: &'static str,
}

/// How its values behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They go up and down.
    Gauge,
    /// They only grow.
    Counter,
}

/// A value.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::Whole(value)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Number {
        Number::Whole(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Real(value)
    }
}

/// Names and values of labels.
pub type Labels = Vec<(&'static str, String)>;

/// Where families are written to.
#[derive(Debug)]
pub struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    pub fn new(encoder: DescriptorEncoder<'_>) -> Writer<'_> {
        Writer(encoder)
    }

    /// A family with these samples. Without samples there is nothing to say of it.
    pub fn family(
        &mut self,
        family: &Family,
        samples: impl IntoIterator<Item = (Labels, Number)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let kind = match family.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
        };
        let unit = family.unit.as_ref();
        let mut encoder = self
            .0
            .encode_descriptor(family.name, family.help, unit, kind)?;
        for (labels, number) in samples {
            if labels.is_empty() {
                sample(&mut encoder, family.kind, number)?;
            } else {
                sample(&mut encoder.encode_family(&labels)?, family.kind, number)?;
            }
        }
        Ok(())
    }

    /// A family whose labels say everything.
    pub fn info(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Labels>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Info)?;
        for labels in samples {
            encoder.encode_info(&labels)?;
        }
        Ok(())
    }

    /// A histogram in seconds. Each sample has the sum of its values, and buckets that do not overlap, by their ends.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64, Vec<(f64, u64)>)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let unit = Some(&Unit::Seconds);
        let mut encoder = self
            .0
            .encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (labels, sum, buckets) in samples {
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

fn sample(encoder: &mut MetricEncoder<'_>, kind: Kind, number: Number) -> fmt::Result {
    match (kind, number) {
        (Kind::Gauge, Number::Whole(value)) => encoder.encode_gauge(&value),
        (Kind::Gauge, Number::Real(value)) => encoder.encode_gauge(&value),
        (Kind::Counter, Number::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Counter, Number::Real(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
    }
}
