//! What the values say about the work that nobody asks for: retention, orphans, scrub, splits and merges.

use broker::upkeep::{OrphanSweep, Resize, Retention, Scrub};

use super::Values;

/// Settings of that work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upkeep {
    /// When sealed segments expire.
    pub(crate) retention: Retention,
    /// How careful the search for copies nobody lists is.
    pub(crate) orphan_sweep: OrphanSweep,
    /// How sealed copies are verified.
    pub(crate) scrub: Scrub,
    /// When ranges are split and merged.
    pub(crate) resize: Resize,
}

pub(super) fn upkeep(values: &Values) -> Upkeep {
    Upkeep {
        retention: Retention {
            every: values.millis("RETENTION_INTERVAL_MS"),
            age_ms_max: values.bound("RETENTION_MAX_AGE_MS"),
            bytes_max: values.bound("RETENTION_MAX_BYTES"),
            unresolved_age_ms_max: values.bound("RETENTION_UNRESOLVED_POLICY_MAX_AGE_MS"),
            skips_max: values.count("RETENTION_SKIP_LEDGER_MAX"),
            skip_line_every: values.millis("RETENTION_SKIP_LOG_WINDOW_MS"),
        },
        orphan_sweep: OrphanSweep {
            every: values.millis("RETENTION_ORPHAN_SWEEP_INTERVAL_MS"),
            min_age: values.millis("RETENTION_ORPHAN_MIN_AGE_MS"),
            sightings: u32::try_from(values.number("RETENTION_ORPHAN_SIGHTINGS")).unwrap_or(u32::MAX),
            removals_max: values.count("RETENTION_ORPHAN_MAX_PER_PASS"),
            tracked_max: values.count("RETENTION_ORPHAN_MAX_TRACKED"),
        },
        scrub: Scrub {
            every: values.flag("SCRUB_ENABLED").then(|| values.millis("SCRUB_INTERVAL_MS")),
            copies_per_pass: values.count("SCRUB_SEGMENTS_PER_TICK"),
            bytes_per_second: values.number("SCRUB_BYTES_PER_SECOND"),
        },
        resize: Resize {
            on: values.flag("AUTO_SPLIT"),
            records_per_second: values.number("AUTO_SPLIT_RECORDS_PER_SECOND"),
            bytes_per_second: values.number("AUTO_SPLIT_BYTES_PER_SECOND"),
            held_bytes: values.number("AUTO_SPLIT_RANGE_BYTES"),
            split_after: values.millis("AUTO_SPLIT_AFTER_MS"),
            merge_after: values.millis("AUTO_MERGE_AFTER_MS"),
            ranges_per_topic: values.count("AUTO_SPLIT_TOPIC_RANGES_MAX"),
            ranges_in_cluster: values.count("AUTO_SPLIT_CLUSTER_RANGES_MAX"),
            ..Resize::default()
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::super::load_from;
    use super::super::sources::Sources;
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Upkeep {
        let pairs = pairs.iter().map(|(name, text)| (format!("MALACHI_{name}"), (*text).to_owned()));
        let dev = [("MALACHI_CONFIG_ENV".to_owned(), "dev".to_owned())];
        load_from(Sources::read(dev.into_iter().chain(pairs), None)).unwrap().config.storage.upkeep
    }

    #[test]
    fn nothing_set_is_what_the_core_does_by_itself() {
        let Upkeep { retention, orphan_sweep, scrub, resize } = load(&[]);
        assert_eq!(retention, Retention::default());
        assert_eq!(orphan_sweep, OrphanSweep::default());
        assert_eq!(scrub, Scrub::default());
        assert_eq!(resize, Resize::default());
    }

    #[test]
    fn splits_and_merges_can_be_switched_off_and_bounded() {
        assert!(!load(&[("AUTO_SPLIT", "false")]).resize.on);
        let set = load(&[("AUTO_SPLIT_AFTER_MS", "5"), ("AUTO_SPLIT_TOPIC_RANGES_MAX", "7")]).resize;
        assert_eq!((set.split_after, set.ranges_per_topic), (Duration::from_millis(5), 7));
    }

    #[test]
    fn zero_is_a_bound_and_nothing_is_none() {
        let set = load(&[("RETENTION_MAX_AGE_MS", "0"), ("RETENTION_MAX_BYTES", "18446744073709551615")]);
        assert_eq!((set.retention.age_ms_max, set.retention.bytes_max), (Some(0), Some(u64::MAX)));
        assert_eq!(set.retention.unresolved_age_ms_max, None);
    }

    #[test]
    fn the_scrub_can_be_switched_off_and_slowed_down() {
        assert_eq!(load(&[("SCRUB_ENABLED", "false")]).scrub.every, None);
        let scrub = load(&[("SCRUB_INTERVAL_MS", "5"), ("SCRUB_BYTES_PER_SECOND", "7")]).scrub;
        assert_eq!((scrub.every, scrub.bytes_per_second), (Some(Duration::from_millis(5)), 7));
    }
}
