//! An interactive shell on a pseudo-terminal, for tests that need a terminal or job control.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::{PATIENCE, Scratch, text, undisturbed};

pub const INTERRUPT: &str = "\x03";
pub const SUSPEND: &str = "\x1a";

/// An interactive shell on a pseudo-terminal. $V is `vswap run`, $S is vswap.
pub struct Terminal {
    shell: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    read: usize,
    pub scratch: Scratch,
}

impl Terminal {
    pub fn new() -> Terminal {
        let scratch = Scratch::new();
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("pty");
        grantpt(&master).expect("grant");
        unlockpt(&master).expect("unlock");
        let name = ptsname(&master, Vec::new()).expect("name");
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(name.to_str().expect("path"))
                .expect("pty")
        };
        let shell = undisturbed("setsid")
            .args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"])
            .env("XDG_RUNTIME_DIR", scratch.path())
            .env("PS1", "$ ")
            .env("TERM", "dumb")
            .env("S", env!("CARGO_BIN_EXE_vswap"))
            .env(
                "V",
                format!("{} run --ram 256M --", env!("CARGO_BIN_EXE_vswap")),
            )
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("shell");
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().expect("clone");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(bytes) = reader.read(&mut buffer) {
                let mut shown = shown.lock().expect("lock");
                shown.extend_from_slice(&buffer[..bytes]);
            }
        });
        let mut terminal = Terminal {
            shell,
            keyboard,
            screen,
            read: 0,
            scratch,
        };
        // The terminal echoes what is typed, so the typed words must differ from the awaited ones.
        terminal.type_line("echo rea''dy");
        terminal.expect("ready");
        terminal
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("typed");
    }

    pub fn type_line(&mut self, line: &str) {
        self.type_keys(&format!("{line}\n"));
    }

    /// All that was shown so far.
    pub fn shown(&self) -> String {
        text(&self.screen.lock().expect("lock"))
    }

    /// What is on the whole screen that a program has taken: the lines as they are now.
    pub fn grid(&self) -> Vec<String> {
        grid(&self.shown())
    }

    /// Gives the terminal another size.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.keyboard, size).expect("a size");
    }

    /// Waits until `text` appears after everything that was expected before.
    pub fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.shown();
            if let Some(at) = screen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            assert!(
                Instant::now() < deadline,
                "\"{text}\" is not shown after:\n{screen}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self
            .keyboard
            .write_all(b"\x03\nkill -9 $(jobs -p) 2>/dev/null; exit\nexit\n");
        std::thread::sleep(Duration::from_millis(100));
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// What a program has put on the other screen of the terminal, by the few sequences that are in use for that. Nothing
/// while it has not taken the screen, or has given it back.
fn grid(shown: &str) -> Vec<String> {
    let taken = shown.rfind("\x1b[?1049h");
    let Some(taken) = taken.filter(|taken| !shown[*taken..].contains("\x1b[?1049l")) else {
        return Vec::new();
    };
    let mut lines: Vec<Vec<char>> = Vec::new();
    let (mut row, mut column) = (0, 0);
    let mut rest = shown[taken..].chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\x1b' => {
                let sequence = sequence(&mut rest);
                let (numbers, command) = sequence.split_at(sequence.len().saturating_sub(1));
                match command {
                    "H" => (row, column) = place(numbers),
                    "J" => lines.clear(),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            letter => {
                lines.resize(lines.len().max(row + 1), Vec::new());
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = letter;
                column += 1;
            }
        }
    }
    lines.iter().map(|line| line.iter().collect()).collect()
}

/// Row and column from 0, of a sequence that has them from 1.
fn place(numbers: &str) -> (usize, usize) {
    let mut parts = numbers.split(';').map(|part| part.parse().unwrap_or(1));
    let (row, column) = (parts.next().unwrap_or(1), parts.next().unwrap_or(1));
    (row.max(1) - 1, column.max(1) - 1)
}

/// The rest of a sequence, up to the letter that ends it.
fn sequence(rest: &mut std::str::Chars<'_>) -> String {
    let mut all = String::new();
    for letter in rest.by_ref() {
        if letter != '[' {
            all.push(letter);
        }
        if letter.is_ascii_alphabetic() {
            break;
        }
    }
    all
}
