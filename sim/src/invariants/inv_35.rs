//! INV-35: with enough nodes and no further faults every sealed segment ends with its number of copies (INV-34), each
//! sealed at exactly the recorded end.
//!
//! That they hold the same bytes is INV-8's to say.

use storage::store::{Extent, State};
use types::Offset;

/// What a copy lacks of being settled; `None` when nothing.
#[must_use]
pub fn settled(extent: Option<&Extent>, end: Offset) -> Option<String> {
    let Some(extent) = extent else { return Some("there is no copy".to_owned()) };
    let is_settled = extent.state == State::Sealed && extent.end == end;
    (!is_settled).then(|| format!("{}: {:?} up to {}", "INV-35", extent.state, extent.end))
}
