//! A broker that is only as good as a test needs it: one range for each topic, in memory, and a script that
//! says which requests it refuses, and how.

#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::{Buf, Bytes, BytesMut};
use types::record::Walk;
use wire::request::{Envelope, Fetch, Produce};
use wire::{ApiKey, Gather, Page, Payload, Reason, Request, Response, frame};

/// What to do with one request.
pub enum Verdict {
    /// Serve it.
    Serve,
    /// Answer with a reason; nothing happens.
    Refuse(Reason),
    /// Serve it, but close the connection instead of answering.
    ServeAndClose,
    /// Close the connection.
    Close,
    /// Say why, to nobody in particular, and close the connection.
    LastWord(Reason),
    /// Say nothing.
    Ignore,
    /// Answer with these bytes.
    Raw(Vec<u8>),
}

/// What the broker holds.
#[derive(Default)]
pub struct State {
    /// Records of each topic, each in wire encoding.
    pub topics: BTreeMap<Bytes, Vec<Bytes>>,
    /// Committed positions by topic and group.
    pub positions: BTreeMap<(Bytes, Bytes), usize>,
    /// Connections that authenticated.
    pub logins: usize,
    /// Operations in the order they came in.
    pub seen: Vec<ApiKey>,
}

/// A running fake; it ends with the test process.
pub struct Fake {
    pub address: String,
    pub port: u16,
    pub state: Arc<Mutex<State>>,
}

type Script = Arc<Mutex<dyn FnMut(&Request) -> Verdict + Send>>;

impl Fake {
    /// One that serves everything.
    pub fn start() -> Self {
        Self::scripted(|_| Verdict::Serve)
    }

    /// One that asks `script` about every request after authentication, in order.
    pub fn scripted(script: impl FnMut(&Request) -> Verdict + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(Mutex::new(State::default()));
        let script: Script = Arc::new(Mutex::new(script));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, script) = (Arc::clone(&shared), Arc::clone(&script));
                thread::spawn(move || serve(stream, &state, &script));
            }
        });
        Self { address: address.to_string(), port: address.port(), state }
    }

    /// Makes a topic without a client.
    pub fn topic(self, name: &'static str) -> Self {
        self.state.lock().expect("no test panics in it").topics.insert(name.into(), Vec::new());
        self
    }

    /// Values stored in a topic, in order.
    pub fn values(&self, topic: &str) -> Vec<Bytes> {
        let state = self.state.lock().expect("no test panics in it");
        let record = |bytes: &Bytes| {
            types::record::Record::decode(&mut types::codec::Reader::new(bytes.clone()))
                .expect("it was walked")
        };
        state.topics[topic.as_bytes()].iter().map(|bytes| record(bytes).value).collect()
    }
}

/// Serves one connection until it ends; whatever goes wrong ends it.
fn serve(mut stream: TcpStream, state: &Mutex<State>, script: &Script) -> Option<()> {
    let mut buffer = BytesMut::new();
    let mut authenticated = false;
    loop {
        let body = loop {
            match frame::take(&mut buffer, 16 * 1024 * 1024) {
                Ok(Some(body)) => break body,
                Ok(None) => {}
                Err(_) => return answer(&mut stream, 0, &Response::Error(Reason::FrameTooLarge)),
            }
            let mut chunk = [0; 65536];
            let len = stream.read(&mut chunk).ok().filter(|len| *len > 0)?;
            buffer.extend_from_slice(&chunk[..len]);
        };
        let (envelope, payload) = Envelope::split(body)?;
        let id = envelope.correlation_id;
        let request = Request::decode(ApiKey::from_number(envelope.api_key)?, payload).ok()?;
        if !authenticated {
            authenticated = login(&mut stream, id, &request, state)?;
            continue;
        }
        state.lock().ok()?.seen.push(request.api_key());
        let verdict = (script.lock().ok()?)(&request);
        match verdict {
            Verdict::Serve => {
                let response = handle(request, &mut *state.lock().ok()?);
                answer(&mut stream, id, &response)?;
            }
            Verdict::Refuse(reason) => answer(&mut stream, id, &Response::Error(reason))?,
            Verdict::ServeAndClose => {
                handle(request, &mut *state.lock().ok()?);
                return None;
            }
            Verdict::Close => return None,
            Verdict::LastWord(reason) => return answer(&mut stream, 0, &Response::Error(reason)),
            Verdict::Ignore => {}
            Verdict::Raw(bytes) => stream.write_all(&bytes).ok()?,
        }
    }
}

