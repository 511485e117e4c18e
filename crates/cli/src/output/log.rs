//! Where notices go: standard error, as text, as JSON, or as the journal of systemd wants them.
//!
//! vswap and the pager say what happens by `tracing`. Notices are of the levels info, warn and error. What only matters
//! to somebody who looks for a reason is debug. `VSWAP_LOG` says what is written and how.
//!
//! A service's standard error goes to the journal, and systemd says so in `JOURNAL_STREAM`. Each line begins with its
//! priority then (sd-daemon(3)).

use std::fmt;

use rustix::fs::fstat;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;

use crate::failure::Failure;

/// Names the least level that is written, and the form: see `Choice::read`.
const VARIABLE: &str = "VSWAP_LOG";

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `vswap: ` and the message.
    Text,
    /// An object a line.
    Json,
    /// The priority in angle brackets and the message.
    Journal,
}

/// What is written, and how.
#[derive(Debug, Clone, PartialEq)]
struct Choice {
    form: Form,
    levels: Targets,
}

impl Choice {
    fn new(form: Form) -> Choice {
        let levels = Targets::new().with_default(LevelFilter::INFO);
        Choice { form, levels }
    }

    /// Words with commas in between: a level, `text`, `json` or `journal`, and `vswap...=LEVEL` for what one module
    /// says. What is not named is as `form` and info.
    fn read(words: &str, form: Form) -> Result<Choice, String> {
        let mut choice = Choice::new(form);
        for word in words.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            choice = match (word, word.split_once('=')) {
                ("text", _) => choice.with(Form::Text),
                ("json", _) => choice.with(Form::Json),
                ("journal", _) => choice.with(Form::Journal),
                (_, Some((module, level))) if module.starts_with("vswap") => {
                    let levels = choice.levels.with_target(module, read_level(level)?);
                    Choice { levels, ..choice }
                }
                (_, Some((module, _))) => return Err(format!("{module} is no module of vswap")),
                (level, None) => {
                    let levels = choice.levels.with_default(read_level(level)?);
                    Choice { levels, ..choice }
                }
            };
        }
        Ok(choice)
    }

    fn with(self, form: Form) -> Choice {
        Choice { form, ..self }
    }
}

fn read_level(word: &str) -> Result<LevelFilter, String> {
    word.parse()
        .map_err(|_| format!("{word:?} is neither a level nor a form"))
}

/// From now on notices go where `VSWAP_LOG` says.
///
/// # Errors
/// It is wrong. Notices go to standard error as text then.
pub fn begin() -> Result<(), Failure> {
    let form = if is_journal() {
        Form::Journal
    } else {
        Form::Text
    };
    let words = std::env::var_os(VARIABLE).unwrap_or_default();
    let read = words.to_str().ok_or_else(|| "it is no text".to_owned());
    match read.and_then(|words| Choice::read(words, form)) {
        Ok(choice) => {
            install(choice);
            Ok(())
        }
        Err(why) => {
            install(Choice::new(form));
            Err(Failure::own(format!(
                "{VARIABLE}: {why}; levels are off, error, warn, info and debug, forms are text, json and journal: \
                 {VARIABLE}=debug,json"
            )))
        }
    }
}

fn install(Choice { form, levels }: Choice) {
    // Nobody is left to tell if standard error is gone.
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let layer = match form {
        Form::Text | Form::Journal => layer.event_format(Lines(form)).boxed(),
        Form::Json => {
            let json = layer.json().flatten_event(true);
            json.with_current_span(false).with_span_list(false).boxed()
        }
    };
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(levels));
    // It is the first of this process.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Is standard error the journal's?
fn is_journal() -> bool {
    let Ok(stat) = fstat(std::io::stderr()) else {
        return false;
    };
    let own = format!("{}:{}", stat.st_dev, stat.st_ino);
    std::env::var("JOURNAL_STREAM").is_ok_and(|named| named == own)
}

/// Writes an event as lines that people read.
#[derive(Debug, Clone, Copy)]
struct Lines(Form);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context
            .field_format()
            .format_fields(Writer::new(&mut text), event)?;
        lines(self.0, *event.metadata().level(), &text, &mut writer)
    }
}

fn lines(form: Form, level: Level, text: &str, to: &mut impl fmt::Write) -> fmt::Result {
    if form == Form::Journal {
        // As in syslog.h.
        let priority = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        return text
            .lines()
            .try_for_each(|line| writeln!(to, "<{priority}>{line}"));
    }
    let is_for_experts = level > Level::INFO;
    writeln!(
        to,
        "vswap: {}{text}",
        if is_for_experts { "debug: " } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Choice, String> {
        Choice::read(words, Form::Text)
    }

    #[test]
    fn words_are_read_in_any_order() {
        let plain = Choice::new(Form::Text);
        assert_eq!(read(""), Ok(plain.clone()));
        assert_eq!(read("json"), Ok(plain.clone().with(Form::Json)));
        let debug = read("journal, debug").unwrap();
        assert_eq!(debug.form, Form::Journal);
        assert!(debug.levels.would_enable("vswap", &Level::DEBUG));
        let one = read("warn,vswap_pager::calls=debug").unwrap();
        assert!(
            one.levels
                .would_enable("vswap_pager::calls::forks", &Level::DEBUG)
        );
        assert!(!one.levels.would_enable("vswap_pager::events", &Level::INFO));
        assert!(
            !read("off")
                .unwrap()
                .levels
                .would_enable("vswap", &Level::ERROR)
        );
    }

    #[test]
    fn what_is_no_word_of_it_is_refused() {
        for wrong in ["verbose", "debug,xml", "vswap=loud", "tokio=debug", "="] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_are_for_people_or_for_the_journal() {
        let written = |form, level| {
            let mut to = String::new();
            lines(form, level, "one\ntwo", &mut to).unwrap();
            to
        };
        assert_eq!(written(Form::Text, Level::WARN), "vswap: one\ntwo\n");
        assert_eq!(
            written(Form::Text, Level::DEBUG),
            "vswap: debug: one\ntwo\n"
        );
        assert_eq!(written(Form::Journal, Level::ERROR), "<3>one\n<3>two\n");
        assert_eq!(written(Form::Journal, Level::DEBUG), "<7>one\n<7>two\n");
    }
}
