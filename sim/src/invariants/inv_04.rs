//! INV-4: a reply other than ok never hides an acknowledgement.
//!
//! And the other way round: a refusal that says "certainly nothing happened" is believed, so nothing of that
//! request may ever be read.

use std::fmt::Display;

use wire::{Effect, Reason};

use super::{Violation, ensure};

/// Judges a batch that was read although its request had been refused.
pub fn check(batch: impl Display, refused: Option<Reason>) -> Result<(), Violation> {
    let nothing = refused.filter(|reason| reason.effect() == Effect::None);
    ensure(nothing.is_none(), "INV-4", || format!("{batch} was refused as {nothing:?}, and was read"))
}
