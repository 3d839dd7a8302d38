//! INV-50: a node that was started again is never believed to have attributes of an earlier life, once it has announced
//! the present one.
//!
//! The rule is the control plane's; capabilities are announced in the same word. Each life of a node has attributes that
//! tell which one it is, and every other life one more, so that what is left over is seen. What the tables have under an
//! incarnation must be what that life says, whoever looks.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::NodeId;

use super::{Violation, ensure};

/// What a node says about itself in a life.
#[must_use]
pub fn attributes(life: u64) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut attributes = BTreeMap::from([(Arc::from("life"), Arc::from(life.to_string()))]);
    if life % 2 == 1 {
        attributes.insert(Arc::from("odd"), Arc::from("yes"));
    }
    attributes
}

/// Judges what is listed of a node as of a life.
pub fn of_this_life(node: NodeId, life: u64, listed: &BTreeMap<Arc<str>, Arc<str>>) -> Result<(), Violation> {
    ensure(*listed == attributes(life), "INV-50", || {
        format!("node {node} is listed in its life {life} with {listed:?}")
    })
}
