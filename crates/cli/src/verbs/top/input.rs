//! What keys mean.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Quit,
    /// Ctrl-Z.
    Suspend,
    /// So many lines further down, or up.
    Step(isize),
    /// Yes, or into it.
    Enter,
    /// Back, or no.
    Back,
    /// Sort by the next column.
    Sort,
    Reverse,
    Filter,
    Freeze,
    Help,
    /// Another limit.
    Limit,
    /// SIGTERM.
    End,
    /// SIGKILL.
    Kill,
    Park,
    Wake,
    /// The terminal has another size, or shall be drawn anew.
    Redraw,
    /// A letter of a text.
    Letter(char),
    /// The last letter goes.
    Erase,
}

/// Lines of a page up or down.
const PAGE_LINES: isize = 10;

/// What an event means; while a text is typed letters are parts of it. None if nothing.
pub fn meaning(event: &Event, is_typing: bool) -> Option<Input> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => of_key(*key, is_typing),
        Event::Resize(..) => Some(Input::Redraw),
        _ => None,
    }
}

fn of_key(key: KeyEvent, is_typing: bool) -> Option<Input> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Input::Quit),
            KeyCode::Char('z') => Some(Input::Suspend),
            KeyCode::Char('l') => Some(Input::Redraw),
            _ => None,
        };
    }
    // Terminals send Escape and a letter for it. Whoever types these fast means neither.
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    match key.code {
        KeyCode::Enter => Some(Input::Enter),
        KeyCode::Esc => Some(Input::Back),
        KeyCode::Backspace if is_typing => Some(Input::Erase),
        KeyCode::Char(letter) if is_typing => Some(Input::Letter(letter)),
        KeyCode::Up => Some(Input::Step(-1)),
        KeyCode::Down => Some(Input::Step(1)),
        KeyCode::PageUp => Some(Input::Step(-PAGE_LINES)),
        KeyCode::PageDown => Some(Input::Step(PAGE_LINES)),
        KeyCode::Home => Some(Input::Step(isize::MIN)),
        KeyCode::End => Some(Input::Step(isize::MAX)),
        KeyCode::Right => Some(Input::Enter),
        KeyCode::Left | KeyCode::Backspace => Some(Input::Back),
        KeyCode::Char(letter) => of_letter(letter),
        _ => None,
    }
}

fn of_letter(letter: char) -> Option<Input> {
    let input = match letter {
        'q' => Input::Quit,
        's' => Input::Sort,
        'r' => Input::Reverse,
        '/' => Input::Filter,
        'f' | ' ' => Input::Freeze,
        'h' | '?' => Input::Help,
        'l' => Input::Limit,
        'k' => Input::End,
        'K' => Input::Kill,
        'p' => Input::Park,
        'w' => Input::Wake,
        other => Input::Letter(other),
    };
    Some(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers, is_typing: bool) -> Option<Input> {
        meaning(&Event::Key(KeyEvent::new(code, modifiers)), is_typing)
    }

    #[test]
    fn letters_are_commands_unless_a_text_is_typed() {
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        assert_eq!(press(KeyCode::Char('q'), none, false), Some(Input::Quit));
        assert_eq!(
            press(KeyCode::Char('q'), none, true),
            Some(Input::Letter('q'))
        );
        assert_eq!(press(KeyCode::Char('p'), none, false), Some(Input::Park));
        assert_eq!(press(KeyCode::Char('w'), none, false), Some(Input::Wake));
        assert_eq!(
            press(KeyCode::Char('w'), none, true),
            Some(Input::Letter('w'))
        );
        assert_eq!(press(KeyCode::Backspace, none, true), Some(Input::Erase));
        assert_eq!(press(KeyCode::Backspace, none, false), Some(Input::Back));
        for is_typing in [false, true] {
            let pressed = |letter| press(KeyCode::Char(letter), control, is_typing);
            assert_eq!(pressed('c'), Some(Input::Quit));
            assert_eq!(pressed('z'), Some(Input::Suspend));
            assert_eq!(pressed('k'), None, "no command by accident");
        }
        assert_eq!(press(KeyCode::Char('k'), KeyModifiers::ALT, false), None);
        assert_eq!(meaning(&Event::Resize(80, 24), false), Some(Input::Redraw));
        assert_eq!(meaning(&Event::FocusLost, false), None);
    }
}
