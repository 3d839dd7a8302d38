//! Nodes that are gone for long, and the lease when its holder is.

use membership::Status;
use types::VnodeId;

use super::*;

const BOTH: [VnodeId; 2] = [CLUSTER, VNODE];

/// So many nodes that wait no longer than this for one that is dead.
fn of(count: usize, replace_after: Duration) -> Cluster {
    let mut cluster = Cluster::of(count);
    for node in &mut cluster.nodes {
        node.node.core.config.replace_after = replace_after;
    }
    cluster
}

/// The others hear that about a node.
fn seen(cluster: &mut Cluster, node: usize, status: Status) {
    let incarnation = cluster.nodes[node].config.own.incarnation;
    for other in (0..cluster.nodes.len()).filter(|other| *other != node) {
        let event = PeerEvent::Seen { incarnation, status };
        cluster.nodes[other].step(Event::Peer(id(node), event));
    }
}

/// The members of a group, as whoever leads it has them.
fn members(cluster: &Cluster, group: VnodeId) -> BTreeSet<NodeId> {
    let leads = cluster.nodes.iter().map(|node| &node.node.core.meta).find(|meta| meta.leads(group));
    let group = leads.and_then(|meta| meta.group(group));
    group.map_or_else(BTreeSet::new, |group| group.members().iter().map(|(member, _)| member.node).collect())
}

/// A member of both groups that leads neither.
fn follower(cluster: &Cluster) -> usize {
    let is_member = |node: &usize| BOTH.iter().all(|group| members(cluster, *group).contains(&id(*node)));
    let leads = |node: &usize| BOTH.iter().any(|group| cluster.leader(*group) == Some(*node));
    (0..cluster.nodes.len()).find(|node| is_member(node) && !leads(node)).unwrap()
}

#[test]
fn a_node_that_is_dead_for_long_is_replaced() {
    let mut cluster = of(5, Duration::from_secs(20));
    cluster.until("five", |cluster| cluster.voters(CLUSTER) == 5);
    let gone = cluster.leader(VNODE).unwrap();
    cluster.cut_off(gone);
    cluster.until("another leads", |cluster| cluster.leader(VNODE).is_some_and(|leader| leader != gone));
    cluster.pass(Duration::from_secs(25));
    seen(&mut cluster, gone, Status::Suspect);
    cluster.pass(Duration::from_secs(25));
    let has = |cluster: &Cluster, group| {
        let others = cluster.nodes.iter().enumerate().filter(|(node, _)| *node != gone);
        let led = others.filter(|(_, node)| node.node.core.meta.leads(group));
        led.flat_map(|(_, node)| node.node.core.meta.group(group).unwrap().members().iter())
            .any(|(member, _)| member.node == id(gone))
    };
    assert!(has(&cluster, VNODE) && has(&cluster, CLUSTER), "suspect is not dead");
    seen(&mut cluster, gone, Status::Down);
    cluster.pass(Duration::from_secs(15));
    assert!(has(&cluster, VNODE), "it may come back");
    cluster.until("it is replaced", |cluster| !has(cluster, VNODE));
    assert_eq!(cluster.voters(VNODE), 3);
    assert!(has(&cluster, CLUSTER), "nobody is left to take its place there");
    cluster.connect_again(gone);
    seen(&mut cluster, gone, Status::Alive);
    cluster.until("it has no replica any more", |cluster| {
        cluster.nodes[gone].node.core.meta.group(VNODE).is_none()
    });
    let other = (gone + 1) % 5;
    assert_eq!(cluster.ask(other, create("t")), Reply::Created);
    cluster.until("it follows", |cluster| cluster.knows(gone, "t"));
    assert_eq!(cluster.ask(gone, create("u")), Reply::Created);
}

#[test]
fn nobody_gives_a_member_up_that_nobody_can_replace() {
    let mut cluster = of(3, Duration::from_secs(5));
    let gone = follower(&cluster);
    cluster.cut_off(gone);
    seen(&mut cluster, gone, Status::Down);
    cluster.pass(Duration::from_secs(30));
    assert!(BOTH.iter().all(|group| members(&cluster, *group).contains(&id(gone))));
}

#[test]
fn a_lease_passes_on_after_its_time_whatever_wall_clocks_show() {
    for step_ms in [-3_600_000, 0, 3_600_000_i64] {
        let mut cluster = of(3, Duration::from_secs(300));
        let holder =
            |cluster: &Cluster, node: usize| cluster.nodes[node].node.core.meta.cluster().lease().holder;
        cluster.until("everybody knows the holder", |cluster| {
            (0..3).all(|node| holder(cluster, node).is_some() && holder(cluster, node) == holder(cluster, 0))
        });
        let first = holder(&cluster, 0);
        let gone = (0..3).find(|node| Some(id(*node)) == first).unwrap();
        let other = (gone + 1) % 3;
        for node in (0..3).filter(|node| *node != gone) {
            let wall = &mut cluster.nodes[node].wall;
            *wall = WallTime(wall.0.saturating_add_signed(step_ms));
        }
        cluster.cut_off(gone);
        // It may have renewed up to two seconds before.
        cluster.pass(Duration::from_secs(12));
        assert_eq!(holder(&cluster, other), first, "wall clocks {step_ms} ms off");
        cluster.pass(Duration::from_secs(8));
        let next = holder(&cluster, other);
        assert!(next.is_some() && next != first, "wall clocks {step_ms} ms off: {next:?}");
    }
}
