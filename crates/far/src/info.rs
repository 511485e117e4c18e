//! What a server says of itself: the answer to INFO.

use std::collections::HashMap;

use redis::Value;

use crate::topology::text;

/// Lines `name:value`.
#[derive(Debug, Default)]
pub(crate) struct Info(HashMap<String, String>);

impl Info {
    /// None if the answer is no text.
    pub(crate) fn read(answer: &Value) -> Option<Info> {
        let lines = text(answer)?.lines();
        let pairs = lines.filter_map(|line| line.split_once(':'));
        Some(Info(
            pairs
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
        ))
    }

    /// What it says of this. Nothing if it does not say it.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// 0 if it does not say it.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.text(name) == "1"
    }
}
