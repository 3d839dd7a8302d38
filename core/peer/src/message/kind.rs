//! The number of each kind of message, and what shape it has.
//!
//! ```text
//! kind = shape:4 bits number:12 bits         shape 1 = says something, 2 = asks, 3 = answers the ask of that number
//! ```
//!
//! So a message of a later build is told apart as well: what asks is answered that it is not understood, what says
//! is dropped. A number is never reused.

use super::Message;

const SAYS: u16 = 0x1000;
const ASKS: u16 = 0x2000;
const ANSWERS: u16 = 0x3000;
const SHAPE: u16 = 0xf000;

/// Whether a message wants an answer, or is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Neither.
    Says,
    /// It wants one.
    Asks,
    /// It is one.
    Answers,
}

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// [`Message::Raft`]
    Raft,
    /// [`Message::RaftPart`]
    RaftPart,
    /// [`Message::Attributes`]
    Attributes,
    /// [`Message::Forward`]
    Forward,
    /// [`Message::Follow`]
    Follow,
    /// [`Message::Propose`]
    Propose,
    /// [`Message::ReadIndex`]
    ReadIndex,
    /// [`Message::ForwardReply`]
    ForwardReply,
    /// [`Message::FollowReply`]
    FollowReply,
    /// [`Message::ProposeReply`]
    ProposeReply,
    /// [`Message::ReadIndexReply`]
    ReadIndexReply,
    /// [`Message::Copy`]
    Copy,
    /// [`Message::CopyReply`]
    CopyReply,
    /// [`Message::Append`]
    Append,
    /// [`Message::AppendReply`]
    AppendReply,
    /// [`Message::Watch`]
    Watch,
    /// [`Message::WatchReply`]
    WatchReply,
    /// [`Message::Assigned`]
    Assigned,
    /// [`Message::Attend`]
    Attend,
    /// [`Message::AttendReply`]
    AttendReply,
    /// [`Message::CommitAs`]
    CommitAs,
    /// [`Message::CommitReply`]
    CommitReply,
    /// [`Message::Members`]
    Members,
    /// [`Message::MembersReply`]
    MembersReply,
    /// [`Message::Loads`]
    Loads,
}

impl Kind {
    /// All of them, by number.
    pub const ALL: [Self; 25] = [
        Self::Raft,
        Self::RaftPart,
        Self::Attributes,
        Self::Forward,
        Self::Follow,
        Self::Propose,
        Self::ReadIndex,
        Self::ForwardReply,
        Self::FollowReply,
        Self::ProposeReply,
        Self::ReadIndexReply,
        Self::Copy,
        Self::CopyReply,
        Self::Append,
        Self::AppendReply,
        Self::Watch,
        Self::WatchReply,
        Self::Assigned,
        Self::Attend,
        Self::AttendReply,
        Self::CommitAs,
        Self::CommitReply,
        Self::Members,
        Self::MembersReply,
        Self::Loads,
    ];

    /// Its number in a frame.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Raft => SAYS | 1,
            Self::RaftPart => SAYS | 2,
            Self::Attributes => SAYS | 3,
            Self::Forward => ASKS | 1,
            Self::Follow => ASKS | 2,
            Self::Propose => ASKS | 3,
            Self::ReadIndex => ASKS | 4,
            Self::ForwardReply => ANSWERS | 1,
            Self::FollowReply => ANSWERS | 2,
            Self::ProposeReply => ANSWERS | 3,
            Self::ReadIndexReply => ANSWERS | 4,
            Self::Copy => ASKS | 5,
            Self::CopyReply => ANSWERS | 5,
            Self::Append => ASKS | 6,
            Self::AppendReply => ANSWERS | 6,
            Self::Watch => ASKS | 7,
            Self::WatchReply => ANSWERS | 7,
            Self::Assigned => SAYS | 4,
            Self::Attend => ASKS | 8,
            Self::AttendReply => ANSWERS | 8,
            Self::CommitAs => ASKS | 9,
            Self::CommitReply => ANSWERS | 9,
            Self::Members => ASKS | 10,
            Self::MembersReply => ANSWERS | 10,
            Self::Loads => SAYS | 5,
        }
    }

    /// The kind of a number; `None` for one of a later build.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Its shape.
    #[must_use]
    pub fn shape(self) -> Shape {
        Shape::of(self.number()).expect("every kind has a shape")
    }
}

impl Shape {
    /// The shape of any kind's number, known or not; `None` when it has none.
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        match number & SHAPE {
            SAYS => Some(Self::Says),
            ASKS => Some(Self::Asks),
            ANSWERS => Some(Self::Answers),
            _ => None,
        }
    }
}

/// The number of the answer to a kind that asks.
pub(crate) fn answer_to(asks: u16) -> u16 {
    asks & !SHAPE | ANSWERS
}

impl Message {
    /// Which kind it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Raft(_) => Kind::Raft,
            Self::RaftPart(_) => Kind::RaftPart,
            Self::Attributes(_) => Kind::Attributes,
            Self::Forward(_) => Kind::Forward,
            Self::Follow(_) => Kind::Follow,
            Self::Propose(_) => Kind::Propose,
            Self::ReadIndex { .. } => Kind::ReadIndex,
            Self::ForwardReply(_) => Kind::ForwardReply,
            Self::FollowReply(_) => Kind::FollowReply,
            Self::ProposeReply(_) => Kind::ProposeReply,
            Self::ReadIndexReply(_) => Kind::ReadIndexReply,
            Self::Copy(_) => Kind::Copy,
            Self::CopyReply(_) => Kind::CopyReply,
            Self::Append(_) => Kind::Append,
            Self::AppendReply(_) => Kind::AppendReply,
            Self::Watch(_) => Kind::Watch,
            Self::WatchReply(_) => Kind::WatchReply,
            Self::Assigned(_) => Kind::Assigned,
            Self::Attend(_) => Kind::Attend,
            Self::AttendReply(_) => Kind::AttendReply,
            Self::CommitAs(_) => Kind::CommitAs,
            Self::CommitReply(_) => Kind::CommitReply,
            Self::Members(_) => Kind::Members,
            Self::MembersReply(_) => Kind::MembersReply,
            Self::Loads(_) => Kind::Loads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_a_number_of_its_own_and_an_ask_has_an_answer() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind.number()), Some(kind));
            if kind.shape() == Shape::Asks {
                let answer = Kind::from_number(answer_to(kind.number()));
                assert!(answer.is_some_and(|answer| answer.shape() == Shape::Answers), "{kind:?}");
            }
        }
        assert_eq!(Shape::of(0x0001), None);
        assert_eq!(Shape::of(0x2fff), Some(Shape::Asks));
    }
}
