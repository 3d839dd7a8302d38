//! Members of a group share a topic wherever they are connected, through everything that happens to them, to their
//! nodes and to the coordinator.

use super::*;

/// Three nodes with a topic `t` of four ranges.
fn begun() -> Cluster {
    let mut cluster = Cluster::of(3);
    assert_eq!(cluster.ask(0, create("t")), Reply::Created);
    for range in 0..3 {
        assert!(matches!(cluster.ask(0, split(range)), Reply::Split { .. }));
    }
    cluster.until("everybody knows", |cluster| (0..3).all(|node| ranges(cluster, node) == 4));
    // Until the leaders are where they shall be.
    cluster.pass(Duration::from_secs(15));
    cluster
}

/// The node that leads the vnode of the topic, as every node that is connected to others has it.
fn coordinator(cluster: &Cluster) -> usize {
    cluster.leader(home(cluster)).unwrap()
}

fn home(cluster: &Cluster) -> types::VnodeId {
    cluster.nodes[0].node.core.meta.home_of(&TopicName::new(b"t").unwrap())
}

/// How many ranges of it take records, as a node has them in its tables.
fn ranges(cluster: &Cluster, node: usize) -> usize {
    let meta = &cluster.nodes[node].node.core.meta;
    let name = TopicName::new(b"t").unwrap();
    let Some((topic, _)) = meta.topic_by_name(&name) else { return 0 };
    meta.of(topic).leaf_ranges_of(topic).count()
}

fn as_member(who: &'static str) -> Fetch {
    Fetch { group: name("g"), member: name(who), max: 1000, ..fetch("t") }
}

fn put(cluster: &mut Cluster, node: usize, numbers: std::ops::Range<usize>) {
    let keys: Vec<(String, String)> = numbers.map(|n| (format!("k{n}"), n.to_string())).collect();
    let records: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (&**key, &**value)).collect();
    let count = u32::try_from(records.len()).unwrap();
    assert_eq!(cluster.ask(node, produce_keyed("t", &records)), Reply::Stored(count));
}

/// What a member is given. A client comes again when it is told that there is no coordinator at the moment.
fn page(cluster: &mut Cluster, node: usize, request: &Fetch) -> Page {
    for _ in 0..100 {
        match cluster.ask(node, Request::Fetch(request.clone())) {
            Reply::Fetched(fetched) => return Page::of(fetched),
            Reply::Failed(Reason::NotOwner | Reason::Unavailable) => {
                cluster.pass(Duration::from_millis(200));
            }
            reply => panic!("{reply:?}"),
        }
    }
    panic!("nobody coordinates");
}

fn store(cluster: &mut Cluster, node: usize, cursor: &Bytes) {
    for _ in 0..100 {
        match cluster.ask(node, commit("t", "g", cursor)) {
            Reply::Committed => return,
            Reply::Failed(Reason::NotOwner | Reason::Unavailable | Reason::Timeout) => {
                cluster.pass(Duration::from_millis(200));
            }
            reply => panic!("{reply:?}"),
        }
    }
    panic!("nobody commits");
}

