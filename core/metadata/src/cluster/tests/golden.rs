//! Bytes that must not change: the snapshot and every command, as hexadecimal text beside this file.

use super::*;
use crate::cluster::snapshot::Error;

fn sample() -> Cluster {
    let mut cluster = Cluster::default();
    for command in commands() {
        run(&mut cluster, &command);
    }
    cluster
}

fn commands() -> Vec<Command> {
    let permissions = Permissions { admin: true, produce: false, consume: true };
    let rules = LockoutRules { attempts_max: NonZeroU32::new(2).unwrap(), ..RULES };
    let attempt = Attempt { user: bytes("ann"), address: bytes("::1"), at: WallTime(700) };
    let lock = Command::RecordFailure { attempt, rules };
    let policy = Policy {
        age_ms_max: Setting::Value(86_400_000),
        bytes_max: Setting::Off,
        spread_by: Setting::Value(bytes("rack")),
    };
    vec![
        create("ann", 5),
        create("bob@example.com", 6),
        create("gone", 7),
        delete("gone"),
        password("ann", "second", 8),
        Command::SetPermissions { user: bytes("ann"), permissions, at: WallTime(9) },
        Command::SetRole { user: bytes("bob@example.com"), role: Some(Role::Viewer), at: WallTime(10) },
        grant("ann", Operation::Produce, "orders"),
        grant("ann", Operation::Consume, "logs.*"),
        grant("ann", Operation::Consume, "x"),
        revoke("ann", Operation::Consume, "x"),
        grant("nobody", Operation::Consume, "*"),
        lock.clone(),
        lock,
        failure("ann", "10.0.0.1", 800),
        failure("bob", "10.0.0.1", 900),
        Command::RecordSuccess { user: bytes("bob"), address: bytes("10.0.0.1") },
        Command::Unlock { user: bytes("carl"), address: None },
        Command::Unlock { user: bytes("carl"), address: Some(bytes("::1")) },
        Command::ForgetLockouts { at: WallTime(1) },
        Command::DefinePolicy { name: bytes("short"), policy },
        Command::DefinePolicy { name: bytes("none"), policy: Policy::default() },
        Command::DeletePolicy { name: bytes("none") },
        Command::Upgrade { to: crate::machine::Version::BUILD },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_snapshot_is_the_golden_one() {
    let bytes = sample().encode_snapshot();
    assert_eq!(hex(&bytes), include_str!("../golden/snapshot-1.hex").trim());
    assert_eq!(Cluster::decode_snapshot(bytes).unwrap(), sample());
}

#[test]
fn the_commands_are_the_golden_ones() {
    let lines: Vec<String> = commands().iter().map(|command| hex(&command.encode())).collect();
    assert_eq!(lines.join("\n"), include_str!("../golden/commands-1.hex").trim());
}

#[test]
fn a_snapshot_that_is_cut_changed_or_of_a_later_build_is_refused() {
    let good = sample().encode_snapshot();
    for len in 0..good.len() {
        assert!(Cluster::decode_snapshot(good.slice(..len)).is_err(), "{len}");
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        Cluster::decode_snapshot(bytes.into())
    };
    assert_eq!(changed(3, 2), Err(Error::LaterFormat(2)));
    assert_eq!(changed(5, 9), Err(Error::LaterVersion(crate::machine::Version(9))));
    let first_section = 3 + 1 + 2 + 8;
    assert_eq!(changed(first_section + 1, 2), Err(Error::LaterSection { tag: 1, format: 2 }));
    // Whatever one byte becomes: an error, or a state that encodes to exactly these bytes.
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xff] {
            if let Ok(state) = changed(at, good[at] ^ flip) {
                assert_ne!(state.encode_snapshot(), good);
                assert_eq!(state.encode_snapshot()[at], good[at] ^ flip);
            }
        }
    }
}

#[test]
fn rows_that_contradict_each_other_are_refused() {
    let refused = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = sample();
        change(&mut cluster);
        Cluster::decode_snapshot(cluster.encode_snapshot())
    };
    let early = refused(&|cluster| cluster.users.next_revision = UserRevision(1));
    assert_eq!(early, Err(Error::Inconsistent("a revision that was not given yet")));
    // A later entry would want the same place in the order of lockouts.
    let future = refused(&|cluster| cluster.applied = RaftIndex(3));
    assert!(matches!(future, Err(Error::Inconsistent(_))), "{future:?}");
}
