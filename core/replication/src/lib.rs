//! One segment and its copies.
//!
//! Owns what a primary knows of its followers and what that makes committed, how a segment ends when its primary
//! cannot end it, and how copies become whole again. Does not know the disk, the network, the metadata or the bytes of
//! a record: it is told of offsets and sizes, and says what to ask of whom.

pub mod follower;
mod marks;
pub mod primary;
pub mod quorum;
pub mod repair;
pub mod sealing;
pub mod standing;
