//! What a number depends on besides the code.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// The machine, as far as it tells.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processors this process may use.
    pub cores: usize,
    /// The processor's name.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The file system's type and options, for the directory measured.
    pub file_system: String,
    /// Processes running or waiting to run, over the last minute, when the run began.
    pub load: String,
}

impl Machine {
    /// What this machine tells about itself and the file system `dir` lies on.
    #[must_use]
    pub fn look(dir: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or("", |(_, value)| value.trim()).to_owned()
        };
        let memory = value(&text("/proc/meminfo"), "MemTotal");
        let memory_kib: u64 = memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: value(&text("/proc/cpuinfo"), "model name"),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: memory_kib * 1024,
            file_system: file_system(&text("/proc/self/mounts"), dir),
            load: text("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

/// Type and options of the mount with the longest path that leads to `dir`.
fn file_system(mounts: &str, dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            dir.starts_with(point).then(|| (point.len(), format!("{kind} ({options})")))
        })
        // A later mount on the same point hides an earlier one.
        .max_by_key(|(len, _)| *len)
        .map_or_else(String::new, |(_, found)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_names_the_file_system() {
        let mounts = "a / ext4 rw 0 0\nb /tmp tmpfs rw,nosuid 0 0\nc /other xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/nowhere/x")), "ext4 (rw)");
        assert_eq!(file_system(mounts, Path::new("/tmp")), "tmpfs (rw,nosuid)");
    }
}
