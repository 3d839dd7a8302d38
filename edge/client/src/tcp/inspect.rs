//! Segments and their copies, and why something does or does not move.

use std::time::Duration;

use types::NodeId;
use wire::request::{Depth, Subject};
use wire::response::{Explanation, SegmentInfo, SegmentPage};
use wire::{Payload, Request};

use super::Client;
use super::admin::{PAGE, stuck, text};
use super::client::{mismatch, string};
use crate::Error;

/// How long a node may take to hear of every copy of a page, beyond what any request may.
const COPIES_WITHIN: Duration = Duration::from_secs(15);
/// The same when copies are read through.
const VERIFY_WITHIN: Duration = Duration::from_secs(300);

impl Client {
    /// Some segments of a topic in the order of ranges and numbers, from one (range and number) on, inclusive; `max` 0
    /// takes the broker's default. With [`Depth::Verify`] a page is a few segments, and takes as long as reading them.
    pub async fn list_segments(
        &self,
        topic: &str,
        (from_range, from_segment): (u64, u64),
        max: u32,
        depth: Depth,
    ) -> Result<SegmentPage, Error> {
        let more = match depth {
            Depth::Tables => Duration::ZERO,
            Depth::Copies => COPIES_WITHIN,
            Depth::Verify => VERIFY_WITHIN,
        };
        let request = Request::ListSegments { topic: text(topic), from_range, from_segment, max, depth };
        let Payload::Segments(page) = self.call_for(request, more).await? else { return Err(mismatch()) };
        Ok(page)
    }

    /// All segments of a topic, in the order of ranges and numbers.
    pub async fn segments(&self, topic: &str, depth: Depth) -> Result<Vec<SegmentInfo>, Error> {
        let mut all: Vec<SegmentInfo> = Vec::new();
        let mut from = (0, 0);
        loop {
            let page = self.list_segments(topic, from, PAGE, depth).await?;
            let more = page.more;
            all.extend(page.segments);
            if !more {
                return Ok(all);
            }
            let last = all.last().ok_or_else(stuck)?;
            let next = (last.range, last.segment.checked_add(1).ok_or_else(stuck)?);
            if next <= from {
                return Err(stuck());
            }
            from = next;
        }
    }

    /// Why a range does or does not take records.
    pub async fn explain_range(&self, topic: &str, range: u64) -> Result<Explanation, Error> {
        self.explain(Subject::Range { topic: text(topic), range }).await
    }

    /// How a node is.
    pub async fn explain_node(&self, node: NodeId) -> Result<Explanation, Error> {
        self.explain(Subject::Node { node }).await
    }

    /// Why a group does or does not get on, as the broker that is asked knows.
    pub async fn explain_group(&self, topic: &str, group: &[u8]) -> Result<Explanation, Error> {
        self.explain(Subject::Group { topic: text(topic), group: string(group) }).await
    }

    async fn explain(&self, subject: Subject) -> Result<Explanation, Error> {
        let payload = self.call_for(Request::Explain(subject), COPIES_WITHIN).await?;
        let Payload::Explanation(explanation) = payload else { return Err(mismatch()) };
        Ok(*explanation)
    }
}
