//! Figures in narrow columns.

use crate::output::figures::bytes;

/// Bytes in at most five letters: `96M`, `1.46G`, `0`.
pub fn short(value: u64) -> String {
    let text = bytes(value);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    match (number, unit.chars().next()) {
        ("0", _) => "0".to_owned(),
        (_, Some(letter)) => format!("{number}{letter}"),
        _ => text,
    }
}

/// The same, or a dash.
pub fn short_or_dash(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), short)
}

/// A rate as a whole number: it is neither negative nor larger than any figure.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast ends at the bounds of u64"
)]
pub fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

/// A part of the time, from 0 to 1, in hundredths.
pub fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

/// Text that fits into so many columns, with dots where it was cut.
pub fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(2)).collect();
    format!("{kept}..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, expected) in [
            (0, "0"),
            (999, "999B"),
            (96 << 20, "96M"),
            (3 << 29, "1.5G"),
            (1000 << 20, "0.98G"),
            (1 << 50, "1P"),
        ] {
            assert_eq!(short(value), expected);
        }
        assert_eq!(short_or_dash(None), "-");
        assert_eq!((percent(0.125), whole(1e300)), ("12%".to_owned(), u64::MAX));
        assert_eq!(
            (cut("sleep 1000", 10), cut("sleep 1000", 8)),
            ("sleep 1000".to_owned(), "sleep ..".to_owned())
        );
    }
}
