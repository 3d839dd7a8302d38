//! When everything has healed: every group is given everything, is behind nothing on any node, has given every range to
//! a member it has, and is gone when its members are.

use broker::GroupInfo;
use types::{NodeId, TopicName};

use super::super::model::shown;
use crate::cluster::world::World;
use crate::invariants::Violation;

impl World {
    /// Consumers read on, and then leave.
    pub(in crate::cluster::records) fn heal_groups(&mut self) -> Result<(), Violation> {
        if !self.records.groups.is_on() {
            return Ok(());
        }
        self.wait_for(|world| Ok(world.ungiven()))?;
        let began = self.now;
        self.wait_for(|world| Ok(world.lagging(began)))?;
        for group in &self.records.groups.groups {
            group.judge_suspects()?;
        }
        self.records.groups.is_ending = true;
        self.wait_for(|world| {
            let mut consumers = world.records.groups.consumers.iter();
            let left = consumers.position(|consumer| consumer.member.is_some() && !consumer.is_gone);
            Ok(left.map(|at| format!("consumer {at} has not left")))
        })?;
        let began = self.now;
        self.wait_for(|world| Ok(world.peopled(began)))
    }

    /// A record that some group was not given, or a page that a consumer has not committed.
    fn ungiven(&self) -> Option<String> {
        let records = &self.records;
        let missing = records.groups.groups.iter().find_map(|group| {
            let missing = records.model.due(group.topic).difference(&group.progress.seen).next()?;
            Some((group, *missing))
        });
        let told = |group: &super::Group| {
            let of_it = records
                .groups
                .consumers
                .iter()
                .filter(|it| records.groups.groups[it.group].name == group.name);
            of_it
                .map(|consumer| format!("{:?} {}", consumer.member, consumer.last))
                .collect::<Vec<_>>()
                .join("; ")
        };
        missing.map(|(group, name)| {
            format!(
                "nobody of {} is given {} of topic r{}: {}",
                group.name,
                shown(name),
                group.topic,
                told(group)
            )
        })
    }

    /// What every node says of a group since then; an error says which has said nothing.
    fn told_since(
        &self,
        began: u64,
        is_wrong: impl Fn(usize, NodeId, &GroupInfo) -> Option<String>,
    ) -> Option<String> {
        for at in 0..self.records.groups.groups.len() {
            for id in self.nodes.keys() {
                match self.records.groups.told.get(&(at, *id)) {
                    Some((asked, info)) if *asked >= began => {
                        if let Some(wrong) = is_wrong(at, *id, info) {
                            return Some(wrong);
                        }
                    }
                    Some(_) | None => return Some(format!("node {id} says nothing of group {at}")),
                }
            }
        }
        None
    }

    /// A group that is behind, or ranges of its topic that nobody reads.
    fn lagging(&self, began: u64) -> Option<String> {
        self.told_since(began, |at, id, info| {
            let group = &self.records.groups.groups[at];
            if info.lag > 0 {
                return Some(format!("node {id} says that {} is {} behind", group.name, info.lag));
            }
            let consumers = self.records.groups.consumers.iter().filter(|consumer| consumer.group == at);
            let mut names: Vec<&[u8]> =
                consumers.filter_map(|consumer| consumer.member.as_ref()).map(String::as_bytes).collect();
            names.sort_unstable();
            let mut members: Vec<&[u8]> = info.members.iter().map(|member| &member.name[..]).collect();
            members.sort_unstable();
            if names != members {
                return Some(format!(
                    "node {id} says that {} has {:?}, not {names:?}",
                    group.name, info.members
                ));
            }
            let topic = TopicName::new(self.records.topics[group.topic].as_bytes()).ok()?;
            let tables = self.tables_of(&self.records.topics[group.topic])?;
            let (topic, _) = tables.topic_by_name(&topic)?;
            let leaves = tables.leaf_ranges_of(topic).count();
            let owned: usize =
                info.members.iter().map(|member| usize::try_from(member.ranges).unwrap_or(usize::MAX)).sum();
            let is_owned = names.is_empty() || owned == leaves;
            (!is_owned)
                .then(|| format!("node {id}: {owned} of {leaves} ranges of {} are somebody's", group.name))
        })
    }

    /// A group that has members although all have left.
    fn peopled(&self, began: u64) -> Option<String> {
        self.told_since(began, |at, id, info| {
            (!info.members.is_empty())
                .then(|| format!("node {id} says that group {at} has {:?}", info.members))
        })
    }
}
