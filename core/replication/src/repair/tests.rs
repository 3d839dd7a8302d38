//! One copy at a time, step by step.

use super::*;

const TARGET: NodeId = NodeId(9);
const RECORDED: Recorded = Recorded { base: Offset(10), end: Offset(20), bytes: 1000 };
const EXACT: Answer = Answer::Verified { records: 10, bytes: 1000 };

fn repair(sources: &[u128]) -> Repair {
    let mut repair = Repair::new(RECORDED, TARGET, sources.iter().copied().map(NodeId), Epoch(2));
    assert_eq!(repair.begin(), Ask::Fence { node: TARGET, epoch: Epoch(2) });
    repair
}

fn at(end: u64, health: Health) -> Answer {
    Answer::Stands(standing(end, health))
}

fn standing(end: u64, health: Health) -> Standing {
    Standing { end: Offset(end), bytes: (end - 10) * 100, epoch: Epoch(2), health }
}

fn fill(from: u128, at: u64) -> Ask {
    Ask::Fill { from: NodeId(from), to: TARGET, at: Offset(at), epoch: Epoch(2) }
}

#[test]
fn a_copy_that_is_not_there_is_made_filled_read_through_and_ended() {
    let mut repair = repair(&[1, 2]);
    assert_eq!(repair.answered(Answer::Missing), Ask::Make { node: TARGET, epoch: Epoch(2) });
    assert_eq!(repair.answered(Answer::Made), fill(1, 10));
    assert_eq!(repair.answered(at(20, Health::Rebuilding)), Ask::Verify { node: TARGET });
    assert_eq!(repair.answered(EXACT), Ask::Seal { node: TARGET });
    assert_eq!(repair.answered(at(20, Health::Sealed)), Ask::Whole);
}

#[test]
fn the_next_source_goes_on_where_the_first_had_no_more() {
    let mut repair = repair(&[1, 2]);
    assert_eq!(repair.answered(at(13, Health::Open)), fill(1, 13));
    assert_eq!(repair.answered(at(15, Health::Open)), fill(2, 15));
    assert_eq!(repair.answered(Answer::SourceFailed), Ask::Failed(Failure::NoSource));
}

#[test]
fn what_has_too_much_is_cut_and_what_is_whole_is_left() {
    assert_eq!(repair(&[]).answered(at(25, Health::Open)), Ask::Seal { node: TARGET });
    assert_eq!(repair(&[]).answered(at(20, Health::Stopped)), Ask::Seal { node: TARGET });
    assert_eq!(repair(&[]).answered(at(20, Health::Sealed)), Ask::Whole);
}

/// No seal without having been read: what was once made anew is not believed by its length.
#[test]
fn a_copy_made_anew_that_does_not_read_as_recorded_is_no_copy() {
    let mut repair = repair(&[1]);
    assert_eq!(repair.answered(at(20, Health::Rebuilding)), Ask::Verify { node: TARGET });
    let short = Answer::Verified { records: 9, bytes: 900 };
    assert_eq!(repair.answered(short), Ask::Failed(Failure::Suspect));
}

#[test]
fn damage_is_removed_only_once_another_copy_was_read_through() {
    let mut repair = repair(&[1, 2]);
    assert_eq!(repair.answered(at(14, Health::Damaged)), Ask::Verify { node: NodeId(1) });
    let short = Answer::Verified { records: 9, bytes: 1000 };
    assert_eq!(repair.answered(short), Ask::Verify { node: NodeId(2) });
    assert_eq!(repair.answered(EXACT), Ask::Remove { node: TARGET });
    assert_eq!(repair.answered(Answer::Missing), Ask::Make { node: TARGET, epoch: Epoch(2) });
    assert_eq!(repair.answered(Answer::Made), fill(2, 10));
    assert_eq!(repair.answered(Answer::SourceFailed), Ask::Failed(Failure::NoSource));
}

