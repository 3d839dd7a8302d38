//! Storage policies: who may define and bind them, what is refused, what is told of them.

use metadata::cluster::{Policy, Setting};

use super::*;
use crate::action::{Effective, Source, TopicPolicy};
use crate::event::Policies;

fn policies(request: Policies) -> Request {
    Request::Policies(request)
}

pub(super) fn define(named: &'static str, policy: Policy) -> Request {
    policies(Policies::Define { name: name(named).unwrap(), policy })
}

pub(super) fn bind(topic: &'static str, named: Option<&'static str>) -> Request {
    policies(Policies::Bind { topic: name(topic), name: named.and_then(name) })
}

fn delete(named: &'static str, force: bool) -> Request {
    policies(Policies::Delete { name: name(named).unwrap(), force })
}

fn get(bench: &mut Bench, topic: &'static str) -> TopicPolicy {
    match bench.ask(policies(Policies::Get { topic: name(topic) })) {
        Reply::Policy(policy) => *policy,
        reply => panic!("{reply:?}"),
    }
}

fn of<T>(value: Option<T>, source: Source) -> Effective<T> {
    Effective { value, source }
}

#[test]
fn a_topic_is_bound_to_what_is_defined_and_shows_it() {
    let mut bench = Bench::with(|config| {
        config.retention.bytes_max = Some(7);
        config.placement.spread_by = Some("zone".into());
    });
    assert_eq!(bench.ask(create("t")), Reply::Created);
    let plain = get(&mut bench, "t");
    assert_eq!((plain.name, plain.is_defined), (None, false));
    assert_eq!(plain.age_ms_max, of(None, Source::Default));
    assert_eq!(plain.bytes_max, of(Some(7), Source::Default));
    assert_eq!(plain.spread_by, of(Some("zone".into()), Source::Default));

    assert_eq!(bench.ask(bind("t", Some("p"))), failed(Reason::NoSuchPolicy));
    assert_eq!(bench.ask(bind("t", Some(""))), failed(Reason::NoSuchPolicy));
    assert_eq!(bench.ask(bind("u", None)), failed(Reason::NoSuchTopic));
    let policy = Policy {
        age_ms_max: Setting::Value(5),
        bytes_max: Setting::Off,
        spread_by: Setting::Value("rack".into()),
        ..Policy::default()
    };
    assert_eq!(bench.ask(define("p", policy.clone())), Reply::Done);
    assert_eq!(bench.ask(bind("t", Some("p"))), Reply::Done);
    bench.restart();
    let bound = get(&mut bench, "t");
    assert_eq!((bound.name.as_deref(), bound.is_defined), (Some("p"), true));
    assert_eq!(bound.age_ms_max, of(Some(5), Source::Policy));
    assert_eq!(bound.bytes_max, of(None, Source::Policy));
    assert_eq!(bound.unread_age_ms_max, of(None, Source::Default));
    assert_eq!(bound.spread_by, of(Some("rack".into()), Source::Policy));
    assert_eq!(bench.ask(policies(Policies::List)), Reply::Policies(vec![("p".to_owned(), policy)]));

    assert_eq!(bench.ask(delete("q", true)), failed(Reason::NoSuchPolicy));
    assert_eq!(bench.ask(delete("p", false)), failed(Reason::PolicyInUse));
    assert_eq!(bench.ask(delete("p", true)), Reply::Done);
    let left = get(&mut bench, "t");
    assert_eq!((left.name.as_deref(), left.is_defined), (Some("p"), false));
    assert_eq!(left.bytes_max, of(None, Source::Undefined), "it keeps everything");
    assert_eq!(bench.ask(bind("t", None)), Reply::Done);
    assert_eq!(get(&mut bench, "t").bytes_max, of(Some(7), Source::Default));
    assert_eq!(bench.ask(define("p", Policy::default())), Reply::Done);
    assert_eq!(bench.ask(delete("p", false)), Reply::Done, "nobody points at it");
}

#[test]
fn what_is_no_policy_is_refused_before_anything_is_proposed() {
    let mut bench = Bench::with_topic();
    let before = bench.node.core.meta.cluster().applied();
    let endless = Policy { read_age_ms_max: Setting::Value(0), ..Policy::default() };
    let nowhere = Policy { spread_by: Setting::Value("".into()), ..Policy::default() };
    for request in [define("p", endless), define("p", nowhere), define("", Policy::default())] {
        assert_eq!(bench.ask(request), failed(Reason::InvalidPolicy));
    }
    for request in [
        define("p", Policy::default()),
        delete("p", true),
        bind("t", None),
        policies(Policies::Get { topic: name("t") }),
        policies(Policies::List),
    ] {
        assert_eq!(bench.ask_as(NOBODY, request), failed(Reason::PermissionDenied));
    }
    assert_eq!(bench.node.core.meta.cluster().applied(), before);
    assert_eq!(bench.ask(policies(Policies::List)), Reply::Policies(Vec::new()));
}
