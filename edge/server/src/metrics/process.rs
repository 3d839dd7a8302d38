//! What the operating system says of this process.

use std::fs;

/// Numbers at one instant; what cannot be read is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    /// Resident memory.
    pub(super) memory_bytes: u64,
    /// Open descriptors.
    pub(super) descriptors: u64,
    /// Most there may be.
    pub(super) descriptors_max: u64,
}

impl Process {
    pub(super) fn look() -> Self {
        let pages = fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0);
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let limit = fs::read_to_string("/proc/self/limits").ok().and_then(|text| descriptor_limit(&text));
        Self {
            memory_bytes: pages * rustix::param::page_size() as u64,
            // One of them was this look itself.
            descriptors: descriptors.saturating_sub(1),
            descriptors_max: limit.unwrap_or(0),
        }
    }
}

fn descriptor_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_descriptors() {
        let process = Process::look();
        assert!(process.memory_bytes > 100_000 && process.descriptors >= 3, "{process:?}");
        assert!(process.descriptors_max >= process.descriptors, "{process:?}");
    }

    #[test]
    fn the_limit_is_the_soft_one() {
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024      524288    files\n";
        assert_eq!(descriptor_limit(limits), Some(1024));
        assert_eq!(descriptor_limit("Max open files   unlimited"), None);
    }
}
