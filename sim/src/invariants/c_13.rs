//! C-13: what only the leader of a vnode decides is done only while whoever decided it leads.
//!
//! The rule is the control plane's. Led is whoever was seen to lead in the term of the entry, by what its replica says
//! of itself; what was decided is known by what was done, not by what the entry claims. That a claim to lead in a term
//! that is over is refused is judged by commands that make such a claim and that nobody else would propose.

use types::{NodeId, RaftIndex, Term, VnodeId};

use super::{Violation, ensure};

/// How the names of topics begin that are created under a term that is over.
pub const NAME: &str = "c13-";

/// Judges what was done by whom, and who was seen to lead in the term of its entry.
pub fn by_leader(
    (group, index, term): (VnodeId, RaftIndex, Term),
    node: NodeId,
    led: Option<NodeId>,
) -> Result<(), Violation> {
    ensure(led == Some(node), "C-13", || {
        format!("what {node} decided for {group} is done with entry {index} of {term:?}, which {led:?} led")
    })
}

/// Judges the names of topics there are.
pub fn refused<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<(), Violation> {
    match names.find(|name| name.starts_with(NAME)) {
        None => Ok(()),
        Some(name) => Err(Violation::new("C-13", format!("{name} was created under a term that was over"))),
    }
}
