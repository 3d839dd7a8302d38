//! Who may log in, and with what.
//!
//! Owns the users given by the configuration and the check of a password. There is no user store yet: the
//! passwords are those of the environment, compared in constant time, and nothing can be changed at run time.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker::{Permissions, Session};

use crate::config::{Environment, Invalid, Vars};

/// Bytes of randomness in a session token.
const TOKEN_BYTES: usize = 32;

/// Passwords everybody knows.
const WEAK: &[&str] = &[
    "",
    "admin123",
    "producer123",
    "consumer123",
    "app123",
    "password",
    "changeme",
    "CHANGEME",
    "123456",
    "qwerty",
];

/// A user of the configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Arc<str>,
    /// In clear, as configured.
    password: String,
    /// What the user may do.
    pub permissions: Permissions,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .field("permissions", &self.permissions)
            .finish_non_exhaustive()
    }
}

/// The standard users: name, development password, permissions.
const STANDARD: [(&str, &str, Permissions); 4] = [
    ("admin", "admin123", Permissions { admin: true, produce: false, consume: false }),
    ("producer", "producer123", Permissions { admin: false, produce: true, consume: false }),
    ("consumer", "consumer123", Permissions { admin: false, produce: false, consume: true }),
    ("app", "app123", Permissions { admin: false, produce: true, consume: true }),
];

/// The users the environment asks for.
pub(crate) fn configured(vars: &mut Vars, environment: Environment) -> Result<Vec<User>, Invalid> {
    let production = environment == Environment::Production;
    let passwords: Vec<Option<String>> =
        STANDARD.iter().map(|(name, ..)| vars.text(&variable(name))).collect();
    let given = vars.text("MALACHI_DEFAULT_USERS");
    let users = if vars.on("MALACHI_DISABLE_DEFAULT_USERS") {
        Vec::new()
    } else if let Some(list) = given {
        parse_list(&list)?
    } else {
        let standard = STANDARD.iter().zip(passwords);
        let user = |((name, known, permissions), password): (&(&str, &str, Permissions), Option<String>)| {
            let password =
                if production { password? } else { password.unwrap_or_else(|| (*known).to_owned()) };
            Some(User { name: (*name).into(), password, permissions: *permissions })
        };
        standard.filter_map(user).collect()
    };
    if production {
        check_production(&users)?;
    }
    Ok(users)
}

fn variable(name: &str) -> String {
    format!("MALACHI_{}_PASS", name.to_uppercase())
}

fn check_production(users: &[User]) -> Result<(), Invalid> {
    if users.is_empty() {
        let problem = "no user is configured and this build stores none: set it, or MALACHI_DEFAULT_USERS";
        return Err(Invalid::new("MALACHI_ADMIN_PASS", problem));
    }
    for user in users {
        if WEAK.contains(&user.password.as_str()) {
            let problem = format!("the password of user {:?} is a well-known one", user.name);
            return Err(Invalid::new("MALACHI_DEFAULT_USERS", problem));
        }
    }
    Ok(())
}

/// `user:password:perm,perm;...`
fn parse_list(list: &str) -> Result<Vec<User>, Invalid> {
    let invalid = |problem: String| Invalid::new("MALACHI_DEFAULT_USERS", problem);
    let mut users: Vec<User> = Vec::new();
    for (index, entry) in list.split(';').filter(|entry| !entry.trim().is_empty()).enumerate() {
        let fields: Vec<&str> = entry.split(':').collect();
        // The entry is not shown: it holds a password.
        let [name, password, permissions] = fields[..] else {
            return Err(invalid(format!("entry {} is not user:password:permissions", index + 1)));
        };
        let name = name.trim();
        if name.is_empty() || users.iter().any(|user| &*user.name == name) {
            return Err(invalid(format!("entry {} has no name or a repeated one", index + 1)));
        }
        let permissions = parse_permissions(permissions).ok_or_else(|| {
            invalid(format!("user {name:?} has a permission other than admin, produce, consume"))
        })?;
        users.push(User { name: name.into(), password: password.to_owned(), permissions });
    }
    Ok(users)
}

fn parse_permissions(list: &str) -> Option<Permissions> {
    let mut permissions = Permissions::default();
    for permission in list.split(',').map(str::trim).filter(|permission| !permission.is_empty()) {
        match permission {
            "admin" => permissions.admin = true,
            "produce" => permissions.produce = true,
            "consume" => permissions.consume = true,
            _ => return None,
        }
    }
    Some(permissions)
}

/// Everybody who may log in.
#[derive(Debug)]
pub(crate) struct Users {
    users: Vec<User>,
}

impl Users {
    pub(crate) fn new(users: Vec<User>) -> Self {
        Self { users }
    }

    /// The session of whoever knows the password. Null is nobody. The time does not tell whether the user
    /// exists: everybody's name and password are compared every time.
    pub(crate) fn verify(&self, name: Option<&[u8]>, password: Option<&[u8]>) -> Option<Session> {
        let (name, password) = (name?, password?);
        let mut found = None;
        for user in &self.users {
            let same_name = equal(user.name.as_bytes(), name);
            let same_password = equal(user.password.as_bytes(), password);
            if same_name & same_password {
                found = Some(user);
            }
        }
        found.map(|user| Session { user: user.name.clone(), permissions: user.permissions })
    }
}

/// Compares every byte of what came, whatever it is compared with.
fn equal(known: &[u8], given: &[u8]) -> bool {
    let mut difference = u8::from(known.len() != given.len());
    for (index, byte) in given.iter().enumerate() {
        difference |= byte ^ known.get(index % known.len().max(1)).copied().unwrap_or(0);
    }
    std::hint::black_box(difference) == 0
}

/// A token nobody can guess: 43 characters.
pub(crate) fn token() -> Result<String, getrandom::Error> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn users(list: &str) -> Users {
        Users::new(parse_list(list).unwrap())
    }

    #[test]
    fn only_the_whole_password_of_the_right_user_opens() {
        let users = users("alice:secret:produce;bob::consume;carol:x:");
        let session = users.verify(Some(b"alice"), Some(b"secret")).unwrap();
        assert_eq!(
            (&*session.user, session.permissions.produce, session.permissions.admin),
            ("alice", true, false)
        );
        for (name, password) in [
            ("alice", "secre"),
            ("alice", "secrets"),
            ("alice", "secretsecret"),
            ("alice", ""),
            ("bob", "secret"),
            ("dave", ""),
        ] {
            assert_eq!(
                users.verify(Some(name.as_bytes()), Some(password.as_bytes())),
                None,
                "{name} {password}"
            );
        }
        assert_eq!(users.verify(None, Some(b"secret")), None);
        assert_eq!(users.verify(Some(b"alice"), None), None);
        assert!(users.verify(Some(b"bob"), Some(b"")).is_some(), "configured with an empty password");
    }

    #[test]
    fn a_list_is_taken_whole_or_not_at_all_and_no_password_is_shown() {
        for bad in [
            "alice",
            "alice:s3cret",
            "alice:s3cret:produce:x",
            "alice:s3cret:root",
            ":s3cret:produce",
            "a:s3cret:;a:y:",
        ] {
            let line = parse_list(bad).unwrap_err().to_string();
            assert!(!line.contains("s3cret"), "{line}");
        }
        assert!(!format!("{:?}", users("alice:s3cret:admin")).contains("s3cret"));
    }

    #[test]
    fn tokens_are_43_characters_and_differ() {
        let (one, two) = (token().unwrap(), token().unwrap());
        assert_eq!(one.len(), 43);
        assert_ne!(one, two);
        assert!(one.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
    }
}
