//! Who may see whom.
//!
//! `types` sees nothing; its siblings see only `types`; `consensus` also sees `storage` and `raft`; the broker sees
//! the whole core; the server and the simulator drive it; the client sees `types` and `wire`; the CLI sees server and
//! client. Siblings never see each other: the broker carries the message. Nobody in the core reaches a runtime, a socket or the operating
//! system's randomness, by whatever way.

use crate::manifests::{Package, cargo, packages};

const SIBLINGS: [&str; 8] =
    ["wire", "storage", "raft", "metadata", "peer", "placement", "replication", "membership"];
/// Crates that wait, poll or ask the operating system.
const WORLDLY: [&str; 14] = [
    "tokio",
    "async-std",
    "async-executor",
    "smol",
    "futures-executor",
    "mio",
    "polling",
    "socket2",
    "rayon",
    "crossbeam-channel",
    "getrandom",
    "rustix",
    "libc",
    "tempfile",
];

/// What `name` may depend on; `None` when the layout has no such package.
fn allowed(name: &str) -> Option<Vec<&'static str>> {
    let core = || ["types"].into_iter().chain(SIBLINGS).chain(["consensus", "broker"]);
    let allowed = match name {
        "types" | "tidy" => vec![],
        "broker" => core().filter(|name| *name != "broker").collect(),
        "server" => core().collect(),
        // Hosts groups over a log: it carries words from one to the other.
        "consensus" => vec!["types", "storage", "raft"],
        "client" => vec!["types", "wire"],
        // The words are everybody's.
        "cli" => vec!["types", "server", "client"],
        "sim" => core().chain(["client"]).collect(),
        "bench" => core().chain(["server", "client"]).collect(),
        sibling if SIBLINGS.contains(&sibling) => vec!["types"],
        _ => return None,
    };
    Some(allowed)
}

fn complaints(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some(allowed) = allowed(name) else {
        return vec![format!("{name} has no place in the layout")];
    };
    let is_core = package.dir.starts_with("core/");
    let mut found = Vec::new();
    for dependency in &package.dependencies {
        // Tests at the edge may look behind the curtain; the core's may not.
        if dependency.dev && (!is_core || dependency.name == *name) {
            continue;
        }
        if !allowed.contains(&dependency.name.as_str()) {
            found.push(format!("{name} must not see {}", dependency.name));
        }
        let has_tcp =
            dependency.default_features || dependency.features.iter().any(|feature| feature == "tcp");
        if name == "sim" && dependency.name == "client" && has_tcp {
            found.push("the simulator drives the client without its sockets".to_owned());
        }
    }
    found
}

/// Lines of `cargo tree`: a name, a version.
fn worldly(name: &str, tree: &str) -> Vec<String> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|found| WORLDLY.contains(found)).map(|found| format!("{name} reaches {found}")).collect()
}

#[test]
fn everybody_sees_only_whom_they_may() {
    let found: Vec<String> = packages().iter().flat_map(complaints).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_core_reaches_no_runtime_and_no_operating_system() {
    let mut found = Vec::new();
    let core: Vec<Package> =
        packages().into_iter().filter(|package| package.dir.starts_with("core/")).collect();
    assert!(core.iter().any(|package| package.name == "broker"));
    for package in core {
        let id = format!("malachi-{}", package.name);
        let mut arguments = vec!["tree", "--locked", "-p", &id, "-e", "normal,build", "--prefix", "none"];
        // The Raft engine brings a generator that asks the operating system for its seed. Nothing it draws has any
        // effect (`core/raft/src/engine/mod.rs` says why), so what the engine brings is not looked at.
        let has_engine = package.name == "raft" || package.dependencies.iter().any(|d| d.name == "raft");
        if has_engine {
            arguments.extend(["--prune", "raft"]);
        }
        let tree = cargo(&arguments);
        assert!(tree.starts_with(&id), "an unexpected tree: {tree}");
        found.extend(worldly(&package.name, &tree));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_rules_can_fail() {
    let dependency = |name: &str, dev| crate::manifests::Dependency {
        name: name.to_owned(),
        dev,
        features: vec![],
        default_features: true,
    };
    let package = |name: &str, dir: &str, dependencies| Package {
        name: name.to_owned(),
        dir: dir.to_owned(),
        dependencies,
        ..Package::default()
    };
    assert_eq!(complaints(&package("raft", "core/raft", vec![dependency("storage", false)])).len(), 1);
    assert_eq!(complaints(&package("wire", "core/wire", vec![dependency("storage", true)])).len(), 1);
    assert_eq!(complaints(&package("types", "core/types", vec![dependency("wire", false)])).len(), 1);
    assert_eq!(complaints(&package("client", "edge/client", vec![dependency("broker", false)])).len(), 1);
    assert_eq!(complaints(&package("sim", "sim", vec![dependency("client", false)])).len(), 1);
    assert_eq!(complaints(&package("utilities", "core/utilities", vec![])).len(), 1);
    assert!(complaints(&package("cli", "edge/cli", vec![dependency("wire", true)])).is_empty());
    assert_eq!(worldly("x", "malachi-x v0.1.0\nbytes v1.0.0\ntokio v1.2.3 (*)\n").len(), 1);
}
