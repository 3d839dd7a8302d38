//! Answers one by one, and a primary, two sealers, crashes and hands on the disks, from one number.

use proptest::prelude::*;

use super::*;

fn node(at: usize) -> NodeId {
    NodeId(at as u128)
}

fn at(end: u64) -> Answer {
    fenced(end, Health::Open)
}

fn fenced(end: u64, health: Health) -> Answer {
    Answer::Fenced(standing(end, health))
}

fn standing(end: u64, health: Health) -> Standing {
    Standing { end: Offset(end), bytes: end * 10, epoch: Epoch(2), health }
}

fn sealing(n: usize) -> Sealing {
    let mut sealing = Sealing::new(Offset(0), (0..n).map(node).collect(), Epoch(2));
    assert_eq!(sealing.begin().len(), n);
    sealing
}

/// The end that is committed, or that nothing is, after these answers of copies 0, 1, ...
fn after(n: usize, answers: &[Answer]) -> Vec<Ask> {
    let mut sealing = sealing(n);
    let mut last = Vec::new();
    for (copy, answer) in answers.iter().enumerate() {
        last = sealing.answered(sealing.round(), node(copy), *answer);
        if *answer == Answer::Missing {
            assert_eq!(last, [Ask::Make { node: node(copy), epoch: Epoch(2) }]);
            last = sealing.answered(sealing.round(), node(copy), Answer::Made);
        }
    }
    last
}

fn end_of(asks: &[Ask]) -> Option<u64> {
    match asks {
        [Ask::Commit(verdict)] => Some(verdict.end.0),
        _ => None,
    }
}

fn gave_up(asks: &[Ask]) -> bool {
    matches!(asks, [Ask::GiveUp(_)])
}

#[test]
fn as_many_as_needed_are_waited_for_and_no_more() {
    assert_eq!(after(3, &[at(7)]), []);
    assert_eq!(end_of(&after(3, &[at(7), at(7)])), Some(7));
    assert_eq!(end_of(&after(2, &[at(7)])), Some(7), "every acknowledgement needed both");
    assert_eq!(after(5, &[at(7), at(7)]), []);
    assert_eq!(end_of(&after(5, &[at(7), at(7), at(7)])), Some(7));
    assert_eq!(end_of(&after(1, &[at(7)])), Some(7));
}

#[test]
fn with_patience_all_are_waited_for_until_it_ends() {
    let begun = || {
        let mut sealing = sealing(3).patient();
        assert_eq!(sealing.begin().len(), 3);
        let round = sealing.round();
        // The first was cut short unseen, and the second was behind.
        assert!(sealing.answered(round, node(0), fenced(5, Health::Open)).is_empty());
        assert!(sealing.answered(round, node(1), fenced(5, Health::Open)).is_empty());
        sealing
    };
    let mut sealing = begun();
    let round = sealing.round();
    let asks = sealing.answered(round, node(2), fenced(9, Health::Open));
    assert!(asks.iter().any(|ask| matches!(ask, Ask::Fill { end: Offset(9), .. })), "{asks:?}");
    let mut sealing = begun();
    let round = sealing.round();
    assert_eq!(end_of(&sealing.answered(round, node(2), Answer::Silent)), Some(5));
    assert_eq!(end_of(&begun().go_on()), Some(5));
}

#[test]
fn who_is_silent_or_damaged_does_not_count() {
    for answer in
        [Answer::Silent, Answer::Unreadable, fenced(9, Health::Damaged), fenced(9, Health::OutOfService)]
    {
        assert!(gave_up(&after(3, &[answer, at(7), Answer::Silent])));
        assert_eq!(end_of(&after(3, &[answer, at(7), at(7)])), Some(7));
    }
}

#[test]
fn those_that_are_short_are_filled_before_the_end_is_recorded() {
    let mut sealing = sealing(3);
    assert_eq!(sealing.answered(1, node(1), at(5)), []);
    let asks = sealing.answered(1, node(2), at(8));
    let [Ask::Fill { from, to, at, end, epoch: Epoch(2), round }] = asks[..] else { panic!("{asks:?}") };
    assert_eq!((from, to, at, end), (node(2), node(1), Offset(5), Offset(8)));
    assert_eq!(sealing.answered(1, node(0), super::tests::at(9)), [], "who comes late does not change it");
    let asks = sealing.filled(round, node(1), Filled::Whole(standing(8, Health::Open)));
    let [Ask::Commit(verdict)] = &asks[..] else { panic!("{asks:?}") };
    let replicas = vec![node(1), node(2), node(0)];
    assert_eq!(*verdict, Verdict { end: Offset(8), bytes: 80, replicas, whole: 2 });
}

