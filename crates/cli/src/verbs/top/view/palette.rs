//! Colours, and what stands in for them where there are none (NO_COLOR).

use ratatui::style::{Color, Modifier, Style};

/// How things are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    has_colours: bool,
}

impl Palette {
    pub fn new(has_colours: bool) -> Palette {
        Palette { has_colours }
    }

    /// As the environment wants it: NO_COLOR with anything in it means none.
    pub fn of_environment() -> Palette {
        let no_color = std::env::var_os("NO_COLOR");
        Palette::new(no_color.is_none_or(|value| value.is_empty()))
    }

    /// The first and the last line.
    pub fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The line that is chosen.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The state of a run.
    pub fn state(self, state: &str) -> Style {
        match state {
            "running" => self.colour(Color::Green),
            "thrashing" => self.colour(Color::Yellow).add_modifier(Modifier::BOLD),
            "full" => self.colour(Color::Red).add_modifier(Modifier::BOLD),
            "stopped" | "parked" => self.colour(Color::Blue),
            _ => Style::new(),
        }
    }

    /// What went out, and what came back.
    pub fn moved_out(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub fn moved_in(self) -> Style {
        self.colour(Color::Magenta)
    }

    /// What is wrong.
    pub fn wrong(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn colour(self, colour: Color) -> Style {
        if self.has_colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}
