//! Random histories, step by step against the naive machine: P-1, P-2, P-3, P-28 and P-29.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::checks::{check, check_step};
use super::naive_reply;
use super::steps::{Aside, Step, a_history, entry_of};
use super::view::{Answer, Naive, observe_export};
use super::*;
use crate::machine::Envelope;

/// The command in an entry, as far as it is one of this version.
fn command_in(entry: &Bytes) -> Result<Command, Refusal> {
    let envelope = Envelope::decode(entry).map_err(|_| Refusal::UnknownCommand)?;
    if envelope.version > Version(1) { Err(Refusal::UnknownCommand) } else { Command::decode(envelope) }
}

/// What the naive machine makes of an entry.
fn follow(naive: &mut Naive, entry: &Bytes) -> (Answer, bool, bool) {
    match command_in(entry) {
        Err(refusal) => (Answer::Reply(Reply::Refused(refusal)), false, false),
        Ok(command) => {
            let mut exported = None;
            if let Command::InsertTopic { export, .. } = &command {
                exported = Some(observe_export(export));
            }
            let moves = matches!(command, Command::InsertTopic { .. } | Command::ExtractTopic(_));
            let forgets = matches!(command, Command::ExpireGroup(_));
            (naive.apply(&command, exported.as_ref()), moves, forgets)
        }
    }
}

fn run_history(steps: &[Step]) -> (Vnode, Vec<Bytes>) {
    let (mut vnode, mut naive, mut aside) = (Vnode::default(), Naive::default(), Aside::default());
    let mut entries = Vec::new();
    for step in steps {
        let Some(entry) = entry_of(step, &vnode, &mut aside) else { continue };
        let mut before = vnode.clone();
        let expected_before = naive.clone();
        let reply = vnode.apply(vnode.applied().next(), &entry);
        let (answer, moves, forgets) = follow(&mut naive, &entry);
        assert_eq!(naive_reply(&reply), answer, "to {:?}", command_in(&entry));
        if matches!(reply, Reply::Refused(_)) {
            before.applied = vnode.applied;
            assert_eq!(vnode, before, "a refusal leaves the state identical");
        }
        check(&vnode, &naive);
        check_step(&expected_before, &naive, moves, forgets);
        entries.push(entry);
    }
    (vnode, entries)
}

/// What a machine answered, in a word for each outcome.
fn outcomes(reply: &Reply) -> Vec<String> {
    let word =
        |answer: &Result<(), Refusal>| answer.map_or_else(|refusal| refusal.to_string(), |()| "ok".into());
    if let Reply::PositionsCommitted(answers) = reply {
        return answers.iter().map(word).collect();
    }
    if let Reply::Refused(refusal) = reply {
        return vec![refusal.to_string()];
    }
    vec![format!("{reply:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap().into()]
}

/// A checker that never sees the rare cases proves nothing about them.
#[test]
fn histories_get_to_every_answer() {
    let mut runner = TestRunner::deterministic();
    let strategy = a_history(90..100);
    let mut seen = BTreeMap::new();
    let mut most_ancestors = 0;
    for _ in 0..300 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let (mut vnode, mut aside) = (Vnode::default(), Aside::default());
        for step in &steps {
            let Some(entry) = entry_of(step, &vnode, &mut aside) else { continue };
            for outcome in outcomes(&vnode.apply(vnode.applied().next(), &entry)) {
                *seen.entry(outcome).or_insert(0) += 1;
            }
        }
        let ancestors = vnode.tables.ranges.iter().map(|(id, _)| vnode.ancestor_count(id)).max();
        most_ancestors = most_ancestors.max(ancestors.unwrap_or(0));
    }
    let expected = "
        TopicCreated TopicSealed TopicDeleted RangeSplit RangesMerged SegmentRegistered SegmentSealed
        SegmentDeleted ReplicasSet PolicyBound ok GroupExpired MigrationBegun MigrationEnded
        TopicExtracted TopicInserted ArcSet Upgraded
        unknown_command not_owner migrating invalid_topic_name already_exists invalid_keyspace_bits
        no_such_topic invalid_policy sealed cannot_split different_topic not_buddies invalid_segment_id
        invalid_replica_set stale_replica_set range_has_active_segment offset_mismatch already_sealed
        segment_active segment_not_oldest no_such_group group_not_idle invalid_position not_fenced
        stale_export stale_ring stale_fence";
    for outcome in expected.split_whitespace() {
        let times = seen.get(outcome).copied().unwrap_or(0);
        assert!(times >= 10, "{outcome} came up {times} times: {seen:#?}");
    }
    assert!(most_ancestors >= 12, "ranges had {most_ancestors} ancestors at most");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_do_what_the_naive_machine_does(
        steps in a_history(1..100),
        cut in any::<prop::sample::Index>(),
    ) {
        let (vnode, entries) = run_history(&steps);
        // The same log gives the same bytes, also across a snapshot taken anywhere.
        let cut = cut.index(entries.len() + 1);
        let mut other = Vnode::default();
        for (at, entry) in entries.iter().enumerate() {
            if at == cut {
                other = Vnode::decode_snapshot(other.encode_snapshot()).unwrap();
            }
            other.apply(RaftIndex(at as u64 + 1), entry);
        }
        prop_assert_eq!(other.encode_snapshot(), vnode.encode_snapshot());
        prop_assert_eq!(other.state_hash(), vnode.state_hash());
    }

    // M-12: whatever a topic went through, it goes into another vnode as it came out, and its encoding too.
    #[test]
    fn a_topic_goes_in_as_it_came_out(steps in a_history(30..100)) {
        let (mut vnode, _) = run_history(&steps);
        let topics: Vec<TopicId> = vnode.topics().map(|(id, _)| id).collect();
        let lease = FenceToken(9);
        for topic in topics {
            let id = vnode.migration_of(topic).unwrap_or(MigrationId(7));
            run(&mut vnode, &Command::BeginMigration(Migration { topic, id, lease }));
            let export = vnode.export(topic).unwrap();
            prop_assert_eq!(Export::decode(export.encode()), Ok(export.clone()));
            let insert = Command::InsertTopic { export: Box::new(export.clone()), lease };
            let mut other = Vnode::default();
            for _ in 0..2 {
                prop_assert_eq!(run(&mut other, &insert), Reply::TopicInserted);
                prop_assert_eq!(other.export(topic), Some(export.clone()));
            }
            let extracted = run(&mut vnode, &Command::ExtractTopic(Migration { topic, id, lease }));
            prop_assert_eq!(extracted, Reply::TopicExtracted(Some(Box::new(export))));
            prop_assert_eq!(vnode.export(topic), None);
        }
        prop_assert_eq!(vnode.tables, Vnode::default().tables);
    }
}

proptest! {
    #[test]
    fn commands_come_back(steps in a_history(1..40)) {
        let (mut vnode, mut aside) = (Vnode::default(), Aside::default());
        for step in &steps {
            let Some(entry) = entry_of(step, &vnode, &mut aside) else { continue };
            if let Ok(command) = command_in(&entry) {
                prop_assert_eq!(command.encode(), entry.clone());
            }
            vnode.apply(vnode.applied().next(), &entry);
        }
    }
}