#[test]
fn without_the_source_the_others_decide_if_they_are_enough() {
    let mut sealing = sealing(3);
    let _ = sealing.answered(1, node(1), at(5));
    let asks = sealing.answered(1, node(2), at(8));
    let [Ask::Fill { round, .. }] = asks[..] else { panic!("{asks:?}") };
    assert_eq!(sealing.filled(round, node(1), Filled::SourceFailed), [], "the primary may still answer");
    assert_eq!(end_of(&sealing.answered(1, node(0), at(5))), Some(5));
    assert_eq!(sealing.filled(round, node(1), Filled::SourceFailed), []);
}

#[test]
fn a_higher_epoch_is_taken_over_and_everybody_is_fenced_again() {
    let mut sealing = sealing(3);
    let _ = sealing.answered(1, node(0), at(5));
    let asks = sealing.answered(1, node(1), Answer::Refused { epoch: Epoch(6) });
    assert_eq!(asks.len(), 3);
    assert!(asks.iter().all(|ask| matches!(ask, Ask::Fence { epoch: Epoch(6), .. })));
    assert_eq!(sealing.answered(1, node(2), at(5)), [], "an answer to the first fence");
    assert_eq!(sealing.answered(2, node(2), at(5)), []);
    assert_eq!(end_of(&sealing.answered(2, node(1), at(5))), Some(5));
}

#[test]
fn a_directory_that_is_gone_hides_nothing() {
    // Whether copy 2 held what copy 0 acknowledged cannot be known.
    assert!(gave_up(&after(3, &[Answer::Silent, at(5), Answer::Missing])));
    assert!(gave_up(&after(3, &[Answer::Silent, at(5), fenced(0, Health::Rebuilding)])));
    assert!(gave_up(&after(3, &[fenced(9, Health::OutOfService), at(5), Answer::Missing])));
    // Once everybody answered nothing more can turn up.
    let asks = after(3, &[at(6), fenced(4, Health::OutOfService), Answer::Missing]);
    assert!(gave_up(&asks), "a damaged copy may once have held more");
    let mut sealing = sealing(3);
    assert_eq!(sealing.answered(1, node(0), Answer::Missing).len(), 1);
    assert_eq!(sealing.answered(1, node(0), Answer::Made), []);
    assert_eq!(sealing.answered(1, node(2), Answer::Missing).len(), 1);
    assert_eq!(sealing.answered(1, node(2), Answer::Made), []);
    let fills = sealing.answered(1, node(1), at(5));
    assert_eq!(fills.len(), 2);
    let [Ask::Fill { from, round, .. }, _] = fills[..] else { panic!("{fills:?}") };
    assert_eq!(from, node(1));
    assert_eq!(
        end_of(&sealing.filled(round, node(2), Filled::Whole(standing(5, Health::Rebuilding)))),
        Some(5)
    );
}

#[test]
fn what_was_never_written_to_ends_empty() {
    assert_eq!(end_of(&after(3, &[Answer::Silent, at(0), Answer::Missing])), Some(0));
    assert_eq!(end_of(&after(3, &[Answer::Silent, Answer::Missing, Answer::Missing])), Some(0));
    assert!(gave_up(&after(3, &[Answer::Silent, Answer::Silent, Answer::Missing])));
    assert!(gave_up(&after(2, &[Answer::Silent, Answer::Missing])), "one that may have been removed by hand");
}

/// A copy that takes nothing more holds back an end it does not reach.
#[test]
fn what_cannot_be_filled_does_not_count_for_a_higher_end() {
    assert!(gave_up(&after(3, &[fenced(5, Health::Sealed), at(8), Answer::Silent])));
    assert!(gave_up(&after(3, &[fenced(5, Health::Stopped), at(8), Answer::Silent])));
    assert_eq!(end_of(&after(3, &[fenced(8, Health::Stopped), at(8)])), Some(8));
}

/// One node's copy, as its disk has it.
#[derive(Clone, Copy, Debug)]
struct Disk {
    end: u64,
    epoch: u64,
    rebuilding: bool,
    sealed: bool,
    latched: bool,
}

