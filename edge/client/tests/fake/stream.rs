//! The fake's push streams.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use wire::request::{StreamAck, Subscribe};
use wire::{Page, Payload, Reason, Request, Response};

use super::{Connection, Script, State, Verdict, commit_to};

/// How long acknowledgements are waited for before new records are looked for.
const TICK: Duration = Duration::from_millis(2);

impl Connection {
    /// Pushes what a window allows until the connection ends.
    pub(super) fn push(
        mut self,
        id: u32,
        subscribe: Subscribe,
        state: &Mutex<State>,
        script: &Script,
    ) -> Option<()> {
        self.stream.set_read_timeout(Some(TICK)).ok()?;
        let (topic, group) = (subscribe.topic.clone()?, subscribe.group.clone()?);
        let mut at = *state.lock().ok()?.positions.get(&(topic.clone(), group.clone())).unwrap_or(&0);
        let mut in_flight = 0;
        loop {
            let budget = subscribe.max_effective().min(subscribe.window_effective() - in_flight);
            let records: Vec<Bytes> = {
                let state = state.lock().ok()?;
                let all = state.topics.get(&topic).map_or(&[][..], |records| &records[..]);
                all.iter().skip(at).take(budget as usize).cloned().collect()
            };
            if !records.is_empty() {
                let count = u32::try_from(records.len()).expect("a page is small");
                at += records.len();
                in_flight += count;
                let page = Page { count, records, next_cursor: format!("c{at}").into() };
                self.answer(id, &Response::Ok(Payload::Page(page)))?;
            }
            let Some((ack_id, request)) = self.next()? else { continue };
            state.lock().ok()?.seen.push(request.api_key());
            let verdict = (script.lock().ok()?)(&request);
            match verdict {
                Verdict::Serve => match request {
                    Request::StreamAck(ack) => {
                        let credit = acknowledge(ack, &mut *state.lock().ok()?);
                        in_flight = in_flight.saturating_sub(credit);
                    }
                    _ => self.answer(ack_id, &Response::Error(Reason::UnexpectedFrame))?,
                },
                Verdict::Refuse(reason) => self.answer(ack_id, &Response::Error(reason))?,
                // The stream's own end.
                Verdict::Raw(reason) => {
                    let reason = Reason::from_token(&reason).expect("a test names a known one");
                    return self.answer(id, &Response::Error(reason));
                }
                Verdict::LastWord(reason) => return self.answer(0, &Response::Error(reason)),
                Verdict::ServeAndClose | Verdict::Close => return None,
                Verdict::Ignore => {}
            }
        }
    }
}

/// Commits, and gives the credit returned.
fn acknowledge(ack: StreamAck, state: &mut State) -> u32 {
    if ack.cursor.is_none() {
        state.heartbeats.push(ack.member);
        return ack.count;
    }
    commit_to(ack.topic, ack.group, ack.cursor, state).map_or(0, |()| ack.count)
}
