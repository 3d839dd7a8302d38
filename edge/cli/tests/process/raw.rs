//! A connection that says exactly what it is told to, and the frames tests say.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use types::record::Record;
use wire::request::{Fetch, Produce, StreamAck, Subscribe};
use wire::response::{Page, Reply};
use wire::{ApiKey, Payload, Reason, Request, Response};

use super::Place;

/// A connection that says exactly what it is told to.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) fn open(place: &Place) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn logged_in(place: &Place, user: &str) -> Self {
        let mut raw = Self::open(place);
        raw.request(1, &auth(user, &format!("{user}123")));
        let reply = raw.reply();
        let Ok(Response::Ok(Payload::Token(token))) = reply.clone().decode(ApiKey::Auth) else {
            panic!("{reply:?}")
        };
        assert_eq!(token.len(), 43);
        raw
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub(crate) fn request(&mut self, correlation_id: u32, request: &Request) {
        self.send(&frame(correlation_id, request));
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let mut prefix = [0; 4];
        self.0.read_exact(&mut prefix).unwrap();
        let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
        self.0.read_exact(&mut body).unwrap();
        Reply::split(body.into()).unwrap()
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, correlation_id: u32, reason: Reason) {
        let reply = self.reply();
        assert_eq!(reply.correlation_id, correlation_id);
        assert_eq!(reply.decode_error().unwrap(), Response::Error(reason));
    }

    #[track_caller]
    pub(crate) fn closed(&mut self) {
        let mut rest = Vec::new();
        assert_eq!(self.0.read_to_end(&mut rest).unwrap(), 0, "{rest:?}");
    }
}

pub(crate) fn frame(correlation_id: u32, request: &Request) -> BytesMut {
    let mut out = BytesMut::new();
    request.encode(correlation_id, &mut out);
    out
}

pub(crate) fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

pub(crate) fn auth(user: &str, password: &str) -> Request {
    Request::Auth { username: text(user), password: text(password) }
}

pub(crate) fn create(topic: &str) -> Request {
    Request::CreateTopic { topic: text(topic), keyspace_bits: 16 }
}

pub(crate) fn produce(topic: &str, values: &[&str]) -> Request {
    let record = |value: &&str| Record {
        key: None,
        value: Bytes::copy_from_slice(value.as_bytes()),
        timestamp: 0,
        headers: Vec::new(),
    };
    let records: Vec<Record> = values.iter().map(record).collect();
    Request::Produce(Produce::of(topic.as_bytes(), &records))
}

pub(crate) fn fetch(topic: &str, wait_ms: u32) -> Request {
    Request::Fetch(Fetch { topic: text(topic), wait_ms, ..Fetch::default() })
}

pub(crate) fn subscribe(topic: &str, group: &str, window: u32) -> Request {
    let (topic, group) = (text(topic), text(group));
    Request::Subscribe(Subscribe { topic, group, member: None, window, max: 0 })
}

pub(crate) fn stream_ack(topic: &str, group: &str, cursor: Option<Bytes>, count: u32) -> Request {
    let (topic, group) = (text(topic), text(group));
    Request::StreamAck(StreamAck { topic, group, member: None, cursor, count })
}

/// The page a fetch answered or a stream pushed.
#[track_caller]
pub(crate) fn page(reply: Reply) -> Page {
    let answer = reply.clone().decode(ApiKey::Fetch);
    let Ok(Response::Ok(Payload::Page(page))) = answer else { panic!("no page: {reply:?}") };
    page
}

/// Its values.
pub(crate) fn values(page: &Page) -> Vec<String> {
    let records = page.decode_records().unwrap().into_iter();
    records.map(|record| String::from_utf8(record.value.to_vec()).unwrap()).collect()
}
