//! How a change of the ring is carried out: what to do next, worked out from what the tables say.
//!
//! Owns the order of the steps, and nothing else: no state between them, so whoever holds the lease goes on where
//! the one before stopped, wherever that was. Whoever calls does what it is told, waits for the outcome, and asks
//! again; forms groups; and takes the members of a vnode that left the ring apart. The vnodes' tables may lag behind,
//! as long as they never go back while a fence is used: those that have the fence have all that was done before it.
//!
//! ```text
//!          ring      old ─────────────────────────────────────────────────────▶ new, or old again
//!          gives     covers ──▶ covers no more ─ fence ─ copy ─ remove ─▶ empty
//!          takes     covers no more, or not yet ────────── insert ─────▶ fences lifted ─▶ covers
//! ```
//!
//! A vnode that is added takes a slice from one vnode; a vnode that leaves gives all it has to one vnode. So a
//! change concerns two vnodes and one slice. Undoing it is the same with the two exchanged.
//!
//! Invariants:
//! - first of all both vnodes learn the fence: what an earlier holder sent and is still on its way is refused;
//! - while topics of the slice are on either side, neither vnode takes a command for them, and at no time do both;
//! - a topic is removed only where the other vnode has the same one: it is on one of the two, or the same on both;
//! - the change ends when every topic of the slice is where the ring that is to hold says, unfenced, and its vnode
//!   covers the slice.
//!
//! One fence serves one change in one direction. A holder that goes on to another change, or turns round, gives the
//! lease back first and takes it anew: what it sent under its fence may still arrive, and is right only for what it
//! was sent for.

use types::keyspace::KeyHash;
use types::{FenceToken, NodeId, Ring, RingArc, TopicId, VnodeId};

use crate::cluster::{ChangeRing, Intent, RingAct, RingChange, Topology};
use crate::vnode::{Command, Export, Migration, MigrationId, SetArc, Share, Topic, Vnode};

/// Most commands given at a time.
const COMMANDS_MAX: usize = 1024;
/// Topics are copied until they take so much, bytes.
const COPIED_BYTES: usize = 4 * 1024 * 1024;

/// Which ring is to hold in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The new one.
    Forward,
    /// The old one. For a change that cannot be done: a topic that is too large to move, a vnode that is full.
    Back,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Form the vnode's group, or find that it runs.
    Form {
        /// Which vnode.
        vnode: VnodeId,
        /// Its members, the first to lead.
        nodes: Vec<NodeId>,
    },
    /// Read the vnode: nothing can be said without it.
    Read(VnodeId),
    /// Have the vnode run these in their order, up to the first that is refused.
    Run {
        /// Which vnode.
        vnode: VnodeId,
        /// At least one.
        commands: Vec<Command>,
    },
    /// Record that the change is done or undone.
    End(ChangeRing),
    /// Nothing: both vnodes have the topic, or its name, and not the same. A person must look.
    Stuck(TopicId),
}

/// The two sides of a change.
struct Sides {
    begun: u64,
    /// The move: one for each direction, never used again.
    id: MigrationId,
    gives: VnodeId,
    takes: VnodeId,
    slice: RingArc,
    /// Shares without the slice.
    gives_least: Share,
    takes_least: Share,
    /// Share with the slice.
    takes_most: Share,
}

/// What to do next about the change that is under way; `None` when there is none.
///
/// `vnode` gives the state of a vnode as it was read, `None` when it could not be.
pub fn next<'a>(
    topology: &Topology,
    fence: FenceToken,
    direction: Direction,
    vnode: impl Fn(VnodeId) -> Option<&'a Vnode>,
) -> Option<Next> {
    let intent = topology.pending.as_ref()?;
    let sides = Sides::of(topology, intent, direction)?;
    let (gives, takes) = match (vnode(sides.gives), vnode(sides.takes)) {
        (Some(gives), Some(takes)) => (gives, takes),
        (Some(_), None) => return Some(unread(intent, sides.takes)),
        (None, _) => return Some(unread(intent, sides.gives)),
    };
    let next = stamp(&sides, fence, gives, takes)
        .or_else(|| settle(&sides, fence, direction, topology.version, gives, takes))
        .or_else(|| narrow(&sides, fence, gives, takes))
        .or_else(|| fence_topics(&sides, fence, gives))
        .unwrap_or_else(|| copy_and_remove(&sides, fence, gives, takes));
    Some(next)
}

impl Sides {
    /// `None` for an intent that is not one of this ring, which the table does not let happen.
    fn of(topology: &Topology, intent: &Intent, direction: Direction) -> Option<Self> {
        let (old, new) = (&topology.ring, topology.ring_after());
        let share = |ring: &Ring, vnode| ring.arc(vnode).ok().map(Share::Arc);
        let (source, target, slice) = match &intent.change {
            RingChange::Split { vnode, token, .. } => (old.route(*token)?, *vnode, new.arc(*vnode).ok()?),
            RingChange::Merge { vnode } => (*vnode, old.successor(*vnode)?, old.arc(*vnode).ok()?),
        };
        // What is left of the source, and what the target has before: nothing where it is not on that ring.
        let source_least = share(&new, source).unwrap_or(Share::Nothing);
        let target_least = share(old, target).unwrap_or(Share::Nothing);
        let id = |back: bool| MigrationId(u128::from(intent.begun) * 2 + u128::from(back));
        let begun = intent.begun;
        Some(match direction {
            Direction::Forward => Self {
                begun,
                id: id(false),
                gives: source,
                takes: target,
                slice,
                gives_least: source_least,
                takes_least: target_least,
                takes_most: share(&new, target)?,
            },
            Direction::Back => Self {
                begun,
                id: id(true),
                gives: target,
                takes: source,
                slice,
                gives_least: target_least,
                takes_least: source_least,
                takes_most: share(old, source)?,
            },
        })
    }

