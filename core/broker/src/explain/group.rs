//! Why a group does or does not get on. Members are known to the node that they read from, so that one is asked.

use std::time::Duration;

use types::RangeId;
use wire::response::Explanation;

use super::cause::Cause;
use crate::groups::Key;
use crate::node::Node;

/// Members and positions that are told of many.
const NAMED_MAX: usize = 64;
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
        } else if silent {
            let text = "its members were given records, and ask for no more";
            Cause::stands(
                "members_silent",
                text,
                "they work, or hang: one that stays silent loses its ranges to others",
            )
            .since(longest.map(Duration::from_millis))
        } else {
            Cause::moves("reading", "its members read, and commit what they have read", "nothing")
        };
        cause.told(self.core.config.node, facts)
    }
}
