//! Every setting understood: its value, and where it came from.
//!
//! Owns the two ways a setting can be wrong. What its class refuses is found here; what contradicts something
//! else is reported to here by whoever knows. All problems are gathered, so that a person mends them at once and
//! not one start after the other.

use std::time::Duration;

use super::Invalid;
use super::list;
use super::setting::{Effect, Setting, Value, default_value};
use super::sources::{Origin, Sources};

/// Shown in place of a secret.
const MASK: &str = "***";

/// One setting, understood.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) setting: &'static Setting,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
    /// As it was written.
    text: Option<String>,
}

/// All settings, in the order of the list.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) resolved: Vec<Resolved>,
    /// Shown in problems of the file's values.
    file: String,
    pub(crate) problems: Vec<Invalid>,
    pub(crate) warnings: Vec<String>,
}

impl Values {
    /// Understands what the sources say. A value that is refused counts as not set from then on.
    pub(crate) fn resolve(sources: Sources, production: bool) -> Self {
        let file = sources.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let mut values = Self { resolved: Vec::new(), file, problems: Vec::new(), warnings: Vec::new() };
        for setting in list::all() {
            values.take(setting, sources.get(setting.name), production);
        }
        values.problems.splice(0..0, sources.problems);
        values.warnings.splice(0..0, sources.warnings);
        values.warn_without_effect();
        values
    }

    fn take(&mut self, setting: &'static Setting, given: Option<(&str, Origin)>, production: bool) {
        let mut resolved = Resolved {
            setting,
            value: default_value(setting.class, setting.default, production),
            origin: Origin::Default,
            text: None,
        };
        if let Some((text, origin)) = given {
            (resolved.origin, resolved.text) = (origin, Some(text.to_owned()));
            match setting.class.parse(text, setting.default, production) {
                Ok(parsed) => {
                    resolved.value = parsed.value;
                    if let Some(taken_as) = parsed.taken_as {
                        let shown = resolved.shown_text();
                        let warning = format!("{}: {shown} is taken as {taken_as}", setting.variable());
                        self.warnings.push(warning);
                    }
                }
                Err(accepts) => {
                    let problem = format!("is not {accepts}");
                    self.problems.push(self.invalid(&resolved, &problem));
                }
            }
        }
        self.resolved.push(resolved);
    }

    fn warn_without_effect(&mut self) {
        let set = |resolved: &&Resolved| {
            resolved.origin != Origin::Default && resolved.setting.effect != Effect::Acts
        };
        let names: Vec<String> =
            self.resolved.iter().filter(set).map(|resolved| resolved.setting.variable()).collect();
        if !names.is_empty() {
            self.warnings.push(format!("without effect in this build: {}", names.join(", ")));
        }
    }

    /// Says that a setting's value cannot stay; `problem` follows the value.
    pub(crate) fn refuse(&mut self, name: &str, problem: &str) {
        let invalid = self.invalid(self.get(name), problem);
        self.problems.push(invalid);
    }

    /// The name, the value unless it is secret, where it comes from, and the problem.
    fn invalid(&self, resolved: &Resolved, problem: &str) -> Invalid {
        let shown = resolved.shown_text();
        let problem = match resolved.origin {
            Origin::Default => problem.to_owned(),
            Origin::Environment => format!("{shown} from the environment {problem}"),
            Origin::File => format!("{shown} from {} {problem}", self.file),
        };
        Invalid::new(&resolved.setting.variable(), problem)
    }

    /// A setting of the list.
    pub(crate) fn get(&self, name: &str) -> &Resolved {
        let found = self.resolved.iter().find(|resolved| resolved.setting.name == name);
        found.expect("only names of the list are asked for")
    }

    /// Whether anybody set it.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.get(name).origin != Origin::Default
    }

    /// A number that has a default.
    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.get(name).value {
            Value::Number(number) => number,
            Value::Unset | Value::Flag(_) | Value::Text(_) | Value::List(_) => {
                unreachable!("{name} is no number with a default")
            }
        }
    }

    /// A number, if there is one.
    pub(crate) fn bound(&self, name: &str) -> Option<u64> {
        match self.get(name).value {
            Value::Number(number) => Some(number),
            Value::Unset | Value::Flag(_) | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// A number of things that fits a pointer.
    pub(crate) fn count(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(usize::MAX)
    }

    /// A number of milliseconds.
    pub(crate) fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.number(name))
    }

    /// A switch.
    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.get(name).value {
            Value::Flag(flag) => flag,
            Value::Unset | Value::Number(_) | Value::Text(_) | Value::List(_) => {
                unreachable!("{name} is no switch")
            }
        }
    }

    /// A text, if there is one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match &self.get(name).value {
            Value::Text(text) => Some(text),
            Value::Unset | Value::Number(_) | Value::Flag(_) | Value::List(_) => None,
        }
    }

    /// The items of a list, none when it is not set.
    pub(crate) fn list(&self, name: &str) -> &[String] {
        match &self.get(name).value {
            Value::List(items) => items,
            Value::Unset | Value::Number(_) | Value::Flag(_) | Value::Text(_) => &[],
        }
    }
}

impl Resolved {
    /// The value for people; `None` when there is none.
    pub(crate) fn shown(&self) -> Option<String> {
        let value = match &self.value {
            Value::Unset => return None,
            _ if self.setting.secret => MASK.to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::Text(text) => text.clone(),
            Value::List(items) => items.join(","),
        };
        Some(value)
    }

    fn shown_text(&self) -> String {
        if self.setting.secret {
            MASK.to_owned()
        } else {
            format!("{:?}", self.text.as_deref().unwrap_or(""))
        }
    }
}
