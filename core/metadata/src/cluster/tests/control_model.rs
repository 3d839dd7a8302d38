//! Random histories of the control plane: what must hold after every command, told from lists that are searched from
//! the front.

use std::collections::BTreeSet;

use proptest::prelude::*;
use types::{FenceToken, Incarnation, NodeId, VnodeId};

use super::*;

const NODES: u128 = 4;

/// What is proposed, before it is known from which state.
#[derive(Clone, Debug)]
enum Wish {
    Add { node: u128, name: u8, stale: bool },
    Set { node: u128, incarnation: u64, flags: u8 },
    Drain { node: u128, stale: bool },
    Undrain { node: u128 },
    Remove { node: u128, force: bool },
    Seed { count: usize, node: u128 },
    Ring { act: RingAct, late: bool, fence: i8 },
    Acquire { node: u128, at: u64, duration: u64, over: Option<i8> },
    Release { node: u128, fence: i8 },
    Enable { flag: u8, all: bool },
}

fn a_node() -> impl Strategy<Value = u128> {
    0..NODES
}

/// Mostly nothing: what is read is mostly what is there.
fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

fn a_slip() -> impl Strategy<Value = i8> {
    prop_oneof![8 => Just(0_i8), 1 => Just(-1), 1 => Just(1)]
}

fn an_act() -> impl Strategy<Value = RingAct> {
    let nodes = || prop::collection::vec(a_node().prop_map(NodeId), 0..3);
    let vnode = || (0..6_u64).prop_map(VnodeId);
    prop_oneof![
        3 => (0..6_u32, nodes()).prop_map(|(token, nodes)| RingAct::BeginSplit { token, nodes }),
        2 => vnode().prop_map(|vnode| RingAct::BeginMerge { vnode }),
        3 => Just(RingAct::Advance),
        1 => Just(RingAct::Clear),
        1 => (vnode(), nodes()).prop_map(|(vnode, nodes)| RingAct::SetPlacement { vnode, nodes }),
    ]
}

fn a_wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        4 => (a_node(), 0..5_u8, rarely()).prop_map(|(node, name, stale)| Wish::Add { node, name, stale }),
        6 => (a_node(), 0..5_u64, 0..4_u8)
            .prop_map(|(node, incarnation, flags)| Wish::Set { node, incarnation, flags }),
        1 => (a_node(), rarely()).prop_map(|(node, stale)| Wish::Drain { node, stale }),
        1 => a_node().prop_map(|node| Wish::Undrain { node }),
        1 => (a_node(), rarely()).prop_map(|(node, force)| Wish::Remove { node, force }),
        2 => (0..4_usize, a_node()).prop_map(|(count, node)| Wish::Seed { count, node }),
        8 => (an_act(), rarely(), a_slip()).prop_map(|(act, late, fence)| Wish::Ring { act, late, fence }),
        5 => (a_node(), 0..40_u64, 0..12_u64, prop::option::of(a_slip()))
            .prop_map(|(node, at, duration, over)| Wish::Acquire { node, at, duration, over }),
        1 => (a_node(), a_slip()).prop_map(|(node, fence)| Wish::Release { node, fence }),
        2 => (0..2_u8, any::<bool>()).prop_map(|(flag, all)| Wish::Enable { flag, all }),
    ]
}

fn flag_names(bits: u8) -> Vec<Bytes> {
    (0..2_u8).filter(|bit| bits & (1 << bit) != 0).map(|bit| Bytes::from(vec![b'f', b'0' + bit])).collect()
}

fn slipped(fence: FenceToken, by: i8) -> FenceToken {
    FenceToken(fence.0.saturating_add_signed(i64::from(by)))
}

