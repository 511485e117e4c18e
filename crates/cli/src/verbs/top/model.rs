//! What is shown, and how: data alone. Keys change it (`act.rs`), looks renew it, the view draws it.

use crate::verbs::top::columns::{ProcessColumn, RunColumn};
use crate::verbs::top::deeds::Deed;
use crate::verbs::top::history::History;
use crate::verbs::top::listing::Listing;
use crate::verbs::top::look::Look;
use crate::verbs::top::run::{Process, Run};

/// All that the view needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The last look. None before the first one.
    pub look: Option<Look>,
    pub history: History,
    pub page: Page,
    pub runs: Listing<RunColumn>,
    pub processes: Listing<ProcessColumn>,
    /// What lies over the page, and takes the keys.
    pub popup: Option<Popup>,
    /// Looks are left aside.
    pub is_frozen: bool,
    /// What has come of the last deed.
    pub message: Option<String>,
}

/// Which list is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Runs,
    /// Those of the run of this process.
    Processes(u32),
}

/// What lies over the page.
#[derive(Debug, Clone, PartialEq)]
pub enum Popup {
    Help,
    /// The filter of the page is being typed; what it was before.
    Filter(String),
    /// A limit is being typed.
    Limit(Limit),
    /// A question, and what is done if the answer is yes.
    Sure(String, Deed),
}

/// A limit that is being typed.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub run: u32,
    pub command: String,
    pub now_bytes: u64,
    pub text: String,
    /// What is wrong with the text.
    pub wrong: Option<String>,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            look: None,
            history: History::default(),
            page: Page::Runs,
            runs: Listing::by(RunColumn::Resident),
            processes: Listing::by(ProcessColumn::Resident),
            popup: None,
            is_frozen: false,
            message: None,
        }
    }
}

impl Model {
    /// Another look has been taken. It is left aside while the model is frozen.
    pub fn renew(&mut self, look: Look) {
        if self.is_frozen {
            return;
        }
        self.history.note(&look.runs);
        if let Page::Processes(pid) = self.page
            && !look.runs.iter().any(|run| run.pid == pid)
        {
            self.page = Page::Runs;
            self.message = Some(format!("run {pid} has ended"));
        }
        self.look = Some(look);
    }

    /// All runs of the last look.
    pub fn all(&self) -> &[Run] {
        self.look.as_ref().map_or(&[], |look| &look.runs)
    }

    /// The run that is chosen, or whose processes are shown.
    pub fn run(&self) -> Option<&Run> {
        match self.page {
            Page::Runs => self.runs.chosen(self.all()),
            Page::Processes(pid) => self.all().iter().find(|run| run.pid == pid),
        }
    }

    /// The processes of that run.
    pub fn all_processes(&self) -> &[Process] {
        self.run().map_or(&[], |run| &run.processes)
    }

    /// The filter of the page.
    pub fn filter(&self) -> &str {
        match self.page {
            Page::Runs => &self.runs.filter,
            Page::Processes(_) => &self.processes.filter,
        }
    }

    pub fn filter_mut(&mut self) -> &mut String {
        match self.page {
            Page::Runs => &mut self.runs.filter,
            Page::Processes(_) => &mut self.processes.filter,
        }
    }

    /// Are keys parts of a text?
    pub fn is_typing(&self) -> bool {
        matches!(self.popup, Some(Popup::Filter(_) | Popup::Limit(_)))
    }
}
