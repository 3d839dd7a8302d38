//! Frames that are no requests: refused by name, and nothing else suffers.

use bytes::{BufMut, BytesMut};
use rand::Rng;
use wire::Request;
use wire::frame::PREFIX_BYTES;

use super::{Call, Op, produce};
use crate::broker::network::ConnId;
use crate::broker::world::World;

pub(in super::super) fn send(world: &mut World, client: usize, id: ConnId) {
    let frame = sample(world);
    world.say(|| format!("client {client} sends {} bytes that are no request", frame.len()));
    let call = world.calls.len();
    world.calls.push(Call {
        client,
        conn: id,
        request: None,
        op: Op::Garbage,
        known: false,
        deadline: 0,
        answer: None,
        delivered: true,
    });
    if let Some(conn) = world.conns.get_mut(&id) {
        conn.link.outgoing().extend_from_slice(&frame);
        conn.sent.push_back(call);
    }
}

fn sample(world: &mut World) -> BytesMut {
    let mut frame = BytesMut::new();
    // Its number is one that no link has in flight.
    let number = u32::MAX - 7;
    match world.rng.random_range(0..5) {
        0 => {
            let api_key = [0, 6, 12, 13, 17, 31, 9999][world.rng.random_range(0..7)];
            frame.put_u32(10);
            frame.put_u16(api_key);
            frame.put_u32(number);
            frame.put_u32(world.rng.random());
        }
        1 => {
            let len: u32 = world.rng.random_range(0..6);
            frame.put_u32(len);
            frame.put_bytes(7, len as usize);
        }
        2 => frame.put_u32(u32::try_from(world.config.frame_bytes_max).expect("a small limit") + 1),
        shape => {
            request(world).encode(number, &mut frame);
            if shape == 3 {
                // Every decoder takes all it needs: less is not enough, more is too much.
                let len = world.rng.random_range(PREFIX_BYTES + 6..frame.len());
                frame.truncate(len);
            } else {
                frame.put_u8(0);
            }
            let len = u32::try_from(frame.len() - PREFIX_BYTES).expect("a small frame");
            frame[..PREFIX_BYTES].copy_from_slice(&len.to_be_bytes());
        }
    }
    frame
}

fn request(world: &mut World) -> Request {
    match world.rng.random_range(0..3) {
        0 => Request::CreateTopic { topic: super::name_of(Some(0)), keyspace_bits: 0 },
        1 => Request::Fetch(wire::request::Fetch { topic: super::name_of(Some(0)), ..Default::default() }),
        _ => {
            let record = produce::sample(world, 0, 0);
            Request::Produce(wire::request::Produce::of(b"a", &[record]))
        }
    }
}
