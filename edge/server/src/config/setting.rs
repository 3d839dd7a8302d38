//! What a setting is: its name, what it accepts, and what becomes of anything else.
//!
//! Owns the parsing classes. A class decides alone what a text means; what a value has to do with other values
//! is checked where the configuration is put together.

/// One thing an operator may set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Without the prefix; in a file the same in small letters.
    pub(crate) name: &'static str,
    /// What it accepts.
    pub(crate) class: Class,
    /// What counts when it is not set; `None` when nothing does.
    pub(crate) default: Option<&'static str>,
    /// One line for people.
    pub(crate) doc: &'static str,
    /// Whether its value is never shown.
    pub(crate) secret: bool,
    /// What setting it does in this build.
    pub(crate) effect: Effect,
}

/// Whether setting it changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It does what it says.
    Acts,
    /// It is checked, and waits for the part of the product it belongs to.
    NotYet,
    /// It belongs to another implementation.
    Never,
}

/// What a value may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// 1 to 65535; the empty string is not "unset".
    Port,
    /// An integer in a range, both ends included; anything else is refused.
    Strict(u64, u64),
    /// The same, but leading digits are enough and without any the default holds, with a warning.
    Lenient(u64, u64),
    /// `true` or `false`.
    Bool,
    /// Off unless it says `true`.
    On,
    /// On unless it says `false`.
    Off,
    /// [`Off`](Self::Off) in production, [`On`](Self::On) elsewhere.
    OffInProduction,
    /// One of the words; anything else is refused.
    Words(&'static [&'static str]),
    /// The same in small or capital letters.
    WordsAnyCase(&'static [&'static str]),
    /// One of the words; anything else is the default, with a warning.
    WordsOrDefault(&'static [&'static str]),
    /// Any text.
    Text,
    /// Items between commas, trimmed, without empty ones.
    List,
    /// A path, trimmed; blank counts as unset.
    Dir,
}

/// What a setting came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Unset,
    Number(u64),
    Flag(bool),
    Text(String),
    List(Vec<String>),
}

/// A text understood, and what an operator should hear about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) value: Value,
    /// What the text was taken for, when that is not what it says.
    pub(crate) taken_as: Option<String>,
}

impl Class {
    /// What a text means; the error says what would be accepted.
    pub(crate) fn parse(self, text: &str, default: Option<&str>, production: bool) -> Result<Parsed, String> {
        match self {
            Self::Port => match whole(text) {
                Some(port @ 1..=65535) => plain(Value::Number(port)),
                Some(_) | None => Err(self.accepts()),
            },
            Self::Strict(min, max) => match whole(text) {
                Some(n) if (min..=max).contains(&n) => plain(Value::Number(n)),
                Some(_) | None => Err(self.accepts()),
            },
            Self::Lenient(min, max) => self.lenient(text, default, (min, max)),
            Self::Bool => match text {
                "true" => plain(Value::Flag(true)),
                "false" => plain(Value::Flag(false)),
                _ => Err(self.accepts()),
            },
            Self::On => Ok(switch(text, false)),
            Self::Off => Ok(switch(text, true)),
            Self::OffInProduction => Ok(switch(text, production)),
            Self::Words(words) => {
                let word = words.iter().find(|word| **word == text);
                word.map_or_else(|| Err(self.accepts()), |word| plain(Value::Text((*word).to_owned())))
            }
            Self::WordsAnyCase(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                word.map_or_else(|| Err(self.accepts()), |word| plain(Value::Text((*word).to_owned())))
            }
            Self::WordsOrDefault(words) if words.contains(&text) => plain(Value::Text(text.to_owned())),
            Self::WordsOrDefault(_) => Ok(fallback(default)),
            Self::Text => plain(Value::Text(text.to_owned())),
            Self::List => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                plain(Value::List(items.map(str::to_owned).collect()))
            }
            Self::Dir if text.trim().is_empty() => plain(default_value(self, default, production)),
            Self::Dir => plain(Value::Text(text.trim().to_owned())),
        }
    }

    fn lenient(self, text: &str, default: Option<&str>, (min, max): (u64, u64)) -> Result<Parsed, String> {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        if digits.is_empty() {
            return Ok(Parsed { value: default_value(self, default, false), ..fallback(default) });
        }
        match digits.parse::<u64>() {
            Ok(n) if (min..=max).contains(&n) => {
                let taken_as = (digits != text).then(|| n.to_string());
                Ok(Parsed { value: Value::Number(n), taken_as })
            }
            Ok(_) | Err(_) => Err(self.accepts()),
        }
    }

    /// What is accepted, to follow "is not".
    pub(crate) fn accepts(self) -> String {
        match self {
            Self::Port => "a port from 1 to 65535".to_owned(),
            Self::Strict(min, max) | Self::Lenient(min, max) => format!("an integer {}", range(min, max)),
            Self::Bool | Self::On | Self::Off | Self::OffInProduction => "true or false".to_owned(),
            Self::Words(words) | Self::WordsAnyCase(words) | Self::WordsOrDefault(words) => {
                let words: Vec<&str> =
                    words.iter().map(|word| if word.is_empty() { "empty" } else { word }).collect();
                format!("one of {}", words.join(", "))
            }
            Self::Text => "a text".to_owned(),
            Self::List => "a list with commas".to_owned(),
            Self::Dir => "a directory".to_owned(),
        }
    }
}

