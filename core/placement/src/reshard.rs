//! How the ring gets another number of vnodes, one step at a time.
//!
//! Owns the plan, a function of the ring and the number wanted. Whoever carries it out does the first step, looks
//! at the ring again and plans anew, so nothing has to be remembered in between and a repeat goes on where it was
//! left.
//!
//! Growing halves the largest arc, of equal ones that of the vnode with the larger id. No arc ever gets larger,
//! and no token moves.
//!
//! Shrinking undoes the densest cut: of all pairs of neighbours the one that together has the smallest arc
//! becomes one, of equal pairs the one whose first vnode has the larger id. The first of the two goes, because a
//! token is the *end* of an arc: its places fall to the vnode behind it, whose token stays. Since the largest arc
//! is cut first, the latest cut is the densest, and ids grow: what was grown from a ring that was cut evenly is
//! taken back step by step, token by token.

use types::{Ring, VnodeId, limits};

const _: () =
    assert!((limits::VNODES_MAX as u64) < types::ring::PLACES / 2, "there is always an arc to halve");

/// One change of the ring, by one vnode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A new vnode takes the lower half of an arc.
    Split {
        /// Whose arc.
        source: VnodeId,
        /// The new one.
        vnode: VnodeId,
        /// Its token.
        token: u32,
    },
    /// A vnode gives its arc to the one behind it, and is no more.
    Merge {
        /// The one that goes.
        vnode: VnodeId,
        /// The one that takes over.
        into: VnodeId,
    },
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no vnode to begin with.
    #[error("empty_ring")]
    EmptyRing,
    /// No vnode, or more than there may be.
    #[error("invalid_vnode_count")]
    InvalidVnodeCount,
}

impl Step {
    /// The ring after it.
    ///
    /// The step must come from a plan for this ring.
    pub fn apply(self, ring: &mut Ring) {
        match self {
            Self::Split { vnode, token, .. } => ring.add(vnode, token).expect("planned for this ring"),
            Self::Merge { vnode, .. } => {
                ring.remove(vnode).expect("planned for this ring");
            }
        }
    }
}

/// The steps to `target` vnodes; none when there are as many. `next` is above every id that was ever on the
/// ring: ids are not used twice.
pub fn plan(ring: &Ring, next: VnodeId, target: usize) -> Result<Vec<Step>, Error> {
    if ring.is_empty() {
        return Err(Error::EmptyRing);
    }
    if target == 0 || target > limits::VNODES_MAX {
        return Err(Error::InvalidVnodeCount);
    }
    let (mut ring, mut next) = (ring.clone(), next);
    let mut steps = Vec::new();
    while ring.len() != target {
        let step =
            if ring.len() < target { cut(&ring, next)? } else { undo(&ring).ok_or(Error::EmptyRing)? };
        if let Step::Split { .. } = step {
            next = VnodeId(next.0.saturating_add(1));
        }
        step.apply(&mut ring);
        steps.push(step);
    }
    Ok(steps)
}

fn cut(ring: &Ring, vnode: VnodeId) -> Result<Step, Error> {
    let (source, arc) = ring.largest().ok_or(Error::EmptyRing)?;
    let token = arc.middle().expect("the largest of so few arcs has more than one place");
    Ok(Step::Split { source, vnode, token })
}