    fn has(&self, topic: &Topic) -> bool {
        self.slice.covers(KeyHash::Xxh32.of(topic.name.as_str().as_bytes()))
    }

    /// The topics of the slice that a vnode has, in the order of names.
    fn topics<'a>(&'a self, vnode: &'a Vnode) -> impl Iterator<Item = (TopicId, &'a Topic)> {
        vnode.topics().filter(|(_, topic)| self.has(topic))
    }

    fn is_told(&self, vnode: &Vnode, share: Share) -> bool {
        vnode.arc() == share && vnode.ring_version() >= self.begun
    }

    fn tell(&self, vnode: VnodeId, state: &Vnode, arc: Share, lease: FenceToken) -> Next {
        let set = SetArc { ring_version: self.begun, expected: state.arc(), arc, lease };
        run(vnode, vec![Command::SetArc(set)])
    }
}

fn run(vnode: VnodeId, commands: Vec<Command>) -> Next {
    Next::Run { vnode, commands }
}

/// A vnode that is not there: the new one has to be formed, to undo the change too, because only its own state tells
/// that it is empty.
fn unread(intent: &Intent, missing: VnodeId) -> Next {
    match &intent.change {
        RingChange::Split { vnode, nodes, .. } if *vnode == missing => {
            Next::Form { vnode: missing, nodes: nodes.clone() }
        }
        RingChange::Split { .. } | RingChange::Merge { .. } => Next::Read(missing),
    }
}

/// Lets both vnodes know the fence, and changes nothing else.
fn stamp(sides: &Sides, lease: FenceToken, gives: &Vnode, takes: &Vnode) -> Option<Next> {
    let (vnode, state) =
        [(sides.gives, gives), (sides.takes, takes)].into_iter().find(|(_, state)| state.lease() < lease)?;
    let set = SetArc { ring_version: state.ring_version(), expected: state.arc(), arc: state.arc(), lease };
    Some(run(vnode, vec![Command::SetArc(set)]))
}

/// Once nothing is left to move: lifts the fences, gives the slice to its vnode, ends the change.
fn settle(
    sides: &Sides,
    fence: FenceToken,
    direction: Direction,
    expected: u64,
    gives: &Vnode,
    takes: &Vnode,
) -> Option<Next> {
    if !sides.is_told(gives, sides.gives_least) || sides.topics(gives).next().is_some() {
        return None;
    }
    let fenced = takes.migrating().filter(|(id, _)| takes.topic(*id).is_some_and(|topic| sides.has(topic)));
    let lift = |(topic, id)| Command::EndMigration(Migration { topic, id, lease: fence });
    let commands: Vec<Command> = fenced.take(COMMANDS_MAX).map(lift).collect();
    if !commands.is_empty() {
        return Some(run(sides.takes, commands));
    }
    if !sides.is_told(takes, sides.takes_most) {
        return Some(sides.tell(sides.takes, takes, sides.takes_most, fence));
    }
    let act = match direction {
        Direction::Forward => RingAct::Advance,
        Direction::Back => RingAct::Clear,
    };
    Some(Next::End(ChangeRing { expected, fence, act }))
}

/// Takes the slice out of both shares.
fn narrow(sides: &Sides, fence: FenceToken, gives: &Vnode, takes: &Vnode) -> Option<Next> {
    if !sides.is_told(gives, sides.gives_least) {
        return Some(sides.tell(sides.gives, gives, sides.gives_least, fence));
    }
    (!sides.is_told(takes, sides.takes_least))
        .then(|| sides.tell(sides.takes, takes, sides.takes_least, fence))
}

/// Fences every topic of the slice for this move; a fence of the other direction is lifted first.
fn fence_topics(sides: &Sides, lease: FenceToken, gives: &Vnode) -> Option<Next> {
    let command = |(topic, _): (TopicId, &Topic)| match gives.migration_of(topic) {
        Some(id) if id == sides.id => None,
        Some(id) => Some(Command::EndMigration(Migration { topic, id, lease })),
        None => Some(Command::BeginMigration(Migration { topic, id: sides.id, lease })),
    };
    let commands: Vec<Command> = sides.topics(gives).filter_map(command).take(COMMANDS_MAX).collect();
    (!commands.is_empty()).then(|| run(sides.gives, commands))
}

/// Copies what the other vnode does not have, then removes what it has.
fn copy_and_remove(sides: &Sides, lease: FenceToken, gives: &Vnode, takes: &Vnode) -> Next {
    let (mut copies, mut bytes, mut removals) = (Vec::new(), 0, Vec::new());
    for (topic, row) in sides.topics(gives) {
        let Some(export) = gives.export(topic) else { return Next::Stuck(topic) };
        match takes.export(topic) {
            None if takes.topic_by_name(&row.name).is_some() => return Next::Stuck(topic),
            None => {
                bytes += export.encode().len();
                copies.push(insert(export, lease));
            }
            Some(copy) if !copy.is_same_topic(&export) => return Next::Stuck(topic),
            Some(_) => {
                removals.push(Command::ExtractTopic(Migration { topic, id: sides.id, lease }));
            }
        }
        if bytes >= COPIED_BYTES || copies.len().max(removals.len()) >= COMMANDS_MAX {
            break;
        }
    }
    if copies.is_empty() { run(sides.gives, removals) } else { run(sides.takes, copies) }
}

fn insert(export: Export, lease: FenceToken) -> Command {
    Command::InsertTopic { export: Box::new(export), lease }
}
