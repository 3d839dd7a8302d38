//! Storage policies as a shell defines, binds and sees them.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use process::Place;

/// Standard output, or the first line of the error.
fn malachi(place: &Place, user: &str, args: &[&str]) -> Result<String, String> {
    let mut command = place.command_of(args);
    command.env("MALACHI_HOST", "127.0.0.1").env("MALACHI_PORT", place.port.to_string());
    let output =
        command.env("MALACHI_USER", user).env("MALACHI_PASS", format!("{user}123")).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        return Ok(text(output.stdout));
    }
    Err(text(output.stderr).lines().next().unwrap_or_default().to_owned())
}

#[test]
fn a_policy_is_defined_bound_shown_and_removed() {
    let place = Place::new().with("MALACHI_RETENTION_MAX_AGE_MS", "1000");
    let broker = place.start();
    let admin = |args: &[&str]| malachi(&place, "admin", args);
    let said = |args: &[&str]| admin(args).unwrap();
    let refused = |args: &[&str]| admin(args).unwrap_err();
    said(&["topic", "create", "orders"]);
    assert_eq!(said(&["policy", "list"]), "");
    assert_eq!(
        said(&["policy", "get", "orders"]),
        "retention.max_age_ms\t1000\tdefault\nretention.max_bytes\toff\tdefault\n\
         retention.read_max_age_ms\toff\tdefault\nretention.unread_max_age_ms\toff\tdefault\n\
         spread_by\toff\tdefault\n"
    );
    let define = ["policy", "define", "read once", "--read-max-age-ms", "0"];
    assert_eq!(refused(&define), "Error: invalid_policy", "nothing bounds what nobody reads");
    let bounded = [&define[..], &["--unread-max-age-ms", "86400000", "--max-bytes", "off"]].concat();
    assert_eq!(said(&bounded), "Policy \"read once\" defined\n");
    assert_eq!(
        said(&["policy", "list"]),
        "read once\tretention.max_bytes=off retention.read_max_age_ms=0 retention.unread_max_age_ms=86400000\n"
    );
    assert_eq!(refused(&["policy", "bind", "orders", "readonce"]), "Error: no_such_policy");
    assert_eq!(refused(&["policy", "bind", "order", "read once"]), "Error: no_such_topic");
    let bound = said(&["policy", "bind", "orders", "read once"]);
    assert_eq!(bound, "Topic \"orders\" follows policy \"read once\"\n");
    let got = said(&["policy", "get", "orders"]);
    assert!(got.contains("max_age_ms\t1000\tdefault\n") && got.contains("max_bytes\toff\tpolicy"), "{got}");
    assert_eq!(refused(&["policy", "delete", "read once"]), "Error: policy_in_use");
    assert_eq!(said(&["policy", "delete", "read once", "--force"]), "Policy \"read once\" deleted\n");
    assert_eq!(refused(&["policy", "delete", "read once"]), "Error: no_such_policy");
    let got = said(&["policy", "get", "orders", "--json"]);
    let got: serde_json::Value = serde_json::from_str(&got).unwrap();
    assert_eq!((&got["policy"], &got["defined"]), (&"read once".into(), &false.into()));
    assert_eq!(
        got["settings"]["retention.max_age_ms"]["value"],
        serde_json::Value::Null,
        "it keeps everything"
    );
    assert_eq!(said(&["policy", "unbind", "orders"]), "Topic \"orders\" follows no policy\n");
    assert!(said(&["policy", "get", "orders"]).contains("retention.max_age_ms\t1000\tdefault\n"));

    let denied = Err("Error: permission_denied".to_owned());
    assert_eq!(malachi(&place, "producer", &["policy", "list"]), denied);
    assert_eq!(malachi(&place, "producer", &["policy", "define", "x", "--max-bytes", "0"]), denied);
    let log = broker.output();
    for kind in ["policy_defined", "policy_deleted", "policy_bound"] {
        assert!(log.contains(kind), "an auditor is told of {kind}");
    }
}
