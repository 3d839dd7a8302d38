//! What a member says about itself in few bytes, and how it travels.
//!
//! Owns the newest thing every member said and what of it goes into the next packet: what the sender says itself, what
//! is new, and some of the rest, so that a node that joins late, or missed a packet, hears it in the end. What the
//! hashes stand for is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use rand_engine::RngExt;
use types::codec::{Error, Reader};
use types::{Incarnation, NodeId, limits};

use crate::packet::get_incarnation;

/// Room for them in one packet, bytes. The longest fits.
const SHARE_BYTES: usize = 384;
/// What was sent that often is not new any more.
const NEW_SENT_MAX: u32 = 15;
/// So many that are not new go into each packet.
const OLD_COUNT: usize = 2;
/// Without the name.
const ABOUT_BYTES_MIN: usize = 16 + 8 + 4 + 1 + DIGEST_BYTES;
const DIGEST_BYTES: usize = 8 + 8 + 8 + 4 + 8;
const _: () = assert!(ABOUT_BYTES_MIN + limits::NODE_NAME_BYTES_MAX <= SHARE_BYTES);
/// Header, number, accusation, lengths and MAC of a packet.
const AROUND_BYTES: usize = 20 + 8 + 3 + 2 + 16;
const _: () = assert!(
    AROUND_BYTES + limits::MEMBER_NEWS_BYTES_MAX + SHARE_BYTES <= limits::MEMBER_PACKET_BYTES_MAX,
    "every part of a packet has its share"
);

/// Enough to notice that something of a member is another than one knows. The real thing is asked for over a
/// connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Version of the ring it goes by.
    pub ring_version: u64,
    /// Hash of its attributes.
    pub attributes: u64,
    /// Hash of the list of what its build is capable of.
    pub capabilities: u64,
    /// How many vnodes it leads.
    pub led_count: u32,
    /// Hash of which, with their terms.
    pub led: u64,
}

/// What one member said about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Orders what it said within one incarnation.
    pub(crate) number: u32,
    pub(crate) name: Arc<str>,
    pub(crate) digest: Digest,
}

impl About {
    pub(crate) fn put(&self, bytes: &mut BytesMut) {
        bytes.put_u128(self.node.0);
        bytes.put_u64(self.incarnation.0);
        bytes.put_u32(self.number);
        bytes.put_u8(u8::try_from(self.name.len()).expect("names are at most 255 bytes"));
        bytes.extend_from_slice(self.name.as_bytes());
        let Digest { ring_version, attributes, capabilities, led_count, led } = self.digest;
        bytes.put_u64(ring_version);
        bytes.put_u64(attributes);
        bytes.put_u64(capabilities);
        bytes.put_u32(led_count);
        bytes.put_u64(led);
    }

    pub(crate) fn get(reader: &mut Reader) -> Result<Self, Error> {
        let node = NodeId(reader.u128()?);
        let incarnation = get_incarnation(reader)?;
        let number = reader.u32()?;
        let len = usize::from(reader.u8()?);
        let name = reader.take(len)?;
        let name = std::str::from_utf8(&name).map_err(|_| Error::Invalid("a node's name"))?.into();
        let digest = Digest {
            ring_version: reader.u64()?,
            attributes: reader.u64()?,
            capabilities: reader.u64()?,
            led_count: reader.u32()?,
            led: reader.u64()?,
        };
        Ok(Self { node, incarnation, number, name, digest })
    }

    fn len(&self) -> usize {
        ABOUT_BYTES_MIN + self.name.len()
    }
}

/// The newest of each, with how often it was sent.
#[derive(Debug, Default)]
pub(crate) struct Abouts {
    newest: BTreeMap<NodeId, (About, u32)>,
}

impl Abouts {
    pub(crate) fn of(&self, node: NodeId) -> Option<&About> {
        self.newest.get(&node).map(|(about, _)| about)
    }

    /// Takes what is newer than what is known; says whether it was.
    pub(crate) fn learn(&mut self, about: About) -> bool {
        let known = self.of(about.node).map(|known| (known.incarnation, known.number));
        let is_newer = known.is_none_or(|known| known < (about.incarnation, about.number));
        if is_newer {
            self.newest.insert(about.node, (about, 0));
        }
        is_newer
    }

    pub(crate) fn forget(&mut self, node: NodeId) {
        self.newest.remove(&node);
    }

    pub(crate) fn count(&self) -> usize {
        self.newest.len()
    }

    /// What goes into the next packet: what `own` says, what is new, and a few others by chance. Never in turns, which
    /// could fall in step with the probes' turns, so that somebody always gets the same.
    pub(crate) fn next(&mut self, own: NodeId, rng: &mut impl RngExt) -> Vec<About> {
        let mut new: Vec<(u32, NodeId)> = Vec::new();
        let mut old: Vec<NodeId> = Vec::new();
        for (node, (_, sent)) in self.newest.iter().filter(|(node, _)| **node != own) {
            if *sent < NEW_SENT_MAX { new.push((*sent, *node)) } else { old.push(*node) }
        }
        new.sort_unstable();
        let mut chosen = Vec::new();
        let mut left = SHARE_BYTES;
        let order = std::iter::once(own).chain(new.into_iter().map(|(_, node)| node));
        for node in order {
            self.choose(node, &mut left, &mut chosen);
        }
        for _ in 0..OLD_COUNT.min(old.len()) {
            let node = old.swap_remove(rng.random_range(0..old.len()));
            self.choose(node, &mut left, &mut chosen);
        }
        chosen
    }

    fn choose(&mut self, node: NodeId, left: &mut usize, chosen: &mut Vec<About>) {
        if let Some((about, sent)) = self.newest.get_mut(&node).filter(|(about, _)| about.len() <= *left) {
            *left -= about.len();
            *sent = sent.saturating_add(1);
            chosen.push(about.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand_engine::SeedableRng;
    use rand_engine::rngs::SmallRng;

    use super::*;

    fn about(node: u128, incarnation: u64, number: u32) -> About {
        let digest = Digest { led_count: number, ..Digest::default() };
        About { node: NodeId(node), incarnation: Incarnation(incarnation), number, name: "n".into(), digest }
    }

    #[test]
    fn only_what_is_newer_is_learned() {
        let mut abouts = Abouts::default();
        assert!(abouts.learn(about(1, 5, 1)));
        assert!(!abouts.learn(about(1, 5, 1)));
        assert!(!abouts.learn(about(1, 4, 9)));
        assert!(abouts.learn(about(1, 5, 2)));
        assert!(abouts.learn(about(1, 6, 0)));
        assert_eq!(abouts.of(NodeId(1)), Some(&about(1, 6, 0)));
    }

    #[test]
    fn what_is_new_goes_first_and_everything_comes_in_the_end() {
        let mut rng = SmallRng::seed_from_u64(1);
        let own = NodeId(3);
        let mut abouts = Abouts::default();
        for node in 1..=20 {
            abouts.learn(about(node, 1, 0));
        }
        for _ in 0..100 {
            let sent = abouts.next(own, &mut rng);
            assert_eq!(sent[0].node, own);
            assert!(sent.iter().map(About::len).sum::<usize>() <= SHARE_BYTES);
        }
        let mut heard = BTreeSet::new();
        for _ in 0..200 {
            let sent = abouts.next(own, &mut rng);
            assert_eq!(sent.len(), 1 + OLD_COUNT, "nothing is new");
            heard.extend(sent.iter().map(|about| about.node));
        }
        assert_eq!(heard.len(), 20);
        abouts.learn(about(7, 1, 1));
        assert_eq!(abouts.next(own, &mut rng)[1], about(7, 1, 1));
    }
}
