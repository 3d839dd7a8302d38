//! Why a group does or does not get on. Members are known to the node that they read from, so that one is asked.

use std::time::Duration;

use types::{Instant, RangeId};
use wire::response::Explanation;

use super::cause::Cause;
use crate::groups::Key;
use crate::node::Node;
use crate::streams::StreamInfo;

/// Members and positions that are told of many.
const NAMED_MAX: usize = 64;
/// Whoever reads and has committed nothing for so long commits rarely, or never.
const COMMITS_WITHIN: Duration = Duration::from_secs(60);
/// A member that was given records and has not asked for so long is busy, or hangs.
const SILENT_AFTER: Duration = Duration::from_secs(5);

type Facts = Vec<(&'static str, String)>;

impl Node {
    /// Why a group does or does not get on, as far as this node knows.
    pub(super) fn explain_group(&self, key: &Key) -> Explanation {
        let info = self.group_info(key);
        let waiting: Vec<u32> = self.waiting_in(key).map(|(_, waiting)| waiting).collect();
        let mut facts: Facts = vec![
            ("generation", info.generation.to_string()),
            ("members", info.members.len().to_string()),
            ("lag", format!("{}{}", if info.lag_exact { "" } else { "at most " }, info.lag)),
        ];
        for (member, waiting) in info.members.iter().zip(&waiting).take(NAMED_MAX) {
            let name = String::from_utf8_lossy(&member.name);
            let (ranges, idle) = (member.ranges, member.idle_ms);
            let what =
                if *waiting > 0 { "waits for records".to_owned() } else { format!("silent for {idle} ms") };
            facts.push(("member", format!("{name}: {ranges} ranges, {what}")));
        }
        let streams: Vec<StreamInfo> = self.streams.of_group(key).take(NAMED_MAX).collect();
        facts.extend(streams.iter().map(|stream| ("stream", self.stream_told(stream))));
        let tables = self.core.meta.of(key.topic);
        for tile in tables.positions(key.topic, &key.group).iter().take(NAMED_MAX) {
            let id = RangeId { topic: key.topic, seq: tile.range };
            let end = self.end_of(id);
            facts.push(("position", format!("range {}: next {} of {}", tile.range.0, tile.next.0, end.0)));
        }
        let committed = tables.committed_at(key.topic, &key.group);
        let committed = committed.map(|at| self.core.wall.0.saturating_sub(at.0));
        if let Some(ago) = committed {
            facts.push(("committed_ms_ago", ago.to_string()));
        }
        let unreadable: Vec<String> =
            self.watches.unreadable(key.topic).take(NAMED_MAX).map(|range| range.seq.0.to_string()).collect();
        let here = self.called(self.core.config.node);
        let silent =
            info.members.iter().zip(&waiting).all(|(member, waiting)| {
                *waiting == 0 && u128::from(member.idle_ms) >= SILENT_AFTER.as_millis()
            });
        let longest = info.members.iter().map(|member| member.idle_ms).min();
        let cause = if let Some(left) = self.gathers_for(key) {
            let text = format!("{here} coordinates it since a moment ago, and waits for members there are");
            let next = "members go on with what they had; then ranges are given out";
            let cause = Cause::waits("gathering", text, next);
            facts.push(("gathers_for_ms", left.as_millis().to_string()));
            cause
        } else if info.members.is_empty() && committed.is_none() {
            let text = format!("nobody reads as it at {here}, and it never committed a position");
            Cause::stands(
                "unknown",
                text,
                "ask the broker that its members are connected to, or look at its name",
            )
        } else if info.members.is_empty() && info.lag > 0 {
            let text = format!("nobody reads as it at {here}");
            Cause::stands(
                "no_members",
                text,
                "start a member, or ask the broker that its members are connected to",
            )
        } else if info.lag == 0 {
            Cause::moves(
                "caught_up",
                "it has committed everything there is",
                "the next record is given to its reader",
            )
        } else if !unreadable.is_empty() {
            let text = format!("records of range {} cannot be read for now", unreadable.join(", "));
            Cause::waits("unreadable", text, "it is tried again by itself; `explain range` says why")
        } else if let Some(starved) = starved(&streams) {
            let text = "records were pushed to its streams, as many as they may have unacknowledged";
            let next = "acknowledge records: nothing is pushed before that; a client that closes gives them to others";
            Cause::stands("no_credit", text, next).since(Some(self.core.now.since(starved)))
        } else if silent {
            let text = "its members were given records, and ask for no more";
            Cause::stands(
                "members_silent",
                text,
                "they work, or hang: one that stays silent loses its ranges to others",
            )
            .since(longest.map(Duration::from_millis))
        } else if committed.is_none_or(|ago| u128::from(ago) >= COMMITS_WITHIN.as_millis()) {
            let text = match committed {
                Some(ago) => format!("its members read, and have committed nothing for {} s", ago / 1000),
                None => "its members read, and have never committed".to_owned(),
            };
            let next = "commit what was read: until then a member that fetches is given the same again";
            Cause::stands("not_committing", text, next).since(committed.map(Duration::from_millis))
        } else {
            Cause::moves("reading", "its members read, and commit what they have read", "nothing")
        };
        cause.told(self.core.config.node, facts)
    }

    /// A stream of this node: whose it is, its credit, and what it is at.
    fn stream_told(&self, stream: &StreamInfo) -> String {
        let now = self.core.now;
        let of = stream.member.as_ref().map_or_else(
            || "no member".to_owned(),
            |member| String::from_utf8_lossy(member.as_bytes()).into_owned(),
        );
        let (in_flight, window) = stream.credit;
        let pushed = stream.pushed_at.map_or_else(
            || "nothing pushed yet".to_owned(),
            |at| format!("last push {} ms ago", now.since(at).as_millis()),
        );
        let since = now.since(stream.since).as_millis();
        format!("{of}: {} for {since} ms, {in_flight} of {window} unacknowledged, {pushed}", stream.doing)
    }
}

/// Since when every stream is out of credit, if there is one and all of them are.
fn starved(streams: &[StreamInfo]) -> Option<Instant> {
    let all = streams.iter().all(|stream| stream.is_starved);
    streams.iter().map(|stream| stream.since).max().filter(|_| all)
}
