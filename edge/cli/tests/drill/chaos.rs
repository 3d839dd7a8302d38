//! Processes that are killed, stand still and are started anew; links that are cut.

use std::time::{Duration, Instant};

use super::load::Load;
use super::rig::{RECOVERY, Rig};
use super::{Asked, Random, let_be, say, settled_within};

/// What is done to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A node loses its power, and is started again after a while.
    Kill,
    /// A node stands still: its connections are there, and nothing answers.
    Freeze,
    /// A node reaches no other and none reaches it; clients reach it.
    Unplug,
    /// One node does not reach one other, which reaches it.
    OneWay,
    /// Two nodes lose their power at once: no quorum is left for a while.
    KillTwo,
    /// Every node is stopped in order and started again, one after the other.
    Roll,
}

const ALL: [Event; 6] =
    [Event::Kill, Event::Freeze, Event::Unplug, Event::OneWay, Event::KillTwo, Event::Roll];

pub(crate) fn run(asked: Asked) {
    let mut random = Random::new(asked.seed);
    let mut rig = Rig::start(&[], None);
    let load = rig.load();
    let began = Instant::now();
    // Each once, then whatever comes while there is time.
    let mut events = ALL.to_vec();
    random.shuffle(&mut events);
    say(&format!("chaos drill, DRILL_SEED={}: {events:?} first", asked.seed));
    let mut events = events.into_iter();
    while let Some(event) =
        events.next().or_else(|| (began.elapsed() < asked.lasting).then(|| ALL[random.below(5)]))
    {
        let_be(random.between(300, 1500));
        load.longest_pause();
        load.be_strict(false);
        let target = match random.below(3) {
            0 => rig.leader(),
            1 => rig.busiest(),
            _ => random.below(3),
        };
        event.happen(&mut rig, &load, target, &mut random);
        load.be_strict(true);
    }
    rig.close(load, "Chaos", asked);
}

impl Event {
    fn happen(self, rig: &mut Rig, load: &Load, target: usize, random: &mut Random) {
        let other = (target + 1 + random.below(2)) % 3;
        let [name, other_name] = [target, other].map(|at| rig.nodes[at].name);
        let lasting = random.between(1000, 7000);
        let began = Instant::now();
        let what = match self {
            Self::Kill => {
                rig.kill(target);
                serves_while(load, lasting, "a node is gone");
                rig.start_node(target);
                format!("{name} killed")
            }
            Self::Freeze => {
                rig.freeze(target);
                serves_while(load, lasting, "a node stands still");
                rig.thaw(target);
                format!("{name} stands still")
            }
            Self::Unplug => {
                rig.hosts.plug(target, false);
                serves_while(load, lasting, "a node is cut off");
                rig.hosts.plug(target, true);
                format!("{name} cut off")
            }
            Self::OneWay => {
                rig.hosts.cut_way(target, other);
                serves_while(load, lasting, "a link carries one way alone");
                rig.hosts.mend(target, other);
                format!("{name} not heard by {other_name}")
            }
            Self::KillTwo => {
                rig.kill(target);
                rig.kill(other);
                let_be(lasting / 4);
                rig.start_nodes(&[target, other]);
                format!("{name} and {other_name} killed")
            }
            Self::Roll => {
                for at in 0..3 {
                    let began = Instant::now();
                    rig.stop(at);
                    let_be(random.between(200, 1000));
                    rig.start_node(at);
                    let what = format!("{} restarted", rig.nodes[at].name);
                    rig.recovered(load, what, began.elapsed(), Duration::ZERO);
                }
                return;
            }
        };
        rig.recovered(load, what, began.elapsed(), Duration::ZERO);
    }
}

/// Lets it last, and longer until every topic takes records of somebody in spite of it.
#[track_caller]
fn serves_while(load: &Load, lasting: Duration, what: &str) {
    // What was under way is answered at first by whoever is still there.
    let_be(lasting);
    let before = load.confirmed();
    let took = settled_within(RECOVERY, || load.waits_since(&before));
    took.unwrap_or_else(|topic| panic!("while {what}, {topic} takes no records"));
}
