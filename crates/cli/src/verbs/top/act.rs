//! What keys change.

use crate::output::figures::bytes;
use crate::verbs::top::deeds::{self, Deed, Ending, Target};
use crate::verbs::top::input::Input;
use crate::verbs::top::listing::Line;
use crate::verbs::top::model::{Limit, Model, Page, Popup};
use crate::verbs::top::run::{Process, Run};

/// Longest text that can be typed.
const TEXT_CHARS_MAX: usize = 64;

/// What is to be done outside of the model.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Quit,
    Suspend,
    Redraw,
    Do(Deed),
}

/// Changes the model as the user wants it.
pub fn act(model: &mut Model, input: Input) -> Option<Wish> {
    match input {
        Input::Quit => return Some(Wish::Quit),
        Input::Suspend => return Some(Wish::Suspend),
        Input::Redraw => return Some(Wish::Redraw),
        _ => {}
    }
    match model.popup.take() {
        None => on_page(model, input),
        Some(Popup::Help) => None,
        Some(Popup::Filter(before)) => on_filter(model, before, input),
        Some(Popup::Limit(limit)) => on_limit(model, limit, input),
        Some(Popup::Sure(question, deed)) => on_question(model, question, deed, input),
    }
}

fn on_page(model: &mut Model, input: Input) -> Option<Wish> {
    model.message = None;
    match input {
        Input::Step(by) => step(model, by),
        Input::Enter => enter(model),
        Input::Back => back(model),
        Input::Sort => match model.page {
            Page::Runs => model.runs.next_column::<Run>(),
            Page::Processes(_) => model.processes.next_column::<Process>(),
        },
        Input::Reverse => match model.page {
            Page::Runs => model.runs.is_reversed ^= true,
            Page::Processes(_) => model.processes.is_reversed ^= true,
        },
        Input::Filter => model.popup = Some(Popup::Filter(model.filter().to_owned())),
        Input::Freeze => model.is_frozen ^= true,
        Input::Help => model.popup = Some(Popup::Help),
        Input::Limit => ask_limit(model),
        Input::End => ask_end(model, Ending::Term),
        Input::Kill => ask_end(model, Ending::Kill),
        Input::Park => ask_park(model),
        Input::Wake => return wake(model),
        _ => {}
    }
    None
}

fn step(model: &mut Model, by: isize) {
    match model.page {
        Page::Runs => {
            let mut runs = model.runs.clone();
            runs.step(model.all(), by);
            model.runs = runs;
        }
        Page::Processes(_) => {
            let mut processes = model.processes.clone();
            processes.step(model.all_processes(), by);
            model.processes = processes;
        }
    }
}

fn enter(model: &mut Model) {
    if model.page == Page::Runs
        && let Some(pid) = model.run().map(|run| run.pid)
    {
        model.page = Page::Processes(pid);
        model.processes.filter.clear();
    }
}

/// Out of the processes; then away with the filter.
fn back(model: &mut Model) {
    if !model.filter().is_empty() {
        model.filter_mut().clear();
    } else {
        model.page = Page::Runs;
    }
}

fn on_filter(model: &mut Model, before: String, input: Input) -> Option<Wish> {
    match input {
        Input::Enter => return None,
        Input::Back => {
            *model.filter_mut() = before;
            return None;
        }
        _ => type_text(model.filter_mut(), input),
    }
    model.popup = Some(Popup::Filter(before));
    None
}

fn type_text(text: &mut String, input: Input) {
    match input {
        Input::Letter(letter) if text.chars().count() < TEXT_CHARS_MAX => text.push(letter),
        Input::Erase => drop(text.pop()),
        _ => {}
    }
}

/// Why nothing is asked of a run that does not answer.
const SILENT: &str = "this run does not answer just now";

fn ask_limit(model: &mut Model) {
    let limit = match model.run() {
        None => return,
        Some(run) if run.is_daemon => Err("the daemon has no limit: choose one of its runs"),
        Some(run) if run.error.is_some() => Err(SILENT),
        Some(run) => Ok(Limit {
            run: run.pid,
            command: run.command.clone(),
            now_bytes: run.limit_bytes,
            text: String::new(),
            wrong: None,
        }),
    };
    match limit {
        Ok(limit) => model.popup = Some(Popup::Limit(limit)),
        Err(why) => model.message = Some(why.to_owned()),
    }
}

fn on_limit(model: &mut Model, mut limit: Limit, input: Input) -> Option<Wish> {
    match input {
        Input::Back => return None,
        Input::Enter => match deeds::limit(&limit.text) {
            Ok(ram) => {
                let question = format!(
                    "Let run {} ({}) use {} instead of {}?",
                    limit.run,
                    limit.command,
                    deeds::shown(ram),
                    bytes(limit.now_bytes)
                );
                let run = limit.run;
                model.popup = Some(Popup::Sure(question, Deed::Limit { run, ram }));
                return None;
            }
            Err(wrong) => limit.wrong = Some(wrong),
        },
        _ => {
            limit.wrong = None;
            type_text(&mut limit.text, input);
        }
    }
    model.popup = Some(Popup::Limit(limit));
    None
}

