//! What clients asked and what the node answered: all the truth there is.
//!
//! The model knows topics and their ranges, the records of each key in the order their requests reached the node,
//! and positions. It knows no segments' bytes, no log and no recovery. An outcome nobody was told stays unknown
//! until somebody reads; what was read once, or passed over once, stays so for ever.
//!
//! - [`keyspace`] places keys by code of its own, [`ranges`] foretells every split and merge.
//! - [`log`] has the records and [`place`] says how many of each key lie behind a reader, so that no split or
//!   merge touches a position; [`read`] judges what a reader is given.
//! - A topic that was deleted and made again is another one here, too: nothing is shared.

mod group;
pub(super) mod keyspace;
mod log;
mod place;
mod ranges;
mod read;
mod segments;
mod stream;
mod times;
mod topic;

use std::collections::BTreeMap;
use std::rc::Rc;

use broker::RequestId;
use bytes::Bytes;
use types::TopicId;

pub(super) use group::Holder;
pub(super) use keyspace::Span;
pub(super) use log::{Outcome, Which};
pub(super) use place::Place;
pub(super) use ranges::{Change, Range, State};
pub(super) use read::{Page, Reader, Seen};
pub(super) use segments::Segments;
pub(super) use stream::Stream;
pub(super) use times::Sought;
pub(super) use topic::Topic;

use crate::invariants::{Violation, ensure, inv_12};

/// Number of a call.
pub(super) type CallId = usize;

/// Number of a process lifetime; a power loss is known by the lifetimes it lies between.
pub(super) type Life = u32;

/// What a cursor stands for that the node gave out.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// Index of the topic's life.
    pub(super) topic: usize,
    pub(super) place: Rc<Place>,
    /// Whose it is, when a member was given it.
    pub(super) holder: Option<Holder>,
}

/// A name and the topic that has it.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) name: &'static str,
    /// Index of the topic's life.
    pub(super) current: Option<usize>,
    /// Creations on their way: width of the keyspace.
    pub(super) creating: BTreeMap<CallId, u8>,
    /// Creations whose answer never came.
    pub(super) maybe: Vec<u8>,
    /// The node has just said that it made one.
    pub(super) born: Option<TopicId>,
    /// Assignments told before that: groups, numbers of the assignments, members.
    pub(super) early: Vec<(Bytes, u64, usize)>,
}

/// Everything known.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) names: Vec<Name>,
    /// Every life of every topic.
    pub(super) topics: Vec<Topic>,
    pub(super) segments: Segments,
    pub(super) tokens: BTreeMap<Bytes, Token>,
    /// The same tokens in the order they were given out.
    pub(super) given: Vec<Bytes>,
    /// By the request that opened it.
    pub(super) streams: BTreeMap<RequestId, Stream>,
    pub(super) life: Life,
    /// The last lifetime that ended in a power loss.
    pub(super) power_lost: Option<Life>,
    /// The latest time that the node's clock has shown, milliseconds.
    pub(super) wall_max: u64,
}

impl Model {
    pub(super) fn new(names: &[&'static str]) -> Self {
        let name = |name: &&'static str| Name {
            name,
            current: None,
            creating: BTreeMap::new(),
            maybe: Vec::new(),
            born: None,
            early: Vec::new(),
        };
        Self {
            names: names.iter().map(name).collect(),
            topics: Vec::new(),
            segments: Segments::default(),
            tokens: BTreeMap::new(),
            given: Vec::new(),
            streams: BTreeMap::new(),
            life: 0,
            power_lost: None,
            wall_max: 0,
        }
    }

    /// The topic that has a name.
    pub(super) fn current(&self, name: usize) -> Option<&Topic> {
        self.names[name].current.map(|topic| &self.topics[topic])
    }

    /// The life of a topic with that id.
    pub(super) fn by_id(&self, id: TopicId) -> Option<usize> {
        self.topics.iter().rposition(|topic| topic.id == id)
    }

    pub(super) fn index_of(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| known.name.as_bytes() == name)
    }

    /// A topic begins its life.
    pub(super) fn born(&mut self, name: usize, id: TopicId, bits: u8) -> Result<usize, Violation> {
        inv_12::new_topic(self.names[name].name, id, self.by_id(id).is_some())?;
        let taken = self.names[name].current.is_some();
        ensure(!taken, "INV-12", || {
            format!("topic {} exists, and was created again", self.names[name].name)
        })?;
        let topic = self.topics.len();
        self.topics.push(Topic::new(name, self.names[name].name, id, bits));
        self.names[name].current = Some(topic);
        for (group, generation, members) in std::mem::take(&mut self.names[name].early) {
            self.assigned(topic, &group, generation, members);
        }
        Ok(topic)
    }

    /// A topic ends its life.
    pub(super) fn died(&mut self, topic: usize) {
        let dead = &mut self.topics[topic];
        dead.deleted = true;
        let (id, name) = (dead.id, dead.name);
        self.names[name].current = None;
        self.segments.forget(|range| range.topic == id);
    }

    /// The node gave out a cursor.
    pub(super) fn give(&mut self, token: &Bytes, mut meaning: Token) -> Rc<Place> {
        if let Some(known) = self.tokens.get(token) {
            let place = (*meaning.place).clone().sharpened(&known.place);
            meaning.place = Rc::new(place);
        } else {
            self.given.push(token.clone());
        }
        let place = Rc::clone(&meaning.place);
        self.tokens.insert(token.clone(), meaning);
        place
    }

    /// The process has ended: nobody will ever be told what became of what was asked.
    pub(super) fn life_ended(&mut self, power: bool) {
        for topic in &mut self.topics {
            topic.life_ended(self.life, self.wall_max);
        }
        for name in &mut self.names {
            let lost = std::mem::take(&mut name.creating);
            name.maybe.extend(lost.into_values());
            name.born = None;
            name.early.clear();
        }
        self.segments.life_ended();
        self.streams.clear();
        if power {
            self.power_lost = Some(self.life);
        }
        self.life += 1;
    }

    /// A process serves.
    pub(super) fn life_began(&mut self) {
        let life = self.life;
        self.topics.iter_mut().for_each(|topic| topic.life_began(life));
    }

    /// Who is a member of a group is assigned slices anew: whoever waits as one may begin again at what the
    /// group has committed.
    pub(super) fn assigned(&mut self, topic: usize, group: &Bytes, generation: u64, members: usize) {
        let committed = self.topics[topic].possible(group);
        self.topics[topic].group(group).members.assigned = Some((generation, members));
        let positions = &self.topics[topic].log.positions;
        for stream in self.streams.values_mut().filter(|stream| stream.is_member(topic, group)) {
            stream.place.reassigned(&committed, positions);
        }
    }
}
