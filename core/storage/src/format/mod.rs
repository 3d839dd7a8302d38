//! Bytes that outlive us: headers, checksums, versions. One file for each kind.

pub mod batch;
