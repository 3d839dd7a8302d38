//! Every promise has a file of its own that says what it is, and somebody checks it.

use std::collections::BTreeMap;

use crate::tree::files;

const DIR: &str = "sim/src/invariants/";
/// They are numbered from 1.
const PROMISES: u32 = 53;

/// `files` are those of the simulator: path and text.
fn complaints(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    let empty = String::new();
    let list = files.get(&format!("{DIR}mod.rs")).unwrap_or(&empty);
    let declared: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    for path in files.keys().filter_map(|path| path.strip_prefix(DIR)) {
        let name = path.trim_end_matches(".rs");
        if name != "mod" && !declared.contains(&name) {
            found.push(format!("{DIR}{path} is declared by nobody"));
        }
    }
    for name in declared {
        let id = name.strip_prefix("inv_").map(|number| format!("INV-{}", number.trim_start_matches('0')));
        let Some(id) = id else { continue };
        match files.get(&format!("{DIR}{name}.rs")) {
            None => found.push(format!("{name} has no file")),
            Some(text) if !text.starts_with(&format!("//! {id}: ")) => {
                found.push(format!("{name}.rs does not open with {id} and what it promises"));
            }
            Some(text) if !text.contains(&format!("\"{id}\"")) => {
                found.push(format!("{name}.rs never names {id}"))
            }
            Some(_) => {}
        }
        let call = format!("{name}::");
        let is_checked = files.iter().any(|(path, text)| !path.starts_with(DIR) && text.contains(&call));
        if !is_checked {
            found.push(format!("{name} is checked by no world"));
        }
    }
    found
}

#[test]
fn every_invariant_has_a_file_and_a_world_that_checks_it() {
    let simulator = files().into_iter().filter(|file| file.path.starts_with("sim/src/") && file.is_rust());
    let simulator: BTreeMap<String, String> = simulator.map(|file| (file.path, file.text)).collect();
    assert!(simulator.keys().filter(|path| path.starts_with(DIR)).count() > 5);
    let found = complaints(&simulator);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let has = |number: &u32| simulator.contains_key(&format!("{DIR}inv_{number:02}.rs"));
    let missing: Vec<u32> = (1..=PROMISES).filter(|number| !has(number)).collect();
    assert!(missing.is_empty(), "no file for {missing:?}");
}

#[test]
fn the_rule_can_fail() {
    let good = [
        ("sim/src/invariants/mod.rs", "pub mod inv_07;\n"),
        ("sim/src/invariants/inv_07.rs", "//! INV-7: nothing is lost.\nensure(x, \"INV-7\", y)"),
        ("sim/src/world.rs", "inv_07::check()"),
    ];
    let tree =
        |files: &[(&str, &str)]| files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect();
    assert!(complaints(&tree(&good)).is_empty());
    assert_eq!(complaints(&tree(&[good[0], good[2]])), ["inv_07 has no file"]);
    assert_eq!(complaints(&tree(&[good[0], good[1]])), ["inv_07 is checked by no world"]);
    assert_eq!(complaints(&tree(&[good[1], good[2]])).len(), 1);
    let nameless = ("sim/src/invariants/inv_07.rs", "//! Something.\n\"INV-7\"");
    assert_eq!(complaints(&tree(&[good[0], nameless, good[2]])).len(), 1);
}
