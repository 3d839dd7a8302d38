//! Until both sides are proved: two frames each way, a bound on their size, a deadline.
//!
//! ```text
//! dialler                     accepter
//!    hello ────────────────────▶  judged
//!   judged ◀──────────────────── hello
//!    proof ────────────────────▶  judged; up
//! judged; up ◀────────────────── proof
//! ```
//!
//! The dialler proves first, so that a stranger who dials learns nothing to guess a secret by. Judged first is what
//! costs nothing to judge: version, way of authentication, cluster, id. What is refused is told by its number alone.

use bytes::Bytes;
use types::{Instant, NodeId};

use super::frame::Own;
use super::{Error, Setup};
use crate::hello::{Hello, Peer, Unusable, VERSIONS, common_version};
use crate::proof::{Role, Transcript};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Handshake {
    setup: Setup,
    role: Role,
    deadline: Instant,
    /// Whom this side dialled, if it knows.
    dialled: Option<NodeId>,
    /// Own first frame.
    ours: Bytes,
    theirs: Option<(Bytes, Hello)>,
}

/// What a frame of the handshake leads to.
#[derive(Debug)]
pub(super) enum Step {
    /// Send this and go on.
    Send(Own),
    /// The peer is proved; the other side needs this to say the same.
    Up(Option<Own>, Peer),
}

impl Handshake {
    /// Begins; gives what is to be sent.
    pub(super) fn begin(
        setup: Setup,
        role: Role,
        dialled: Option<NodeId>,
        deadline: Instant,
    ) -> (Self, Option<Own>) {
        assert!(
            setup.claim.is_valid(),
            "a node's own name, build and address are checked before they are used"
        );
        let hello = Hello {
            versions: VERSIONS,
            authentication: setup.trust.authentication(),
            nonce: setup.nonce,
            claim: setup.claim.clone(),
            dialled,
        };
        let ours = hello.encode();
        let first = (role == Role::Dialler).then(|| Own::Hello(ours.clone()));
        (Self { setup, role, deadline, dialled, ours, theirs: None }, first)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn take(&mut self, own: Own) -> Result<Step, Error> {
        match (own, &self.theirs) {
            (Own::Refused(why), _) => Err(refused_by(why)),
            (Own::Hello(bytes), None) => self.hello(bytes),
            (Own::Proof(proof), Some(_)) => self.proof(&proof),
            (
                Own::Hello(_)
                | Own::Proof(_)
                | Own::Ping(_)
                | Own::Pong(_)
                | Own::Credit { .. }
                | Own::Cancel(_)
                | Own::Unknown { .. }
                | Own::Later(_),
                _,
            ) => Err(Error::Malformed("a frame that has no place in a handshake")),
        }
    }

    fn hello(&mut self, bytes: Bytes) -> Result<Step, Error> {
        let theirs = Hello::decode(bytes.clone()).map_err(|unusable| match unusable {
            Unusable::Malformed(_) => Error::Malformed("the first frame"),
            Unusable::Versions(lowest, highest) => {
                let (ours, theirs) = (range(VERSIONS), range((lowest, highest)));
                refuses(Refusal::Version, format!("it speaks version {theirs}, this build {ours}"))
            }
        })?;
        self.judge(&theirs)?;
        self.theirs = Some((bytes, theirs));
        Ok(Step::Send(match self.role {
            Role::Accepter => Own::Hello(self.ours.clone()),
            Role::Dialler => Own::Proof(self.transcript().prove(self.setup.trust.secret(), self.role)),
        }))
    }

    /// What can be said before anything is proved.
    fn judge(&self, theirs: &Hello) -> Result<(), Error> {
        let (ours, peer) = (&self.setup.claim, &theirs.claim);
        let way = self.setup.trust.authentication();
        if theirs.authentication != way {
            let detail = format!("it proves itself by {}, this node by {way}", theirs.authentication);
            return Err(refuses(Refusal::Authentication, detail));
        }
        if let (Some(a), Some(b)) = (ours.control_plane, peer.control_plane)
            && a != b
        {
            return Err(refuses(
                Refusal::ControlPlane,
                format!("{} belongs to {b}, this node to {a}", peer.name),
            ));
        }
        if peer.node == ours.node {
            let detail = format!("{} at {:?} has this node's id {}", peer.name, peer.address, peer.node);
            return Err(refuses(Refusal::SameNode, detail));
        }
        let (dialled, answers) = match self.role {
            Role::Dialler => (self.dialled, peer.node),
            Role::Accepter => (theirs.dialled, ours.node),
        };
        match dialled {
            Some(dialled) if dialled != answers => {
                Err(refuses(Refusal::OtherNode, format!("{dialled} was dialled, {answers} answers")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn proof(&mut self, proof: &[u8]) -> Result<Step, Error> {
        let secret = self.setup.trust.secret();
        if !self.transcript().is_proved(secret, self.role.other(), proof) {
            let name = self.theirs.as_ref().map(|(_, hello)| hello.claim.name.as_str()).unwrap_or_default();
            let detail = format!("what {name} sends is no proof of this node's secret on this connection");
            return Err(refuses(Refusal::Secret, detail));
        }
        let answer = match self.role {
            Role::Accepter => Some(Own::Proof(self.transcript().prove(secret, self.role))),
            Role::Dialler => None,
        };
        let (_, hello) = self.theirs.take().expect("a proof is judged after a hello");
        let version = common_version(VERSIONS, hello.versions).expect("judged when it was decoded");
        Ok(Step::Up(answer, Peer { claim: hello.claim, version }))
    }

    fn transcript(&self) -> Transcript<'_> {
        let theirs = self.theirs.as_ref().map(|(bytes, _)| &bytes[..]).unwrap_or_default();
        let (dialler, accepter) = match self.role {
            Role::Dialler => (&self.ours[..], theirs),
            Role::Accepter => (theirs, &self.ours[..]),
        };
        Transcript { binding: &self.setup.binding, dialler, accepter }
    }
}

fn refuses(refusal: Refusal, detail: String) -> Error {
    Error::Refuses { refusal, detail }
}

/// The peer's last word.
pub(super) fn refused_by(why: u16) -> Error {
    Refusal::from_number(why).map_or(Error::RefusedByLater(why), Error::RefusedBy)
}

fn range((lowest, highest): (u16, u16)) -> String {
    if lowest == highest { lowest.to_string() } else { format!("{lowest} to {highest}") }
}
