//! What a group was given and has committed, and what it may therefore still be given.
//!
//! A group reads like one reader that may be given again what it has not committed: of each key it is given the records
//! in the order of all readers, and none before those in front of it (INV-10, INV-42). Knows nothing of ranges: a
//! record that was committed for sure is not given again, and that is all.
//!
//! - Whoever reads as a group alone is given nothing twice that it has committed, by no node that can know of it.
//! - A member's cursor moves nothing that changed hands since: so a record that was committed under an assignment may
//!   come again under a later one, and under the same one only when there was a later one meanwhile.
//! - A commit that nobody knows the outcome of may be done later: until it cannot any more, nothing is held against
//!   the group.

use std::collections::BTreeMap;

use types::NodeId;
use types::cursor::{Cursor, Tile};
use types::record::Record;

use super::super::model::{Model, Name, Progress, shown};
use crate::invariants::{Violation, ensure, inv_10, inv_44, p_38};

/// How long a commit of unknown outcome may still be on its way, microseconds: longer than any question between nodes
/// and than any connection holds what it carries.
const DOUBT: u64 = 30_000_000;
/// How long a calm cluster may take until every node knows of a commit, microseconds.
const KNOWN_AFTER: u64 = 10_000_000;
/// A coordinator numbers its assignments from its vnode's and its term's on.
const VNODE_BITS: (u32, u64) = (24, 0xff);

/// Which vnode's assignment a number is of, as far as it tells.
fn vnode_of(generation: u64) -> u64 {
    (generation >> VNODE_BITS.0) & VNODE_BITS.1
}

/// Who answers, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) node: NodeId,
    pub(super) life: u64,
    pub(super) began: u64,
    pub(super) now: u64,
    /// Nothing has gone wrong for long.
    pub(super) is_calm: bool,
}

/// A record was committed for sure.
#[derive(Clone, Copy, Debug)]
struct Mark {
    generation: u64,
    at: u64,
    node: NodeId,
    life: u64,
}

impl Mark {
    /// Whether whoever answers there knows of it.
    fn is_known_to(&self, view: View) -> bool {
        let is_same = self.node == view.node && self.life == view.life;
        is_same || view.began > self.at || (view.is_calm && view.now > self.at + KNOWN_AFTER)
    }
}

/// What was given, and can be committed.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) cursor: bytes::Bytes,
    pub(super) generation: u64,
    pub(super) names: Vec<Name>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) topic: usize,
    pub(super) name: String,
    /// Everything that anybody of it was given.
    pub(super) progress: Progress,
    marks: BTreeMap<Name, Mark>,
    doubt_until: u64,
    /// Which slices were given to whom, by assignment.
    given: BTreeMap<u64, BTreeMap<String, Vec<(u64, u64)>>>,
    /// The latest assignment seen of each vnode's.
    latest: BTreeMap<u64, u64>,
    /// Given again under the assignment that they were committed under: right if there was a later one.
    suspects: Vec<(Name, u64, String)>,
    /// Records that were given again.
    pub(super) again: u64,
}

impl Group {
    pub(super) fn new(topic: usize, name: String) -> Self {
        Self { topic, name, ..Self::default() }
    }

    /// An assignment was seen.
    pub(super) fn saw(&mut self, generation: u64) {
        let latest = self.latest.entry(vnode_of(generation)).or_default();
        *latest = generation.max(*latest);
    }

    /// Somebody of the group is given a page.
    pub(super) fn given(
        &mut self,
        model: &mut Model,
        who: &str,
        cursor: &Cursor,
        records: &[Record],
        view: View,
    ) -> Result<Vec<Name>, Violation> {
        let generation = cursor.member.as_ref().map_or(0, |member| member.generation.0);
        if let Some(member) = &cursor.member {
            let name = String::from_utf8_lossy(member.member.as_bytes()).into_owned();
            self.saw(generation);
            self.owns(generation, name, &cursor.tiles)?;
        }
        let mut names = Vec::with_capacity(records.len());
        let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
        for record in records {
            let (name, again) = model.read_for_group(self.topic, &mut self.progress, record)?;
            if again {
                self.judge_again(who, name, generation, view)?;
            }
            if let (Some(key), Some(place)) = (&record.key, model.place(name)) {
                let before = places.insert(key, place);
                inv_10::in_order(shown(name), before.is_some_and(|before| before >= place))?;
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Under one assignment everything is one member's (P-20).
    fn owns(&mut self, generation: u64, member: String, tiles: &[Tile]) -> Result<(), Violation> {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for span in tiles.iter().map(|tile| (tile.span.start(), tile.span.end())) {
            match spans.last_mut().filter(|last| last.1 == span.0) {
                Some(last) => last.1 = span.1,
                None => spans.push(span),
            }
        }
        let owners = self.given.entry(generation).or_default();
        for (other, theirs) in owners.iter() {
            let is_same = *other == member;
            let common = theirs.iter().any(|a| spans.iter().any(|b| a.0 < b.1 && b.0 < a.1));
            ensure(if is_same { *theirs == spans } else { !common }, "MEMBERS", || {
                format!(
                    "under assignment {generation} of {} {member} reads {spans:?}, {other} {theirs:?}",
                    self.name
                )
            })?;
        }
        owners.insert(member, spans);
        Ok(())
    }

    fn judge_again(&mut self, who: &str, name: Name, generation: u64, view: View) -> Result<(), Violation> {
        self.again += 1;
        let Some(mark) = self.marks.get(&name).filter(|mark| mark.is_known_to(view)) else { return Ok(()) };
        if generation == 0 {
            return Err(p_38::repeated(who, shown(name)));
        }
        if vnode_of(generation) == vnode_of(mark.generation) && generation <= mark.generation {
            self.suspects.push((name, mark.generation, who.to_owned()));
        }
        Ok(())
    }

    /// A commit is answered: what was given with its cursor is behind the group.
    pub(super) fn committed(&mut self, page: &Page, view: View) {
        if view.now < self.doubt_until {
            return;
        }
        let mark = Mark { generation: page.generation, at: view.now, node: view.node, life: view.life };
        for name in &page.names {
            self.marks.insert(*name, mark);
        }
    }

    /// Nobody knows what became of a commit.
    pub(super) fn doubt(&mut self, now: u64) {
        self.marks.clear();
        self.suspects.clear();
        self.doubt_until = now + DOUBT;
    }

    /// In the end every assignment was seen.
    pub(super) fn judge_suspects(&self) -> Result<(), Violation> {
        for (name, generation, who) in &self.suspects {
            let is_later = self.latest.get(&vnode_of(*generation)).is_some_and(|latest| latest > generation);
            let is_elsewhere = self.latest.len() > 1;
            if !is_later && !is_elsewhere {
                return Err(inv_44::repeated(who, shown(*name)));
            }
        }
        Ok(())
    }
}
