//! Colours of lines and bars in all plots.

use plotters::style::RGBColor;

/// Distinguishable on white and on grey, and for colour-blind readers.
pub(crate) const COLORS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(0, 140, 110),
    RGBColor(150, 90, 200),
    RGBColor(200, 130, 0),
    RGBColor(90, 90, 90),
];
