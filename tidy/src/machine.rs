//! The tree speaks of no machine it was written on: no absolute path of somebody's, no host, no mirror.

use crate::tree::{File, files, read};

/// Where people and their tools live.
const PLACES: [&str; 5] = ["/home/", "/root/", "/Users/", "/work/", "/tmp/"];
/// Hosts that are everywhere the same.
const HOSTS: [&str; 5] = ["localhost", "127.0.0.1", "[::1]", "$", "{"];
/// Texts that are not ours.
const FOREIGN: [&str; 2] = ["LICENSE", "Cargo.lock"];
fn complaints(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let mut complain = |what: &str| found.push(format!("{}:{}: {what}", file.path, number + 1));
        if let Some(place) = PLACES.iter().find(|place| line.contains(*place)) {
            complain(&format!("{place} is a path of one machine"));
        }
        for scheme in ["http", "https"].map(|name| format!("{name}:{}", "//")) {
            let mut hosts = line.match_indices(&scheme).map(|(at, _)| &line[at + scheme.len()..]);
            let named = |host: &&str| host.starts_with(|c: char| c.is_alphanumeric()) && !is_everywhere(host);
            if hosts.any(|host| named(&host)) {
                complain("names a host");
            }
        }
    }
    found
}

fn is_everywhere(host: &str) -> bool {
    HOSTS.iter().any(|everywhere| host.starts_with(everywhere))
}

/// Every package comes from one registry, and none from somebody's repository.
fn foreign_sources(lock: &str) -> Vec<String> {
    let mut sources: Vec<&str> = lock.lines().filter_map(|line| line.strip_prefix("source = ")).collect();
    sources.sort_unstable();
    sources.dedup();
    let one = sources.len() <= 1 && sources.iter().all(|source| source.starts_with("\"registry+"));
    if one { Vec::new() } else { sources.iter().map(|source| format!("Cargo.lock: {source}")).collect() }
}

#[test]
fn no_machine_and_no_host_is_named() {
    let files = files();
    // This file has to name what it looks for.
    let ours =
        files.iter().filter(|file| !FOREIGN.contains(&&*file.path) && file.path != "tidy/src/machine.rs");
    let mut found: Vec<String> = ours.flat_map(complaints).collect();
    found.extend(foreign_sources(&read("Cargo.lock")));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_rule_can_fail() {
    let file = |text: &str| File { path: "docs/x.md".to_owned(), text: text.to_owned() };
    assert_eq!(complaints(&file("fine\ncd /home/someone/x")).len(), 1);
    assert_eq!(complaints(&file("see https://mirror.internal/x")).len(), 1);
    assert!(complaints(&file("curl http://127.0.0.1:4041/health; https://localhost/")).is_empty());
    let registry = "source = \"registry+https://a.example/index\"\n";
    assert!(foreign_sources(&registry.repeat(2)).is_empty());
    assert_eq!(
        foreign_sources(&format!("{registry}source = \"registry+https://b.example/index\"\n")).len(),
        2
    );
    assert_eq!(foreign_sources("source = \"git+https://a.example/x\"\n").len(), 1);
}
