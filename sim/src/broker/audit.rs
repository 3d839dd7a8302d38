//! Somebody who asks the node at once what there is: at every start, and whenever topics or ranges changed.
//!
//! Within a lifetime every decision is answered, so what is described must be what the answers say. At a start
//! it shows which of the requests that were never answered came to something.

use broker::{Admin, Event, Permissions, RangeInfo, Reply, Request, RequestId, Session, TopicSummary};
use bytes::Bytes;
use types::TopicId;
use types::cursor::Cursor;
use wire::Reason;

use super::model::Range;
use super::network::{ConnId, request_id};
use super::workload::{TOPICS, describe};
use super::world::World;
use crate::invariants::{Violation, ensure, inv_12};

/// Nobody else's.
const CONNECTION: ConnId = ConnId(0);

/// Why the node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// A process serves.
    Start,
    /// Topics or ranges changed.
    Change,
}

/// A topic and all its ranges, if there is one.
type Described = Option<(TopicSummary, Vec<RangeInfo>)>;

/// Whoever asks.
#[derive(Debug, Default)]
pub(super) struct Audit {
    pub(super) due: Option<Due>,
    /// The answer, which comes at once.
    pub(super) answer: Option<Reply>,
    session: Option<Session>,
    number: u64,
    asking: bool,
}

impl Audit {
    /// Whether the users are there.
    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn life_ended(&mut self) {
        (self.due, self.answer, self.session, self.asking) = (None, None, None, false);
    }
}

impl World {
    pub(super) fn is_audit(id: RequestId) -> bool {
        id.connection.0 == CONNECTION.0
    }

    /// Asks what there is, when something changed.
    pub(super) fn audit_changes(&mut self) -> Result<(), Violation> {
        if self.audit.asking {
            return Ok(());
        }
        let Some(due) = self.audit.due.take() else { return Ok(()) };
        self.audit.asking = true;
        if due == Due::Start {
            let admin = Permissions { admin: true, ..Permissions::default() };
            self.audit.session = self.log_in_as(admin, CONNECTION)?;
        }
        for name in 0..TOPICS.len() {
            match due {
                Due::Start => self.audit_start(name)?,
                Due::Change => self.audit_topic(name)?,
            }
        }
        self.audit.asking = false;
        Ok(())
    }

    fn ask_now(&mut self, admin: Admin) -> Result<Option<Reply>, Violation> {
        let Some(session) = self.audit.session.clone() else { return Ok(None) };
        self.audit.number += 1;
        let id = request_id(CONNECTION, self.audit.number);
        self.step(Event::Request { id, session, request: Request::Admin(admin) })?;
        let answer = self.audit.answer.take();
        ensure(answer.is_some(), "INV-5", || "a description is not answered at once".to_owned())?;
        Ok(answer)
    }

    /// What there is under a name; `None` when nobody may ask.
    fn ask_topic(&mut self, name: usize) -> Result<Option<Described>, Violation> {
        let mut ranges: Vec<RangeInfo> = Vec::new();
        loop {
            let from_range = ranges.last().map_or(0, |last| last.range + 1);
            let topic = Some(Bytes::from_static(TOPICS[name].as_bytes()));
            match self.ask_now(Admin::DescribeTopic { topic, from_range, max: 100 })? {
                None => return Ok(None),
                Some(Reply::Failed(Reason::NoSuchTopic)) => return Ok(Some(None)),
                Some(Reply::Topic(summary, more, is_more)) => {
                    ranges.extend(more);
                    if !is_more {
                        return Ok(Some(Some((summary, ranges))));
                    }
                }
                Some(other) => return Err(Violation::new("ANSWER", format!("a description is {other:?}"))),
            }
        }
    }

    fn ask_id(&mut self, name: usize) -> Result<Option<TopicId>, Violation> {
        let topic = Some(Bytes::from_static(TOPICS[name].as_bytes()));
        match self.ask_now(Admin::SeekTime { topic, at_ms: 0 })? {
            Some(Reply::Sought(cursor)) => Ok(Cursor::decode(&cursor).ok().map(|cursor| cursor.topic)),
            other => Err(Violation::new("ANSWER", format!("the beginning of a topic is {other:?}"))),
        }
    }

    /// What a start finds under a name.
    fn audit_start(&mut self, name: usize) -> Result<(), Violation> {
        let Some(found) = self.ask_topic(name)? else { return Ok(()) };
        let id = if found.is_some() { self.ask_id(name)? } else { None };
        let known = self.model.names[name].current;
        let known_id = known.map(|topic| self.model.topics[topic].id);
        let deleted = known.is_none_or(|topic| self.model.topics[topic].maybe_deleted);
        let made = std::mem::take(&mut self.model.names[name].maybe);
        let allowed = id == known_id || (deleted && (id.is_none() || !made.is_empty()));
        inv_12::topic(TOPICS[name], id, known_id, allowed)?;
        if id != known_id {
            if let Some(known) = known {
                self.model.died(known);
            }
            if let (Some(id), Some((summary, _))) = (id, &found) {
                let bits = summary.keyspace_bits;
                let asked = |made: &u8| *made == bits || (bits == 16 && !(1..=32).contains(made));
                ensure(made.iter().any(asked), "INV-12", || {
                    format!("topic {} has {bits} bits, and {made:?} were asked for", TOPICS[name])
                })?;
                self.model.born(name, id, bits)?;
            }
        }
        if let (Some(topic), Some((summary, ranges))) = (self.model.names[name].current, &found) {
            let known = &mut self.model.topics[topic];
            known.maybe_deleted = false;
            let told: Vec<Range> = ranges.iter().map(describe::range).collect();
            known.ranges.explain(&told);
            if std::mem::take(&mut known.maybe_sealed) && summary.sealed && !known.sealed {
                known.sealed = true;
                known.ranges.seal();
            }
            self.compare(topic, summary, ranges)?;
        }
        Ok(())
    }

    /// What is described is what the answers say.
    fn audit_topic(&mut self, name: usize) -> Result<(), Violation> {
        let Some(found) = self.ask_topic(name)? else { return Ok(()) };
        let current = self.model.names[name].current;
        ensure(found.is_some() == current.is_some(), "ANSWER", || {
            format!("topic {} is known: {}, and is described as {found:?}", TOPICS[name], current.is_some())
        })?;
        match (current, found) {
            (Some(topic), Some((summary, ranges))) => self.compare(topic, &summary, &ranges),
            (_, _) => Ok(()),
        }
    }

    fn compare(
        &mut self,
        topic: usize,
        summary: &TopicSummary,
        ranges: &[RangeInfo],
    ) -> Result<(), Violation> {
        let told: Vec<Range> = ranges.iter().map(describe::range).collect();
        let known = &self.model.topics[topic];
        ensure(told == known.ranges.as_slice(), "RANGES", || {
            format!("topic {} has {told:?}, and by its answers {:?}", known.log_name(), known.ranges)
        })?;
        describe::judge(self, topic, summary, ranges)
    }
}
