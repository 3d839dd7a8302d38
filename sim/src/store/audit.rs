//! Judging: each reply as it comes, and each copy whole after a crash.

use storage::disk::Path;
use storage::format::batch::{Batch, HEADER_BYTES, Header};
use storage::format::meta::Meta;
use storage::segment::layout;
use storage::store::{DamageClass, Error, Extent, Reply, Request, State};
use types::{Offset, SegmentId};

use super::model::{Copy, Exists, Rot};
use super::world::{Asked, Stop, World};
use crate::disk::Side;
use crate::invariants::{
    Violation, ensure, inv_02, inv_09, inv_14, inv_20, inv_21, inv_22, inv_23, inv_24, inv_25, inv_26, inv_27,
};

impl World {
    /// Judges a reply as it comes, and learns from it.
    pub(super) fn judge(&mut self, asked: &Asked, reply: &Reply) -> Result<(), Violation> {
        let segment = asked.segment;
        let left = self.disk.bytes(&self.log_path(segment).to_string(), Side::View).is_some();
        let no_header_is_sure = self.journal_headers_flipped == [true; 2];
        let Some(copy) = self.model.get_mut(&segment) else { return Ok(()) };
        if matches!(reply, Reply::Deleted) && !copy.half_created {
            ensure(!left, "INV-36", || format!("{segment}: removed, and its log is still there"))?;
        }
        if copy.exists == Exists::Yes && !copy.delete_pending && !copy.dead {
            inv_26::check(
                segment,
                copy.rot.is_none() && !copy.meta_flipped && !copy.may_fail && !copy.journal_rot,
                reply,
            )?;
            inv_27::check(segment, copy.is_healthy(), reply)?;
        }
        match &asked.request {
            Request::Create { base, epoch, rebuilding, .. } => match reply {
                Reply::Created => {
                    *copy = Copy {
                        exists: Exists::Yes,
                        base: *base,
                        fenced: *epoch,
                        epoch_max: *epoch,
                        rebuilding: Some(*rebuilding),
                        half_created: false,
                        // Damage the start has found is older than the copy, though it may stay for long.
                        journal_rot: false,
                        journal_header_flipped: copy.journal_header_flipped && no_header_is_sure,
                        ..copy.absent()
                    };
                }
                _ => {
                    copy.half_created = true;
                    if copy.exists == Exists::No {
                        copy.exists = Exists::Maybe;
                    }
                }
            },
            Request::Append { epoch, batches, .. } => {
                inv_14::check(segment, *epoch, copy.fenced, reply)?;
                self.appended(segment, batches, reply)?;
            }
            Request::Read { from, .. } => self.was_read(asked, *from, reply)?,
            Request::SeekTime { at, .. } => {
                if let Reply::Sought(offset) = reply {
                    let first = copy.frames.iter().find(|frame| frame.batch.header.append_time >= *at);
                    let sure = first
                        .filter(|frame| frame.acked && frame.batch.header.end_offset() <= asked.acked_end);
                    let right = match sure {
                        Some(frame) => *offset == frame.batch.header.base_offset,
                        None => *offset >= asked.acked_end.min(copy.acked_end()),
                    };
                    ensure(right || copy.rot.is_some(), "SEEK", || {
                        format!("{segment}: {at} is not first at {offset}")
                    })?;
                }
            }
            Request::Fence { epoch, .. } => {
                copy.epoch_max = copy.epoch_max.max(*epoch);
                if let Reply::Fenced(extent) = reply {
                    copy.fenced = copy.fenced.max(*epoch);
                    if extent.state == State::Active {
                        copy.recorded = copy.recorded.max(extent.bytes);
                    }
                    let short = copy.rot.is_none() && extent.end < copy.acked_end();
                    ensure(!short, "INV-15", || {
                        format!("{segment}: fenced at {}, short of an ack", extent.end)
                    })?;
                }
            }
            Request::Seal { end, .. } => self.was_sealed(asked, *end, reply)?,
            Request::Latch { .. } => match reply {
                Reply::Latched => copy.latched = true,
                _ => copy.latch_pending = true,
            },
            Request::Verify { .. } => {
                if let Reply::Verified(report) = reply {
                    let clean = copy.rot.is_none() && !copy.may_fail && !copy.journal_rot;
                    ensure(!clean || report.damage.is_none(), "VERIFY", || {
                        format!("{segment}: damage where there is none: {report:?}")
                    })?;
                    let found = report.damage.is_some()
                        || report.bytes < copy.rot.as_ref().map_or(0, |rot| rot.position);
                    let must = copy.rot_is_provable()
                        && copy.sealed.is_some_and(|end| {
                            copy.rot
                                .as_ref()
                                .and_then(|rot| copy.offset_at(rot.position))
                                .is_some_and(|at| at < end)
                        });
                    ensure(found || !must, "VERIFY", || format!("{segment}: did not see the rot"))?;
                }
            }
            Request::Delete { .. } => match reply {
                Reply::Deleted => *copy = copy.absent(),
                Reply::Failed(Error::Damaged(_) | Error::Overloaded) => {}
                _ => copy.delete_pending = true,
            },
            Request::Rebuilt { .. } => match reply {
                Reply::Rebuilt(extent) => {
                    ensure(!extent.rebuilding, "REBUILDING", || {
                        format!("{segment}: told to be whole, and is not")
                    })?;
                    copy.rebuilding = Some(false);
                }
                Reply::Failed(Error::Storage(_)) => copy.doubt_rebuilding(),
                _ => {}
            },
            Request::Inspect { .. } => {}
        }
        Ok(())
    }

