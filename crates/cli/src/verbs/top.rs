//! `vswap top`: all runs on one screen, live, and what can be done to them.
//!
//! One thread draws. One reads keys: when the terminal hangs up, crossterm reads its end for ever. Another one looks at
//! the runs: one that is stopped takes half a second to say nothing. What is done to a run has a thread of its own,
//! because that may take as long, and parking longer. Model, view and input know nothing of one another's business:
//! keys become inputs, inputs change the model, the view draws it.

mod act;
mod columns;
mod deeds;
mod history;
mod input;
mod listing;
mod look;
mod model;
mod parking;
mod run;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_current_process_group};
use vswap_sys::process::signals::{self, Blocked};

use crate::args::TopArgs;
use crate::failure::Failure;
use crate::verbs::top::act::{Wish, act};
use crate::verbs::top::deeds::carry_out;
use crate::verbs::top::look::{Look, Looker};
use crate::verbs::top::model::Model;
use crate::verbs::top::screen::Screen;
use crate::verbs::top::view::{Palette, draw};

/// How long it waits for news before it looks for signals.
const TICK: Duration = Duration::from_millis(50);

/// How long after a stop the signal that has continued it may take to be seen.
const CONTINUED: Duration = Duration::from_secs(1);

/// What other threads tell.
#[derive(Debug)]
enum News {
    Looked(Look),
    /// How far a deed is, or what has come of it.
    Said(String),
    Typed(Event),
    Unreadable(io::Error),
}

/// How it ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Quit,
    By(i32),
}

/// Shows the runs until the user has seen enough.
pub fn top(args: &TopArgs) -> Result<ExitCode, Failure> {
    must_be_a_terminal()?;
    let signals =
        signals::block().map_err(|error| Failure::own(format!("cannot block signals: {error}")))?;
    let (tell, news) = channel();
    // Kept until the end: without it the looker ends.
    let _looker = start_looker(args.every, tell.clone())?;
    let screen = Screen::take().map_err(|error| no_terminal(&error))?;
    start_reader(tell.clone())?;
    let mut top = Top {
        screen,
        model: Model::default(),
        palette: Palette::of_environment(),
        signals,
        news,
        tell,
        panics: args.debug_panic,
    };
    let end = top.run().map_err(|error| no_terminal(&error));
    drop(top);
    if let End::By(signal) = end? {
        signals::die_by(signal);
    }
    Ok(ExitCode::SUCCESS)
}

fn must_be_a_terminal() -> Result<(), Failure> {
    let why = if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        "standard input and output are no terminal"
    } else if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        "TERM says that this terminal can show lines only"
    } else {
        return Ok(());
    };
    Err(Failure::own(format!(
        "`vswap top` wants a whole screen, and {why}: use `vswap status --watch`"
    )))
}

fn no_terminal(error: &io::Error) -> Failure {
    Failure::own(format!(
        "the terminal cannot be used: {error}; `vswap status --watch` prints lines"
    ))
}

/// The thread that reads keys, for as long as the process lives.
fn start_reader(tell: Sender<News>) -> Result<(), Failure> {
    let read = move || {
        loop {
            let read = event::read();
            let is_over = read.is_err();
            let news = read.map_or_else(News::Unreadable, News::Typed);
            if tell.send(news).is_err() || is_over {
                return;
            }
        }
    };
    let spawned = Builder::new().spawn(read);
    spawned.map(drop).map_err(|error| no_thread(&error))
}

fn no_thread(error: &io::Error) -> Failure {
    Failure::own(format!(
        "cannot start a thread: {error}; allow more of them (ulimit -u, or the limit of the container)"
    ))
}

/// Has the terminal gone?
fn has_hung_up() -> bool {
    let terminal = io::stdin();
    let mut looked = [PollFd::from_borrowed_fd(
        terminal.as_fd(),
        PollFlags::empty(),
    )];
    let done = poll(&mut looked, Some(&Timespec::default()));
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    done.is_ok() && looked.iter().any(|one| one.revents().intersects(gone))
}

