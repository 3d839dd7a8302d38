//! All segment copies of one data directory.

mod request;

pub use request::{
    Action, Damage, DamageClass, Error, Extent, FailReason, Notice, Reply, Report, Request, RequestId, State,
};
