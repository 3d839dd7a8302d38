//! One caller of the core: a connection of the client protocol, or a request over HTTP.
//!
//! Owns the numbers of its requests and the queue its answers come back on. Whatever ends it, the core hears that
//! it is gone.

use broker::{ConnectionId, Event, Fetched, Reply, RequestId, Session};
use tokio::sync::mpsc;
use wire::Reason;

use crate::driver::Core;

/// What comes back to a caller.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The reply to one of its requests.
    Reply {
        /// Which one.
        number: u64,
        reply: Reply,
    },
    /// Records for its stream.
    Push {
        /// The request that opened it.
        stream: u64,
        fetched: Fetched,
    },
    /// Its stream is over.
    Ended {
        /// The request that opened it.
        stream: u64,
        reason: Reason,
    },
    /// Its user changed its own password here: the session from now on.
    Renewed(Session),
    /// Its user was changed or deleted: the connection must close.
    Revoked,
    /// A password was hashed, or could not be. From the hashing threads, not from the core.
    Hashed {
        /// The number it was asked for under.
        number: u64,
        hash: Option<std::sync::Arc<str>>,
    },
}

/// A caller the core knows. Requests that are made at one time must not be more than `in_flight_max`.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) core: Core,
    pub(crate) id: ConnectionId,
    /// Number of the next request.
    pub(crate) next: u64,
    pub(crate) inbox: mpsc::Receiver<Answer>,
    /// For answers that do not come from the core. Weak, so that the inbox ends when the core lets go of it.
    answers: mpsc::WeakSender<Answer>,
}

/// Answers to no request that may wait beside those to requests: one push, the end of the stream, a renewed
/// session, a revocation.
const UNASKED_MAX: usize = 5;

impl Line {
    /// Makes a caller known to the core; `None` when the core is gone.
    pub(crate) async fn open(core: &Core, in_flight_max: usize) -> Option<Self> {
        let (answers, inbox) = mpsc::channel(in_flight_max + UNASKED_MAX);
        let weak = answers.downgrade();
        let id = core.connect(answers).await?;
        Some(Self { core: core.clone(), id, next: 0, inbox, answers: weak })
    }

    /// Asks one thing and waits for the reply, when nothing else is in work; `None` when the core is gone.
    pub(crate) async fn ask(&mut self, event: impl FnOnce(RequestId) -> Event) -> Option<Reply> {
        let id = RequestId { connection: self.id, number: self.next };
        self.next += 1;
        if !self.core.send(event(id)).await {
            return None;
        }
        loop {
            match self.inbox.recv().await? {
                Answer::Reply { number, reply } if number == id.number => return Some(reply),
                // Of a request that was given up.
                Answer::Reply { .. } => {}
                Answer::Revoked => return None,
                Answer::Push { .. } | Answer::Ended { .. } | Answer::Hashed { .. } | Answer::Renewed(_) => {}
            }
        }
    }

    /// A way for somebody else to answer here; `None` when nobody listens any more.
    pub(crate) fn answers(&self) -> Option<mpsc::Sender<Answer>> {
        self.answers.upgrade()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let (core, gone) = (self.core.clone(), Event::Gone(self.id));
        // Only a runtime that ends drops lines outside itself, and the core ends with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { core.send(gone).await });
        }
    }
}
