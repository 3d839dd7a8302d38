//! What administrators are told of a cluster, and how nodes come and go at their wish.

use types::{NodeId, VnodeId};
use wire::request::NodeChange;
use wire::response::{ClusterStatus, NodeChanged, NodeState, Resharding, RingPage, RingStep};

use super::*;
use crate::event::OfCluster;

fn status(after: Option<NodeId>, max: u32) -> Request {
    Request::Cluster(OfCluster::Status { after, max })
}

fn ring(from_token: u32, max: u32) -> Request {
    Request::Cluster(OfCluster::Ring { from_token, max })
}

pub(super) fn change(node: usize, change: NodeChange, dry_run: bool) -> Request {
    Request::Cluster(OfCluster::ChangeNode { node: id(node), change, dry_run })
}

pub(super) fn reshard(to: u32, dry_run: bool) -> Request {
    Request::Cluster(OfCluster::Reshard { to, dry_run })
}

fn as_status(reply: Reply) -> ClusterStatus {
    let Reply::ClusterStatus(status) = reply else { panic!("{reply:?}") };
    *status
}

fn as_ring(reply: Reply) -> RingPage {
    let Reply::Ring(page) = reply else { panic!("{reply:?}") };
    page
}

fn as_changed(reply: Reply) -> NodeChanged {
    let Reply::NodeChanged(changed) = reply else { panic!("{reply:?}") };
    changed
}

pub(super) fn as_resharding(reply: Reply) -> Resharding {
    let Reply::Resharding(resharding) = reply else { panic!("{reply:?}") };
    resharding
}

fn refusal(changed: &NodeChanged) -> Option<Reason> {
    changed.refusal.as_ref().map(|token| Reason::from_token(token).unwrap())
}

impl Cluster {
    fn status_at(&mut self, node: usize) -> ClusterStatus {
        as_status(self.ask(node, status(None, 0)))
    }

    /// Asks until nothing of a node is left, as people do.
    fn until_drained(&mut self, asked: usize, node: usize) -> NodeChanged {
        for _ in 0..600 {
            let changed = as_changed(self.ask(asked, change(node, NodeChange::Drain, true)));
            if changed.vnode_count == 0 && !changed.in_cluster_group {
                return changed;
            }
            self.pass(Duration::from_millis(100));
        }
        panic!("it does not drain");
    }
}

#[test]
fn a_node_alone_tells_of_itself_and_stays() {
    let mut bench = Bench::with(|config| {
        config.own.name = "n0".into();
        config.own.attributes = [("rack".into(), "r1".into())].into();
        config.formation = Formation::Forms { vnodes: 4 };
    });
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let told = as_status(bench.ask(status(None, 0)));
    assert_eq!((told.asked, told.leader, told.lease), (id(0), Some(id(0)), None));
    assert_eq!((told.members.len(), told.vnodes, told.leaderless, told.node_count), (1, 4, 0, 1));
    let node = &told.nodes[0];
    assert_eq!((node.node, &node.name[..], node.state), (id(0), &b"n0"[..], NodeState::Active));
    assert_eq!((node.connected, node.vnodes, told.more), (true, 4, false));
    assert_eq!(node.attributes, [(Bytes::from("rack"), Bytes::from("r1"))]);

    let vnodes = as_ring(bench.ask(ring(0, 0))).vnodes;
    let places: u64 = vnodes.iter().map(|vnode| vnode.places).sum();
    assert_eq!((vnodes.len(), places), (4, types::ring::PLACES));
    assert_eq!(vnodes.iter().map(|vnode| vnode.topics).sum::<u32>(), 1);
    assert!(vnodes.iter().all(|vnode| vnode.members == [id(0)] && vnode.leader == Some(id(0))));

    for (what, dry_run) in
        [(NodeChange::Drain, true), (NodeChange::Remove, true), (NodeChange::ForceRemove, true)]
    {
        let changed = as_changed(bench.ask(change(0, what, dry_run)));
        assert_eq!((refusal(&changed), changed.vnode_count), (Some(Reason::LastNode), 4), "{what:?}");
        assert_eq!(bench.ask(change(0, what, false)), failed(Reason::LastNode), "{what:?}");
    }
    assert_eq!(bench.ask(change(7, NodeChange::Drain, false)), failed(Reason::NoSuchNode));
}

#[test]
fn only_administrators_are_told() {
    let mut bench = Bench::new();
    for request in [status(None, 0), ring(0, 0), change(0, NodeChange::Drain, true), reshard(2, true)] {
        let user = Permissions { produce: true, consume: true, ..NOBODY };
        assert_eq!(bench.ask_as(user, request), failed(Reason::PermissionDenied));
    }
}

