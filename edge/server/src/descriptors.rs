//! How many files and sockets the process may have open, and what of that the segment copies get.
//!
//! A shell usually grants 1024 where the system would allow far more; a broker with a few hundred ranges and
//! clients needs them. Raising it asks nobody's permission, so it is done at every start.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use types::limits;

/// Raises the limit as far as it goes without privileges, and says what it is then.
pub(crate) fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        return maximum.unwrap_or(u64::MAX);
    }
    current.unwrap_or(u64::MAX)
}

/// How many segment copies may be open: a quarter of all, so that sockets get the most.
pub(crate) fn copies(limit: u64) -> usize {
    let quarter = usize::try_from(limit / 4).unwrap_or(usize::MAX);
    quarter.clamp(limits::OPEN_COPIES_MIN, limits::OPEN_COPIES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_it_goes_and_copies_get_a_bounded_part() {
        let limit = raise();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!((current, limit), (maximum, maximum.unwrap_or(u64::MAX)));
        assert_eq!(copies(1024), 256);
        assert_eq!((copies(0), copies(u64::MAX)), (limits::OPEN_COPIES_MIN, limits::OPEN_COPIES_MAX));
    }
}
