//! Where values come from: the environment, and a file under it.
//!
//! Owns the reading of both and the names in them. A name in the file that is no setting is an error; a variable
//! of the product's that is none is warned about, because whoever set it may have meant another program. Both are
//! told the nearest name there is.
//!
//! ```toml
//! # malachi.toml: names in small letters, without the prefix
//! tcp_port = 4040
//! log_data_dir = "/var/lib/malachi/log"
//! require_strong_passwords = true
//! tls_versions = ["tlsv1.3"]
//! ```

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::Invalid;
use super::list::{self, OF_THE_CLIENT, PREFIX};
use super::setting::Setting;

/// The file that is read without being named, when it is there.
const FILE_DEFAULT: &str = "malachi.toml";
/// Setting that names the file.
const FILE_SETTING: &str = "CONFIG_FILE";
/// More is no configuration.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nothing was set.
    Default,
    /// The configuration file.
    File,
    /// A variable.
    Environment,
}

impl Origin {
    /// As it is shown.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
        }
    }
}

/// Texts by setting, not understood yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    environment: BTreeMap<&'static str, String>,
    file: BTreeMap<&'static str, String>,
    /// The file that was read.
    pub(crate) path: Option<PathBuf>,
    pub(crate) problems: Vec<Invalid>,
    pub(crate) warnings: Vec<String>,
}

impl Sources {
    /// Takes the variables, and the file: the one given, else the one they name, else the one that lies in the
    /// working directory.
    pub(crate) fn read(variables: impl Iterator<Item = (String, String)>, file: Option<&Path>) -> Self {
        let mut sources = Self::default();
        sources.take_variables(variables);
        let named = sources.environment.get(FILE_SETTING).filter(|path| !path.is_empty()).map(PathBuf::from);
        match file.map(Path::to_owned).or(named) {
            Some(path) => sources.take_file(path),
            None if Path::new(FILE_DEFAULT).exists() => sources.take_file(PathBuf::from(FILE_DEFAULT)),
            None => {}
        }
        sources
    }

    /// The text of a setting, if there is one; the environment wins.
    pub(crate) fn get(&self, name: &str) -> Option<(&str, Origin)> {
        let from_environment = self.environment.get(name).map(|text| (text.as_str(), Origin::Environment));
        from_environment.or_else(|| self.file.get(name).map(|text| (text.as_str(), Origin::File)))
    }

    fn take_variables(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (variable, text) in variables {
            let Some(name) = variable.strip_prefix(PREFIX) else { continue };
            if let Some(setting) = list::all().find(|setting| setting.name == name) {
                self.environment.insert(setting.name, text);
            } else if !OF_THE_CLIENT.contains(&name) {
                let warning =
                    format!("{variable} is not a setting; the nearest is {PREFIX}{}", nearest(name));
                self.warnings.push(warning);
            }
        }
    }

    fn take_file(&mut self, path: PathBuf) {
        let invalid = |problem: String| Invalid::new(&path.display().to_string(), problem);
        match read_text(&path).and_then(|text| parse(&text)) {
            Ok(entries) => {
                for (key, text) in entries {
                    match self.file_entry(&key, text) {
                        Ok(()) => {}
                        Err(problem) => self.problems.push(invalid(problem)),
                    }
                }
            }
            Err(problem) => self.problems.push(invalid(problem)),
        }
        self.path = Some(path);
    }

    fn file_entry(&mut self, key: &str, text: Result<String, String>) -> Result<(), String> {
        let named = |setting: &&Setting| setting.name.eq_ignore_ascii_case(key);
        let small = !key.bytes().any(|b| b.is_ascii_uppercase());
        let setting = list::all().filter(|setting| setting.name != FILE_SETTING).find(named);
        let Some(setting) = setting.filter(|_| small) else {
            let nearest = nearest(&key.to_ascii_uppercase()).to_ascii_lowercase();
            return Err(format!("{key} is not a setting; the nearest is {nearest}"));
        };
        self.file.insert(setting.name, text.map_err(|problem| format!("{key} {problem}"))?);
        Ok(())
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(format!("has more than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// Keys and their texts as a variable would have them; an error where a value is of a kind no setting has.
type Entries = Vec<(String, Result<String, String>)>;

fn parse(text: &str) -> Result<Entries, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.bytes().filter(|b| *b == b'\n').count();
        format!("line {line}: {}", error.message().lines().next().unwrap_or("not TOML"))
    })?;
    Ok(table.into_iter().map(|(key, value)| (key, text_of(value))).collect())
}

fn text_of(value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(flag) => Ok(flag.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Array(items) => {
            let items: Result<Vec<String>, String> = items.into_iter().map(item).collect();
            items.map(|items| items.join(","))
        }
        toml::Value::Datetime(_) => Err("is a date, which no setting is".to_owned()),
        toml::Value::Table(_) => Err("is a table: all settings stand at the top of the file".to_owned()),
    }
}

fn item(value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) if !text.contains(',') => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::String(_)
        | toml::Value::Boolean(_)
        | toml::Value::Float(_)
        | toml::Value::Array(_)
        | toml::Value::Datetime(_)
        | toml::Value::Table(_) => Err("holds an item that is no text without commas".to_owned()),
    }
}

