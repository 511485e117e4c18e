//! Colours and the style sheet.
//!
//! plotters writes a colour into each element. The sheet replaces those by ones for a dark page, and gives each line
//! its dashes: rules of a sheet come before attributes.

use std::fmt::Write;

use plotters::style::RGBColor;

/// How a line looks.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub light: RGBColor,
    dark: RGBColor,
    /// Lengths of dashes and gaps in pixels; empty for a line without.
    dashes: &'static str,
}

/// Distinguishable for colour-blind readers, and by their dashes without any colour.
pub const LINES: [Line; 5] = [
    line((0, 90, 181), (108, 178, 245), ""),
    line((220, 50, 32), (255, 138, 120), "8 3"),
    line((0, 140, 110), (63, 208, 172), "3 3"),
    line((150, 90, 200), (199, 155, 240), "12 3 3 3"),
    line((200, 130, 0), (240, 185, 74), "1 4"),
];
/// Words, axes and marks of events.
pub const INK: RGBColor = RGBColor(34, 34, 34);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(210, 210, 210);
/// Behind all of it.
const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Where there is no memory in a map, in both modes.
pub const NOTHING: RGBColor = RGBColor(128, 128, 128);

const INK_DARK: RGBColor = RGBColor(228, 228, 228);
const GRID_DARK: RGBColor = RGBColor(64, 66, 72);
const PAPER_DARK: RGBColor = RGBColor(22, 24, 29);

const RULES: &str = "
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2em auto;
  max-width: 60em; padding: 0 1em }
h1 { font-size: 1.5em; overflow-wrap: anywhere } h2 { font-size: 1.15em; margin: 2em 0 .3em }
code, .name { font-family: ui-monospace, monospace; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: .6em 0; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; white-space: nowrap }
th, td { padding: .15em .7em; text-align: right; border-bottom: 1px solid var(--grid); vertical-align: top }
th[scope=row], th.name, .name, .words { text-align: left } th[scope=row] { font-weight: normal }
figure { margin: 1em 0 } [role=img] svg { display: block; max-width: 100%; height: auto }
pre { font-size: .8em; line-height: 1.15 } .scroll { overflow-x: auto } .bad { font-weight: 600 }
.bad::before { content: '\\26A0\\FE0E  ' } footer { margin-top: 3em; border-top: 1px solid var(--grid) }
.key span { display: inline-block; width: 1em; height: 1em; vertical-align: middle; border: 1px solid var(--ink) }
";

const fn line(light: (u8, u8, u8), dark: (u8, u8, u8), dashes: &'static str) -> Line {
    Line {
        light: RGBColor(light.0, light.1, light.2),
        dark: RGBColor(dark.0, dark.1, dark.2),
        dashes,
    }
}

/// As SVG has it.
pub fn hex(color: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", color.0, color.1, color.2)
}

/// The style sheet.
pub fn sheet() -> String {
    let mut sheet = String::new();
    let names = |ink, paper, grid| {
        format!(
            ":root {{ --ink: {}; --paper: {}; --grid: {} }}\n",
            hex(ink),
            hex(paper),
            hex(grid)
        )
    };
    sheet += &names(INK, PAPER, GRID);
    sheet += RULES;
    for line in LINES.iter().filter(|line| !line.dashes.is_empty()) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            sheet,
            ".lines [stroke=\"{}\"] {{ stroke-dasharray: {} }}",
            hex(line.light),
            line.dashes
        );
    }
    sheet += "@media (prefers-color-scheme: dark) {\n";
    sheet += &names(INK_DARK, PAPER_DARK, GRID_DARK);
    let others = [(INK, INK_DARK), (GRID, GRID_DARK), (PAPER, PAPER_DARK)];
    let lines = LINES.iter().map(|line| (line.light, line.dark));
    for (light, dark) in lines.chain(others) {
        for of in ["stroke", "fill"] {
            let (light, dark) = (hex(light), hex(dark));
            let _ = writeln!(sheet, "svg [{of}=\"{light}\"] {{ {of}: {dark} }}");
        }
    }
    sheet + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Least contrast of graphics and of text, as WCAG 2.2 has it.
    const GRAPHICS_LEAST: f64 = 3.0;
    const TEXT_LEAST: f64 = 7.0;

    fn luminance(color: RGBColor) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * linear(color.0) + 0.7152 * linear(color.1) + 0.0722 * linear(color.2)
    }

    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn lines_and_words_stand_out_on_light_and_on_dark() {
        for line in LINES {
            assert!(contrast(line.light, PAPER) >= GRAPHICS_LEAST, "{line:?}");
            assert!(
                contrast(line.dark, PAPER_DARK) >= GRAPHICS_LEAST,
                "{line:?}"
            );
        }
        assert!(contrast(INK, PAPER) >= TEXT_LEAST);
        assert!(contrast(INK_DARK, PAPER_DARK) >= TEXT_LEAST);
    }

    #[test]
    fn no_two_lines_have_the_same_dashes() {
        let dashes: std::collections::BTreeSet<&str> = LINES.iter().map(|l| l.dashes).collect();
        assert_eq!(dashes.len(), LINES.len());
    }
}
