//! Features that must stay where they are: old bugs can be put back only by the simulator, and the suites that
//! every disk must pass are built only into tests.

use crate::manifests::{Package, packages};

fn complaints(package: &Package) -> Vec<String> {
    let name = &package.name;
    let mut found = Vec::new();
    for dependency in &package.dependencies {
        let asks = |feature: &str| dependency.features.iter().any(|asked| asked == feature);
        if asks("planted") && name != "sim" {
            found.push(format!("{name} switches planted bugs on"));
        }
        if asks("conformance") && !dependency.dev {
            found.push(format!("{name} builds a conformance suite into what it ships"));
        }
    }
    // A bug may lie in the crate below; the same feature of this one is nobody else's to switch on either.
    let others = package.features.iter().filter(|(feature, _)| *feature != "planted");
    let passed_on = others.flat_map(|(_, on)| on).filter(|on| on.ends_with("/planted"));
    found.extend(passed_on.map(|on| format!("a feature of {name} switches {on} on")));
    if package.features.get("default").is_some_and(|on| on.iter().any(|on| on == "planted")) {
        found.push(format!("{name} has planted bugs by default"));
    }
    found
}

#[test]
fn only_the_simulator_can_put_bugs_back() {
    let packages = packages();
    let found: Vec<String> = packages.iter().flat_map(complaints).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let simulator = packages.iter().find(|package| package.name == "sim").unwrap();
    let planted =
        |package: &Package| package.dependencies.iter().any(|d| d.features.contains(&"planted".to_owned()));
    assert!(planted(simulator), "then nobody shows that the simulator finds them");
}

#[test]
fn the_rule_can_fail() {
    let dependency = |feature: &str| crate::manifests::Dependency {
        name: "storage".to_owned(),
        dev: false,
        features: vec![feature.to_owned()],
        default_features: true,
    };
    let package = |name: &str, feature| Package {
        name: name.to_owned(),
        dependencies: vec![dependency(feature)],
        ..Package::default()
    };
    assert_eq!(complaints(&package("server", "planted")).len(), 1);
    assert_eq!(complaints(&package("server", "conformance")).len(), 1);
    assert!(complaints(&package("sim", "planted")).is_empty());
    let mut passing = package("cli", "");
    passing.features.insert("chaos".to_owned(), vec!["server/planted".to_owned()]);
    passing.features.insert("default".to_owned(), vec!["planted".to_owned()]);
    assert_eq!(complaints(&passing).len(), 2);
}
