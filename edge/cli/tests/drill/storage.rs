//! Copies that are cut, removed and rot, of followers and of primaries, and a volume that is full.
//!
//! One node is damaged at a time, and the next thing happens once all is whole again: what two disks lose at the same
//! time is lost. Readers are held to the truth all the while: what is damaged on one node is given by another.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::copies::{self, Damage};
use super::load::Load;
use super::rig::{RECOVERY, Rig};
use super::{Asked, Random, let_be, say, settled_within};

/// What is done to the files of a process that has them open.
const LIVE: [Damage; 3] = [Damage::Rotten, Damage::RottenLength, Damage::Halved];
/// Ended copies that are damaged at a time, at most.
const ENDED: usize = 3;
/// The node whose log lies on a small volume, and its MiB.
const SMALL: (usize, u32) = (2, 384);
/// How long the volume stays full at least.
const FULL: Duration = Duration::from_secs(8);

/// Said of damaged copies and of a full volume.
const EXPECTED: [&str; 4] =
    ["segment copy", "segment failed in storage", "segment could not be opened", "read failed"];

pub(crate) fn run(asked: Asked) {
    let mut random = Random::new(asked.seed);
    let mut rig = Rig::start(&EXPECTED, Some(SMALL));
    let load = rig.load();
    let began = Instant::now();
    let mut damages: Vec<(Damage, bool)> = Damage::ALL.map(|damage| (damage, false)).to_vec();
    damages.extend(LIVE.map(|damage| (damage, true)));
    random.shuffle(&mut damages);
    say(&format!("storage drill, DRILL_SEED={}: {damages:?} first", asked.seed));
    let all = damages.clone();
    let mut damages = damages.into_iter();
    let mut more = |random: &mut Random| {
        damages.next().or_else(|| (began.elapsed() < asked.lasting).then(|| all[random.below(all.len())]))
    };
    while let Some((damage, is_live)) = more(&mut random) {
        // Something to damage.
        let ended: usize = rig.log_dirs().iter().map(|dir| copies::sealed(dir).len()).min().unwrap_or(0);
        if ended < ENDED {
            let_be(Duration::from_secs(4));
        }
        load.longest_pause();
        // Every other time it is the copies of a primary.
        let target = if random.below(2) == 0 { rig.busiest() } else { random.below(3) };
        if is_live {
            damage_live(&mut rig, &load, damage, target, &mut random);
        } else {
            damage_stopped(&mut rig, &load, damage, target, &mut random);
        }
    }
    fill(&mut rig, &load);
    rig.close(load, "Storage", asked);
}

/// Kills a node, damages copies of ended segments and all that took records, those it was the primary of included, and
/// starts it again.
fn damage_stopped(rig: &mut Rig, load: &Load, damage: Damage, target: usize, random: &mut Random) {
    let began = Instant::now();
    rig.kill(target);
    // What was under way is answered at first, and counts for nothing.
    let_be(Duration::from_millis(200));
    let before = load.confirmed();
    let took = settled_within(RECOVERY, || load.waits_since(&before));
    took.unwrap_or_else(|topic| panic!("{topic} takes no records without a node"));
    let dir = rig.nodes[target].place.log_dir();
    let active = copies::active(&dir);
    let mut names = some(copies::sealed(&dir), random);
    names.extend(active.iter().cloned());
    names.retain(|name| damage.inflict(&dir.join(name), random));
    let taking = names.iter().filter(|name| active.contains(*name)).count();
    rig.start_node(target);
    let what = format!(
        "{damage:?}: {} copies of {}, {taking} of which took records, while it was down",
        names.len(),
        rig.nodes[target].name
    );
    mended(rig, load, what, began, &names);
}

/// Damages copies of ended segments under a running process.
fn damage_live(rig: &mut Rig, load: &Load, damage: Damage, target: usize, random: &mut Random) {
    let began = Instant::now();
    let dir = rig.nodes[target].place.log_dir();
    let mut names = some(copies::sealed(&dir), random);
    names.retain(|name| damage.inflict(&dir.join(name), random));
    let what = format!("{damage:?}: {} copies of {}, while it ran", names.len(), rig.nodes[target].name);
    mended(rig, load, what, began, &names);
}

/// A few of them.
fn some(names: BTreeSet<String>, random: &mut Random) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().collect();
    random.shuffle(&mut names);
    names.truncate(ENDED);
    names
}

/// Waits until these, and whatever else has ended, are whole on every node.
#[track_caller]
fn mended(rig: &mut Rig, load: &Load, what: String, began: Instant, names: &[String]) {
    let lasted = began.elapsed();
    let dirs = rig.log_dirs();
    let mut open: BTreeSet<String> = dirs.iter().flat_map(|dir| copies::sealed(dir)).collect();
    open.extend(names.iter().cloned());
    let took = settled_within(RECOVERY, || {
        load.assert_right();
        let mut problem = None;
        open.retain(|name| match copies::same(&dirs, name) {
            Ok(copy) => {
                // One that takes records may lie there well and be damaged in what is to come.
                let is_active = copy.meta.sealed_at.is_none();
                if is_active {
                    problem = Some(format!("{name} still takes records"));
                }
                is_active
            }
            Err(found) => {
                problem = Some(found);
                true
            }
        });
        problem
    });
    let took = took.unwrap_or_else(|problem| panic!("after {what}: {problem}"));
    rig.recovered(load, what, lasted, took);
}

/// Fills a node's volume under it and frees it again.
fn fill(rig: &mut Rig, load: &Load) {
    let (target, _) = SMALL;
    load.longest_pause();
    let failures = |rig: &Rig| rig.sum(target, "malachi_disk_failures_total").unwrap_or(0);
    let (began, before) = (Instant::now(), failures(rig));
    let filler = rig.nodes[target].place.log_dir().join("filler");
    let mut file = File::create(&filler).unwrap();
    let took = settled_within(RECOVERY, || {
        fill_up(&mut file);
        (failures(rig) == before).then(|| "a full volume fails nobody".to_owned())
    });
    took.unwrap();
    let served = load.confirmed();
    while began.elapsed() < FULL {
        // What the node gives back is taken at once.
        fill_up(&mut file);
        let_be(Duration::from_millis(100));
    }
    let took = settled_within(RECOVERY, || load.stands_since(&served));
    took.unwrap_or_else(|name| panic!("while a volume is full, {name} writes nothing"));
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    let lasted = began.elapsed();
    // The process that ran all the while takes copies again: all that is at work now comes to be whole there.
    let dirs = rig.log_dirs();
    let mut here = copies::names(&dirs[target]);
    let took = settled_within(RECOVERY, || {
        load.assert_right();
        let now = copies::names(&dirs[target]);
        let is_new = now.difference(&here).any(|name| is_whole(&dirs[target], name));
        here = here.intersection(&now).cloned().collect();
        (!is_new).then(|| "the node takes no copies again".to_owned())
    });
    let took = took.unwrap_or_else(|problem| panic!("after the volume had room again: {problem}"));
    rig.recovered(load, format!("{}: full volume", rig.nodes[target].name), lasted, took);
}

fn is_whole(dir: &Path, name: &str) -> bool {
    copies::same(&[dir.to_owned()], name).is_ok_and(|copy| copy.meta.sealed_at.is_some())
}

/// Writes until there is no room at all.
fn fill_up(file: &mut File) {
    let chunk = vec![0x5a; 1 << 20];
    for bytes in [1 << 20, 1 << 12, 1] {
        while file.write_all(&chunk[..bytes]).is_ok() {}
    }
}
