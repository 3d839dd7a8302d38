//! Parsing classes: what each kind of variable accepts, and what happens otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Invalid;

/// The product's variables, which of them were asked for, and the warnings so far.
#[derive(Debug)]
pub(crate) struct Vars {
    values: BTreeMap<String, String>,
    read: BTreeSet<String>,
    pub(crate) warnings: Vec<String>,
}

impl Vars {
    pub(super) fn new(values: BTreeMap<String, String>) -> Self {
        Self { values, read: BTreeSet::new(), warnings: Vec::new() }
    }

    /// Names that were set and never asked for.
    pub(super) fn unread(&self) -> Vec<String> {
        self.values.keys().filter(|name| !self.read.contains(*name)).cloned().collect()
    }

    /// Any string.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.read.insert(name.to_owned());
        self.values.get(name).cloned()
    }

    /// 1 to 65535; set but empty is refused.
    pub(super) fn port(&mut self, name: &str, default: u16) -> Result<u16, Invalid> {
        let Some(value) = self.text(name) else { return Ok(default) };
        match parse_digits(&value).and_then(|n| u16::try_from(n).ok()) {
            Some(port) if port > 0 => Ok(port),
            Some(_) | None => Err(Invalid::new(name, format!("{value:?} is not a port from 1 to 65535"))),
        }
    }

    /// An integer in a range; anything else is refused.
    pub(super) fn int_strict(&mut self, name: &str, default: u64, range: (u64, u64)) -> Result<u64, Invalid> {
        let Some(value) = self.text(name) else { return Ok(default) };
        match parse_digits(&value) {
            Some(n) if (range.0..=range.1).contains(&n) => Ok(n),
            Some(_) | None => Err(out_of_range(name, &value, range)),
        }
    }

    /// An integer in a range; leading digits are enough, and without any the default holds. Both with a
    /// warning.
    pub(super) fn int(&mut self, name: &str, default: u64, range: (u64, u64)) -> Result<u64, Invalid> {
        let Some(value) = self.text(name) else { return Ok(default) };
        let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
        if digits.is_empty() {
            self.warnings.push(format!("{name}: {value:?} is not a number, {default} is used"));
            return Ok(default);
        }
        let n = digits.parse::<u64>().map_err(|_| out_of_range(name, &value, range))?;
        if !(range.0..=range.1).contains(&n) {
            return Err(out_of_range(name, &value, range));
        }
        if digits != value {
            self.warnings.push(format!("{name}: {value:?} is taken as {n}"));
        }
        Ok(n)
    }

    /// Strict milliseconds.
    pub(super) fn millis(&mut self, name: &str, default: u64, min: u64) -> Result<Duration, Invalid> {
        self.int_strict(name, default, (min, MILLIS_MAX)).map(Duration::from_millis)
    }

    /// Lenient milliseconds.
    pub(super) fn millis_lenient(&mut self, name: &str, default: u64, min: u64) -> Result<Duration, Invalid> {
        self.int(name, default, (min, MILLIS_MAX)).map(Duration::from_millis)
    }

    /// `true` or `false`; anything else is refused.
    pub(super) fn bool(&mut self, name: &str, default: bool) -> Result<bool, Invalid> {
        match self.text(name).as_deref() {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(value) => Err(Invalid::new(name, format!("{value:?} is neither true nor false"))),
        }
    }

    /// Off unless it says `true`.
    pub(crate) fn on(&mut self, name: &str) -> bool {
        self.switch(name, "true", false)
    }

    /// On unless it says `false`.
    pub(crate) fn off(&mut self, name: &str) -> bool {
        self.switch(name, "false", true)
    }

    fn switch(&mut self, name: &str, turns: &str, default: bool) -> bool {
        let value = self.text(name).unwrap_or_default();
        if value == turns {
            return !default;
        }
        if !value.is_empty() && value != default.to_string() {
            self.warnings.push(format!("{name}: {value:?} is taken as {default}"));
        }
        default
    }
}

/// A year, so that a deadline never overflows a clock.
const MILLIS_MAX: u64 = 365 * 24 * 3600 * 1000;

fn parse_digits(value: &str) -> Option<u64> {
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    if digits { value.parse().ok() } else { None }
}

fn out_of_range(name: &str, value: &str, (min, max): (u64, u64)) -> Invalid {
    Invalid::new(name, format!("{value:?} is not an integer from {min} to {max}"))
}