/// Lets them join, and everybody hear of it.
fn join(cluster: &mut Cluster, members: &[(usize, &'static str)]) {
    for (node, who) in members {
        page(cluster, *node, &as_member(who));
    }
    settled(cluster);
}

fn settled(cluster: &mut Cluster) {
    cluster.pass(Duration::from_millis(500));
}

/// What is given to two members that commit nothing, in an order of no consequence.
fn given(cluster: &mut Cluster, [one, other]: [(usize, &'static str); 2]) -> [Vec<usize>; 2] {
    [one, other].map(|(node, who)| numbers(&[page(cluster, node, &as_member(who))]))
}

fn numbers(pages: &[Page]) -> Vec<usize> {
    let values = pages.iter().flat_map(|page| &page.values);
    let mut numbers: Vec<usize> = values.map(|value| value.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Each member is given what is there and commits it.
fn round(cluster: &mut Cluster, members: &[(usize, &'static str)]) -> Vec<Page> {
    let read = members.iter().map(|(node, who)| {
        let page = page(cluster, *node, &as_member(who));
        store(cluster, *node, &page.cursor);
        page
    });
    read.collect()
}

const EVERYWHERE: [(usize, &str); 6] = [(0, "a"), (1, "b"), (2, "c"), (0, "d"), (1, "e"), (2, "f")];

#[test]
fn members_on_three_nodes_share_the_records_and_each_gets_its_own() {
    let mut cluster = begun();
    join(&mut cluster, &EVERYWHERE);
    for turn in 0..3 {
        put(&mut cluster, turn, turn * 60..turn * 60 + 60);
        let pages = round(&mut cluster, &EVERYWHERE);
        assert_eq!(numbers(&pages), (turn * 60..turn * 60 + 60).collect::<Vec<_>>(), "each one once");
        assert!(pages.iter().filter(|page| !page.values.is_empty()).count() >= 2, "several read");
        // What was committed is not given again, whichever node is asked.
        assert_eq!(numbers(&round(&mut cluster, &EVERYWHERE)), [0; 0]);
    }
    let leader = coordinator(&cluster);
    let coordinated = |node: usize| cluster.nodes[node].node.gauges().groups;
    assert_eq!(
        [0, 1, 2].map(coordinated),
        [0, 1, 2].map(|node| if node == leader { (1, 6) } else { (0, 0) })
    );
}

#[test]
fn anybody_may_ask_who_the_members_are() {
    let mut cluster = begun();
    join(&mut cluster, &EVERYWHERE);
    put(&mut cluster, 0, 0..9);
    for node in 0..3 {
        let describe = Request::Admin(Admin::DescribeGroup { topic: name("t"), group: name("g") });
        let Reply::Group(info) = cluster.ask(node, describe) else { panic!("no group") };
        let names: Vec<&[u8]> = info.members.iter().map(|member| &member.name[..]).collect();
        assert_eq!(names, [b"a", b"b", b"c", b"d", b"e", b"f"]);
        assert_eq!(info.members.iter().map(|member| member.ranges).sum::<u32>(), 4);
    }
}

#[test]
fn whoever_waits_is_given_what_one_that_leaves_elsewhere_had() {
    let mut cluster = begun();
    join(&mut cluster, &[(0, "a"), (1, "b"), (2, "c")]);
    put(&mut cluster, 0, 0..90);
    let mut read = Vec::new();
    read.extend(round(&mut cluster, &[(0, "a"), (2, "c")]));
    let waiting: Vec<_> = [(0, "a"), (2, "c")]
        .map(|(node, who)| {
            let request = Fetch { wait_ms: 20_000, ..as_member(who) };
            (node, cluster.nodes[node].send(Request::Fetch(request)))
        })
        .into();
    cluster.pump();
    settled(&mut cluster);
    // By name, at a node it never was on.
    assert_eq!(cluster.ask(2, Request::LeaveGroup(member("g", "b"))), Reply::Left);
    settled(&mut cluster);
    for (node, id) in waiting {
        if let Some(Reply::Fetched(fetched)) = cluster.nodes[node].reply(id) {
            read.push(Page::of(fetched));
        }
    }
    assert_eq!(numbers(&read), (0..90).collect::<Vec<_>>());
}

#[test]
fn a_share_of_the_past_commits_nothing_that_changed_hands() {
    let mut cluster = begun();
    join(&mut cluster, &[(1, "a")]);
    put(&mut cluster, 0, 0..100);
    let everything = page(&mut cluster, 1, &as_member("a"));
    assert_eq!(everything.values.len(), 100);
    join(&mut cluster, &[(2, "b"), (0, "c")]);
    let theirs = given(&mut cluster, [(2, "b"), (0, "c")]);
    assert!(theirs.iter().map(Vec::len).sum::<usize>() > 0);
    // Whichever node the old cursor comes to.
    for node in 0..3 {
        store(&mut cluster, node, &everything.cursor);
        assert_eq!(page(&mut cluster, 1, &as_member("a")).values, [""; 0], "what stayed a's is committed");
        assert_eq!(given(&mut cluster, [(2, "b"), (0, "c")]), theirs, "what is theirs now is not");
    }
}

#[test]
fn what_a_member_had_whose_node_is_gone_is_read_by_others() {
    let mut cluster = begun();
    let leader = coordinator(&cluster);
    let (gone, other) = ((leader + 1) % 3, (leader + 2) % 3);
    join(&mut cluster, &[(leader, "a"), (gone, "b"), (gone, "c"), (other, "d")]);
    put(&mut cluster, leader, 0..80);
    cluster.cut_off(gone);
    let stay = [(leader, "a"), (other, "d")];
    let mut read = Vec::new();
    for _ in 0..25 {
        read.extend(round(&mut cluster, &stay));
        cluster.pass(Duration::from_secs(2));
    }
    assert_eq!(numbers(&read), (0..80).collect::<Vec<_>>(), "once each, all of them");
    // The node that is cut off gives nothing by shares that are somebody else's by now.
    let asked = cluster.ask(gone, Request::Fetch(as_member("b")));
    assert_eq!(asked, Reply::Failed(Reason::NotOwner));
    assert_eq!(cluster.ask(gone, Request::LeaveGroup(member("g", "b"))), Reply::Left);
}

#[test]
fn another_coordinator_goes_on_with_the_members_that_are_there() {
    let mut cluster = begun();
    let leader = coordinator(&cluster);
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    let stay = [(others[0], "a"), (others[1], "b"), (others[0], "d"), (others[1], "e")];
    join(&mut cluster, &stay);
    put(&mut cluster, others[0], 0..60);
    let before = page(&mut cluster, others[0], &as_member("a"));
    cluster.restart(leader);
    let mut read = round(&mut cluster, &stay);
    for _ in 0..10 {
        read.extend(round(&mut cluster, &stay));
        cluster.pass(Duration::from_secs(1));
    }
    let mut all = numbers(&read);
    all.dedup();
    assert_eq!(all, (0..60).collect::<Vec<_>>(), "nothing is lost");
    // A cursor of the time before, which the coordinator of then would have taken.
    store(&mut cluster, others[0], &before.cursor);
    assert_eq!(numbers(&round(&mut cluster, &stay)), [0; 0], "it moves nothing back");
    put(&mut cluster, others[1], 60..120);
    assert_eq!(numbers(&round(&mut cluster, &stay)), (60..120).collect::<Vec<_>>(), "each its own, again");
}

/// Whoever attends first at a new coordinator is not given everything: each goes on with what it had, so that nothing is
/// read twice, and one that comes new waits for a moment.
#[test]
fn a_new_coordinator_waits_for_the_members_there_are() {
    let mut cluster = begun();
    let leader = coordinator(&cluster);
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    let stay = [(others[0], "a"), (others[1], "b"), (others[0], "d"), (others[1], "e")];
    join(&mut cluster, &stay);
    cluster.cut_off(leader);
    cluster.until("another leads", |cluster| {
        others.iter().any(|node| cluster.nodes[*node].node.core.meta.leads(home(cluster)))
    });
    put(&mut cluster, others[0], 0..120);
    // One that nobody has heard of before comes first of all.
    let asked = cluster.nodes[others[0]].send(Request::Fetch(as_member("new")));
    cluster.pump();
    assert_eq!(cluster.nodes[others[0]].reply(asked), None, "it waits");
    let mut read = Vec::new();
    for _ in 0..40 {
        for (node, who) in stay {
            let page = page(&mut cluster, node, &as_member(who));
            store(&mut cluster, node, &page.cursor);
            read.push(page);
        }
        cluster.pass(Duration::from_millis(100));
    }
    let answer = cluster.nodes[others[0]].reply(asked);
    let Some(Reply::Fetched(fetched)) = answer else { panic!("{answer:?}") };
    read.push(Page::of(fetched));
    for _ in 0..3 {
        read.extend(round(&mut cluster, &stay));
        read.extend(round(&mut cluster, &[(others[0], "new")]));
    }
    assert_eq!(numbers(&read), (0..120).collect::<Vec<_>>(), "each once");
}

#[test]
fn a_coordinator_that_lost_the_lead_is_a_front_like_any_other() {
    let mut cluster = begun();
    join(&mut cluster, &EVERYWHERE);
    for turn in 0..3 {
        let leader = coordinator(&cluster);
        cluster.cut_off(leader);
        cluster.until("another leads", |cluster| {
            (0..3).any(|node| node != leader && cluster.nodes[node].node.core.meta.leads(home(cluster)))
        });
        cluster.connect_again(leader);
        cluster.until("one leads", |cluster| {
            (0..3).filter(|node| cluster.nodes[*node].node.core.meta.leads(home(cluster))).count() == 1
        });
        cluster.pass(Duration::from_secs(8));
        put(&mut cluster, turn, turn * 50..turn * 50 + 50);
        let read = round(&mut cluster, &EVERYWHERE);
        assert_eq!(numbers(&read), (turn * 50..turn * 50 + 50).collect::<Vec<_>>(), "turn {turn}");
    }
}

#[test]
fn members_keep_their_place_through_splits_and_merges() {
    let mut cluster = begun();
    join(&mut cluster, &EVERYWHERE);
    let mut read = Vec::new();
    let mut halves = None;
    for turn in 0..12 {
        put(&mut cluster, turn % 3, turn * 20..turn * 20 + 20);
        halves = match halves {
            None => match cluster.ask(turn % 3, split(3)) {
                Reply::Split { left, right } => Some((left, right)),
                reply => panic!("{reply:?}"),
            },
            Some((left, right)) => match cluster.ask(turn % 3, merge(left, right)) {
                Reply::Merged { child } => match cluster.ask((turn + 1) % 3, split(child)) {
                    Reply::Split { left, right } => Some((left, right)),
                    reply => panic!("{reply:?}"),
                },
                reply => panic!("{reply:?}"),
            },
        };
        read.extend(round(&mut cluster, &EVERYWHERE));
    }
    for _ in 0..20 {
        settled(&mut cluster);
        read.extend(round(&mut cluster, &EVERYWHERE));
    }
    let mut all = numbers(&read);
    all.dedup();
    assert_eq!(all, (0..240).collect::<Vec<_>>(), "nothing is lost");
}

#[test]
fn a_thousand_members_on_three_nodes_and_not_one_more() {
    let mut cluster = begun();
    let names: Vec<&'static str> = (0..1000).map(|n| &*Box::leak(format!("m{n}").into_boxed_str())).collect();
    let asked: Vec<_> = (0..)
        .zip(&names)
        .map(|(n, who)| (n % 3, cluster.nodes[n % 3].send(Request::Fetch(as_member(who)))))
        .collect();
    cluster.pass(Duration::from_secs(2));
    for (node, id) in asked {
        assert!(matches!(cluster.nodes[node].reply(id), Some(Reply::Fetched(_))));
    }
    let leader = coordinator(&cluster);
    assert_eq!(cluster.nodes[leader].node.gauges().groups, (1, 1000));
    for node in 0..3 {
        let one_more = cluster.ask(node, Request::Fetch(as_member("one more")));
        assert_eq!(one_more, Reply::Failed(Reason::Overloaded));
    }
    put(&mut cluster, 0, 0..40);
    let members: Vec<(usize, &'static str)> = (0..).zip(names).map(|(n, who)| (n % 3, who)).collect();
    let pages: Vec<Page> =
        members.iter().map(|(node, who)| page(&mut cluster, *node, &as_member(who))).collect();
    assert_eq!(numbers(&pages), (0..40).collect::<Vec<_>>());
    // Whom nobody hears any more is forgotten everywhere.
    cluster.pass(Duration::from_secs(80));
    assert_eq!(cluster.nodes[leader].node.gauges().groups, (0, 0));
}
