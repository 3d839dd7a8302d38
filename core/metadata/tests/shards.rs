//! Several vnodes on a ring, which is cut finer and finer while topics come and change: P-4 and P-5.
//!
//! The ring has 32 places, each a 32nd of the hashes. The procedure that adds a vnode is the short form of the
//! real one: narrow the arc, fence, copy, remove, widen; it may stop behind any of its commands and is then
//! done again from the start.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use bytes::Bytes;
use malachi_metadata::vnode::{
    Command, CreateTopic, Migration, MigrationId, Refusal, Reply, RingArc, SetArc, Share, Vnode,
};
use proptest::prelude::*;
use types::keyspace::KeyHash;
use types::{FenceToken, RangeId, TopicId, TopicName};

const PLACES: u32 = 32;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const LEASE: FenceToken = FenceToken(1);

/// Place of a name on the ring, from 0.
fn place(name: &str) -> u32 {
    KeyHash::Xxh32.of(name.as_bytes()) / (u32::MAX / PLACES + 1)
}

/// Last hash of a place.
fn end_of(token: u32) -> u32 {
    (token + 1).wrapping_mul(u32::MAX / PLACES + 1).wrapping_sub(1)
}

struct Ring {
    version: u64,
    /// By token.
    vnodes: BTreeMap<u32, Vnode>,
    drawn: u128,
}

fn run(vnode: &mut Vnode, command: &Command) -> Reply {
    vnode.apply(vnode.applied().next(), &command.encode())
}

impl Ring {
    fn new() -> Self {
        Self { version: 0, vnodes: BTreeMap::from([(0, Vnode::default())]), drawn: 0 }
    }

    /// The token whose vnode owns a place: the first at or behind it, round the end of the ring.
    fn route(&self, place: u32) -> u32 {
        let behind = self.vnodes.range(place..).next();
        *behind.or_else(|| self.vnodes.iter().next()).unwrap().0
    }

    fn owner(&mut self, name: &str) -> &mut Vnode {
        let token = self.route(place(name));
        self.vnodes.get_mut(&token).unwrap()
    }

    fn create(&mut self, name: &'static str) -> Reply {
        self.drawn += 1;
        let id = TopicId(self.drawn);
        let name_bytes = Bytes::from_static(name.as_bytes());
        let create = CreateTopic { name: name_bytes, id, keyspace_bits: 4, key_hash: 1 };
        run(self.owner(name), &Command::CreateTopic(create))
    }

    fn split(&mut self, name: &str, pick: usize) -> Option<Reply> {
        let vnode = self.owner(name);
        let (topic, _) = vnode.topic_by_name(&TopicName::new(name.as_bytes()).unwrap())?;
        let ranges: Vec<RangeId> = vnode.active_ranges_of(topic).map(|(id, _)| id).collect();
        let range = ranges[pick % ranges.len()];
        Some(run(vnode, &Command::SplitRange { range }))
    }

    /// Adds a vnode. Behind each command of the procedure `interrupted` is asked whether it stops there; then
    /// `meanwhile` looks at the two vnodes before it begins anew.
    fn add(&mut self, token: u32, mut interrupted: impl FnMut() -> bool, meanwhile: impl Fn(&Vnode, &Vnode)) {
        if self.vnodes.contains_key(&token) {
            return;
        }
        let owner = self.route(token);
        let before = self.vnodes.range(..token).next_back().or_else(|| self.vnodes.iter().next_back());
        let before = *before.unwrap().0;
        let mut from = self.vnodes.remove(&owner).unwrap();
        let mut to = Vnode::default();
        let (ring_version, id) = (self.version + 1, MigrationId(u128::from(self.version) + 1));
        let arc = |after, upto| Share::Arc(RingArc { after: end_of(after), upto: end_of(upto) });
        let narrowed = SetArc { ring_version, expected: from.arc(), arc: arc(token, owner), lease: LEASE };
        let widened = SetArc { ring_version, expected: to.arc(), arc: arc(before, token), lease: LEASE };
        let gained = RingArc { after: end_of(before), upto: end_of(token) };
        'anew: loop {
            let mut step = |vnode: &mut Vnode, command: &Command| {
                let reply = run(vnode, command);
                assert!(!matches!(reply, Reply::Refused(_)), "{command:?}: {reply:?}");
                interrupted()
            };
            let stopped = step(&mut from, &Command::SetArc(narrowed));
            meanwhile(&from, &to);
            if stopped {
                continue 'anew;
            }
            let moving = from
                .topics()
                .filter(|(_, topic)| gained.covers(KeyHash::Xxh32.of(topic.name.as_str().as_bytes())));
            let moving: Vec<TopicId> = moving.map(|(id, _)| id).collect();
            for &topic in &moving {
                let migration = Migration { topic, id, lease: LEASE };
                if step(&mut from, &Command::BeginMigration(migration)) {
                    continue 'anew;
                }
            }
            for &topic in &moving {
                let export = Box::new(from.export(topic).unwrap());
                let stopped = step(&mut to, &Command::InsertTopic { export, lease: LEASE });
                meanwhile(&from, &to);
                if stopped || step(&mut from, &Command::ExtractTopic(Migration { topic, id, lease: LEASE })) {
                    continue 'anew;
                }
                meanwhile(&from, &to);
            }
            if !step(&mut to, &Command::SetArc(widened)) {
                break;
            }
        }
        self.version = ring_version;
        self.vnodes.insert(owner, from);
        self.vnodes.insert(token, to);
    }

    /// P-4: a topic is where its name leads and nowhere else, and its ranges tile its keyspace.
    fn check(&self, created: &[&str]) {
        for name in created {
            let topic_name = TopicName::new(name.as_bytes()).unwrap();
            for (token, vnode) in &self.vnodes {
                let is_home = *token == self.route(place(name));
                assert_eq!(vnode.owns(&topic_name), is_home, "{name} on {token}");
                assert_eq!(vnode.topic_by_name(&topic_name).is_some(), is_home, "{name} on {token}");
                assert_eq!(vnode.migrating().count(), 0);
            }
        }
        for vnode in self.vnodes.values() {
            for (id, topic) in vnode.topics() {
                let mut end = 0;
                for (_, range) in vnode.active_ranges_of(id) {
                    assert_eq!(range.span.start(), end);
                    end = range.span.end();
                }
                assert_eq!(end, topic.keyspace.size());
            }
        }
    }
}