#[test]
fn what_does_not_fit_a_page_comes_with_the_next() {
    let mut bench = Bench::with(|config| {
        config.formation = Formation::Forms { vnodes: 9 };
        config.frame_bytes_max = types::limits::FRAME_BYTES_MIN;
    });
    let (mut seen, mut from) = (Vec::new(), 0);
    loop {
        let page = as_ring(bench.ask(ring(from, 4)));
        assert!(page.vnodes.len() <= 4 && !page.vnodes.is_empty());
        seen.extend(page.vnodes.iter().map(|vnode| vnode.vnode));
        from = page.vnodes.last().unwrap().token + 1;
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, (0..9).map(VnodeId).collect::<Vec<_>>());
    assert!(as_status(bench.ask(status(Some(id(0)), 0))).nodes.is_empty(), "there is none after it");
    // More steps than a frame of that size holds: they are counted, and some are told.
    let resharding = as_resharding(bench.ask(reshard(200, true)));
    assert_eq!((resharding.from, resharding.to, resharding.step_count), (9, 200, 191));
    assert!(resharding.steps.len() < 191 && !resharding.steps.is_empty());
}

#[test]
fn a_node_that_is_too_much_for_a_frame_is_refused_by_name() {
    let mut bench = Bench::with(|config| {
        config.frame_bytes_max = types::limits::FRAME_BYTES_MIN;
        let attribute = |at: u32| (format!("key-{at}").into(), "v".repeat(200).into());
        config.own.attributes = (0..8).map(attribute).collect();
    });
    assert_eq!(bench.ask(status(None, 0)), failed(Reason::Unsupported));
}

#[test]
fn a_plan_for_another_number_of_vnodes_changes_nothing() {
    let mut bench = Bench::new();
    let grown = as_resharding(bench.ask(reshard(3, true)));
    let split =
        |vnode, source, token| RingStep::Split { vnode: VnodeId(vnode), source: VnodeId(source), token };
    assert_eq!((grown.from, grown.to, grown.step_count), (1, 3, 2));
    assert_eq!(grown.steps[0], split(1, 0, 1 << 31));
    assert_eq!(as_resharding(bench.ask(reshard(1, true))).steps, []);
    assert_eq!(as_ring(bench.ask(ring(0, 0))).vnodes.len(), 1);
    let too_many = u32::try_from(types::limits::VNODES_MAX + 1).unwrap();
    for bad in [0, too_many, u32::MAX] {
        assert_eq!(bench.ask(reshard(bad, true)), failed(Reason::InvalidVnodeCount));
        assert_eq!(bench.ask(reshard(bad, false)), failed(Reason::InvalidVnodeCount));
    }
}

#[test]
fn every_node_tells_of_all() {
    let mut cluster = Cluster::of(3);
    cluster.until("the lease is held", |cluster| {
        cluster.nodes.iter().all(|node| node.node.core.meta.cluster().lease().holder.is_some())
    });
    for asked in 0..3 {
        let told = cluster.status_at(asked);
        assert_eq!((told.asked, told.node_count, told.nodes.len()), (id(asked), 3, 3));
        let leader = cluster.leader(CLUSTER).unwrap();
        assert_eq!((told.leader, told.lease), (Some(id(leader)), Some(id(leader))));
        assert!(told.members.iter().all(|member| member.votes) && told.members.len() == 3);
        assert!(told.nodes.iter().all(|node| node.connected && node.vnodes == 1));
    }
    let page = as_status(cluster.ask(1, status(Some(id(0)), 1)));
    assert_eq!((page.nodes[0].node, page.more), (id(1), true));
    cluster.cut_off(2);
    cluster.pump();
    let told = cluster.status_at(0);
    let connected: Vec<bool> = told.nodes.iter().map(|node| node.connected).collect();
    assert_eq!(connected, [true, true, false]);
}

#[test]
fn a_node_is_drained_and_removed() {
    let mut cluster = Cluster::of(4);
    cluster.until("the vnode has its three", |cluster| cluster.voters(VNODE) == 3);
    let leaving = cluster.leader(VNODE).unwrap();
    let asked = (leaving + 1) % 4;
    // A trial says what there is and changes nothing.
    let tried = as_changed(cluster.ask(asked, change(leaving, NodeChange::Drain, true)));
    assert_eq!((refusal(&tried), tried.vnodes), (None, vec![VNODE]));
    let of = |told: &ClusterStatus| told.nodes.iter().find(|node| node.node == id(leaving)).cloned();
    assert_eq!(of(&cluster.status_at(asked)).unwrap().state, NodeState::Active);
    assert_eq!(
        cluster.ask(asked, change(leaving, NodeChange::Remove, false)),
        failed(Reason::NodeNotDrained)
    );

    as_changed(cluster.ask(asked, change(leaving, NodeChange::Drain, false)));
    assert_eq!(of(&cluster.status_at(asked)).unwrap().state, NodeState::Draining);
    let tried = as_changed(cluster.ask(asked, change(leaving, NodeChange::Remove, true)));
    assert_eq!(refusal(&tried), Some(Reason::NodeNotDrained), "it still holds something");
    assert_eq!(cluster.until_drained(asked, leaving).segments, 0);

    let tried = as_changed(cluster.ask(asked, change(leaving, NodeChange::Remove, true)));
    assert_eq!(refusal(&tried), None);
    as_changed(cluster.ask(asked, change(leaving, NodeChange::Remove, false)));
    let told = cluster.status_at(asked);
    assert_eq!((told.node_count, of(&told)), (3, None));
    assert_eq!(
        cluster.ask(asked, change(leaving, NodeChange::Undrain, false)),
        failed(Reason::NoSuchNode),
        "an id is not listed again"
    );
    assert_eq!(cluster.ask(asked, create("t")), Reply::Created);
}

