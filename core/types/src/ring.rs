//! The hash ring: which vnode a topic's metadata belongs to.
//!
//! Owns the arithmetic of places, tokens and arcs, and nothing that changes by agreement: the ring that holds is
//! a replicated table, and who may change it is decided there.
//!
//! Invariants:
//! - a vnode has one token and a token one vnode, for as long as the vnode is on the ring;
//! - the arcs of a ring tile it: every hash is covered by exactly one, that of the vnode it routes to;
//! - adding a vnode takes hashes from one vnode only, and removing one gives hashes to one vnode only.

use std::collections::BTreeMap;

use crate::VnodeId;

/// Number of places on the ring.
pub const PLACES: u64 = 1 << 32;

/// A slice of the ring of 32-bit hashes: from `after`, exclusive, to `upto`, inclusive, over the end of the
/// ring and on from its start where need be. Equal bounds are the whole ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingArc {
    /// Place of the vnode before this one; exclusive.
    pub after: u32,
    /// Place of this vnode; inclusive.
    pub upto: u32,
}

impl RingArc {
    /// Whether a place on the ring lies inside.
    #[must_use]
    pub fn covers(self, hash: u32) -> bool {
        // Distance from the first place of the arc: the place before it is the farthest.
        let from_first = |place: u32| place.wrapping_sub(self.after).wrapping_sub(1);
        from_first(hash) <= from_first(self.upto)
    }

    /// How many places it has: 1 to [`PLACES`].
    #[must_use]
    pub fn places(self) -> u64 {
        u64::from(self.upto.wrapping_sub(self.after).wrapping_sub(1)) + 1
    }

    /// The place that halves it; `None` for an arc of one place.
    #[must_use]
    pub fn middle(self) -> Option<u32> {
        let half = u32::try_from(self.places() / 2).expect("half of the ring counts in 32 bits");
        (half > 0).then(|| self.after.wrapping_add(half))
    }
}

/// Why a vnode was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum AddError {
    /// The vnode has a token.
    #[error("already_present")]
    AlreadyPresent,
    /// Another vnode has that token.
    #[error("token_taken")]
    TokenTaken,
}

/// No such vnode on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not_found")]
pub struct NotFound;

/// Vnodes and their tokens. A token is the last place of its vnode's arc.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    by_token: BTreeMap<u32, VnodeId>,
    tokens: BTreeMap<VnodeId, u32>,
}

impl Ring {
    /// The ring a cluster begins with: vnodes 0 to `count`, exclusive, as far apart as they can be. `None` for
    /// no vnode.
    #[must_use]
    pub fn boot(count: u32) -> Option<Self> {
        let mut ring = Self::default();
        for i in 0..u64::from(count) {
            let token = u32::try_from(i * PLACES / u64::from(count)).expect("below the number of places");
            ring.add(VnodeId(i), token).expect("both grow with every step");
        }
        (count > 0).then_some(ring)
    }

    /// Adds a vnode. It takes the places from the token before its own up to its own.
    pub fn add(&mut self, vnode: VnodeId, token: u32) -> Result<(), AddError> {
        if self.tokens.contains_key(&vnode) {
            return Err(AddError::AlreadyPresent);
        }
        if self.by_token.contains_key(&token) {
            return Err(AddError::TokenTaken);
        }
        self.tokens.insert(vnode, token);
        self.by_token.insert(token, vnode);
        Ok(())
    }

    /// Removes a vnode and gives its token. Its places go to the vnode behind it.
    pub fn remove(&mut self, vnode: VnodeId) -> Result<u32, NotFound> {
        let token = self.tokens.remove(&vnode).ok_or(NotFound)?;
        self.by_token.remove(&token);
        Ok(token)
    }

    /// The vnode a hash belongs to: the first with a token at or behind it, round the end of the ring. `None`
    /// on an empty ring.
    #[must_use]
    pub fn route(&self, hash: u32) -> Option<VnodeId> {
        let behind = self.by_token.range(hash..).next().or_else(|| self.by_token.iter().next());
        behind.map(|(_, vnode)| *vnode)
    }

    /// A vnode's token.
    #[must_use]
    pub fn token(&self, vnode: VnodeId) -> Option<u32> {
        self.tokens.get(&vnode).copied()
    }

    /// The slice a vnode owns; the whole ring when it is alone.
    pub fn arc(&self, vnode: VnodeId) -> Result<RingArc, NotFound> {
        let upto = self.token(vnode).ok_or(NotFound)?;
        let before = self.by_token.range(..upto).next_back().or_else(|| self.by_token.iter().next_back());
        before.map(|(after, _)| RingArc { after: *after, upto }).ok_or(NotFound)
    }

    /// The vnode that takes over when this one is removed: the next behind it, round the end of the ring. `None`
    /// when the vnode is alone or not there.
    #[must_use]
    pub fn successor(&self, vnode: VnodeId) -> Option<VnodeId> {
        let next = self.route(self.token(vnode)?.wrapping_add(1))?;
        (next != vnode).then_some(next)
    }

    /// The vnode with the largest arc, the larger id among equals. `None` on an empty ring.
    #[must_use]
    pub fn largest(&self) -> Option<(VnodeId, RingArc)> {
        self.arcs().max_by_key(|(vnode, arc)| (arc.places(), *vnode))
    }

