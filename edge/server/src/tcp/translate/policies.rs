//! Storage policies between their JSON text and the node's settings.
//!
//! Owns the names of the settings and that a text is taken whole or not at all: a setting that is not known here is
//! refused, because nobody could tell that it does nothing. What a text leaves out is inherited, null switches it off.

use broker::{Effective, Form, Policies, Policy, Request, Setting, Source, TopicPolicy};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use wire::{Payload, Reason, Str};

use super::Ask;

const AGE: &str = "retention.max_age_ms";
const BYTES: &str = "retention.max_bytes";
const READ_AGE: &str = "retention.read_max_age_ms";
const UNREAD_AGE: &str = "retention.unread_max_age_ms";
const SPREAD: &str = "spread_by";

pub(super) fn define(name: Str, json: &[u8]) -> Ask {
    match parse(json) {
        Some(policy) => node(Policies::Define { name: name.unwrap_or_default(), policy }),
        None => Ask::Refuse(Reason::InvalidPolicy),
    }
}

pub(super) fn delete(name: Str, force: bool) -> Ask {
    node(Policies::Delete { name: name.unwrap_or_default(), force })
}

pub(super) fn bind(topic: Str, name: Str) -> Ask {
    node(Policies::Bind { topic, name })
}

pub(super) fn get(topic: Str) -> Ask {
    node(Policies::Get { topic })
}

pub(super) fn list() -> Ask {
    node(Policies::List)
}

fn node(request: Policies) -> Ask {
    Ask::Node(Request::Policies(request), Form::Records)
}

/// One object of known settings, and nothing else.
fn parse(json: &[u8]) -> Option<Policy> {
    let Value::Object(settings) = serde_json::from_slice(json).ok()? else { return None };
    let mut policy = Policy::default();
    for (name, value) in &settings {
        match name.as_str() {
            AGE => policy.age_ms_max = number(value)?,
            BYTES => policy.bytes_max = number(value)?,
            READ_AGE => policy.read_age_ms_max = number(value)?,
            UNREAD_AGE => policy.unread_age_ms_max = number(value)?,
            SPREAD => policy.spread_by = setting(value, |key| Some(key.as_str()?.to_owned().into()))?,
            _ => return None,
        }
    }
    Some(policy)
}

fn number(value: &Value) -> Option<Setting<u64>> {
    setting(value, Value::as_u64)
}

fn setting<T>(value: &Value, read: impl FnOnce(&Value) -> Option<T>) -> Option<Setting<T>> {
    if value.is_null() { Some(Setting::Off) } else { read(value).map(Setting::Value) }
}

/// What holds for a topic: each setting with its value, null when there is no such rule, and where it is from.
pub(super) fn policy(policy: TopicPolicy) -> Payload {
    let TopicPolicy {
        name,
        is_defined,
        age_ms_max,
        bytes_max,
        read_age_ms_max,
        unread_age_ms_max,
        spread_by,
    } = policy;
    let spread_by = Effective { value: spread_by.value.map(|key| text(&key)), source: spread_by.source };
    text_of(&json!({
        "policy": name,
        "defined": is_defined,
        "settings": {
            AGE: told(age_ms_max),
            BYTES: told(bytes_max),
            READ_AGE: told(read_age_ms_max),
            UNREAD_AGE: told(unread_age_ms_max),
            SPREAD: told(spread_by),
        },
    }))
}

fn told<T: Into<Value>>(effective: Effective<T>) -> Value {
    let source = match effective.source {
        Source::Policy => "policy",
        Source::Default => "default",
        Source::Undefined => "undefined",
    };
    json!({ "value": effective.value.map(Into::into), "from": source })
}

/// Every policy as it was defined.
pub(super) fn policies(policies: Vec<(String, Policy)>) -> Payload {
    let row = |(name, policy): (String, Policy)| json!({ "name": name, "settings": settings(&policy) });
    text_of(&json!({ "policies": policies.into_iter().map(row).collect::<Value>() }))
}

/// The text it was defined with, but for spaces and order.
fn settings(policy: &Policy) -> Map<String, Value> {
    let Policy { age_ms_max, bytes_max, read_age_ms_max, unread_age_ms_max, spread_by } = policy;
    let numbers =
        [(AGE, age_ms_max), (BYTES, bytes_max), (READ_AGE, read_age_ms_max), (UNREAD_AGE, unread_age_ms_max)];
    let numbers = numbers.into_iter().map(|(name, setting)| (name, said(setting, |value| (*value).into())));
    let all = numbers.chain([(SPREAD, said(spread_by, |key| text(key).into()))]);
    all.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn said<T>(setting: &Setting<T>, value: impl FnOnce(&T) -> Value) -> Option<Value> {
    match setting {
        Setting::Inherit => None,
        Setting::Off => Some(Value::Null),
        Setting::Value(set) => Some(value(set)),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn text_of(value: &Value) -> Payload {
    Payload::Policies(Bytes::from(value.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_taken_whole_or_not_at_all() {
        let all = r#"{"retention.max_age_ms":0,"retention.max_bytes":null,"retention.read_max_age_ms":1,
            "retention.unread_max_age_ms":18446744073709551615,"spread_by":"rack"}"#;
        let policy = parse(all.as_bytes()).unwrap();
        let expected = Policy {
            age_ms_max: Setting::Value(0),
            bytes_max: Setting::Off,
            read_age_ms_max: Setting::Value(1),
            unread_age_ms_max: Setting::Value(u64::MAX),
            spread_by: Setting::Value("rack".into()),
        };
        assert_eq!(policy, expected);
        assert_eq!(parse(b"{}"), Some(Policy::default()));
        let again = Value::Object(settings(&expected)).to_string();
        assert_eq!(parse(again.as_bytes()), Some(expected));
        for bad in [
            "",
            "null",
            "[]",
            "{} {}",
            r#"{"retention.max_age_ms":-1}"#,
            r#"{"retention.max_age_ms":1.5}"#,
            r#"{"retention.max_age_ms":18446744073709551616}"#,
            r#"{"retention.max_age_ms":"1"}"#,
            r#"{"spread_by":1}"#,
            r#"{"max_age_ms":1}"#,
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
            let refused = define(Some("p".into()), bad.as_bytes());
            assert!(matches!(refused, Ask::Refuse(Reason::InvalidPolicy)), "{bad}");
        }
    }
}
