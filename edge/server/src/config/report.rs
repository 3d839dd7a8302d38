//! What `malachi config` prints: whether a start would be refused, and every value with its origin.
//!
//! Opens nothing but the configuration file. Secrets are masked.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::list::{SECTIONS, Section};
use super::setting::Effect;
use super::sources::Sources;
use super::values::Resolved;
use super::{environment_variables, load_from, resolve};

/// Checks the configuration as a start would and writes every problem and warning, a line each. The status is 0
/// when the broker would start, 1 when not.
///
/// # Errors
/// Fails when `out` does.
pub fn check(file: Option<&Path>, out: &mut dyn Write) -> std::io::Result<ExitCode> {
    match load_from(Sources::read(environment_variables(), file)) {
        Ok(loaded) => {
            for warning in loaded.warnings {
                writeln!(out, "warning: {warning}")?;
            }
            writeln!(out, "the configuration is valid")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            for problem in problems {
                writeln!(out, "{problem}")?;
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Writes every setting in the order of the documentation: name, value, where it comes from. As a table with
/// tabs, or as a JSON array of objects. A setting without a value is shown empty, in JSON null. Values that a start
/// would refuse are shown as their defaults, and the status is 1.
///
/// # Errors
/// Fails when `out` does.
pub fn show(file: Option<&Path>, as_json: bool, out: &mut dyn Write) -> std::io::Result<ExitCode> {
    let (values, _) = resolve(Sources::read(environment_variables(), file));
    if as_json {
        let settings: Vec<_> = values.resolved.iter().map(as_object).collect();
        serde_json::to_writer_pretty(&mut *out, &settings)?;
        writeln!(out)?;
    } else {
        for resolved in &values.resolved {
            let value = resolved.shown().unwrap_or_default();
            writeln!(out, "{}\t{value}\t{}", resolved.setting.variable(), resolved.origin.as_str())?;
        }
    }
    Ok(if values.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_object(resolved: &Resolved) -> serde_json::Value {
    let setting = resolved.setting;
    let owns = |section: &&Section| section.settings.iter().any(|listed| listed.name == setting.name);
    let section = SECTIONS.iter().find(owns).expect("every setting is in a section");
    json!({
        "name": setting.variable(),
        "value": resolved.shown(),
        "origin": resolved.origin.as_str(),
        "default": setting.default,
        "accepts": setting.class.accepts(),
        "secret": setting.secret,
        "section": section.title,
        "description": setting.doc,
        "effect": match setting.effect {
            Effect::Acts => "acts",
            Effect::NotYet => "not_yet",
            Effect::Never => "never",
        },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    /// Runs with whatever is in the environment of the test: only what the file says is looked at.
    fn said(run: impl FnOnce(&mut Vec<u8>) -> std::io::Result<ExitCode>) -> (String, bool) {
        let mut out = Vec::new();
        let code = run(&mut out).unwrap();
        (String::from_utf8(out).unwrap(), code == ExitCode::SUCCESS)
    }

    #[test]
    fn check_tells_every_problem() {
        let (_dir, path) = file("session_timeout_sec = 0\nlockout_duration_ms = 0\n");
        let (text, valid) = said(|out| check(Some(&path), out));
        assert!(!valid && text.lines().count() == 2, "{text}");
        assert!(text.contains("MALACHI_SESSION_TIMEOUT_SEC: \"0\" from ") && text.contains("settings.toml"));
    }

    #[test]
    fn show_tells_value_and_origin_and_masks_secrets() {
        let (_dir, path) = file("app_pass = \"s3cret\"\nshutdown_grace_ms = 7\n");
        let (text, _) = said(|out| show(Some(&path), false, out));
        assert!(text.contains("MALACHI_SHUTDOWN_GRACE_MS\t7\tfile\n"), "{text}");
        assert!(text.contains("MALACHI_APP_PASS\t***\tfile\n") && !text.contains("s3cret"), "{text}");
        let (text, _) = said(|out| show(Some(&path), true, out));
        let settings: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let one = |name: &str| settings.iter().find(|setting| setting["name"] == name).unwrap().clone();
        assert_eq!(one("MALACHI_SHUTDOWN_GRACE_MS")["value"], "7");
        assert_eq!(one("MALACHI_RETENTION_MAX_BYTES")["value"], serde_json::Value::Null);
    }
}