/// The thread that looks. It ends when what is returned is dropped.
fn start_looker(every: Duration, tell: Sender<News>) -> Result<Sender<()>, Failure> {
    let (keep, ended) = channel::<()>();
    let look = move || {
        let mut looker = Looker::default();
        while tell.send(News::Looked(looker.look())).is_ok() {
            if ended.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    let spawned = Builder::new().spawn(look);
    spawned.map(|_| keep).map_err(|error| no_thread(&error))
}

struct Top {
    screen: Screen,
    model: Model,
    palette: Palette,
    signals: Blocked,
    news: Receiver<News>,
    tell: Sender<News>,
    panics: bool,
}

impl Top {
    fn run(&mut self) -> io::Result<End> {
        let mut is_old = true;
        loop {
            if is_old {
                let (model, palette) = (&self.model, self.palette);
                self.screen.draw(|frame| draw(frame, model, palette))?;
                assert!(!self.panics || model.look.is_none(), "--debug-panic");
            }
            is_old = false;
            if let Ok(news) = self.news.recv_timeout(TICK) {
                is_old = true;
                if let Some(end) = self.on_news(news)? {
                    return Ok(end);
                }
            }
            while let Some(taken) = self.signals.take(Duration::ZERO) {
                is_old = true;
                if let Some(end) = self.on_signal(taken.signal)? {
                    return Ok(end);
                }
            }
            if has_hung_up() {
                return Ok(End::By(Signal::HUP.as_raw()));
            }
        }
    }

    fn on_news(&mut self, news: News) -> io::Result<Option<End>> {
        match news {
            News::Looked(look) => self.model.renew(look),
            News::Said(message) => self.model.message = Some(message),
            News::Typed(event) => {
                if let Some(input) = input::meaning(&event, self.model.is_typing()) {
                    return self.on_input(input);
                }
            }
            News::Unreadable(error) => return Err(error),
        }
        Ok(None)
    }

    fn on_input(&mut self, input: input::Input) -> io::Result<Option<End>> {
        match act(&mut self.model, input) {
            None => {}
            Some(Wish::Quit) => return Ok(Some(End::Quit)),
            Some(Wish::Redraw) => self.screen.forget()?,
            Some(Wish::Suspend) => {
                // All of the job, as the terminal would: a script that has started this stops too. This process has
                // blocked the signal.
                return self.suspend(|| {
                    let _ = kill_current_process_group(Signal::TSTP);
                });
            }
            Some(Wish::Do(deed)) => {
                let tell = self.tell.clone();
                // Nobody hears it when the end has come.
                let say = move |message| drop(tell.send(News::Said(message)));
                let carry_out = move || say(carry_out(&deed, &say));
                if let Err(error) = Builder::new().spawn(carry_out) {
                    self.model.message = Some(format!("cannot start a thread: {error}"));
                }
            }
        }
        Ok(None)
    }

    /// Stops until somebody continues it.
    fn suspend(&mut self, before: impl FnOnce()) -> io::Result<Option<End>> {
        let mut taken = None;
        let signals = &self.signals;
        self.screen.without(|| {
            before();
            let _ = signals::send(std::process::id(), Signal::STOP.as_raw());
            // The stop may come a moment later. Whatever continues this process is a signal too.
            taken = signals.take(CONTINUED);
        })?;
        match taken {
            Some(taken) if taken.signal != Signal::CONT.as_raw() => self.on_signal(taken.signal),
            _ => Ok(None),
        }
    }

    fn on_signal(&mut self, signal: i32) -> io::Result<Option<End>> {
        let is = |other: Signal| signal == other.as_raw();
        if is(Signal::INT) || is(Signal::TERM) || is(Signal::HUP) || is(Signal::QUIT) {
            return Ok(Some(End::By(signal)));
        }
        if is(Signal::TSTP) {
            return self.suspend(|| {});
        } else if is(Signal::CONT) {
            // Who was stopped from outside finds the terminal as somebody else has left it.
            self.screen.without(|| {})?;
        } else if is(Signal::WINCH) {
            self.screen.forget()?;
        }
        Ok(None)
    }
}
