//! Made-up records, for trying things out.

use bytes::Bytes;
use client::{Header, Record};

use super::batcher::now;

/// Record number `n`, from 1.
pub(crate) fn record(n: u64, key: Option<&Bytes>) -> Record {
    let now = now();
    let value = format!("{{\"id\":{n},\"message\":\"record #{n}\",\"timestamp\":\"{}\"}}", iso_8601(now));
    let header = |name: &'static str, value: String| Header { name: name.into(), value: value.into() };
    Record {
        key: Some(key.map_or_else(|| format!("key-{n}").into(), Bytes::clone)),
        value: value.into(),
        timestamp: now,
        headers: vec![header("x-source", "malachi-cli".to_owned()), header("x-seq", n.to_string())],
    }
}

/// Milliseconds since the epoch as UTC. The calendar is Howard Hinnant's `civil_from_days`, for days from
/// the epoch on.
pub(crate) fn iso_8601(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    // Years begin in March, so that the leap day ends them.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (seconds, millis) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_fall_where_the_calendar_has_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_001, "2023-11-14T22:13:20.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso_8601(ms), text);
        }
    }

    #[test]
    fn a_sample_says_which_one_it_is() {
        let sample = record(3, None);
        assert_eq!(sample.key.as_deref(), Some(&b"key-3"[..]));
        assert!(sample.value.starts_with(br##"{"id":3,"message":"record #3","timestamp":"20"##));
        assert_eq!(sample.headers[1].value, "3");
        assert_eq!(record(1, Some(&Bytes::from_static(b"k"))).key.as_deref(), Some(&b"k"[..]));
    }
}
