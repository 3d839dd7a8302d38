//! Rules about the source tree that no lint can say, as tests.
//!
//! Each module owns one rule or a family of them: a function that takes text or facts and returns complaints, a
//! test that runs it over this repository, and a test that feeds it something bad, so that a rule that can no
//! longer fail is noticed. Nothing here is part of the product.
//!
//! What a lint can say is said by a lint: see `core/clippy.toml` and `[workspace.lints]` in the root manifest.

#![cfg(test)]
#![allow(clippy::unwrap_used)]

mod code;
mod commands;
mod dependencies;
mod docs;
mod features;
mod invariants;
mod machine;
mod manifests;
mod shape;
mod tree;
