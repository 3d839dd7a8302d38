//! One segment copy as bytes: names, sparse index, scanning and reading.
//!
//! Pure functions of bytes handed in; who reads them, when, and what follows is `store`'s.

pub mod index;
pub mod layout;
pub mod read;
pub mod scan;