/// `None` ends the connection.
fn login(stream: &mut TcpStream, id: u32, request: &Request, state: &Mutex<State>) -> Option<bool> {
    let Request::Auth { password, .. } = request else { return None };
    if password.as_deref() == Some(b"wrong") {
        answer(stream, id, &Response::Error(Reason::InvalidCredentials))?;
        return None;
    }
    state.lock().ok()?.logins += 1;
    answer(stream, id, &Response::Ok(Payload::Token("token".into())))?;
    Some(true)
}

fn answer(stream: &mut TcpStream, id: u32, response: &Response) -> Option<()> {
    let mut out = Gather::new();
    response.encode(id, &mut out);
    stream.write_all(&out.copy_to_bytes(out.remaining())).ok()
}

fn handle(request: Request, state: &mut State) -> Response {
    match request {
        Request::CreateTopic { topic, .. } => {
            let topic = topic.unwrap_or_default();
            if state.topics.contains_key(&topic) {
                return Response::Error(Reason::AlreadyExists);
            }
            state.topics.insert(topic, Vec::new());
            Response::Ok(Payload::Empty)
        }
        Request::Produce(produce) => append(produce, state),
        Request::Fetch(fetch) => read(&fetch, state),
        Request::Commit(commit) => {
            let Some(at) = place(commit.cursor.as_ref()) else {
                return Response::Error(Reason::InvalidCursor);
            };
            state.positions.insert((commit.topic.unwrap_or_default(), commit.group.unwrap_or_default()), at);
            Response::Ok(Payload::Empty)
        }
        Request::LeaveGroup { .. } => Response::Ok(Payload::Empty),
        Request::Auth { .. } | Request::MtlsAuth | Request::TokenAuth { .. } | Request::StreamAck(_) => {
            Response::Error(Reason::UnknownApiKey)
        }
        Request::Subscribe(_)
        | Request::CreateUser { .. }
        | Request::DeleteUser { .. }
        | Request::ChangePassword { .. }
        | Request::ListUsers
        | Request::GrantAcl(_)
        | Request::RevokeAcl(_)
        | Request::ListAcls { .. } => Response::Error(Reason::PermissionDenied),
    }
}

fn append(produce: Produce, state: &mut State) -> Response {
    let topic = produce.topic.unwrap_or_default();
    let Some(stored) = state.topics.get_mut(&topic) else { return Response::Error(Reason::NoSuchTopic) };
    for span in Walk::new(&produce.records) {
        let span = span.expect("it was walked when it was decoded");
        stored.push(produce.records.slice(span.start..span.end));
    }
    Response::Ok(Payload::Stored(produce.count))
}

fn place(cursor: Option<&Bytes>) -> Option<usize> {
    std::str::from_utf8(cursor?).ok()?.strip_prefix('c')?.parse().ok()
}

fn read(fetch: &Fetch, state: &State) -> Response {
    let topic = fetch.topic.clone().unwrap_or_default();
    let position = |group: &Bytes| state.positions.get(&(topic.clone(), group.clone())).copied();
    let from = match (&fetch.member, &fetch.cursor, &fetch.group) {
        (None, Some(cursor), _) => place(Some(cursor)),
        (_, _, Some(group)) => Some(position(group).unwrap_or(0)),
        (_, _, None) => Some(0),
    };
    let Some(from) = from else { return Response::Error(Reason::InvalidCursor) };
    let records = state.topics.get(&topic).map_or(&[][..], |records| &records[..]);
    let page: Vec<Bytes> = records.iter().skip(from).take(fetch.max_effective() as usize).cloned().collect();
    let count = u32::try_from(page.len()).expect("a page is small");
    let next_cursor = format!("c{}", from + page.len()).into();
    Response::Ok(Payload::Page(Page { count, records: page, next_cursor }))
}