#[test]
fn what_cannot_even_be_read_is_written_over_once_another_was_read_through() {
    let mut repair = repair(&[1]);
    assert_eq!(repair.answered(Answer::Unreadable), Ask::Verify { node: NodeId(1) });
    assert_eq!(repair.answered(EXACT), Ask::Remove { node: TARGET });
    assert_eq!(repair.answered(Answer::Unreadable), Ask::Make { node: TARGET, epoch: Epoch(2) });
    assert_eq!(repair.answered(Answer::Made), fill(1, 10));
}

#[test]
fn nothing_is_removed_when_nobody_else_has_it() {
    let mut alone = repair(&[]);
    assert_eq!(alone.answered(at(14, Health::Damaged)), Ask::Failed(Failure::NoSource));
    for other in
        [Answer::Silent, Answer::Unreadable, Answer::Missing, Answer::Verified { records: 10, bytes: 999 }]
    {
        let mut repair = repair(&[1]);
        assert_eq!(repair.answered(at(14, Health::Damaged)), Ask::Verify { node: NodeId(1) });
        assert_eq!(repair.answered(other), Ask::Failed(Failure::NoSource));
    }
}

#[test]
fn a_device_that_takes_no_writes_and_a_contradiction_are_told() {
    let failed = |answer| repair(&[1]).answered(answer);
    assert_eq!(failed(at(14, Health::OutOfService)), Ask::Failed(Failure::OutOfService));
    assert_eq!(failed(at(14, Health::Stopped)), Ask::Failed(Failure::OutOfService));
    assert_eq!(failed(at(14, Health::Sealed)), Ask::Failed(Failure::Suspect));
    let bytes = Standing { bytes: 999, ..standing(20, Health::Open) };
    assert_eq!(failed(Answer::Stands(bytes)), Ask::Failed(Failure::Suspect));
}

/// Its disk was full, say, and no other node can take its place.
#[test]
fn what_should_be_replaced_and_cannot_be_is_made_anew_once_another_was_read_through() {
    for health in [Health::OutOfService, Health::Stopped] {
        let mut repair = repair(&[1]).anew();
        assert_eq!(repair.answered(at(14, health)), Ask::Verify { node: NodeId(1) });
        assert_eq!(repair.answered(EXACT), Ask::Remove { node: TARGET });
        assert_eq!(repair.answered(Answer::Missing), Ask::Make { node: TARGET, epoch: Epoch(2) });
        assert_eq!(repair.answered(Answer::Made), fill(1, 10));
        assert_eq!(repair.answered(at(20, Health::Rebuilding)), Ask::Verify { node: TARGET });
        assert_eq!(repair.answered(EXACT), Ask::Seal { node: TARGET });
        assert_eq!(repair.answered(at(20, Health::Sealed)), Ask::Whole);
    }
    let mut alone = repair(&[]).anew();
    assert_eq!(alone.answered(at(14, Health::Stopped)), Ask::Failed(Failure::NoSource));
    let contradicts = at(14, Health::Sealed);
    assert_eq!(repair(&[1]).anew().answered(contradicts), Ask::Failed(Failure::Suspect));
}

#[test]
fn a_higher_epoch_is_taken_over() {
    let mut repair = repair(&[1]);
    let again = Ask::Fence { node: TARGET, epoch: Epoch(5) };
    assert_eq!(repair.answered(Answer::Refused { epoch: Epoch(5) }), again);
    assert_eq!(repair.answered(Answer::Refused { epoch: Epoch(5) }), Ask::Failed(Failure::Target));
}

#[test]
fn nothing_is_made_that_could_not_be_filled() {
    assert_eq!(repair(&[]).answered(Answer::Missing), Ask::Failed(Failure::NoSource));
    let nothing = Recorded { end: Offset(10), bytes: 0, ..RECORDED };
    let mut empty = Repair::new(nothing, TARGET, [], Epoch(2));
    let _ = empty.begin();
    assert_eq!(empty.answered(Answer::Missing), Ask::Make { node: TARGET, epoch: Epoch(2) });
    assert_eq!(empty.answered(Answer::Made), Ask::Verify { node: TARGET });
}
