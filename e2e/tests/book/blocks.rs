//! The fenced blocks of a page, and the commands in those that are marked `console`. Pure text.

/// Written in the line before a block, it lets the block's commands be run again until they print what is expected.
/// That is for commands that look at something in the background, which takes its time on a busy machine.
const AGAIN: &str = "<!-- test: again -->";

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// What stands behind the fence: `console`, `sh`, or nothing.
    pub language: String,
    /// Line of the fence, from 1.
    pub line: usize,
    /// May its commands be run again?
    pub again: bool,
    /// What is in it, line by line.
    pub lines: Vec<String>,
}

/// A command of a page, and what it prints.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// Line of the page, from 1.
    pub line: usize,
    /// The words for the shell, without the prompts. May have several lines.
    pub text: String,
    /// The lines that it prints, each with its end, without empty ones at the end.
    pub prints: String,
}

/// All blocks of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut before = "";
    let mut is_open = false;
    for (index, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), is_open) {
            (Some(_), true) => is_open = false,
            (Some(language), false) => {
                is_open = true;
                found.push(Block {
                    language: language.trim().to_owned(),
                    line: index + 1,
                    again: before == AGAIN,
                    lines: Vec::new(),
                });
            }
            (None, true) => {
                if let Some(block) = found.last_mut() {
                    block.lines.push(line.to_owned());
                }
            }
            (None, false) => {}
        }
        before = line;
    }
    found
}

impl Block {
    /// The commands of a `console` block.
    ///
    /// # Errors
    /// The block does not begin with a prompt.
    pub fn commands(&self) -> Result<Vec<Command>, String> {
        let mut commands: Vec<Command> = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let number = self.line + 1 + index;
            if let Some(text) = line.strip_prefix("$ ") {
                commands.push(Command {
                    line: number,
                    text: text.to_owned(),
                    prints: String::new(),
                });
                continue;
            }
            let Some(command) = commands.last_mut() else {
                return Err(format!("line {number}: expected a command behind `$ `"));
            };
            match line.strip_prefix("> ") {
                Some(more) if command.prints.is_empty() => {
                    command.text.push('\n');
                    command.text.push_str(more);
                }
                _ => {
                    command.prints.push_str(line);
                    command.prints.push('\n');
                }
            }
        }
        for command in &mut commands {
            command.prints = ended_once(&command.prints);
        }
        Ok(commands)
    }
}

/// The text with exactly one end of line at its end; nothing for a text without anything in it.
pub fn ended_once(text: &str) -> String {
    match text.trim_end() {
        "" => String::new(),
        rest => format!("{rest}\n"),
    }
}