impl Wish {
    fn command(&self, cluster: &Cluster) -> Command {
        let revision = |stale: bool| NodesRevision(cluster.nodes_revision().0 + u64::from(stale));
        let change = |node: u128, stale| ChangeNode { node: NodeId(node), expected: revision(stale) };
        match self.clone() {
            Self::Add { node, name, stale } => {
                let name = if name == 4 { bytes("bad name") } else { Bytes::from(vec![b'a' + name]) };
                let (node, peer, expected) = (NodeId(node), bytes("h:1"), revision(stale));
                Command::AddNode(AddNode { node, name, peer, expected })
            }
            Self::Set { node, incarnation, flags } => {
                let (incarnation, attributes) = (Incarnation(incarnation), vec![(bytes("k"), bytes("v"))]);
                let (node, flags) = (NodeId(node), flag_names(flags));
                Command::SetNode(SetNode {
                    node,
                    incarnation,
                    peer: bytes("h:2"),
                    client: None,
                    attributes,
                    flags,
                })
            }
            Self::Drain { node, stale } => Command::DrainNode(change(node, stale)),
            Self::Undrain { node } => Command::UndrainNode(change(node, false)),
            Self::Remove { node, force } => Command::RemoveNode { change: change(node, false), force },
            Self::Seed { count, node } => Command::SeedRing { placements: vec![vec![NodeId(node)]; count] },
            Self::Ring { act, late, fence } => {
                let version = cluster.topology().map_or(0, |topology| topology.version);
                let fence = slipped(cluster.lease().fence, fence);
                Command::ChangeRing(ChangeRing { expected: version + u64::from(late), fence, act })
            }
            Self::Acquire { node, at, duration, over } => Command::AcquireLease(AcquireLease {
                candidate: NodeId(node),
                duration_ms: duration,
                at: WallTime(at),
                over: over.map(|by| Renewal {
                    fence: cluster.lease().fence,
                    at: WallTime(cluster.lease().renewed_at.0.saturating_add_signed(i64::from(by))),
                }),
            }),
            Self::Release { node, fence } => Command::ReleaseLease {
                candidate: NodeId(node),
                fence: slipped(cluster.lease().fence, fence),
            },
            Self::Enable { flag, all } => {
                let seen = |(node, row): (NodeId, &Node)| Seen {
                    node,
                    incarnation: row.incarnation,
                    flags: if all {
                        flag_names(3)
                    } else {
                        row.flags.iter().map(|f| bytes(f.as_str())).collect()
                    },
                };
                let seen = cluster.nodes().map(seen).collect();
                Command::EnableFlag(EnableFlag { flag: flag_names(1 << flag)[0].clone(), seen })
            }
        }
    }
}

/// What was ever true, and must stay so.
#[derive(Default)]
struct Memory {
    removed: BTreeSet<NodeId>,
    /// Every id a vnode ever had, with its token.
    vnodes: Vec<(VnodeId, u32)>,
}

impl Memory {
    fn follow(&mut self, before: &Cluster, command: &Command, reply: &Reply, after: &Cluster) {
        self.lease(before, command, reply, after);
        // C-10.
        for flag in before.flags() {
            assert!(after.is_enabled(flag.as_str()), "a switch stays on");
            let honours = |node: &Node| node.flags.contains(flag.as_str()) || node.incarnation.0 == 0;
            assert!(after.nodes().all(|(_, node)| honours(node)), "whoever has spoken honours it");
        }
        self.nodes(before, after);
        self.ring(before, command, after);
        assert_eq!(Cluster::decode_snapshot(after.encode_snapshot()).as_ref(), Ok(after));
    }