    fn appended(&mut self, segment: SegmentId, batches: &[Batch], reply: &Reply) -> Result<(), Violation> {
        if let Reply::Appended { end } = reply {
            let last = batches.last().map(|batch| batch.header.end_offset());
            ensure(last == Some(*end), "INV-9", || format!("{segment}: acknowledged {end}"))?;
            return batches.iter().try_for_each(|batch| self.acknowledged(segment, batch));
        }
        let Some(copy) = self.model.get_mut(&segment) else { return Ok(()) };
        if let Reply::Failed(Error::Storage(_) | Error::Latched(_)) = reply {
            copy.stopped = true;
        } else if let Reply::Failed(_) = reply {
            // All of them or none.
            copy.frames.retain(|frame| !batches.contains(&frame.batch));
        }
        Ok(())
    }

    fn acknowledged(&mut self, segment: SegmentId, batch: &Batch) -> Result<(), Violation> {
        let platter = self.log_bytes(segment, Side::Platter);
        let in_journal = self.journal_holds(batch);
        let Some(copy) = self.model.get_mut(&segment) else { return Ok(()) };
        let Some(at) = copy.frames.iter().position(|frame| frame.batch == *batch) else { return Ok(()) };
        copy.frames[at].acked = true;
        ensure(copy.frames[..at].iter().all(|frame| frame.acked), "INV-9", || {
            let end = batch.header.end_offset();
            format!("{segment}: {end} was acknowledged before what lies below it")
        })?;
        let position = copy.placed().nth(at).map_or(0, |(position, _)| position);
        if !in_journal {
            inv_20::check(segment, &platter, position, batch)?;
        }
        Ok(())
    }

