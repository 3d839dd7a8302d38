//! The promises, one file each, named by their ids.
//!
//! Each says whose rule it is and judges plain facts, so that the checks read like the rules and can be used by
//! every simulated world.

pub mod c_07;
pub mod c_13;
pub mod inv_01;
pub mod inv_02;
pub mod inv_03;
pub mod inv_04;
pub mod inv_05;
pub mod inv_06;
pub mod inv_07;
pub mod inv_08;
pub mod inv_09;
pub mod inv_10;
pub mod inv_11;
pub mod inv_12;
pub mod inv_13;
pub mod inv_14;
pub mod inv_15;
pub mod inv_16;
pub mod inv_17;
pub mod inv_18;
pub mod inv_19;
pub mod inv_20;
pub mod inv_21;
pub mod inv_22;
pub mod inv_23;
pub mod inv_24;
pub mod inv_25;
pub mod inv_26;
pub mod inv_27;
pub mod inv_28;
pub mod inv_29;
pub mod inv_30;
pub mod inv_31;
pub mod inv_32;
pub mod inv_33;
pub mod inv_34;
pub mod inv_35;
pub mod inv_36;
pub mod inv_37;
pub mod inv_38;
pub mod inv_39;
pub mod inv_40;
pub mod inv_41;
pub mod inv_42;
pub mod inv_43;
pub mod inv_44;
pub mod inv_45;
pub mod inv_46;
pub mod inv_47;
pub mod inv_48;
pub mod inv_49;
pub mod inv_50;
pub mod inv_51;
pub mod inv_52;
pub mod inv_53;
pub mod p_37;
pub mod p_38;

use std::fmt;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its id.
    pub invariant: &'static str,
    /// What was seen.
    pub detail: String,
}

impl Violation {
    /// A broken promise.
    pub fn new(invariant: &'static str, detail: impl Into<String>) -> Self {
        Self { invariant, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken: {}", self.invariant, self.detail)
    }
}

/// `Ok`, or a violation that says what was seen.
pub fn ensure(
    holds: bool,
    invariant: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(invariant, detail())) }
}
