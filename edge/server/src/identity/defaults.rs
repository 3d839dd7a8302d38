//! The users made at a start, unless they exist.
//!
//! Owns which they are, the checks of their passwords, and the administrator's password that production makes up.
//! An existing user is never touched: changing a variable changes no password.

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker::{Permissions, SeedUser};

use super::is_user_name;
use super::password::{self, Error, PASSWORD_BYTES_MAX, Passwords};
use crate::config::{Environment, Values};

/// Name of the administrator that production makes.
const ADMIN: &str = "admin";
/// Randomness in its password.
const GENERATED_BYTES: usize = 24;

/// The standard users: name, setting of the password, development password, permissions.
const STANDARD: [(&str, &str, &str, Permissions); 4] = [
    ("admin", "ADMIN_PASS", "admin123", Permissions { admin: true, produce: false, consume: false }),
    ("producer", "PRODUCER_PASS", "producer123", Permissions { admin: false, produce: true, consume: false }),
    ("consumer", "CONSUMER_PASS", "consumer123", Permissions { admin: false, produce: false, consume: true }),
    ("app", "APP_PASS", "app123", Permissions { admin: false, produce: true, consume: true }),
];

/// A user of the configuration.
#[derive(Clone, PartialEq, Eq)]
struct User {
    name: String,
    /// In clear, as configured.
    password: String,
    permissions: Permissions,
    /// The setting it comes from.
    setting: &'static str,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, permissions, .. } = self;
        f.debug_struct("User").field("name", name).field("permissions", permissions).finish_non_exhaustive()
    }
}

/// The users to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defaults {
    users: Vec<User>,
    /// Whether an administrator is to be made with a password nobody chose.
    pub(crate) generate_admin: bool,
}

/// The users to make as the core takes them, and what to tell about them.
#[derive(Debug)]
pub(crate) struct Seeds {
    /// Each with the hash of its password.
    pub(crate) users: Vec<SeedUser>,
    /// To be told once, when the core says that the administrator is new.
    pub(crate) generated: Option<Generated>,
}

/// A password that was made up. Not shown by accident: it has no `Debug` of its content.
pub(crate) struct Generated(String);

impl std::fmt::Debug for Generated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Generated")
    }
}

/// The users the configuration asks for, the first rule that fits: none, a list, the development users, those with
/// a password.
pub(crate) fn defaults(values: &mut Values, environment: Environment) -> Defaults {
    let production = environment == Environment::Production;
    let mut defaults = Defaults::default();
    if values.flag("DISABLE_DEFAULT_USERS") {
        return defaults;
    }
    if let Some(list) = values.text("DEFAULT_USERS").map(str::to_owned) {
        match parse_list(&list) {
            Ok(users) => defaults.users = users,
            Err(problem) => {
                values.refuse("DEFAULT_USERS", &problem);
                return defaults;
            }
        }
    } else {
        for (name, setting, known, permissions) in STANDARD {
            let password = values.text(setting).or((!production).then_some(known));
            defaults.users.extend(password.map(|password| User {
                name: name.to_owned(),
                password: password.to_owned(),
                permissions,
                setting,
            }));
        }
        defaults.generate_admin = production && !values.is_set("ADMIN_PASS");
    }
    check(&defaults, values, production);
    defaults
}

/// Production refuses what development warns about.
fn check(defaults: &Defaults, values: &mut Values, production: bool) {
    let passwords = Passwords {
        cost: password::Cost::Full,
        strong: values.flag("REQUIRE_STRONG_PASSWORDS"),
        chars_min: values.count("MIN_PASSWORD_LEN"),
    };
    for user in &defaults.users {
        // The development users are what they are; only what somebody set is worth a word.
        if !values.is_set(user.setting) && !passwords.strong {
            continue;
        }
        let Some(problem) = problem(user, &passwords) else { continue };
        if production || user.password.len() > PASSWORD_BYTES_MAX {
            values.refuse(user.setting, &problem);
        } else {
            values.warnings.push(format!("MALACHI_{}: {problem}", user.setting));
        }
    }
    if !defaults.generate_admin && !defaults.users.iter().any(|user| user.permissions.admin) {
        values.warnings.push("no default user may administer, and none is made up".to_owned());
    }
}

fn problem(user: &User, passwords: &Passwords) -> Option<String> {
    let (name, password) = (&user.name, user.password.as_bytes());
    if password::is_well_known(password) {
        Some(format!("is no password for {name:?}: it is empty or everybody knows it"))
    } else if password.len() > PASSWORD_BYTES_MAX {
        Some(format!("is no password for {name:?}: it has more than {PASSWORD_BYTES_MAX} bytes"))
    } else if passwords.strong && passwords.is_short(password) {
        let (has, needs) = (user.password.chars().count(), passwords.chars_min);
        Some(format!("is no password for {name:?}: it has {has} characters, strong ones have {needs}"))
    } else {
        None
    }
}