/// `None` when there are no two vnodes.
fn undo(ring: &Ring) -> Option<Step> {
    let together = |(vnode, arc): (VnodeId, types::RingArc)| {
        let into = ring.successor(vnode)?;
        let places = arc.places() + ring.arc(into).ok()?.places();
        Some((places, std::cmp::Reverse(vnode), into))
    };
    let (_, std::cmp::Reverse(vnode), into) = ring.arcs().filter_map(together).min()?;
    Some(Step::Merge { vnode, into })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::ring::PLACES;

    fn reshard(ring: &mut Ring, next: &mut VnodeId, target: usize) -> Vec<Step> {
        let steps = plan(ring, *next, target).unwrap();
        for step in &steps {
            step.apply(ring);
            if let Step::Split { vnode, .. } = step {
                *next = VnodeId(vnode.0 + 1);
            }
        }
        steps
    }

    fn tokens(ring: &Ring) -> Vec<u32> {
        let mut tokens: Vec<u32> = ring.iter().map(|(_, token)| token).collect();
        tokens.sort_unstable();
        tokens
    }

    #[test]
    fn what_cannot_be_planned_has_a_name() {
        let ring = Ring::boot(2).unwrap();
        assert_eq!(plan(&Ring::default(), VnodeId(0), 1), Err(Error::EmptyRing));
        assert_eq!(plan(&ring, VnodeId(2), 0), Err(Error::InvalidVnodeCount));
        assert_eq!(plan(&ring, VnodeId(2), limits::VNODES_MAX + 1), Err(Error::InvalidVnodeCount));
        assert_eq!(plan(&ring, VnodeId(2), 2), Ok(vec![]));
    }

    #[test]
    fn of_equal_arcs_that_of_the_larger_id_is_halved_and_the_last_half_joined() {
        let ring = Ring::boot(2).unwrap();
        let split =
            |source, vnode, token| Step::Split { source: VnodeId(source), vnode: VnodeId(vnode), token };
        let grown = plan(&ring, VnodeId(2), 4).unwrap();
        assert_eq!(grown, [split(1, 2, 1 << 30), split(0, 3, 3 << 30)]);
        let mut four = ring.clone();
        grown.iter().for_each(|step| step.apply(&mut four));
        let merge = |vnode, into| Step::Merge { vnode: VnodeId(vnode), into: VnodeId(into) };
        assert_eq!(plan(&four, VnodeId(4), 2), Ok(vec![merge(3, 0), merge(2, 1)]));
    }

    #[test]
    fn merging_an_even_ring_takes_every_second() {
        let mut ring = Ring::boot(8).unwrap();
        reshard(&mut ring, &mut VnodeId(8), 4);
        let left: Vec<u64> = ring.iter().map(|(vnode, _)| vnode.0).collect();
        assert_eq!(left, [0, 2, 4, 6]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn growing_and_shrinking_returns_the_tokens(boot in 1..40_u32, more in 0..80_usize) {
            let first = Ring::boot(boot).unwrap();
            let (mut ring, mut next) = (first.clone(), VnodeId(u64::from(boot)));
            reshard(&mut ring, &mut next, first.len() + more);
            reshard(&mut ring, &mut next, first.len());
            prop_assert_eq!(ring, first);
        }

        #[test]
        fn a_step_at_a_time_is_the_whole_plan(
            boot in 1..12_u32,
            targets in prop::collection::vec(1..40_usize, 1..6),
        ) {
            let (mut ring, mut next) = (Ring::boot(boot).unwrap(), VnodeId(u64::from(boot)));
            for target in targets {
                let (mut one, mut one_next, before) = (ring.clone(), next, ring.clone());
                reshard(&mut ring, &mut next, target);
                for _ in 0..100 {
                    let Some(step) = plan(&one, one_next, target).unwrap().first().copied() else { break };
                    let largest = one.largest().unwrap().1.places();
                    step.apply(&mut one);
                    if let Step::Split { vnode, .. } = step {
                        one_next = VnodeId(vnode.0 + 1);
                        prop_assert!(one.largest().unwrap().1.places() <= largest);
                    }
                }
                prop_assert_eq!(&one, &ring);
                prop_assert_eq!(ring.len(), target);
                prop_assert_eq!(plan(&ring, next, target), Ok(vec![]));
                // What stays keeps its token, and the ring stays even: no arc is four times its share.
                let (small, large) = if ring.len() < before.len() { (&ring, &before) } else { (&before, &ring) };
                let all = tokens(large);
                prop_assert!(tokens(small).iter().all(|token| all.contains(token)));
                let share = PLACES / ring.len() as u64;
                prop_assert!(ring.largest().unwrap().1.places() <= 4 * share, "{:?}", ring);
            }
        }
    }
}