fn range(min: u64, max: u64) -> String {
    if max == u64::MAX { format!("from {min}") } else { format!("from {min} to {max}") }
}

/// The default of a setting as a value.
pub(crate) fn default_value(class: Class, default: Option<&str>, production: bool) -> Value {
    let Some(text) = default else {
        return if class == Class::OffInProduction { Value::Flag(production) } else { Value::Unset };
    };
    match class {
        Class::Port | Class::Strict(..) | Class::Lenient(..) => {
            Value::Number(text.parse().expect("the list's own defaults are numbers where numbers belong"))
        }
        Class::Bool | Class::On | Class::Off | Class::OffInProduction => Value::Flag(text == "true"),
        Class::Words(_) | Class::WordsAnyCase(_) | Class::WordsOrDefault(_) | Class::Text | Class::Dir => {
            Value::Text(text.to_owned())
        }
        Class::List => {
            Value::List(text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect())
        }
    }
}

fn plain(value: Value) -> Result<Parsed, String> {
    Ok(Parsed { value, taken_as: None })
}

fn fallback(default: Option<&str>) -> Parsed {
    let value = default.map_or(Value::Unset, |text| Value::Text(text.to_owned()));
    let taken_as = default.map_or_else(|| "not set".to_owned(), str::to_owned);
    Parsed { value, taken_as: Some(taken_as) }
}

fn switch(text: &str, default: bool) -> Parsed {
    let value = match text {
        "true" => true,
        "false" => false,
        _ => default,
    };
    let understood = text.is_empty() || text == "true" || text == "false";
    Parsed { value: Value::Flag(value), taken_as: (!understood).then(|| value.to_string()) }
}

fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn value(class: Class, text: &str) -> Option<Value> {
        class.parse(text, Some("7"), true).ok().map(|parsed| parsed.value)
    }

    #[test]
    fn strict_classes_refuse_what_is_not_exactly_theirs() {
        for text in ["", "0", "65536", "40 40", "+1", "0x10", " 80", "１"] {
            assert_eq!(value(Class::Port, text), None, "{text:?}");
        }
        assert_eq!(value(Class::Port, "65535"), Some(Value::Number(65535)));
        for text in ["", "4", "21", "10s", "-5", "18446744073709551616"] {
            assert_eq!(value(Class::Strict(5, 20), text), None, "{text:?}");
        }
        assert_eq!(value(Class::Strict(5, 20), "020"), Some(Value::Number(20)));
        for text in ["", "yes", "True", "1"] {
            assert_eq!(value(Class::Bool, text), None, "{text:?}");
        }
        assert_eq!(value(Class::Words(&["a", ""]), ""), Some(Value::Text(String::new())));
        assert_eq!(value(Class::Words(&["a"]), "A"), None);
        assert_eq!(value(Class::WordsAnyCase(&["cn"]), "CN"), Some(Value::Text("cn".to_owned())));
    }

    #[test]
    fn a_lenient_number_keeps_its_digits_or_its_default_and_says_so() {
        let parse = |text| Class::Lenient(5, 20).parse(text, Some("7"), false);
        let number = |n, taken: Option<&str>| {
            Ok(Parsed { value: Value::Number(n), taken_as: taken.map(str::to_owned) })
        };
        assert_eq!(parse("10"), number(10, None));
        assert_eq!(parse("10s"), number(10, Some("10")));
        assert_eq!(parse("x"), number(7, Some("7")));
        assert_eq!(parse(""), number(7, Some("7")));
        assert!(parse("21").unwrap_err().contains("from 5 to 20"));
        assert!(parse("99999999999999999999s").is_err());
        let none = Class::Lenient(0, u64::MAX).parse("x", None, false).unwrap();
        assert_eq!(none.value, Value::Unset);
    }

    #[test]
    fn a_switch_turns_on_one_word_only_and_warns_about_others() {
        let flag = |class: Class, text, production| {
            let parsed = class.parse(text, None, production).unwrap();
            (parsed.value == Value::Flag(true), parsed.taken_as.is_some())
        };
        assert_eq!(flag(Class::On, "true", false), (true, false));
        assert_eq!(flag(Class::On, "yes", false), (false, true));
        assert_eq!(flag(Class::On, "", false), (false, false));
        assert_eq!(flag(Class::Off, "false", false), (false, false));
        assert_eq!(flag(Class::Off, "no", false), (true, true));
        assert_eq!(flag(Class::OffInProduction, "", true), (true, false));
        assert_eq!(flag(Class::OffInProduction, "no", true), (true, true));
        assert_eq!(flag(Class::OffInProduction, "no", false), (false, true));
    }

    #[test]
    fn texts_lists_and_directories_are_taken_as_they_are() {
        assert_eq!(value(Class::Text, " a "), Some(Value::Text(" a ".to_owned())));
        let items = Value::List(vec!["a".to_owned(), "b c".to_owned()]);
        assert_eq!(value(Class::List, " a,, b c ,"), Some(items));
        assert_eq!(value(Class::Dir, " /x "), Some(Value::Text("/x".to_owned())));
        assert_eq!(value(Class::Dir, "  "), Some(Value::Text("7".to_owned())), "blank is unset");
    }
}