/// While a vnode is added every topic is on one of the two, or the same on both, and moves on neither.
fn look_meanwhile(from: &Vnode, to: &Vnode, names: &[&str]) {
    for name in names {
        let name = TopicName::new(name.as_bytes()).unwrap();
        let both = from.topic_by_name(&name).zip(to.topic_by_name(&name));
        if let Some(((id, _), _)) = both {
            assert_eq!(from.export(id), to.export(id));
        }
        for vnode in [from, to] {
            let Some((topic, _)) = vnode.topic_by_name(&name).filter(|_| !vnode.owns(&name)) else {
                continue;
            };
            let mut vnode = vnode.clone();
            let refused = run(&mut vnode, &Command::DeleteTopic { topic });
            assert_eq!(refused, Reply::Refused(Refusal::NotOwner));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Split(usize, usize),
    Add(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..NAMES.len()).prop_map(Step::Create),
        (0..NAMES.len(), 0..100_usize).prop_map(|(name, pick)| Step::Split(name, pick)),
        (0..PLACES).prop_map(Step::Add),
    ];
    prop::collection::vec(step, 1..40)
}

/// Bit `n` of `stops` says whether the `n`-th command of a procedure is the last before it begins anew.
fn live(steps: &[Step], stops: &[bool]) -> Ring {
    let mut ring = Ring::new();
    let mut created = Vec::new();
    let mut stops = stops.iter().copied();
    for step in steps {
        match step {
            Step::Create(name) => {
                let name = NAMES[*name];
                if let Reply::TopicCreated { .. } = ring.create(name) {
                    created.push(name);
                } else {
                    assert!(created.contains(&name));
                }
            }
            Step::Split(name, pick) => {
                let reply = ring.split(NAMES[*name], *pick);
                assert_eq!(reply.is_some(), created.contains(&NAMES[*name]));
            }
            Step::Add(token) => {
                let names = created.clone();
                let meanwhile = |from: &Vnode, to: &Vnode| look_meanwhile(from, to, &names);
                ring.add(*token, || stops.next().unwrap_or(false), meanwhile);
            }
        }
        ring.check(&created);
    }
    ring
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_topic_is_where_its_name_leads(
        steps in steps(),
        stops in prop::collection::vec(any::<bool>(), 0..40),
    ) {
        let ring = live(&steps, &stops);
        let again = live(&steps, &stops);
        let bytes = |ring: &Ring| {
            ring.vnodes.iter().map(|(token, vnode)| (*token, vnode.encode_snapshot())).collect::<Vec<_>>()
        };
        prop_assert_eq!(bytes(&ring), bytes(&again));
        // Stopping and beginning anew leaves nothing behind but a longer log.
        let straight = live(&steps, &[]);
        for (token, vnode) in &ring.vnodes {
            let smooth = &straight.vnodes[token];
            prop_assert_eq!(vnode.overview(), smooth.overview());
            for (id, _) in vnode.topics() {
                prop_assert_eq!(vnode.export(id), smooth.export(id));
            }
        }
    }
}
