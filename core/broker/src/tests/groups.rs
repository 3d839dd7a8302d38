//! Members share a topic's ranges, and lose nothing and repeat nothing when the shares change.

use super::*;

fn four_ranges() -> Bench {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(split(0)), Reply::Split { left: 1, right: 2 });
    assert_eq!(bench.ask(split(1)), Reply::Split { left: 3, right: 4 });
    assert_eq!(bench.ask(split(2)), Reply::Split { left: 5, right: 6 });
    bench
}

fn produce_many(bench: &mut Bench, from: usize, count: usize) {
    let keys: Vec<(String, String)> =
        (from..from + count).map(|n| (format!("k{n}"), n.to_string())).collect();
    let records: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(bench.ask(produce_keyed("t", &records)), Reply::Stored(u32::try_from(count).unwrap()));
}

fn as_member(who: &'static str) -> Fetch {
    Fetch { group: name("g"), member: name(who), max: 1000, ..fetch("t") }
}

#[test]
fn members_share_the_records_and_each_gets_its_own() {
    let mut bench = four_ranges();
    bench.page(as_member("a"));
    bench.page(as_member("b"));
    produce_many(&mut bench, 0, 100);
    let (a, b) = (bench.page(as_member("a")), bench.page(as_member("b")));
    assert!(!a.values.is_empty() && !b.values.is_empty(), "{} and {}", a.values.len(), b.values.len());
    let mut all: Vec<String> = a.values.iter().chain(&b.values).cloned().collect();
    all.sort_by_key(|value| value.parse::<usize>().unwrap());
    assert_eq!(all, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    for page in [&a, &b] {
        assert_eq!(bench.ask(commit("t", "g", &page.cursor)), Reply::Committed);
    }
    assert_eq!(bench.page(as_member("a")).values, [""; 0]);
    // One leaves: the other goes on where it was, in everything.
    assert_eq!(bench.ask(Request::LeaveGroup(member("g", "b"))), Reply::Left);
    produce_many(&mut bench, 100, 50);
    assert_eq!(bench.page(as_member("a")).values.len(), 50);
}

#[test]
fn a_cursor_moves_nothing_that_changed_hands_since() {
    let mut bench = four_ranges();
    bench.page(as_member("a"));
    produce_many(&mut bench, 0, 100);
    let everything = bench.page(as_member("a"));
    assert_eq!(everything.values.len(), 100);
    let b = bench.page(as_member("b"));
    assert!(!b.values.is_empty());
    assert_eq!(bench.ask(commit("t", "g", &everything.cursor)), Reply::Committed);
    assert_eq!(bench.page(as_member("a")).values, [""; 0], "what stayed a's is committed");
    assert_eq!(bench.page(as_member("b")).values, b.values, "what is b's now is not");
    assert_eq!(bench.ask(commit("t", "g", &b.cursor)), Reply::Committed);
    assert_eq!(bench.page(as_member("b")).values, [""; 0]);
}

#[test]
fn silent_members_go_and_waiting_ones_stay() {
    let mut bench = four_ranges();
    bench.page(as_member("a"));
    let waiting = bench.send(Request::Fetch(Fetch { wait_ms: 30_000, ..as_member("b") }));
    bench.settle();
    bench.pass(Duration::from_secs(25));
    assert_eq!(bench.node.gauges().groups, (1, 2));
    bench.pass(Duration::from_secs(20));
    assert!(bench.reply(waiting).is_some());
    assert_eq!(bench.node.gauges().groups, (1, 1), "a was silent for 45 s, b for 15");
    produce_many(&mut bench, 0, 40);
    assert_eq!(bench.page(as_member("b")).values.len(), 40);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.node.gauges().groups, (0, 0));
}

#[test]
fn a_waiting_member_gets_what_a_leaving_one_had() {
    let mut bench = four_ranges();
    bench.page(as_member("a"));
    bench.page(as_member("b"));
    produce_many(&mut bench, 0, 60);
    let b = bench.page(as_member("b"));
    bench.ask(commit("t", "g", &b.cursor));
    let waiting = bench.send(Request::Fetch(Fetch { wait_ms: 9000, ..as_member("b") }));
    bench.settle();
    assert_eq!(bench.reply(waiting), None);
    assert_eq!(bench.ask(Request::LeaveGroup(member("g", "a"))), Reply::Left);
    let Some(Reply::Fetched(fetched)) = bench.reply(waiting) else { panic!("still waiting") };
    assert_eq!(Page::of(fetched).values.len() + b.values.len(), 60);
}

#[test]
fn members_keep_their_place_through_splits_and_merges() {
    let mut bench = four_ranges();
    for who in ["a", "b", "c"] {
        bench.page(as_member(who));
    }
    let mut got = Vec::new();
    let mut next = 7;
    for round in 0..12 {
        produce_many(&mut bench, round * 20, 20);
        match round % 3 {
            0 => {
                assert_eq!(
                    bench.ask(split(3)),
                    if round == 0 { Reply::Split { left: 7, right: 8 } } else { failed(Reason::Sealed) }
                );
            }
            1 => {
                let reply = bench.ask(merge(next, next + 1));
                if let Reply::Merged { child } = reply {
                    let Reply::Split { left, .. } = bench.ask(split(child)) else { panic!() };
                    next = left;
                }
            }
            _ => bench.restart(),
        }
        for who in ["a", "b", "c"] {
            let page = bench.page(Fetch { max: 9, ..as_member(who) });
            got.extend(page.values);
            assert_eq!(bench.ask(commit("t", "g", &page.cursor)), Reply::Committed);
        }
    }
    // The shares settle only after the three are back: until then two may be given the same record.
    for _ in 0..40 {
        for who in ["a", "b", "c"] {
            let page = bench.page(as_member(who));
            got.extend(page.values);
            bench.ask(commit("t", "g", &page.cursor));
        }
    }
    let mut numbers: Vec<usize> = got.iter().map(|value| value.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..240).collect::<Vec<_>>(), "nothing is skipped");
    let group = bench.ask(Request::Admin(Admin::DescribeGroup { topic: name("t"), group: name("g") }));
    let Reply::Group(info) = group else { panic!("{group:?}") };
    assert_eq!((info.members.len(), info.lag), (3, 0));
}
