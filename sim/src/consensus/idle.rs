//! Three nodes with many groups in which nothing happens, on perfect disks and links: what doing nothing costs.

use std::collections::BTreeMap;

use consensus::{Action, Config, Host};
use raft::Role;
use storage::disk::Disk;
use types::{NodeId, VnodeId};

use super::mail::Pile;
use crate::disk::{Faults, SimDisk};

/// Ticks after which every group must have a leader.
const TICKS_MAX: u64 = 400;

/// See the module.
pub struct Idle {
    nodes: BTreeMap<NodeId, (Host, SimDisk)>,
    /// Letters sent so far.
    pub letters: u64,
    /// Their bytes, with the number of the group each is about.
    pub bytes: u64,
}

impl Idle {
    /// So many groups, each with a leader.
    #[must_use]
    pub fn new(groups: u64) -> Self {
        let ids = [NodeId(1), NodeId(2), NodeId(3)];
        let node = |id: NodeId| {
            let host = Host::new(Config::new(id, id.0 as u64));
            (id, (host, SimDisk::new(id.0 as u64, Faults::none())))
        };
        let mut idle = Self { nodes: ids.into_iter().map(node).collect(), letters: 0, bytes: 0 };
        idle.nodes.values_mut().for_each(|(host, _)| host.start());
        idle.settle();
        for (host, _) in idle.nodes.values_mut() {
            (1..=groups).for_each(|group| host.found_group(VnodeId(group), &ids));
        }
        idle.settle();
        let mut ticks = 0;
        while idle.leaders() < groups {
            assert!(ticks < TICKS_MAX, "some group never has a leader");
            ticks += 1;
            idle.ticks(1);
        }
        idle
    }

    fn leaders(&self) -> u64 {
        let leads = |group: &raft::Group| u64::from(group.role() == Role::Leader);
        self.nodes.values().flat_map(|(host, _)| host.groups()).map(|(_, group)| leads(group)).sum()
    }

    /// Lets time pass, and everything arrive that is sent.
    pub fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            self.nodes.values_mut().for_each(|(host, _)| host.tick());
            self.settle();
        }
    }

    fn settle(&mut self) {
        loop {
            let mut mail: Vec<(NodeId, NodeId, Pile)> = Vec::new();
            for (id, (host, disk)) in &mut self.nodes {
                work(host, disk);
                mail.extend(host.take_mail().map(|(to, letters)| (*id, to, letters)));
            }
            if mail.is_empty() {
                return;
            }
            for (from, to, letters) in mail {
                let Some((host, _)) = self.nodes.get_mut(&to) else { continue };
                for (group, letter) in letters {
                    self.letters += 1;
                    self.bytes += 8 + letter.len() as u64;
                    host.receive(from, group, letter);
                }
            }
        }
    }
}

/// Does everything a host asks for.
fn work(host: &mut Host, disk: &mut SimDisk) {
    loop {
        while let Some(action) = host.next_action() {
            match action {
                Action::Disk(job) => disk.submit(job),
                Action::Found { group, .. } => host.begin(group),
                Action::TakeSnapshot { group, order } => host.save(group, &order, &[]),
                _ => {}
            }
        }
        match disk.wait() {
            Some(completion) => host.complete(completion),
            None => return,
        }
    }
}
