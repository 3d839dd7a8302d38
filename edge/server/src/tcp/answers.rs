//! What becomes of the answers that come back for a connection.
//!
//! Most are passed on. A change of a password takes three steps: the core says whether the session may, the password
//! is hashed elsewhere, the core makes the change. Each step is a request of its own; nothing else runs between
//! them.

use std::sync::Arc;

use broker::{Fetched, Form, Reply, RequestId};
use bytes::Bytes;
use tokio::sync::mpsc;
use wire::{ApiKey, Payload, Reason, Response};

use super::connection::{Connection, Input, Stream};
use super::in_work::{Slot, Then};
use super::translate::{self, NewPassword};
use crate::audit::Change;
use crate::identity::Overloaded;
use crate::line::Answer;
use crate::metrics::Doing;

/// Whom to answer, and what it asked for.
#[derive(Clone, Copy)]
struct Asked {
    correlation_id: u32,
    operation: ApiKey,
}

impl Connection<'_> {
    /// Takes one answer.
    pub(super) fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Reply { number, reply } => self.reply(number, reply),
            Answer::Push { stream, fetched } => self.push(stream, fetched),
            Answer::Ended { stream, reason } => self.ended(stream, reason),
            Answer::Hashed { number, hash } => self.hashed(number, hash),
            Answer::Renewed(session) => self.session = session,
            Answer::Revoked => self.revoked = true,
        }
    }

    fn reply(&mut self, number: u64, reply: Reply) {
        let Some(slot) = self.in_work.end(number) else { return };
        let Slot { correlation_id, operation, arrived, bytes, then, change } = slot;
        let asked = Asked { correlation_id, operation };
        match (then, reply) {
            (Then::Refuse(reason), Reply::Done) => {
                self.audit_refusal(change.as_deref(), operation, reason);
                self.refuse(asked, reason);
            }
            (Then::Hash(new, password), Reply::Done) => {
                let then = Then::Change(new);
                self.hash(Slot { correlation_id, operation, arrived, bytes, then, change }, password);
            }
            // The rest is passed on: what was asked for, or that the session is no administrator.
            (then, reply) => {
                if let Some(change) = change {
                    self.shared.metrics.audited(change.kind());
                    change.answered(&self.session.user, self.client, operation.name(), &reply);
                }
                let metrics = &self.shared.metrics;
                metrics.answered(operation, &reply, self.now.duration_since(arrived));
                if let Reply::Stored(_) = reply {
                    metrics.stored_bytes(bytes);
                } else if let (Then::Stream, Reply::Subscribed) = (&then, &reply) {
                    let id = RequestId { connection: self.line.id, number };
                    self.stream = Some(Stream { id, correlation_id, pushing: false });
                    self.doing = metrics.hold(Doing::Streaming);
                }
                let form = if let Then::Answer(form) = then { form } else { Form::Records };
                if let Some(response) = translate::response(reply, form) {
                    response.encode(correlation_id, &mut self.out);
                }
            }
        }
    }

    fn audit_refusal(&self, change: Option<&Change>, operation: ApiKey, reason: Reason) {
        if let Some(change) = change {
            self.shared.metrics.audited(change.kind());
            change.refused(&self.session.user, self.client, operation.name(), reason);
        }
    }

    fn refuse(&mut self, asked: Asked, reason: Reason) {
        self.shared.metrics.refused(asked.operation, reason);
        Response::Error(reason).encode(asked.correlation_id, &mut self.out);
    }

    fn hash(&mut self, slot: Slot, password: Bytes) {
        let asked = Asked { correlation_id: slot.correlation_id, operation: slot.operation };
        let Some(answers) = self.line.answers() else { return };
        let number = self.in_work.start_alone(slot);
        let hashing = self.shared.doors.pool.hash(password, move |hash| tell(&answers, number, hash));
        if hashing == Err(Overloaded) {
            let change = self.in_work.end(number).and_then(|slot| slot.change);
            self.audit_refusal(change.as_deref(), asked.operation, Reason::Overloaded);
            self.refuse(asked, Reason::Overloaded);
        }
    }

    fn hashed(&mut self, number: u64, hash: Option<Arc<str>>) {
        let Some(slot) = self.in_work.end(number) else { return };
        let asked = Asked { correlation_id: slot.correlation_id, operation: slot.operation };
        match (slot.then, hash) {
            (Then::Change(new), Some(hash)) => {
                let then = Then::Answer(Form::Records);
                self.ask(Slot { then, ..slot }, NewPassword::with(new, hash));
            }
            (Then::Change(_) | Then::Answer(_) | Then::Stream | Then::Refuse(_) | Then::Hash(..), _) => {
                self.audit_refusal(slot.change.as_deref(), asked.operation, Reason::InternalError);
                self.refuse(asked, Reason::InternalError)
            }
        }
    }

    fn push(&mut self, number: u64, fetched: Fetched) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.id.number == number) else {
            return;
        };
        stream.pushing = true;
        self.shared.metrics.gave(&fetched);
        let page = Payload::Page(translate::page(fetched));
        Response::Ok(page).encode(stream.correlation_id, &mut self.out);
    }

    fn ended(&mut self, number: u64, reason: Reason) {
        if let Some(stream) = self.stream.take_if(|stream| stream.id.number == number) {
            Response::Error(reason).encode(stream.correlation_id, &mut self.out);
            self.input = Input::Closing;
        }
    }
}

/// From the hashing threads: the inbox has room for what a connection may have in work.
fn tell(answers: &mpsc::Sender<Answer>, number: u64, hash: Option<Arc<str>>) {
    // The connection may be gone.
    drop(answers.try_send(Answer::Hashed { number, hash }));
}