/// The setting whose name takes the fewest changes.
fn nearest(name: &str) -> &'static str {
    let distance = |setting: &&Setting| strsim::damerau_levenshtein(name, setting.name);
    list::all().min_by_key(distance).expect("the list is not empty").name
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn from_file(text: &str) -> Sources {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.toml");
        std::fs::write(&path, text).unwrap();
        Sources::read(std::iter::empty(), Some(&path))
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.toml");
        std::fs::write(&path, "tcp_port = 5000\ndashboard_port = 5001\n").unwrap();
        let variables = [
            ("MALACHI_TCP_PORT", "6000"),
            ("MALACHI_CONFIG_FILE", path.to_str().unwrap()),
            ("OTHER_TCP_PORT", "1"),
        ];
        let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let sources = Sources::read(variables.into_iter(), None);
        assert_eq!(sources.get("TCP_PORT"), Some(("6000", Origin::Environment)));
        assert_eq!(sources.get("DASHBOARD_PORT"), Some(("5001", Origin::File)));
        assert_eq!(sources.get("APP_PASS"), None);
        assert!(sources.problems.is_empty() && sources.warnings.is_empty());
    }

    #[test]
    fn every_kind_of_value_becomes_the_text_a_variable_would_have() {
        let sources = from_file(
            "tcp_port = 5000\nacl_strict = true\nadmin_pass = \"a b\"\ntls_versions = [\"tlsv1.3\", \"x\"]\n",
        );
        assert!(sources.problems.is_empty(), "{:?}", sources.problems);
        assert_eq!(sources.get("ACL_STRICT"), Some(("true", Origin::File)));
        assert_eq!(sources.get("ADMIN_PASS"), Some(("a b", Origin::File)));
        assert_eq!(sources.get("TLS_VERSIONS"), Some(("tlsv1.3,x", Origin::File)));
    }

    #[test]
    fn names_that_are_none_are_told_the_nearest() {
        for (text, parts) in [
            ("tcp_prot = 1", ["tcp_prot is not a setting", "tcp_port"]),
            ("TCP_PORT = 1", ["TCP_PORT is not a setting", "tcp_port"]),
            ("config_file = \"x\"", ["config_file is not a setting", "nearest"]),
            ("host = \"x\"", ["host is not a setting", "nearest"]),
            ("[tcp]\nport = 1", ["tcp is not a setting", "nearest"]),
            ("tcp_port = { a = 1 }", ["tcp_port is a table", "top"]),
            ("tcp_port = 1\ntcp_port = 2", ["line 2", "duplicate"]),
            ("tcp_port 1", ["line 1", ""]),
            ("tls_versions = [\"a,b\"]", ["tls_versions holds", "commas"]),
        ] {
            let problems = from_file(text).problems;
            let line = problems[0].to_string();
            assert!(problems.len() == 1 && parts.iter().all(|part| line.contains(part)), "{text}: {line}");
            assert!(line.contains("settings.toml") && !line.contains('\n'), "{line}");
        }
        let variable = [("MALACHI_TCP_PROT".to_owned(), "1".to_owned())];
        let warnings = Sources::read(variable.into_iter(), None).warnings;
        assert_eq!(warnings, ["MALACHI_TCP_PROT is not a setting; the nearest is MALACHI_TCP_PORT"]);
    }

    #[test]
    fn a_file_that_was_named_must_be_there_and_be_one() {
        let missing = Sources::read(std::iter::empty(), Some(Path::new("no/such/file.toml"))).problems;
        assert!(missing[0].to_string().contains("no/such/file.toml: cannot be read"), "{missing:?}");
        let huge = from_file(&"#".repeat(1024 * 1024 + 1)).problems;
        assert!(huge[0].to_string().contains("more than"), "{huge:?}");
    }
}