    fn was_read(&mut self, asked: &Asked, from: Offset, reply: &Reply) -> Result<(), Violation> {
        let segment = asked.segment;
        let Some(copy) = self.model.get(&segment) else { return Ok(()) };
        if copy.dead || copy.exists != Exists::Yes {
            return Ok(());
        }
        let readable = asked.acked_end.min(copy.readable_end());
        if from >= copy.base && copy.known && !copy.delete_pending {
            // Rot that no evidence speaks of may pass for a torn tail.
            let known = if copy.rot_is_provable() { copy.acked_end() } else { copy.readable_end() };
            inv_25::check(segment, from, asked.acked_end.min(known), reply)?;
        }
        match reply {
            Reply::Read(batches) => {
                let first = batches.first().ok_or_else(|| Violation::new("INV-25", "an empty read"))?;
                let holds = (first.header.base_offset..first.header.end_offset()).contains(&from);
                ensure(holds, "INV-9", || {
                    format!("{segment}: asked for {from}, got {}", first.header.base_offset)
                })?;
                let skipped =
                    copy.frames.iter().filter(|frame| frame.batch.header.end_offset() <= from).count();
                let expected: Vec<Batch> = copy.batches().split_off(skipped);
                inv_09::check(segment, first.header.base_offset, batches, &expected)?;
                for (read, frame) in batches.iter().zip(&copy.frames[skipped..]) {
                    inv_24::check(segment, read, &frame.batch)?;
                    // A latched copy is only read, so what a crash left of its tail is not made durable either.
                    ensure(frame.acked || copy.latched, "INV-41", || {
                        format!("{segment}: a batch nobody has acknowledged was read")
                    })?;
                }
                self.summary.batches_checked += batches.len() as u64;
            }
            Reply::Failed(Error::Damaged(_)) => {
                ensure(from >= readable || copy.may_fail, "INV-25", || {
                    format!("{segment}: {from} is intact ({readable}) and was refused as damaged")
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn was_sealed(&mut self, asked: &Asked, end: Offset, reply: &Reply) -> Result<(), Violation> {
        let segment = asked.segment;
        let Some(copy) = self.model.get_mut(&segment) else { return Ok(()) };
        match reply {
            Reply::Sealed(extent) => {
                ensure(extent.end == end, "INV-18", || {
                    format!("{segment}: sealed at {}, not {end}", extent.end)
                })?;
                let other = copy.sealed.is_some_and(|sealed| sealed != end);
                ensure(!other, "INV-18", || format!("{segment}: sealed a second time, at {end}"))?;
                copy.sealed = Some(end);
                copy.rebuilding = Some(false);
                copy.seals_pending.clear();
                copy.seal(end);
            }
            Reply::Failed(Error::Storage(_)) => {
                copy.seals_pending.push(end);
                copy.doubt_rebuilding();
                copy.stopped = true;
            }
            Reply::Failed(Error::CannotSeal { .. }) => {
                let boundary = end == copy.base
                    || copy.frames.iter().any(|frame| frame.batch.header.end_offset() == end);
                let must = boundary
                    && end >= copy.base
                    && end <= asked.acked_end
                    && copy.rot.is_none()
                    && copy.known;
                ensure(!must, "SEAL", || format!("{segment}: {end} is a boundary and was refused"))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks at a copy after a crash: what it says of itself, and all it holds.
    pub(super) fn audit(&mut self, segment: SegmentId) -> Result<(), Stop> {
        let held = self.held_frames(segment);
        let reply = self.call(Request::Inspect { segment })?;
        let copy = &self.model[&segment];
        inv_02::check(segment, copy.exists == Exists::Yes && !copy.delete_pending, &reply)?;
        match reply {
            Reply::Inspected(extent) => {
                ensure(copy.exists != Exists::No || copy.half_created, "INV-12", || {
                    format!("{segment}: a removed copy is back")
                })?;
                if copy.delete_pending {
                    // The removal that was asked for may have got anywhere; all that is left to do is to end it.
                    self.call(Request::Delete { segment })?;
                    return Ok(());
                }
                self.learn(segment, &extent, &held)?;
                self.read_all(segment)?;
                self.seek_some(segment)?;
                self.check_frozen(segment)?;
            }
            Reply::Failed(Error::NoSuchSegment) if copy.delete_pending => {
                self.call(Request::Delete { segment })?;
            }
            Reply::Failed(Error::NoSuchSegment) => {
                let exists = if copy.half_created { Exists::Maybe } else { Exists::No };
                let absent = Copy { exists, ..copy.absent() };
                self.model.insert(segment, absent);
            }
            Reply::Failed(Error::Damaged(damage)) if damage.class == DamageClass::Meta => {
                ensure(copy.meta_flipped || copy.may_fail, "INV-24", || {
                    format!("{segment}: copy.meta is damaged by itself")
                })?;
                self.learn_dead(segment);
            }
            other => {
                ensure(copy.may_fail || copy.rot.is_some(), "INV-27", || {
                    format!("{segment}: {other:?} without a fault")
                })?;
            }
        }
        Ok(())
    }

    fn learn_dead(&mut self, segment: SegmentId) {
        let copy = self.model.get_mut(&segment).expect("audited copies are in the model");
        copy.dead = true;
        copy.known = true;
    }

    /// Takes in where a copy says it stands.
    fn learn(&mut self, segment: SegmentId, extent: &Extent, held: &[Batch]) -> Result<(), Violation> {
        self.mended(segment);
        let copy = self.model.get_mut(&segment).expect("audited copies are in the model");
        copy.journal_rot |= copy.journal_header_flipped && copy.sealed.is_none();
        copy.known = true;
        copy.poisoned = false;
        copy.half_created = false;
        if copy.exists != Exists::Yes {
            *copy = Copy {
                exists: Exists::Yes,
                base: extent.base,
                fenced: extent.epoch,
                epoch_max: extent.epoch,
                rebuilding: None,
                ..copy.absent()
            };
        }
        ensure(extent.epoch >= copy.fenced, "INV-14", || {
            format!("{segment}: fenced at {}, now {}", copy.fenced, extent.epoch)
        })?;
        // INV-15: a copy that forgot that it may lack something would answer for what it never had.
        let right = copy.rebuilding.is_none_or(|rebuilding| extent.rebuilding == rebuilding);
        ensure(right && !(extent.rebuilding && extent.state == State::Sealed), "REBUILDING", || {
            format!("{segment}: {:?} was told, {extent:?}", copy.rebuilding)
        })?;
        let is_latched = matches!(extent.state, State::Latched(_));
        ensure(is_latched || !copy.latched, "LATCH", || {
            format!("{segment}: was latched, is {:?}", extent.state)
        })?;
        let excused = copy.latch_pending || copy.latched || copy.rot.is_some() || copy.journal_rot;
        ensure(!is_latched || excused, "INV-22", || {
            format!("{segment}: latched without damage, {extent:?}")
        })?;
        copy.fenced = copy.fenced.max(extent.epoch);
        copy.epoch_max = copy.epoch_max.max(extent.epoch);
        copy.latched |= is_latched && (copy.latch_pending || (copy.journal_rot && copy.rot.is_none()));
        copy.latch_pending &= is_latched;
        if extent.state == State::Sealed
            || (is_latched
                && copy.rot.is_none()
                && extent.end != copy.acked_end()
                && copy.seals_pending.contains(&extent.end))
        {
            let known =
                copy.sealed.map_or(copy.seals_pending.contains(&extent.end), |sealed| sealed == extent.end);
            ensure(known, "INV-18", || {
                format!("{segment}: sealed at {}, nobody asked for that", extent.end)
            })?;
            copy.sealed = Some(extent.end);
        }
        copy.seals_pending.clear();
        if let Some(sealed) = copy.sealed {
            ensure(extent.end == sealed, "INV-20", || {
                format!("{segment}: sealed at {sealed}, ends at {}", extent.end)
            })?;
            copy.seal(sealed);
            return Ok(());
        }
        self.learn_end(segment, extent, held, is_latched)
    }

    fn learn_end(
        &mut self,
        segment: SegmentId,
        extent: &Extent,
        held: &[Batch],
        is_latched: bool,
    ) -> Result<(), Violation> {
        let copy = self.model.get_mut(&segment).expect("audited copies are in the model");
        let boundary = extent.end == copy.base
            || copy.frames.iter().any(|frame| frame.batch.header.end_offset() == extent.end);
        ensure(boundary, "INV-9", || format!("{segment}: ends at {}, where no batch ends", extent.end))?;
        let rotten = copy.rot.as_ref().and_then(|rot| copy.offset_at(rot.position));
        if copy.rot_is_provable() {
            ensure(is_latched, "INV-22", || {
                format!("{segment}: rot below {} was not noticed", copy.testimony())
            })?;
        }
        let lost = copy.journal_rot && is_latched;
        let excused = lost || (rotten == Some(extent.end) && (is_latched || !copy.rot_is_provable()));
        if !excused {
            inv_23::check(segment, extent.end, copy.acked_end())?;
        }
        inv_21::check(segment, extent.end, held)?;
        if lost {
            // What the journal lost is gone, and the copy says so by being out of service.
            copy.cut(extent.end);
        }
        if !is_latched {
            copy.rot = copy.rot.take().filter(|rot| rot.position < extent.bytes);
            copy.cut(extent.end);
        }
        Ok(())
    }

    /// Reads a copy from its base until it says there is no more.
    fn read_all(&mut self, segment: SegmentId) -> Result<(), Stop> {
        let mut from = self.model[&segment].base;
        loop {
            let bytes_max = [1, 200, 3000][usize::try_from(from.0 % 3).unwrap_or(0)];
            match self.call(Request::Read { segment, from, bytes_max })? {
                Reply::Read(batches) => from = batches[batches.len() - 1].header.end_offset(),
                _ => return Ok(()),
            }
        }
    }

    /// Searches a sealed copy, whose index was read from its file, for the times of two of its batches.
    fn seek_some(&mut self, segment: SegmentId) -> Result<(), Stop> {
        let copy = &self.model[&segment];
        if copy.sealed.is_none() || copy.frames.is_empty() || copy.delete_pending {
            return Ok(());
        }
        let turn = usize::try_from(self.summary.cycles).unwrap_or(0);
        let some = copy.frames[turn % copy.frames.len()].batch.header.append_time;
        for at in [some, copy.last_time()] {
            self.call(Request::SeekTime { segment, at })?;
        }
        Ok(())
    }

    /// Damaged bytes must be as they were.
    pub(super) fn check_frozen(&mut self, segment: SegmentId) -> Result<(), Violation> {
        self.mended(segment);
        let copy = &self.model[&segment];
        let Some(rot) = &copy.rot else { return Ok(()) };
        let Some(frozen) = &rot.frozen else { return Ok(()) };
        let removing =
            |asked: &Asked| asked.segment == segment && matches!(asked.request, Request::Delete { .. });
        if copy.delete_pending || self.asked.values().any(removing) {
            return Ok(());
        }
        let log = self.log_bytes(segment, Side::View);
        inv_22::check(segment, rot.position, frozen, &log[..log.len().min(frozen.len())])
    }

    /// Rot in a frame that the journal still had, or that was never in the file, is mended by a start.
    fn mended(&mut self, segment: SegmentId) {
        let log = self.log_bytes(segment, Side::View);
        let meta = self.disk.bytes(&layout::meta(segment).to_string(), Side::View).unwrap_or_default();
        let meta = Meta::decode(&meta.to_vec().into());
        let Some(copy) = self.model.get_mut(&segment) else { return };
        let Some(rot) = copy.rot.as_ref().filter(|_| copy.journaled) else { return };
        let at = usize::try_from(rot.position).unwrap_or(usize::MAX);
        let frame = copy.placed().find(|(at, _)| *at == rot.position).map(|(_, frame)| &frame.batch);
        let meta_latched = meta.as_ref().is_ok_and(|meta| meta.latched.is_some());
        let Some((frame, identity)) = frame.zip(meta.ok().map(|meta| meta.identity())) else { return };
        let header = log.get(at..).and_then(<[u8]>::first_chunk::<HEADER_BYTES>);
        let header = header.and_then(|bytes| Header::decode(bytes, identity).ok()).map(|(header, _)| header);
        let payload = log.get(at + HEADER_BYTES..).and_then(|rest| rest.get(..frame.payload.len()));
        if header == Some(frame.header) && payload == Some(&frame.payload[..]) {
            // A copy that is latched stays so, though its bytes are right again.
            let latched = meta_latched;
            copy.rot = copy.rot.take().filter(|_| latched).map(|rot| Rot { frozen: None, ..rot });
        }
    }

    pub(super) fn log_path(&self, segment: SegmentId) -> Path {
        layout::log(segment, self.model[&segment].base)
    }

    /// A log's bytes.
    pub(super) fn log_bytes(&self, segment: SegmentId, side: Side) -> Vec<u8> {
        self.disk.bytes(&self.log_path(segment).to_string(), side).unwrap_or_default().to_vec()
    }

    /// Whether the journal holds a batch durably; its payload is random, so finding it is proof enough.
    fn journal_holds(&self, batch: &Batch) -> bool {
        ["journal/a.log", "journal/b.log"].iter().any(|path| {
            let bytes = self.disk.bytes(path, Side::Platter).unwrap_or_default();
            let payload = &batch.payload[..];
            (payload.len() < 16 && !bytes.is_empty())
                || bytes.windows(payload.len()).any(|window| window == payload)
        })
    }

    /// Intact frames in an unsealed log, in order from its base, as it lies there now.
    fn held_frames(&self, segment: SegmentId) -> Vec<Batch> {
        let copy = &self.model[&segment];
        let meta = self.disk.bytes(&layout::meta(segment).to_string(), Side::View).unwrap_or_default();
        let Ok(meta) = Meta::decode(&meta.to_vec().into()) else { return Vec::new() };
        // After a failed sync nobody can say what the file will show once it is opened again.
        if meta.sealed_at.is_some() || meta.deleting || copy.known || copy.poisoned {
            return Vec::new();
        }
        let log: bytes::Bytes = self.log_bytes(segment, Side::View).into();
        let (mut at, mut next, mut held) = (0, meta.base, Vec::new());
        while let Some(bytes) = log[at..].first_chunk::<HEADER_BYTES>() {
            let Ok((header, _)) = Header::decode(bytes, meta.identity()) else { break };
            let end = at + HEADER_BYTES + header.payload_len as usize;
            if header.base_offset != next || end > log.len() {
                break;
            }
            let batch = Batch { header, payload: log.slice(at + HEADER_BYTES..end) };
            if !batch.is_intact(meta.identity().seed) {
                break;
            }
            (at, next) = (end, header.end_offset());
            held.push(batch);
        }
        held
    }
}
