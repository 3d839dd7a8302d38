//! What cargo knows about the workspace: packages, their folders, what they depend on and with which features.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::tree::{read, root};

/// One of our packages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    /// Without the product's prefix.
    pub(crate) name: String,
    /// Folder of its manifest, relative to the root.
    pub(crate) dir: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Feature -> what it switches on.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

/// A dependency on another of our packages.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// Without the product's prefix.
    pub(crate) name: String,
    /// Only its tests see it.
    pub(crate) dev: bool,
    pub(crate) features: Vec<String>,
    pub(crate) default_features: bool,
}

/// All packages of the workspace.
pub(crate) fn packages() -> Vec<Package> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&output).unwrap();
    let found: Vec<Package> = list(&metadata["packages"]).map(package).collect();
    assert!(found.len() > 5, "cargo names too few packages");
    found
}

/// Runs cargo in the root; gives what it printed.
pub(crate) fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A package's name without the product's prefix, when it is one of ours.
fn ours(name: &str) -> Option<String> {
    name.strip_prefix("malachi-").map(str::to_owned)
}

fn package(value: &Value) -> Package {
    let manifest = text(&value["manifest_path"]);
    let dir = manifest.strip_prefix(root().to_str().unwrap()).unwrap().trim_start_matches('/');
    let features = value["features"].as_object().unwrap().iter();
    Package {
        name: ours(&text(&value["name"])).expect("every package carries the product's prefix"),
        dir: dir.trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned(),
        dependencies: list(&value["dependencies"]).filter_map(dependency).collect(),
        features: features.map(|(name, on)| (name.clone(), list(on).map(text).collect())).collect(),
    }
}

fn dependency(value: &Value) -> Option<Dependency> {
    Some(Dependency {
        name: ours(&text(&value["name"]))?,
        dev: value["kind"] == "dev",
        features: list(&value["features"]).map(text).collect(),
        default_features: value["uses_default_features"] == true,
    })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether the manifest takes the workspace's lints.
fn has_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().skip_while(|line| *line != "[lints]").skip(1);
    lines.next() == Some("workspace = true")
}

#[test]
fn every_package_takes_the_lints() {
    for package in packages() {
        assert!(has_lints(&read(&format!("{}/Cargo.toml", package.dir))), "{} takes no lints", package.name);
    }
    assert!(!has_lints("[package]\nname = \"malachi-x\"\n"), "the rule can fail");
    assert!(!has_lints("[lints]\n\n[package]\n"), "the rule can fail");
}

#[test]
fn the_core_and_the_simulator_obey_the_list_of_banned_calls() {
    let banned = read("core/clippy.toml");
    for call in
        ["std::time::Instant::now", "std::fs::read", "std::thread::spawn", "std::collections::HashMap"]
    {
        assert!(banned.contains(&format!("\"{call}\"")), "{call} is not banned");
    }
    assert_eq!(read("sim/clippy.toml"), banned, "the simulator has its own list");
    // Clippy takes the nearest file, so one further down would replace it.
    let nearer = |dir: &str| ["clippy.toml", ".clippy.toml"].map(|name| root().join(dir).join(name));
    for package in packages().iter().filter(|package| package.dir.starts_with("core/")) {
        assert!(
            nearer(&package.dir).iter().all(|path| !path.exists()),
            "{} has a list of its own",
            package.name
        );
    }
}