impl Disk {
    fn standing(&self) -> Standing {
        let health = match (self.latched, self.sealed, self.rebuilding) {
            (true, _, _) => Health::Damaged,
            (_, true, _) => Health::Sealed,
            (_, _, true) => Health::Rebuilding,
            (false, false, false) => Health::Open,
        };
        Standing { end: Offset(self.end), bytes: self.end * 10, epoch: Epoch(self.epoch), health }
    }

    fn appends(&mut self, epoch: u64, at: u64) -> bool {
        let takes = !self.latched && !self.sealed && epoch >= self.epoch && at == self.end;
        self.end += u64::from(takes);
        takes
    }
}

/// A segment: its primary is node 0, and appends as long as nothing stops it.
struct World {
    random: u64,
    disks: Vec<Option<Disk>>,
    up: Vec<bool>,
    /// What the primary gave out, and what it knows of each copy.
    given_out: u64,
    matched: Vec<u64>,
    /// Copies whose bytes were lost, by damage or by hand.
    lost: usize,
    sealers: [(Sealing, Vec<Ask>); 2],
    recorded: Option<u64>,
}

impl World {
    fn new(n: usize, seed: u64) -> Self {
        let disk = Disk { end: 0, epoch: 1, rebuilding: false, sealed: false, latched: false };
        let sealer = || (Sealing::new(Offset(0), (0..n).map(node).collect(), Epoch(2)), Vec::new());
        let world = Self {
            random: seed,
            disks: vec![Some(disk); n],
            up: vec![true; n],
            given_out: 0,
            matched: vec![0; n],
            lost: 0,
            sealers: [sealer(), sealer()],
            recorded: None,
        };
        let mut world = world;
        // Some were out of reach when the segment began.
        for copy in 1..n {
            if world.chance(8) {
                world.disks[copy] = None;
            }
        }
        world
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % below
    }

    fn chance(&mut self, of: usize) -> bool {
        self.draw(of) == 0
    }

    fn n(&self) -> usize {
        self.disks.len()
    }

    fn acknowledged(&self) -> u64 {
        quorum::committed(&self.matched.iter().copied().map(Some).collect::<Vec<_>>()).unwrap()
    }

    fn check(&self) {
        if let Some(end) = self.recorded {
            assert!(self.acknowledged() <= end, "acknowledged up to {}, ended at {end}", self.acknowledged());
        }
    }

    /// The primary hands one record to one copy, itself perhaps, and may or may not hear of it.
    fn replicate(&mut self) {
        let copy = self.draw(self.n());
        if !self.up[0] || !self.up[copy] {
            return;
        }
        if copy == 0 && self.chance(2) {
            self.given_out += 1;
        }
        let Some(disk) = &mut self.disks[copy] else { return };
        if disk.end < self.given_out && !disk.rebuilding {
            let at = disk.end;
            let (took, end) = (disk.appends(1, at), disk.end);
            if took && !self.chance(4) {
                self.matched[copy] = self.matched[copy].max(end);
            }
        }
        self.check();
    }

    fn fault(&mut self) {
        let copy = self.draw(self.n());
        let may_lose = self.lost < self.n() - quorum::seal_count(self.n());
        match self.draw(8) {
            // Whoever comes back as the primary never appends again.
            0..=2 => self.up[copy] = !self.up[copy] && (copy != 0 || self.recorded.is_some()),
            3 => self.up[copy] = true,
            4 if may_lose => {
                if let Some(disk) = self.disks[copy].as_mut().filter(|disk| !disk.latched && !disk.rebuilding)
                {
                    disk.latched = true;
                    self.lost += 1;
                }
            }
            // Where others hold nothing at all a directory by hand cannot be told from one that never was.
            5.. if may_lose
                && self.disks.iter().flatten().filter(|disk| disk.end > 0).count() == self.n() =>
            {
                self.disks[copy] = None;
                self.lost += 1;
                // While the primary is away the others have to know.
                self.up = vec![true; self.n()];
                self.up[0] = copy == 0;
            }
            _ => {}
        }
    }

    /// One of the sealers does one thing, or begins anew.
    fn seal(&mut self, which: usize) {
        if self.sealers[which].1.is_empty() || self.chance(40) {
            if self.chance(3) {
                let replicas = (0..self.n()).map(node).collect();
                self.sealers[which].0 = Sealing::new(Offset(0), replicas, Epoch(2));
            }
            self.sealers[which].1 = self.sealers[which].0.begin();
            return;
        }
        let next = self.draw(self.sealers[which].1.len());
        let ask = self.sealers[which].1.swap_remove(next);
        let more = self.asked(which, ask);
        self.sealers[which].1.extend(more);
    }