/// `user:password:perm,perm;...`. The problem never shows an entry: it holds a password.
fn parse_list(list: &str) -> Result<Vec<User>, String> {
    let mut users: Vec<User> = Vec::new();
    for (index, entry) in list.split(';').filter(|entry| !entry.trim().is_empty()).enumerate() {
        let (number, fields) = (index + 1, entry.split(':').collect::<Vec<_>>());
        let [name, password, permissions] = fields[..] else {
            return Err(format!("has an entry, number {number}, that is not user:password:permissions"));
        };
        let name = name.trim();
        if !is_user_name(name.as_bytes()) {
            return Err(format!("has an entry, number {number}, whose name is no user's"));
        }
        if users.iter().any(|user| user.name == name) {
            return Err(format!("names user {name:?} twice"));
        }
        let permissions = parse_permissions(permissions)
            .ok_or_else(|| format!("gives user {name:?} something other than admin, produce, consume"))?;
        let (name, password) = (name.to_owned(), password.to_owned());
        users.push(User { name, password, permissions, setting: "DEFAULT_USERS" });
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

impl Defaults {
    /// Hashes the passwords, several at a time; takes long.
    pub(crate) fn seeds(mut self, passwords: Passwords) -> Result<Seeds, Error> {
        let mut generated = None;
        if self.generate_admin {
            let password = generate()?;
            generated = Some(Generated(password.clone()));
            let permissions = Permissions { admin: true, ..Permissions::default() };
            self.users.push(User { name: ADMIN.to_owned(), password, permissions, setting: "ADMIN_PASS" });
        }
        let hashes = hash_all(&self.users, passwords)?;
        let seed = |(user, hash): (User, Arc<str>)| SeedUser {
            name: user.name.into(),
            hash,
            permissions: user.permissions,
        };
        Ok(Seeds { users: self.users.into_iter().zip(hashes).map(seed).collect(), generated })
    }
}

fn hash_all(users: &[User], passwords: Passwords) -> Result<Vec<Arc<str>>, Error> {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let hash_every = |first: usize| {
        let mine = users.iter().enumerate().skip(first).step_by(threads);
        mine.map(|(index, user)| Ok((index, passwords.hash(user.password.as_bytes())?.into())))
            .collect::<Result<Vec<(usize, Arc<str>)>, Error>>()
    };
    let hash_every = &hash_every;
    let parts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|first| scope.spawn(move || hash_every(first))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Failed))).collect::<Vec<_>>()
    });
    let mut hashes = BTreeMap::new();
    for part in parts {
        hashes.extend(part?);
    }
    Ok(hashes.into_values().collect())
}

fn generate() -> Result<String, Error> {
    let mut bytes = [0; GENERATED_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

impl Generated {
    /// Whether this is the user it was made for.
    pub(crate) fn is_for(&self, user: &str) -> bool {
        user == ADMIN
    }

    /// Tells the password, for the only time. Not through the log, whose level or format could swallow it or
    /// carry it further than the terminal.
    pub(crate) fn announce(self, out: &mut dyn Write) -> std::io::Result<()> {
        let Self(password) = self;
        let rule = "=".repeat(72);
        write!(
            out,
            "{rule}\n\
             An administrator was made, with a password that is shown this once and cannot\n\
             be recovered:\n\n\
             username: {ADMIN}\n\
             password: {password}\n\n\
             To choose it yourself, set MALACHI_ADMIN_PASS before the first start.\n\
             {rule}\n"
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::password::Cost;
    use super::*;

    const LIGHT: Passwords = Passwords { cost: Cost::Light, strong: false, chars_min: 12 };

    #[test]
    fn a_list_is_taken_whole_or_not_at_all_and_no_password_is_shown() {
        let users = parse_list("alice:s3cret:produce,consume; bob::;carol:x:admin;").unwrap();
        let names: Vec<&str> = users.iter().map(|user| user.name.as_str()).collect();
        assert_eq!(names, ["alice", "bob", "carol"]);
        assert!(users[0].permissions.produce && users[0].permissions.consume && users[2].permissions.admin);
        assert!(!format!("{users:?}").contains("s3cret"));
        for bad in [
            "alice",
            "alice:s3cret",
            "alice:s3cret:produce:viewer",
            "alice:s3cret:root",
            ":s3cret:produce",
            "a b:s3cret:",
            "a:s3cret:;a:y:",
        ] {
            let problem = parse_list(bad).unwrap_err();
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }

    #[test]
    fn seeds_carry_hashes_in_the_order_of_the_users() {
        let defaults =
            Defaults { users: parse_list("a:1:;b:2:;c:3:;d:4:;e:5:").unwrap(), generate_admin: true };
        let Seeds { users, generated } = defaults.seeds(LIGHT).unwrap();
        assert_eq!(users.len(), 6);
        for (user, password) in users.iter().zip(["1", "2", "3", "4", "5"]) {
            assert!(LIGHT.verify(Some(&user.hash), password.as_bytes()), "{}", user.name);
        }
        let (admin, Generated(password)) = (&users[5], generated.unwrap());
        assert!(&*admin.name == "admin" && admin.permissions.admin && password.len() == 32);
        assert!(LIGHT.verify(Some(&admin.hash), password.as_bytes()));
    }

    #[test]
    fn the_announcement_has_name_and_password_on_lines_of_their_own() {
        let mut out = Vec::new();
        Generated("made-up".to_owned()).announce(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().any(|line| line == "username: admin"), "{text}");
        assert!(text.lines().any(|line| line == "password: made-up"), "{text}");
        assert!(text.contains("cannot") && text.contains("MALACHI_ADMIN_PASS"));
    }
}
