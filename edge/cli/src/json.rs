//! Records as JSON, one object a line, for both directions: what `consume --format json` prints,
//! `produce --format json` takes.
//!
//! ```text
//! {"key":"k","value":"v","timestamp":1700000000000,"headers":[["name","value"]]}
//! ```
//!
//! Bytes that are not UTF-8 stand in base64 under `key_base64`, `value_base64` and `headers_base64`.
//! `headers` may also be an object when it is read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use client::{Header, Record};
use serde::{Deserialize, Serialize};

type Text<'a> = Cow<'a, str>;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Line<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key_base64: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    value: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    value_base64: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    headers: Option<Headers<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    headers_base64: Option<Vec<(Text<'a>, Text<'a>)>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Headers<'a> {
    #[serde(borrow)]
    List(Vec<(Text<'a>, Text<'a>)>),
    #[serde(borrow)]
    Map(BTreeMap<Text<'a>, Text<'a>>),
}

/// Why a line is not a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Not JSON, or not of the right shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Not base64.
    #[error("{field}: {error}")]
    Base64 {
        /// Where.
        field: &'static str,
        /// What.
        error: base64::DecodeError,
    },
    /// A field in both of its forms.
    #[error("{0} and {0}_base64 exclude each other")]
    Twice(&'static str),
    /// No value at all; an empty one is `""`.
    #[error("value is missing")]
    NoValue,
}

/// Reads one line; `now` is the timestamp of a record that names none.
pub(crate) fn parse(line: &[u8], now: u64) -> Result<Record, Error> {
    let line: Line<'_> = serde_json::from_slice(line)?;
    Ok(Record {
        key: either("key", line.key, line.key_base64)?,
        value: either("value", line.value, line.value_base64)?.ok_or(Error::NoValue)?,
        timestamp: line.timestamp.unwrap_or(now),
        headers: headers(line.headers, line.headers_base64)?,
    })
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn unbase64(field: &'static str, text: &str) -> Result<Bytes, Error> {
    STANDARD.decode(text).map(Bytes::from).map_err(|error| Error::Base64 { field, error })
}

fn either(
    field: &'static str,
    text: Option<Text<'_>>,
    base64: Option<Text<'_>>,
) -> Result<Option<Bytes>, Error> {
    match (text, base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(bytes(&text))),
        (None, Some(base64)) => unbase64(field, &base64).map(Some),
        (Some(_), Some(_)) => Err(Error::Twice(field)),
    }
}

fn headers(
    text: Option<Headers<'_>>,
    base64: Option<Vec<(Text<'_>, Text<'_>)>>,
) -> Result<Vec<Header>, Error> {
    let plain = |(name, value): (Text<'_>, Text<'_>)| Header { name: bytes(&name), value: bytes(&value) };
    match (text, base64) {
        (None, None) => Ok(Vec::new()),
        (Some(Headers::List(list)), None) => Ok(list.into_iter().map(plain).collect()),
        (Some(Headers::Map(map)), None) => Ok(map.into_iter().map(plain).collect()),
        (None, Some(list)) => list
            .into_iter()
            .map(|(name, value)| {
                Ok(Header { name: unbase64("headers", &name)?, value: unbase64("headers", &value)? })
            })
            .collect(),
        (Some(_), Some(_)) => Err(Error::Twice("headers")),
    }
}

/// One line without its newline.
pub(crate) fn print(record: &Record) -> String {
    let mut line = Line { timestamp: Some(record.timestamp), ..Line::default() };
    (line.key, line.key_base64) = record.key.as_deref().map_or((None, None), text_or_base64);
    (line.value, line.value_base64) = text_or_base64(&record.value);
    if !record.headers.is_empty() {
        let texts: Option<Vec<_>> = record.headers.iter().map(text_header).collect();
        match texts {
            Some(list) => line.headers = Some(Headers::List(list)),
            None => line.headers_base64 = Some(record.headers.iter().map(base64_header).collect()),
        }
    }
    serde_json::to_string(&line).expect("text, numbers and lists always have a JSON form")
}

fn text_or_base64(bytes: &[u8]) -> (Option<Text<'_>>, Option<Text<'_>>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(Cow::Borrowed(text)), None),
        Err(_) => (None, Some(STANDARD.encode(bytes).into())),
    }
}

fn text_header(header: &Header) -> Option<(Text<'_>, Text<'_>)> {
    let text = |bytes| std::str::from_utf8(bytes).ok().map(Cow::Borrowed);
    Some((text(&header.name)?, text(&header.value)?))
}

fn base64_header(header: &Header) -> (Text<'_>, Text<'_>) {
    (STANDARD.encode(&header.name).into(), STANDARD.encode(&header.value).into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_readable_record_is_readable() {
        let line = br#"{"key":"k","value":"a\nb","timestamp":5,"headers":[["n","v"]]}"#;
        let record = parse(line, 0).unwrap();
        assert_eq!((&record.key.as_deref(), &record.value[..]), (&Some(&b"k"[..]), &b"a\nb"[..]));
        assert_eq!(print(&record).as_bytes(), line);
    }

    #[test]
    fn what_is_not_said_is_null_now_and_none() {
        let record = parse(br#"{"value":""}"#, 9).unwrap();
        assert_eq!(record, Record { key: None, value: Bytes::new(), timestamp: 9, headers: Vec::new() });
        let record = parse(br#"{"key":null,"value":"","headers":{"b":"2","a":"1"}}"#, 9).unwrap();
        assert_eq!((record.key, record.headers.len()), (None, 2));
    }

    #[test]
    fn what_is_unclear_is_refused() {
        let bad: [&[u8]; 8] = [
            b"",
            b"{}",
            b"[]",
            br#"{"value":1}"#,
            br#"{"value":"a","value_base64":"YQ=="}"#,
            br#"{"value_base64":"?"}"#,
            br#"{"value":"a","kee":"k"}"#,
            br#"{"value":"a"} x"#,
        ];
        for line in bad {
            assert!(parse(line, 0).is_err(), "{}", line.escape_ascii());
        }
    }

    fn any_bytes() -> impl Strategy<Value = Bytes> {
        let text = any::<String>().prop_map(String::into_bytes);
        prop_oneof![text, any::<Vec<u8>>()].prop_map(Bytes::from)
    }

    proptest! {
        #[test]
        fn every_record_survives_the_round_trip(
            key in prop::option::of(any_bytes()), value in any_bytes(), timestamp in any::<u64>(),
            headers in prop::collection::vec((any_bytes(), any_bytes()), 0..3),
        ) {
            let headers = headers.into_iter().map(|(name, value)| Header { name, value }).collect();
            let record = Record { key, value, timestamp, headers };
            let line = print(&record);
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(parse(line.as_bytes(), 0).unwrap(), record);
        }
    }
}