    /// C-2, and whose it is.
    fn lease(&self, before: &Cluster, command: &Command, reply: &Reply, after: &Cluster) {
        let (old, new) = (before.lease(), after.lease());
        assert!(new.fence >= old.fence);
        let passed = new.holder.is_some() && new.holder != old.holder;
        assert_eq!(new.fence.0 - old.fence.0, u64::from(passed), "{command:?}");
        let Command::AcquireLease(AcquireLease { candidate, at, over, .. }) = command else { return };
        let over = old.holder.is_none() || over.is_some_and(|seen| seen == old.renewal());
        if let Reply::LeaseGranted(fence) = reply {
            assert!(over || old.holder == Some(*candidate));
            assert_eq!((new.holder, new.fence), (Some(*candidate), *fence));
            assert!(new.renewed_at > old.renewed_at && new.renewed_at >= *at);
        } else if let Reply::LeaseHeld { holder } = reply {
            assert!(!over && old.holder == Some(*holder) && holder != candidate);
            assert_eq!(new, old);
        } else {
            assert!(matches!(reply, Reply::Refused(Refusal::NoSuchNode | Refusal::NodeRemoved)), "{reply:?}");
        }
    }

    fn nodes(&mut self, before: &Cluster, after: &Cluster) {
        let gone = before.nodes().map(|(id, _)| id).filter(|id| after.node(*id).is_none());
        self.removed.extend(gone);
        assert!(self.removed.iter().all(|id| after.is_node_removed(*id) && after.node(*id).is_none()));
        let names: BTreeSet<&str> = after.nodes().map(|(_, node)| node.name.as_str()).collect();
        assert_eq!(names.len(), after.nodes().count());
        for (id, node) in after.nodes() {
            let old = before.node(id);
            assert!(old.is_none_or(|old| old.incarnation <= node.incarnation && old.name == node.name));
            assert!(
                node.state == NodeState::Joining
                    || node.incarnation.0 > 0
                    || node.state == NodeState::Draining
            );
        }
        let actives =
            |cluster: &Cluster| cluster.nodes().filter(|(_, n)| n.state == NodeState::Active).count();
        assert!(actives(before) == 0 || actives(after) > 0);
        let who = |cluster: &Cluster| cluster.nodes().map(|(id, node)| (id, node.state)).collect::<Vec<_>>();
        let changed = who(before) != who(after);
        assert_eq!(after.nodes_revision().0 - before.nodes_revision().0, u64::from(changed));
        assert!(after.lease().holder.is_none_or(|holder| after.node(holder).is_some()));
    }

    /// C-1, C-5, C-6.
    fn ring(&mut self, before: &Cluster, command: &Command, after: &Cluster) {
        let (old, new) = (before.topology(), after.topology());
        if old == new {
            return;
        }
        let new = new.expect("a ring does not go away");
        let Some(old) = old else {
            assert_eq!(new.version, 0);
            self.remember(new);
            return;
        };
        let Command::ChangeRing(change) = command else { panic!("{command:?} changed the ring") };
        assert_eq!((change.fence, change.expected), (before.lease().fence, old.version));
        assert_eq!(new.version, old.version + 1);
        match (&change.act, &old.pending) {
            (RingAct::BeginSplit { .. } | RingAct::BeginMerge { .. }, None) => {
                assert_eq!((&new.ring, &new.placements), (&old.ring, &old.placements));
                assert_eq!(new.pending.as_ref().map(|intent| intent.begun), Some(new.version));
                if let Some(Intent { change: RingChange::Split { vnode, .. }, .. }) = &new.pending {
                    assert!(*vnode >= old.next_vnode && self.vnodes.iter().all(|(used, _)| used != vnode));
                }
            }
            (RingAct::Advance, Some(_)) => {
                assert_eq!((&new.ring, &new.pending), (&old.ring_after(), &None));
                assert_eq!(new.ring.len().abs_diff(old.ring.len()), 1);
            }
            (RingAct::Clear, Some(_)) => assert_eq!((&new.ring, &new.pending), (&old.ring, &None)),
            (RingAct::SetPlacement { .. }, pending) => {
                assert_eq!((&new.ring, &new.pending), (&old.ring, pending));
            }
            (act, pending) => panic!("{act:?} with {pending:?}"),
        }
        self.remember(new);
    }

