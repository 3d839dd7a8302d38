//! What every process was told, and what every node has used.

use std::collections::BTreeMap;

use membership::MemberView;
use types::{Incarnation, NodeId};

use crate::invariants::{Violation, ensure};

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// By observer and its life: the incarnation it knows of each member.
    told: BTreeMap<(NodeId, u64), BTreeMap<NodeId, Incarnation>>,
    /// The highest each node ever used.
    used: BTreeMap<NodeId, Incarnation>,
}

impl Judge {
    /// A process begins as this incarnation.
    pub(super) fn begin(&mut self, node: NodeId, incarnation: Incarnation) -> Result<(), Violation> {
        let before = self.used.insert(node, incarnation);
        ensure(before.is_none_or(|before| before < incarnation), "C-9", || {
            format!("node {node} begins as {incarnation} and was {before:?} before")
        })
    }

    /// It goes by this one now.
    pub(super) fn used(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        ceiling: Option<Incarnation>,
    ) -> Result<(), Violation> {
        let before = self.used.insert(node, incarnation);
        ensure(before.is_none_or(|before| before <= incarnation), "C-9", || {
            format!("node {node} goes back from {before:?} to {incarnation}")
        })?;
        ensure(ceiling.is_some_and(|ceiling| incarnation <= ceiling), "C-9", || {
            format!("node {node} uses {incarnation}, and {ceiling:?} is recorded")
        })
    }

    /// A process was told something of a member.
    pub(super) fn told(&mut self, observer: NodeId, life: u64, view: &MemberView) -> Result<(), Violation> {
        let known = self.told.entry((observer, life)).or_default();
        let before = known.insert(view.node, view.incarnation);
        ensure(before.is_none_or(|before| before <= view.incarnation), "C-9", || {
            format!("node {observer} knew {} as {before:?}, and now as {}", view.node, view.incarnation)
        })?;
        let used = self.used.get(&view.node);
        ensure(used.is_some_and(|used| *used >= view.incarnation), "FORGERY", || {
            format!(
                "node {observer} knows {} as {}, which it never was: {used:?}",
                view.node, view.incarnation
            )
        })
    }
}
