//! Frames that are no requests: refused by name, and nothing else suffers.

use bytes::{BufMut, BytesMut};
use rand::Rng;
use wire::Request;
use wire::frame::PREFIX_BYTES;

use super::{Op, produce};
use crate::broker::network::ConnId;
use crate::broker::world::World;

pub(in super::super) fn send(world: &mut World, client: usize, id: ConnId) {
    let frame = sample(world);
    world.say(|| format!("client {client} sends {} bytes that are no request", frame.len()));
    let call = world.call(client, id, None, None, Op::Garbage);
    world.calls[call].delivered = true;
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
            let api_key = [0, 6, 12, 13, 17, 30, 51, 9999][world.rng.random_range(0..8)];
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
    let topic = world.name_to_send(Some(0));
    match world.rng.random_range(0..5) {
        0 => Request::CreateTopic { topic, keyspace_bits: 0 },
        1 => Request::Fetch(wire::request::Fetch { topic, ..Default::default() }),
        2 => Request::MergeRanges { topic, a: 1, b: 2 },
        3 => Request::SeekTime { topic, at_ms: 7 },
        _ => {
            let record = produce::sample(world, 0, 0, None);
            Request::Produce(wire::request::Produce::of(b"a", &[record]))
        }
    }
}
