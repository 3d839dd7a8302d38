//! Passwords: how they are hashed and which are allowed.
//!
//! Argon2id, stored as PHC strings. Verifying takes the parameters from the string, within bounds, so hashes made
//! with other parameters go on working.

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};

use crate::config::{Environment, Values};

/// Longest password, bytes; part of what a login costs is proportional to it.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;
const SALT_BYTES: usize = 16;
const TAG_BYTES: usize = 32;
/// Most memory a stored string may ask for, KiB; most passes; most lanes. What is above was not made here.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

/// Passwords everybody knows.
pub(super) const WELL_KNOWN: &[&str] = &[
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

/// What hashing a new password costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// 64 MiB, 3 passes, 4 lanes.
    Full,
    /// 8 MiB, one pass: outside production, where logins should cost nothing and everybody knows the passwords.
    Light,
}

/// The rules for passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passwords {
    pub(super) cost: Cost,
    /// Whether short and well-known ones are refused.
    pub(super) strong: bool,
    /// Characters a strong one has at least.
    pub(super) chars_min: usize,
}

/// The rules the configuration asks for.
pub(crate) fn passwords(values: &mut Values, environment: Environment) -> Passwords {
    let cost = match values.text("PASSWORD_HASH") {
        Some("light") => Cost::Light,
        Some(_) => Cost::Full,
        None if environment != Environment::Production => Cost::Light,
        None => Cost::Full,
    };
    if cost == Cost::Light && environment == Environment::Production {
        values.refuse("PASSWORD_HASH", "is too cheap to guess against for production");
    }
    Passwords {
        cost,
        strong: values.flag("REQUIRE_STRONG_PASSWORDS"),
        chars_min: values.count("MIN_PASSWORD_LEN"),
    }
}

/// Why a password is not hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// There is no randomness for its salt.
    #[error("no randomness")]
    NoRandomness,
    /// The hashing library refused, out of memory above all.
    #[error("cannot hash")]
    Failed,
}

impl Passwords {
    /// Whether a user may have this password from now on.
    pub(crate) fn allow(&self, password: &[u8]) -> bool {
        let length = !password.is_empty() && password.len() <= PASSWORD_BYTES_MAX;
        length && !(self.strong && (self.is_short(password) || is_well_known(password)))
    }

    pub(super) fn is_short(&self, password: &[u8]) -> bool {
        String::from_utf8_lossy(password).chars().count() < self.chars_min
    }

    /// A PHC string with a salt of its own. Takes long.
    pub(crate) fn hash(&self, password: &[u8]) -> Result<String, Error> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|_| Error::NoRandomness)?;
        let hash = self.hasher().hash_password_with_salt(password, &salt).map_err(|_| Error::Failed)?;
        Ok(hash.to_string())
    }

    /// Whether this is the password of that hash. Takes long, and as long without a hash, or with one that is
    /// none.
    pub(crate) fn verify(&self, hash: Option<&str>, password: &[u8]) -> bool {
        // A password that cannot be anybody's is compared all the same.
        let (password, possible) = match password.get(..PASSWORD_BYTES_MAX) {
            Some(start) if password.len() > PASSWORD_BYTES_MAX => (start, false),
            Some(_) | None => (password, !password.is_empty()),
        };
        let parsed = hash.and_then(|hash| PasswordHash::new(hash).ok());
        match parsed.filter(is_affordable) {
            Some(parsed) => self.hasher().verify_password(password, &parsed).is_ok() && possible,
            None => {
                let mut tag = [0; TAG_BYTES];
                let hashed = self.hasher().hash_password_into(password, &[0; SALT_BYTES], &mut tag);
                std::hint::black_box((hashed.is_ok(), tag));
                false
            }
        }
    }

    fn hasher(&self) -> Argon2<'static> {
        let (memory_kib, passes, lanes) = match self.cost {
            Cost::Full => (64 * 1024, 3, 4),
            Cost::Light => (8 * 1024, 1, 1),
        };
        let params = Params::new(memory_kib, passes, lanes, Some(TAG_BYTES));
        Argon2::new(
            Algorithm::Argon2id,
            Version::V0x13,
            params.expect("these parameters are within all bounds"),
        )
    }
}

/// Whether the parameters are within what this process is ready to spend.
fn is_affordable(hash: &PasswordHash) -> bool {
    let within = |name, max| hash.params.get_decimal(name).is_none_or(|value| value <= max);
    within("m", MEMORY_KIB_MAX) && within("t", PASSES_MAX) && within("p", LANES_MAX)
}

pub(super) fn is_well_known(password: &[u8]) -> bool {
    WELL_KNOWN.iter().any(|known| known.as_bytes() == password)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LIGHT: Passwords = Passwords { cost: Cost::Light, strong: false, chars_min: 12 };

    #[test]
    fn only_the_whole_password_opens_and_two_hashes_of_it_differ() {
        let (one, two) = (LIGHT.hash(b"secret").unwrap(), LIGHT.hash(b"secret").unwrap());
        assert_ne!(one, two);
        assert!(one.starts_with("$argon2id$v=19$m=8192,t=1,p=1$"), "{one}");
        assert!(LIGHT.verify(Some(&one), b"secret") && LIGHT.verify(Some(&two), b"secret"));
        for wrong in ["secre", "secrets", "Secret", "", "secretsecret"] {
            assert!(!LIGHT.verify(Some(&one), wrong.as_bytes()), "{wrong}");
        }
        assert!(!LIGHT.verify(None, b"secret"));
    }

    #[test]
    fn the_full_cost_is_the_documented_one_and_each_verifies_the_other() {
        let full = Passwords { cost: Cost::Full, ..LIGHT };
        let hash = full.hash(b"secret").unwrap();
        let parts: Vec<&str> = hash.split('$').collect();
        assert_eq!(parts[1..4], ["argon2id", "v=19", "m=65536,t=3,p=4"]);
        assert_eq!((parts[4].len(), parts[5].len()), (22, 43), "16 bytes of salt, 32 of tag");
        assert!(LIGHT.verify(Some(&hash), b"secret") && !LIGHT.verify(Some(&hash), b"other"));
    }

    #[test]
    fn a_hash_that_is_none_or_asks_for_too_much_opens_nothing() {
        let good = LIGHT.hash(b"secret").unwrap();
        for bad in [
            String::new(),
            "plain".to_owned(),
            good.replace("m=8192", "m=4194304"),
            good.replace("t=1", "t=1000"),
            good.replace("argon2id", "argon2x"),
            good[..good.len() - 4].to_owned(),
        ] {
            assert!(!LIGHT.verify(Some(&bad), b"secret"), "{bad}");
        }
    }

    #[test]
    fn strength_is_asked_for_when_it_is_configured_and_length_always() {
        let strong = Passwords { strong: true, ..LIGHT };
        for (password, weak, allowed) in [
            ("", true, false),
            ("x", true, true),
            ("admin123", true, true),
            ("a-long-passphrase", false, true),
            ("ääääääääääää", false, true),
            ("äääääääääää", true, true),
        ] {
            assert_eq!(LIGHT.allow(password.as_bytes()), allowed, "{password}");
            assert_eq!(strong.allow(password.as_bytes()), allowed && !weak, "{password}");
        }
        assert!(LIGHT.allow(&[b'x'; PASSWORD_BYTES_MAX]) && !LIGHT.allow(&[b'x'; PASSWORD_BYTES_MAX + 1]));
        assert!(!LIGHT.verify(Some(&LIGHT.hash(&[b'x'; PASSWORD_BYTES_MAX]).unwrap()), &[b'x'; 1025]));
    }
}
