//! Names and addresses that come from outside and are kept as text.

/// A newtype over shared text: what it is, what is wrong with text that is none, and how to tell.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $(#[$error_doc:meta])* $error:ident($message:literal), $is_good:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(std::sync::Arc<str>);

        $(#[$error_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        #[error($message)]
        pub struct $error;

        impl $name {
            /// Checks and takes text that came from outside.
            pub fn new(text: &[u8]) -> Result<Self, $error> {
                let text = std::str::from_utf8(text).map_err(|_| $error)?;
                let is_good: fn(&str) -> bool = $is_good;
                if is_good(text) { Ok(Self(text.into())) } else { Err($error) }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

pub(super) use text;
