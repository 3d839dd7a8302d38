//! Where a group's fetch begins, whichever node it is asked of.

use super::records::primary;
use super::*;

fn of_group() -> Fetch {
    Fetch { group: name("g"), max: 1000, ..fetch("t") }
}

fn values(reply: Reply) -> Vec<String> {
    let Reply::Fetched(fetched) = reply else { panic!("{reply:?}") };
    Page::of(fetched).values
}

/// What was committed and acknowledged at one node counts at another that has not heard of it yet.
#[test]
fn a_groups_fetch_begins_where_it_committed_at_another_node() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster.until("everybody knows", |cluster| (0..3).all(|node| cluster.knows(node, "t")));
    assert_eq!(cluster.ask(0, produce("t", &["a", "b", "c"])), Reply::Stored(3));
    let primary = primary(&mut cluster, "t");
    let leads = cluster.leader(VNODE).unwrap();
    let late = (0..3).find(|node| *node != primary && *node != leads).unwrap();
    let two = match cluster.ask(leads, Request::Fetch(Fetch { max: 2, ..of_group() })) {
        Reply::Fetched(fetched) => fetched.cursor,
        reply => panic!("{reply:?}"),
    };
    cluster.cut_off(late);
    cluster.pump();
    assert_eq!(cluster.ask(leads, commit("t", "g", &two)), Reply::Committed);
    cluster.connect_again(late);
    let behind = cluster.nodes[late]
        .node
        .core
        .meta
        .vnodes()
        .all(|vnode| vnode.topics().all(|(topic, _)| vnode.groups_of(topic).next().is_none()));
    assert!(behind, "it has not heard of it");
    assert_eq!(values(cluster.ask(late, Request::Fetch(of_group()))), ["c"]);
}

/// Who cannot learn it gives what it can: records twice rather than none.
#[test]
fn a_groups_fetch_is_answered_where_nobody_can_say_what_it_committed() {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    cluster.until("everybody knows", |cluster| (0..3).all(|node| cluster.knows(node, "t")));
    let leads = cluster.leader(VNODE).unwrap();
    let alone = (leads + 1) % 3;
    cluster.cut_off(alone);
    cluster.pump();
    assert_eq!(values(cluster.ask(alone, Request::Fetch(of_group()))), [""; 0]);
}