    fn asked(&mut self, which: usize, ask: Ask) -> Vec<Ask> {
        let place = |node: NodeId| usize::try_from(node.0).unwrap();
        let round = self.sealers[which].0.round();
        let silent = self.chance(20);
        match ask {
            Ask::Fence { node, epoch } => {
                let answer = match &mut self.disks[place(node)] {
                    _ if !self.up[place(node)] => Answer::Silent,
                    None => Answer::Missing,
                    Some(disk) if epoch.0 < disk.epoch => Answer::Refused { epoch: Epoch(disk.epoch) },
                    Some(disk) => {
                        disk.epoch = epoch.0;
                        Answer::Fenced(disk.standing())
                    }
                };
                self.sealers[which].0.answered(round, node, if silent { Answer::Silent } else { answer })
            }
            Ask::Make { node, epoch } => {
                let disk = &mut self.disks[place(node)];
                let answer = match disk {
                    _ if !self.up[place(node)] => Answer::Silent,
                    Some(_) => Answer::Exists,
                    None => {
                        let made =
                            Disk { end: 0, epoch: epoch.0, rebuilding: true, sealed: false, latched: false };
                        *disk = Some(made);
                        Answer::Made
                    }
                };
                self.sealers[which].0.answered(round, node, if silent { Answer::Silent } else { answer })
            }
            Ask::Fill { from, to, end, epoch, round, .. } => {
                let result = self.fill(place(from), place(to), end.0, epoch.0);
                self.sealers[which].0.filled(round, to, result)
            }
            Ask::Commit(verdict) => {
                self.record(&verdict);
                Vec::new()
            }
            Ask::GiveUp(_) => Vec::new(),
        }
    }

    fn fill(&mut self, from: usize, to: usize, end: u64, epoch: u64) -> Filled {
        loop {
            let source = self.disks[from].filter(|disk| self.up[from] && !disk.latched);
            let (fails, stops) = (self.chance(12), self.chance(12));
            let Some(disk) = self.disks[to].as_mut().filter(|_| self.up[to] && !fails) else {
                return Filled::TargetFailed;
            };
            if disk.end >= end {
                return Filled::Whole(disk.standing());
            }
            if disk.epoch > epoch {
                return Filled::Refused { epoch: Epoch(disk.epoch) };
            }
            if stops || source.is_none_or(|source| source.end <= disk.end) {
                return Filled::SourceFailed;
            }
            let at = disk.end;
            if !disk.appends(epoch, at) {
                return Filled::TargetFailed;
            }
        }
    }

    fn record(&mut self, verdict: &Verdict) {
        if self.recorded.is_none() {
            let end = verdict.end.0;
            let whole = self.disks.iter().flatten().filter(|disk| !disk.latched && disk.end >= end).count();
            let lost_since = self.lost;
            assert!(whole + lost_since >= quorum::seal_count(self.n()), "{whole} copies hold {end}");
            self.recorded = Some(end);
        }
        self.check();
        // Whoever hears of it cuts its copy off there.
        let end = self.recorded.unwrap_or_default();
        for disk in self.disks.iter_mut().flatten().filter(|disk| disk.end >= end && !disk.latched) {
            (disk.end, disk.sealed, disk.rebuilding) = (end, true, false);
        }
    }

    fn run(&mut self) {
        for _ in 0..300 {
            match self.draw(10) {
                0..=4 => self.replicate(),
                5 => self.fault(),
                6 | 7 => self.seal(0),
                _ => self.seal(1),
            }
        }
        // Faults end: whatever happened, the segment ends.
        self.up = vec![true; self.n()];
        for _ in 0..4000 {
            if self.recorded.is_some() {
                return;
            }
            let which = self.draw(2);
            self.seal(which);
        }
        let healthy = self.disks.iter().flatten().filter(|disk| !disk.latched && !disk.rebuilding).count();
        assert!(healthy < quorum::seal_count(self.n()), "it never ended: {:?}", self.disks);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// INV-15 to INV-17 and INV-19: what was acknowledged lies below the end, and stays so.
    #[test]
    fn nothing_acknowledged_is_past_the_end(n in 1_usize..6, seed in any::<u64>()) {
        World::new(n, seed).run();
    }
}
