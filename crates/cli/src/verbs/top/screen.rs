//! The terminal while `vswap top` has it: raw, on its other screen, without a cursor. Whatever ends the program gives
//! it back as it was: its end, a signal, a panic, Ctrl-Z.

use std::io::{self, Stdout, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Is it taken?
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal. Dropping it gives it back.
#[derive(Debug)]
pub struct Screen(ratatui::Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// It cannot be set or written to. It is then as it was.
    pub fn take() -> io::Result<Screen> {
        restore_at_panic();
        begin().inspect_err(|_| end())?;
        let terminal = ratatui::Terminal::new(CrosstermBackend::new(stdout()));
        terminal.map(Screen).inspect_err(|_| end())
    }

    /// Draws a frame.
    pub fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(drop)
    }

    /// Draws all of the next frame, not only what has changed. `Terminal::clear` would ask the terminal where its
    /// cursor is, and wait for the answer.
    pub fn forget(&mut self) -> io::Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        self.0 = ratatui::Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }

    /// Gives it back while `stopped` lasts, and takes it again.
    pub fn without(&mut self, stopped: impl FnOnce()) -> io::Result<()> {
        end();
        stopped();
        begin()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        end();
    }
}

fn begin() -> io::Result<()> {
    // Relaxed: threads that panic need only know that it may be so.
    TAKEN.store(true, Ordering::Relaxed);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Nobody can be told if it fails: the terminal has gone then.
fn end() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// The message of a panic shall be readable. Afterwards the process ends, and nothing is dropped.
fn restore_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            end();
            next(panic);
        }));
    });
}
