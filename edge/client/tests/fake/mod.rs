//! A broker that is only as good as a test needs it: one log for each topic, in memory, and a script that
//! says which requests it refuses, and how.

#![allow(dead_code, unreachable_pub, clippy::wildcard_enum_match_arm, missing_docs)]

mod admin;
mod cluster;
mod stream;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use types::record::Walk;
use wire::request::{Envelope, Fetch, Produce, checksum};
use wire::response::{Batch, Hello};
use wire::{ApiKey, BatchPage, Gather, Page, Payload, Reason, Request, Response, Str, frame};

use admin::Admin;
use cluster::Cluster;

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
    /// Operations in the order they came in, greetings left out.
    pub seen: Vec<ApiKey>,
    /// What it says in its greeting; without, it is too old to know the operation.
    pub features: Option<u64>,
    /// Names of producers that it gave.
    pub producers: u64,
    /// Requests with a stamp that it has stored, by name and number.
    pub stored: BTreeMap<(u64, u32), u32>,
    /// Stamps it has seen, in order.
    pub stamps: Vec<types::Stamp>,
    /// Whether the batches it gives are damaged.
    pub damages: bool,
    /// Members that left, by name.
    pub left: Vec<Bytes>,
    /// Signs of life on streams, by member.
    pub heartbeats: Vec<Str>,
    /// Ranges, users and rights.
    pub admin: Admin,
    /// Nodes and the ring.
    pub cluster: Cluster,
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

    /// One that asks `script` about every request after the greeting, in order.
    pub fn scripted(script: impl FnMut(&Request) -> Verdict + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(Mutex::new(State::default()));
        let script: Script = Arc::new(Mutex::new(script));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, script) = (Arc::clone(&shared), Arc::clone(&script));
                thread::spawn(move || Connection { stream, buffer: BytesMut::new() }.serve(&state, &script));
            }
        });
        Self { address: address.to_string(), port: address.port(), state }
    }

    /// Makes a topic without a client.
    pub fn topic(self, name: &'static str) -> Self {
        self.with(|state| state.topics.insert(name.into(), Vec::new()));
        self
    }

    /// Lets it greet, with these features.
    pub fn features(self, features: u64) -> Self {
        self.with(|state| state.features = Some(features));
        self
    }

    /// Looks at or changes what it holds.
    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().expect("no test panics in it"))
    }

    /// Waits until what it holds is as wanted.
    pub fn wait_until(&self, wanted: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.with(|state| wanted(state)) {
            assert!(Instant::now() < deadline, "it does not come to that");
            thread::yield_now();
        }
    }

    /// Values stored in a topic, in order.
    pub fn values(&self, topic: &str) -> Vec<Bytes> {
        let record = |bytes: &Bytes| {
            types::record::Record::decode(&mut types::codec::Reader::new(bytes.clone()))
                .expect("it was walked")
        };
        self.with(|state| state.topics[topic.as_bytes()].iter().map(|bytes| record(bytes).value).collect())
    }
}

struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Connection {
    /// Serves until it ends; whatever goes wrong ends it.
    fn serve(mut self, state: &Mutex<State>, script: &Script) -> Option<()> {
        while !self.login(state)? {}
        loop {
            let (id, request) = self.next()??;
            if let Request::Hello { .. } = request {
                self.greet(id, state)?;
                continue;
            }
            state.lock().ok()?.seen.push(request.api_key());
            if let Request::ProduceOnce(once) = &request {
                state.lock().ok()?.stamps.push(once.stamp);
            }
            let verdict = (script.lock().ok()?)(&request);
            match verdict {
                Verdict::Serve => {
                    if let Request::Subscribe(subscribe) = request {
                        return self.push(id, subscribe, state, script);
                    }
                    let response = handle(request, &mut *state.lock().ok()?);
                    self.answer(id, &response)?;
                }
                Verdict::Refuse(reason) => self.answer(id, &Response::Error(reason))?,
                Verdict::ServeAndClose => {
                    handle(request, &mut *state.lock().ok()?);
                    return None;
                }
                Verdict::Close => return None,
                Verdict::LastWord(reason) => return self.answer(0, &Response::Error(reason)),
                Verdict::Ignore => {}
                Verdict::Raw(bytes) => self.stream.write_all(&bytes).ok()?,
            }
        }
    }

    /// The next request; `Some(None)` when the socket's read timeout passed without one.
    fn next(&mut self) -> Option<Option<(u32, Request)>> {
        let body = loop {
            match frame::take(&mut self.buffer, 16 * 1024 * 1024) {
                Ok(Some(body)) => break body,
                Ok(None) => {}
                Err(_) => {
                    self.answer(0, &Response::Error(Reason::FrameTooLarge));
                    return None;
                }
            }
            let mut chunk = [0; 65536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(len) => self.buffer.extend_from_slice(&chunk[..len]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Some(None);
                }
                Err(_) => return None,
            }
        };
        let (envelope, payload) = Envelope::split(body)?;
        let request = Request::decode(ApiKey::from_number(envelope.api_key)?, payload).ok()?;
        Some(Some((envelope.correlation_id, request)))
    }

    /// Whether it is who it should be; `None` ends the connection.
    fn login(&mut self, state: &Mutex<State>) -> Option<bool> {
        let (id, Request::Auth { password, .. }) = self.next()?? else { return None };
        if password.as_deref() == Some(b"wrong") {
            self.answer(id, &Response::Error(Reason::InvalidCredentials))?;
            return None;
        }
        state.lock().ok()?.logins += 1;
        self.answer(id, &Response::Ok(Payload::Token("token".into())))?;
        Some(true)
    }

    fn greet(&mut self, id: u32, state: &Mutex<State>) -> Option<()> {
        let features = state.lock().ok()?.features;
        let hello = features.map(|features| Hello {
            server: "fake/1".into(),
            features,
            frame_bytes_max: 1024 * 1024,
            fetch_records_max: 1000,
            fetch_wait_ms_max: 30_000,
            stream_window_max: 10_000,
        });
        let response =
            hello.map_or(Response::Error(Reason::UnknownApiKey), |h| Response::Ok(Payload::Hello(h)));
        self.answer(id, &response)
    }

    fn answer(&mut self, id: u32, response: &Response) -> Option<()> {
        let mut out = Gather::new();
        response.encode(id, &mut out);
        self.stream.write_all(&out.copy_to_bytes(out.remaining())).ok()
    }
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
        Request::ProduceBatch(batch) => {
            if batch.flags != 0 {
                return Response::Error(Reason::Unsupported);
            }
            if checksum(&batch.records) != batch.crc {
                return Response::Error(Reason::MalformedRequest);
            }
            append(Produce { topic: batch.topic, records: batch.records, count: batch.count }, state)
        }
        Request::NewProducer { .. } => {
            state.producers += 1;
            Response::Ok(Payload::Producer { id: state.producers, now_ms: 1000 })
        }
        Request::ProduceOnce(once) => {
            let (key, batch) = ((once.stamp.producer.0, once.stamp.first), once.batch);
            if let Some(count) = state.stored.get(&key) {
                return Response::Ok(Payload::Stored(*count));
            }
            let count = batch.count;
            let response = append(Produce { topic: batch.topic, records: batch.records, count }, state);
            if let Response::Ok(_) = response {
                state.stored.insert(key, count);
            }
            response
        }
        Request::Fetch(fetch) => match read(&fetch, state) {
            Ok((records, next_cursor)) => {
                let count = u32::try_from(records.len()).expect("a page is small");
                Response::Ok(Payload::Page(Page { count, records, next_cursor }))
            }
            Err(reason) => Response::Error(reason),
        },
        Request::FetchBatches(fetch) => match read(&fetch, state) {
            Ok((records, next_cursor)) => {
                let damage = u32::from(state.damages);
                let batch = |records: Bytes| Batch {
                    append_time: 7,
                    count: 1,
                    crc: checksum(&records) ^ damage,
                    records,
                };
                let batches = records.into_iter().map(batch).collect();
                Response::Ok(Payload::Batches(BatchPage { batches, next_cursor }))
            }
            Err(reason) => Response::Error(reason),
        },
        Request::Commit(commit) => commit_to(commit.topic, commit.group, commit.cursor, state)
            .map_or_else(Response::Error, |()| Response::Ok(Payload::Empty)),
        Request::LeaveGroup { member, .. } => {
            state.left.extend(member);
            Response::Ok(Payload::Empty)
        }
        Request::SeekTime { topic, at_ms } => {
            let len = state.topics.get(&topic.unwrap_or_default()).map_or(0, Vec::len);
            // The n-th record was appended at n milliseconds.
            let at = usize::try_from(at_ms).unwrap_or(usize::MAX).min(len);
            Response::Ok(Payload::Cursor(format!("c{at}").into()))
        }
        Request::Auth { .. }
        | Request::MtlsAuth
        | Request::TokenAuth { .. }
        | Request::Hello { .. }
        | Request::Subscribe(_)
        | Request::StreamAck(_)
        | Request::ListSegments { .. }
        | Request::Explain(_)
        | Request::MoveGroup(_)
        | Request::DeleteGroup { .. }
        | Request::ListFlags
        | Request::EnableFlag { .. } => Response::Error(Reason::UnknownApiKey),
        Request::ClusterStatus { .. }
        | Request::ChangeNode { .. }
        | Request::DescribeRing { .. }
        | Request::Reshard { .. }
        | Request::Rebalance { .. } => cluster::handle(request, &mut state.cluster),
        administrative => admin::handle(administrative, state),
    }
}

fn append(produce: Produce, state: &mut State) -> Response {
    let topic = produce.topic.unwrap_or_default();
    if state.admin.is_sealed(&topic) {
        return Response::Error(Reason::Unroutable);
    }
    let Some(stored) = state.topics.get_mut(&topic) else { return Response::Error(Reason::NoSuchTopic) };
    for span in Walk::new(&produce.records) {
        let span = span.expect("it was walked when it was decoded");
        stored.push(produce.records.slice(span.start..span.end));
    }
    Response::Ok(Payload::Stored(produce.count))
}

fn commit_to(topic: Str, group: Str, cursor: Str, state: &mut State) -> Result<(), Reason> {
    let at = place(cursor.as_ref()).ok_or(Reason::InvalidCursor)?;
    state.positions.insert((topic.unwrap_or_default(), group.unwrap_or_default()), at);
    Ok(())
}

fn place(cursor: Option<&Bytes>) -> Option<usize> {
    std::str::from_utf8(cursor?).ok()?.strip_prefix('c')?.parse().ok()
}

fn read(fetch: &Fetch, state: &State) -> Result<(Vec<Bytes>, Bytes), Reason> {
    let topic = fetch.topic.clone().unwrap_or_default();
    let position = |group: &Bytes| state.positions.get(&(topic.clone(), group.clone())).copied();
    let from = match (&fetch.member, &fetch.cursor, &fetch.group) {
        (None, Some(cursor), _) => place(Some(cursor)).ok_or(Reason::InvalidCursor)?,
        (_, _, Some(group)) => position(group).unwrap_or(0),
        (_, _, None) => 0,
    };
    let records = state.topics.get(&topic).map_or(&[][..], |records| &records[..]);
    let page: Vec<Bytes> = records.iter().skip(from).take(fetch.max_effective() as usize).cloned().collect();
    let next_cursor = format!("c{}", from + page.len()).into();
    Ok((page, next_cursor))
}