/// On either page it is about the whole run.
fn ask_park(model: &mut Model) {
    let Some(run) = model.run() else { return };
    let pid = run.pid;
    let refused = if run.is_daemon {
        Some("the daemon cannot be parked: choose one of its runs".to_owned())
    } else if run.is_parked() {
        Some(format!("run {pid} is parked already: w lets it go on"))
    } else if run.error.is_some() {
        Some(SILENT.to_owned())
    } else {
        None
    };
    if refused.is_some() {
        model.message = refused;
        return;
    }
    let question = format!(
        "Park run {pid} ({})? It stops, and all of its memory moves to its areas. w lets it go on; so does leaving \
         vswap top before it is parked.",
        run.command
    );
    model.popup = Some(Popup::Sure(question, Deed::Park { run: pid }));
}

/// Without a question: nothing is lost by it. It is asked also of a run that is not parked yet, to have it given up.
fn wake(model: &mut Model) -> Option<Wish> {
    let run = model.run()?;
    let pid = run.pid;
    if run.is_daemon {
        model.message = Some("the daemon is never parked: choose one of its runs".to_owned());
        return None;
    }
    Some(Wish::Do(Deed::Wake { run: pid }))
}

/// On the page of the runs it is about a whole run, else about a process of it.
fn ask_end(model: &mut Model, with: Ending) {
    let asked = match model.page {
        Page::Runs => model.run().map(|run| end_of_run(run, with)),
        Page::Processes(run) => {
            let process = model.processes.chosen(model.all_processes());
            process.map(|process| (end_of_process(run, process, with), process.pid()))
        }
    };
    if let Some((question, pid)) = asked {
        let target = Target::of(pid);
        model.popup = Some(Popup::Sure(question, Deed::Signal { target, with }));
    }
}

/// The question, and the process that is told. `vswap run` passes SIGTERM on to its program; `vswap attach` would let
/// go of it. Without either no process of a run stays.
fn end_of_run(run: &Run, with: Ending) -> (String, u32) {
    let (pid, command) = (run.pid, &run.command);
    match with {
        Ending::Kill if run.is_daemon => (
            format!("Kill the daemon {pid} at once, and all its runs with it?"),
            pid,
        ),
        Ending::Kill => (
            format!("Kill run {pid} ({command}) at once, with all its processes?"),
            pid,
        ),
        Ending::Term if run.is_daemon => (
            format!("End the daemon {pid}? It takes no more runs and waits for those that it has."),
            pid,
        ),
        Ending::Term if run.is_attached => (
            format!("Send SIGTERM to process {} ({command})?", run.program_pid),
            run.program_pid,
        ),
        Ending::Term => (
            format!("End run {pid} ({command})? Its program gets SIGTERM."),
            pid,
        ),
    }
}

fn end_of_process(run: u32, process: &Process, with: Ending) -> String {
    format!(
        "Send {} to process {} ({}) of run {run}?",
        with.name(),
        process.pid,
        process.name
    )
}

/// Only y is yes.
fn on_question(model: &mut Model, question: String, deed: Deed, input: Input) -> Option<Wish> {
    match input {
        Input::Letter('y') => return Some(Wish::Do(deed)),
        Input::Letter('n') | Input::Back => {
            model.message = Some("nothing was done".to_owned());
        }
        _ => model.popup = Some(Popup::Sure(question, deed)),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_depends_on_whose_the_program_is() {
        let own = Run {
            pid: 7,
            program_pid: 8,
            command: "sort".to_owned(),
            ..Run::default()
        };
        let attached = Run {
            is_attached: true,
            ..own.clone()
        };
        for (run, with, expected) in [
            (&own, Ending::Term, 7),
            (&own, Ending::Kill, 7),
            (&attached, Ending::Term, 8),
            (&attached, Ending::Kill, 7),
        ] {
            let (question, pid) = end_of_run(run, with);
            assert_eq!(pid, expected, "{question}");
            assert!(
                question.contains("(sort)") && question.contains('?'),
                "{question}"
            );
        }
    }

    #[test]
    fn a_text_has_a_bound() {
        let mut text = String::new();
        for _ in 0..1000 {
            type_text(&mut text, Input::Letter('x'));
        }
        assert_eq!(text.len(), TEXT_CHARS_MAX);
        type_text(&mut text, Input::Erase);
        assert_eq!(text.len(), TEXT_CHARS_MAX - 1);
    }
}
