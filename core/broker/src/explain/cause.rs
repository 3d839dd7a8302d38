//! One cause, and what is told of it.
//!
//! Owns the words for scripts and their shape. `docs/operations.md` lists them.

use std::time::Duration;

use bytes::Bytes;
use types::NodeId;
use wire::response::{Explanation, Verdict};

/// Most bytes of one text.
const TEXT_BYTES_MAX: usize = 2_048;

/// Why something does or does not move.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    verdict: Verdict,
    word: &'static str,
    text: String,
    since: Option<Duration>,
    next: String,
}

impl Cause {
    /// It moves, or would.
    pub(super) fn moves(word: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { verdict: Verdict::Moves, word, text: text.into(), since: None, next: next.into() }
    }

    /// It waits for something that comes by itself.
    pub(super) fn waits(word: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { verdict: Verdict::Waits, ..Self::moves(word, text, next) }
    }

    /// It stands still until something outside changes.
    pub(super) fn stands(word: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { verdict: Verdict::Stands, ..Self::moves(word, text, next) }
    }

    /// It has been so for that long.
    pub(super) fn since(self, since: Option<Duration>) -> Self {
        Self { since, ..self }
    }

    /// As it is told, with what else is known.
    pub(super) fn told(self, told_by: NodeId, facts: Vec<(&'static str, String)>) -> Explanation {
        let explanation = Explanation {
            told_by,
            verdict: self.verdict,
            cause: Bytes::from_static(self.word.as_bytes()),
            text: cut(self.text),
            since_ms: self.since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            next: cut(self.next),
            facts: Vec::new(),
            segment: None,
        };
        facts.into_iter().fold(explanation, |told, (name, value)| with_fact(told, name, value))
    }
}

/// The same with one thing more.
pub(super) fn with_fact(mut explanation: Explanation, name: &'static str, value: String) -> Explanation {
    explanation.facts.push((Bytes::from_static(name.as_bytes()), cut(value)));
    explanation
}

fn cut(mut text: String) -> Bytes {
    if text.len() > TEXT_BYTES_MAX {
        let at = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
    }
    Bytes::from(text)
}
