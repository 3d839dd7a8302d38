//! The client's opaque token.