    fn remember(&mut self, topology: &Topology) {
        let pending = match topology.pending.as_ref().map(|intent| &intent.change) {
            Some(RingChange::Split { vnode, token, .. }) => Some((*vnode, *token)),
            Some(RingChange::Merge { .. }) | None => None,
        };
        for (vnode, token) in topology.ring.iter().chain(pending) {
            match self.vnodes.iter().find(|(used, _)| *used == vnode) {
                Some((_, at)) => assert_eq!(*at, token, "a token never moves"),
                None => self.vnodes.push((vnode, token)),
            }
        }
        assert!(
            topology.placements.keys().eq(topology
                .ring
                .iter()
                .map(|(vnode, _)| vnode)
                .collect::<Vec<_>>()
                .iter())
        );
    }
}

fn live(wishes: &[Wish]) -> (Cluster, Vec<Command>, BTreeSet<&'static str>) {
    let (mut cluster, mut memory) = (Cluster::default(), Memory::default());
    let (mut commands, mut seen) = (Vec::new(), BTreeSet::new());
    for wish in wishes {
        let command = wish.command(&cluster);
        let before = cluster.clone();
        let reply = run(&mut cluster, &command);
        if matches!(reply, Reply::Refused(_)) {
            assert_eq!(cluster, Cluster { applied: cluster.applied, ..before.clone() });
        } else {
            seen.insert(match wish {
                Wish::Ring { act: RingAct::Advance, .. } => "advanced",
                Wish::Ring { .. } => "ring",
                Wish::Remove { .. } => "removed",
                Wish::Enable { .. } => "enabled",
                Wish::Acquire { .. } | Wish::Release { .. } => "lease",
                Wish::Seed { .. } => "seeded",
                Wish::Add { .. } | Wish::Set { .. } | Wish::Drain { .. } | Wish::Undrain { .. } => "nodes",
            });
        }
        memory.follow(&before, &command, &reply, &cluster);
        commands.push(command);
    }
    (cluster, commands, seen)
}

/// Whether the histories get anywhere at all.
#[test]
fn the_histories_reach_what_they_are_for() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..60 {
        let wishes = prop::collection::vec(a_wish(), 80).new_tree(&mut runner).unwrap().current();
        seen.extend(live(&wishes).2);
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["advanced", "enabled", "lease", "nodes", "removed", "ring", "seeded"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_was_agreed_on_stays_true(
        wishes in prop::collection::vec(a_wish(), 1..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let (cluster, commands, _) = live(&wishes);
        let mut other = Cluster::default();
        for (at, command) in commands.iter().enumerate() {
            if at == cut.index(commands.len()) {
                other = Cluster::decode_snapshot(other.encode_snapshot()).unwrap();
            }
            other.apply(RaftIndex(at as u64 + 1), &command.encode());
            let envelope = crate::machine::Envelope::decode(&command.encode()).unwrap();
            prop_assert_eq!(Command::decode(envelope), Ok(command.clone()));
        }
        prop_assert_eq!(other.state_hash(), cluster.state_hash());
    }

    /// Changes a snapshot in a few places: an error, or a state that encodes so and takes commands.
    #[test]
    fn a_touched_snapshot_of_the_control_plane_is_an_error_or_canonical(
        wishes in prop::collection::vec(a_wish(), 1..60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        more in prop::collection::vec(a_wish(), 1..10),
    ) {
        let mut snapshot = live(&wishes).0.encode_snapshot().to_vec();
        for (at, value) in changes {
            let at = at.index(snapshot.len());
            snapshot[at] = value;
        }
        if let Ok(mut state) = Cluster::decode_snapshot(snapshot.clone().into()) {
            prop_assert_eq!(&state.encode_snapshot()[..], &snapshot[..]);
            for wish in more {
                let command = wish.command(&state);
                state.apply(RaftIndex(state.applied().0.saturating_add(1)), &command.encode());
            }
        }
    }
}