#[test]
fn draining_can_be_taken_back() {
    let mut cluster = Cluster::of(2);
    as_changed(cluster.ask(0, change(1, NodeChange::Drain, false)));
    assert_eq!(cluster.ask(0, change(0, NodeChange::Drain, false)), failed(Reason::LastNode));
    as_changed(cluster.ask(1, change(1, NodeChange::Undrain, false)));
    let states: Vec<NodeState> = cluster.status_at(1).nodes.iter().map(|node| node.state).collect();
    assert_eq!(states, [NodeState::Active, NodeState::Active]);
}

#[test]
fn copies_of_segments_keep_a_node_unless_it_is_forced_out() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(2, create("t")), Reply::Created);
    assert_eq!(cluster.ask(2, produce("t", &["a"])), Reply::Stored(1));
    as_changed(cluster.ask(0, change(2, NodeChange::Drain, false)));
    let drained = cluster.until_drained(0, 2);
    assert_eq!(drained.segments, 1, "records do not move yet");
    let removed = cluster.ask(0, change(2, NodeChange::Remove, false));
    assert_eq!(removed, failed(Reason::NodeNotDrained));
    let forced = as_changed(cluster.ask(0, change(2, NodeChange::ForceRemove, false)));
    assert_eq!((forced.refusal, forced.segments), (None, 1));
    assert_eq!(cluster.status_at(0).node_count, 2);
}

#[test]
fn a_node_that_does_not_lead_the_cluster_group_does_not_change_the_ring() {
    let mut cluster = Cluster::of(3);
    let other = (cluster.leader(CLUSTER).unwrap() + 1) % 3;
    assert_eq!(cluster.ask(other, reshard(2, false)), failed(Reason::NotLeaseHolder));
    let tried = as_resharding(cluster.ask(other, reshard(2, true)));
    assert_eq!((tried.refusal.as_deref(), tried.step_count), (Some(&b"not_lease_holder"[..]), 1));
}

#[test]
fn two_changes_at_once_are_both_made() {
    let mut cluster = Cluster::of(4);
    // Both are worked out from the same list, so the second is worked out anew.
    let asked = [(0, 2), (1, 3)]
        .map(|(at, node)| (at, cluster.nodes[at].send(change(node, NodeChange::Drain, false))));
    cluster.pass(Duration::from_secs(1));
    for (at, request) in asked {
        as_changed(cluster.nodes[at].reply(request).unwrap());
    }
    let states: Vec<NodeState> = cluster.status_at(0).nodes.iter().map(|node| node.state).collect();
    assert_eq!(states, [NodeState::Active, NodeState::Active, NodeState::Draining, NodeState::Draining]);
}

#[test]
fn a_node_that_is_at_odds_with_the_list_says_so_once() {
    use crate::action::{Notice, Unlisted};
    let told = |cluster: &Cluster, node: usize| {
        let mut told = Vec::new();
        for notice in &cluster.nodes[node].notices {
            if let Notice::Unlisted(how) = notice {
                told.push(how.clone());
            }
        }
        told
    };
    let mut cluster = Cluster::of(3);
    // The name of one that is listed already.
    let at = cluster.nodes.len();
    cluster.nodes.push(Bench::begun(|config| {
        describe(config, at);
        config.own.name = "n1".into();
        config.formation = Formation::Joins;
    }));
    (0..at).for_each(|other| cluster.connect(other, at));
    cluster.pass(Duration::from_secs(10));
    assert_eq!(told(&cluster, at), [Unlisted::NameTaken { by: id(1) }]);
    cluster.nodes[2].config.own.name = "other".into();
    cluster.restart(2);
    cluster.pass(Duration::from_secs(10));
    assert_eq!(told(&cluster, 2), [Unlisted::Renamed { listed: "n2".to_owned() }]);
    assert!(matches!(cluster.ask(0, change(1, NodeChange::ForceRemove, false)), Reply::NodeChanged(_)));
    cluster.pass(Duration::from_secs(10));
    assert_eq!(told(&cluster, 1), [Unlisted::Removed]);
    assert!(told(&cluster, 0).is_empty());
}