    /// Every vnode with its arc, in the order of tokens.
    pub fn arcs(&self) -> impl Iterator<Item = (VnodeId, RingArc)> {
        let last = self.by_token.keys().next_back().copied();
        self.by_token.iter().scan(last, |before, (upto, vnode)| {
            let after = before.replace(*upto)?;
            Some((*vnode, RingArc { after, upto: *upto }))
        })
    }

    /// Every vnode with its token, in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (VnodeId, u32)> {
        self.tokens.iter().map(|(vnode, token)| (*vnode, *token))
    }

    /// Number of vnodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no vnode.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_ring_is_cut_evenly() {
        assert_eq!(Ring::boot(0), None);
        let tokens = |count| Ring::boot(count).unwrap().iter().map(|(_, token)| token).collect::<Vec<_>>();
        assert_eq!(tokens(1), [0]);
        assert_eq!(tokens(3), [0, 1_431_655_765, 2_863_311_530]);
        assert_eq!(tokens(4), [0, 1 << 30, 2 << 30, 3 << 30]);
    }

    #[test]
    fn adding_and_removing_say_why_not() {
        let mut ring = Ring::default();
        assert_eq!((ring.route(7), ring.largest(), ring.successor(VnodeId(0))), (None, None, None));
        assert_eq!(ring.arc(VnodeId(0)), Err(NotFound));
        ring.add(VnodeId(5), 9).unwrap();
        assert_eq!(ring.arc(VnodeId(5)), Ok(RingArc { after: 9, upto: 9 }));
        assert_eq!((ring.arc(VnodeId(5)).unwrap().places(), ring.successor(VnodeId(5))), (PLACES, None));
        // The vnode is looked at before its token.
        assert_eq!(ring.add(VnodeId(5), 9), Err(AddError::AlreadyPresent));
        assert_eq!(ring.add(VnodeId(6), 9), Err(AddError::TokenTaken));
        assert_eq!(ring.remove(VnodeId(6)), Err(NotFound));
        assert_eq!((ring.remove(VnodeId(5)), ring.is_empty()), (Ok(9), true));
    }

    #[test]
    fn an_arc_of_one_place_has_no_middle() {
        assert_eq!(RingArc { after: 4, upto: 5 }.middle(), None);
        assert_eq!(RingArc { after: u32::MAX, upto: 1 }.middle(), Some(0));
        assert_eq!(RingArc { after: 7, upto: 7 }.middle(), Some(7 + (1 << 31)));
    }

    /// Tokens crowd at the ends of the ring and around a few places, so that they meet.
    fn a_place() -> impl Strategy<Value = u32> {
        prop_oneof![0..9_u32, u32::MAX - 9..=u32::MAX, any::<u32>()]
    }

    fn a_ring() -> impl Strategy<Value = Ring> {
        prop::collection::btree_set(a_place(), 1..12).prop_map(|tokens| {
            let mut ring = Ring::default();
            for (i, token) in (0..).zip(tokens) {
                ring.add(VnodeId(i * 7 % 13), token).unwrap();
            }
            ring
        })
    }

    /// From the text of the rule: tokens in a list, the first that is not smaller, else the first.
    fn routed(ring: &Ring, hash: u32) -> VnodeId {
        let mut tokens: Vec<(u32, VnodeId)> = ring.iter().map(|(vnode, token)| (token, vnode)).collect();
        tokens.sort_unstable();
        tokens.iter().find(|(token, _)| *token >= hash).unwrap_or(&tokens[0]).1
    }

    proptest! {
        #[test]
        fn every_hash_has_one_owner(ring in a_ring(), hash in a_place()) {
            let owner = routed(&ring, hash);
            prop_assert_eq!(ring.route(hash), Some(owner));
            let covering: Vec<VnodeId> =
                ring.arcs().filter(|(_, arc)| arc.covers(hash)).map(|(vnode, _)| vnode).collect();
            prop_assert_eq!(covering, [owner]);
            for (vnode, arc) in ring.arcs() {
                prop_assert_eq!(ring.arc(vnode), Ok(arc));
            }
            prop_assert_eq!(ring.arcs().map(|(_, arc)| arc.places()).sum::<u64>(), PLACES);
        }

        #[test]
        fn a_vnode_that_comes_takes_from_one_and_gives_back_to_it(
            ring in a_ring(),
            token in a_place(),
            hashes in prop::collection::vec(a_place(), 1..40),
        ) {
            let new = VnodeId(99);
            let mut grown = ring.clone();
            if grown.add(new, token).is_err() {
                return Ok(());
            }
            let (source, gained) = (routed(&ring, token), grown.arc(new).unwrap());
            prop_assert_eq!(grown.successor(new), Some(source));
            for hash in hashes {
                let expected = if gained.covers(hash) { new } else { routed(&ring, hash) };
                prop_assert_eq!(grown.route(hash), Some(expected));
                prop_assert!(expected != new || routed(&ring, hash) == source);
            }
            prop_assert_eq!(grown.remove(new), Ok(token));
            prop_assert_eq!(grown, ring);
        }

        #[test]
        fn halves_are_halves(after in a_place(), upto in a_place()) {
            let arc = RingArc { after, upto };
            let Some(middle) = arc.middle() else {
                prop_assert_eq!(arc.places(), 1);
                return Ok(());
            };
            let (low, high) = (RingArc { after, upto: middle }, RingArc { after: middle, upto });
            prop_assert_eq!(low.places() + high.places(), arc.places());
            prop_assert!(high.places() - low.places() <= 1);
        }
    }
}
