//! The simulated disk against the contract, with a process end and with a power loss between two openings.

use malachi_sim::disk::{Faults, SimDisk};

mod process_end {
    use super::{Faults, SimDisk};

    storage::disk_conformance!(SimDisk::new(1, Faults::none()), |mut disk: SimDisk| {
        disk.kill();
        disk
    });
}

mod power_loss {
    use super::{Faults, SimDisk};

    storage::disk_conformance!(SimDisk::new(2, Faults::none()), |mut disk: SimDisk| {
        disk.crash();
        disk
    });
}

/// Schedules differ from seed to seed; the contract holds in all of them.
mod many_schedules {
    use malachi_sim::disk::{Faults, SimDisk};
    use storage::disk::conformance::{
        Lab, a_failed_file_in_shared_syncs, jobs_complete_in_order, later_writes_win,
        reading_jobs_beside_writing_jobs, shared_syncs_over_several_files,
    };

    fn over_seeds(case: fn(&mut Lab<SimDisk>)) {
        for seed in 0..50 {
            case(&mut Lab::new(SimDisk::new(seed, Faults::none()), |disk| disk));
        }
    }

    #[test]
    fn of_ordered_jobs() {
        over_seeds(jobs_complete_in_order);
        over_seeds(later_writes_win);
    }

    #[test]
    fn of_shared_syncs() {
        over_seeds(a_failed_file_in_shared_syncs);
        over_seeds(shared_syncs_over_several_files);
    }

    #[test]
    fn of_readers() {
        over_seeds(reading_jobs_beside_writing_jobs);
    }
}
