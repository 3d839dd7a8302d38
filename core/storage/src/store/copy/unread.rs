//! A copy whose `copy.meta` could not be read when the start came to it: a failed read is no damage.
//!
//! It is read again when somebody asks for the copy, once for all that wait, and by and by without anybody asking.
//! Until then nothing is known of the copy, and what the journal had for it is remembered.

use types::{Epoch, Offset, SegmentId};

use super::{Copy, Task};
use crate::disk::{self, ErrorKind, FileId, Output, Step};
use crate::format::batch::Nonce;
use crate::format::meta::{META_BYTES, Meta};
use crate::planted::Bug;
use crate::segment::layout;
use crate::store::desk::{Desk, Owner};
use crate::store::replay::Lives;
use crate::store::{Damage, DamageClass, Error, Notice, Reply};

/// What is known of what a copy is.
#[derive(Debug)]
pub(super) enum Identity {
    /// `copy.meta` has been read, or is being written for the first time.
    Known,
    /// It could not be read yet.
    Unread(Box<Unread>),
    /// It is damaged or of a later format: nothing may be done with the copy.
    Unreadable,
}

/// What a copy must be told once it is known.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// What the journal holds for it.
    lives: Lives,
    /// Uses of the journal up to this one lost frames nobody can name.
    lost: Option<u64>,
}

/// The steps that read a `copy.meta`, its name made durable first.
pub(in crate::store) fn read_meta(segment: SegmentId, file: FileId) -> Vec<Step> {
    let open = Step::Open { file, path: layout::meta(segment) };
    // One byte more than a whole file, so that a longer one is seen to be.
    let read = Step::Read { file, at: 0, len: META_BYTES + 1 };
    vec![Step::SyncDir(Some(layout::dir(segment))), open, read]
}

impl Copy {
    /// A directory of ours whose `copy.meta` could not be read now.
    pub(in crate::store) fn unread(segment: SegmentId) -> Self {
        let meta = Meta::new(segment, Offset::ZERO, Nonce::default(), Epoch::ZERO);
        Self { identity: Identity::Unread(Box::default()), ..Self::new(meta) }
    }

    /// A directory of ours whose `copy.meta` is not right: damage of that copy, never an empty copy.
    pub(in crate::store) fn unreadable(segment: SegmentId) -> Self {
        Self { identity: Identity::Unreadable, ..Self::unread(segment) }
    }

    /// Its `copy.meta` could not be read yet.
    pub(in crate::store) fn is_unread(&self) -> bool {
        matches!(self.identity, Identity::Unread(_))
    }

    /// Its `copy.meta` cannot be used, now or ever.
    pub(in crate::store) fn is_out_of_reach(&self) -> bool {
        !matches!(self.identity, Identity::Known)
    }

    /// Remembers that uses of the journal up to `sequence` lost frames. Of an unread copy.
    pub(in crate::store) fn remember_loss(&mut self, sequence: u64) {
        if let Identity::Unread(unread) = &mut self.identity {
            unread.lost = unread.lost.max(Some(sequence));
        }
    }

    /// Remembers what the journal holds. Of an unread copy.
    pub(in crate::store) fn remember_lives(&mut self, lives: Lives) {
        if let Identity::Unread(unread) = &mut self.identity {
            unread.lives = lives;
        }
    }

    /// Takes what its `copy.meta` says.
    pub(in crate::store) fn adopt(&mut self, desk: &mut Desk, meta: Meta) {
        self.meta = meta;
        self.identity = Identity::Known;
        if desk.config.has_bug(Bug::ForgetFence) {
            self.meta.epoch = Epoch(1);
        }
        if meta.deleting {
            self.delete(desk, None);
        }
    }

    /// Tries again to read `copy.meta`, unless that is under way.
    pub(in crate::store) fn read_again(&mut self, desk: &mut Desk) {
        if self.task.is_some() {
            return;
        }
        let (segment, file) = (self.meta.segment, desk.new_file());
        self.task = Some(Box::new(Task::Read(file)));
        desk.run(Owner::Task(segment), read_meta(segment, file));
    }

    pub(super) fn read_again_done(
        &mut self,
        desk: &mut Desk,
        file: FileId,
        result: Result<Output, disk::Error>,
    ) {
        desk.run(Owner::Nobody, vec![Step::Close(file)]);
        let segment = self.meta.segment;
        let data = match result {
            Ok(Output::Data(data)) => data,
            Ok(Output::Done | Output::Length(_) | Output::Entries(_)) => Default::default(),
            // There is no copy, and what is in the directory is nobody's.
            Err(error) if error.kind == ErrorKind::NotFound => return self.gone = true,
            Err(error) => return self.refuse_all(desk, &Error::Storage(error)),
        };
        match Meta::decode(&data) {
            Ok(meta) if meta.segment != segment => self.gone = true,
            Ok(meta) => {
                let was = std::mem::replace(&mut self.identity, Identity::Known);
                self.adopt(desk, meta);
                desk.notice(Notice::MetaRead { segment });
                let Identity::Unread(unread) = was else { return };
                self.owe(&unread.lives);
                if unread.lost.is_some_and(|sequence| self.may_have_lost(sequence)) {
                    self.suspect(desk);
                }
            }
            Err(error) => {
                desk.notice(Notice::MetaUnreadable { segment, detail: error.to_string() });
                self.identity = Identity::Unreadable;
                self.refuse_all(desk, &Error::Damaged(META_DAMAGED));
            }
        }
    }

    fn refuse_all(&mut self, desk: &mut Desk, error: &Error) {
        for (id, _) in self.queue.drain(..) {
            desk.reply(id, Reply::Failed(error.clone()));
        }
    }
}

/// What is said of a copy whose `copy.meta` is not right.
pub(super) const META_DAMAGED: Damage =
    Damage { position: 0, offset: Offset::ZERO, class: DamageClass::Meta };
