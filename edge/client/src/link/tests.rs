use bytes::{Buf, Bytes};
use proptest::prelude::*;
use wire::request::{Envelope, Produce};
use wire::{Gather, Reason};

use super::*;

const FRAME_BYTES: usize = 1024;

fn link() -> Link<u32> {
    Link::new(FRAME_BYTES)
}

fn request() -> Request {
    Request::Produce(wire::request::Produce { topic: None, records: Bytes::new(), count: 0 })
}

fn answer(id: u32, response: &Response) -> Bytes {
    let mut out = Gather::new();
    response.encode(id, &mut out);
    out.copy_to_bytes(out.remaining())
}

/// Ids of the requests that were sent, in order.
fn sent(link: &mut Link<u32>) -> Vec<u32> {
    let mut ids = Vec::new();
    while let Some(body) = frame::take(link.outgoing(), FRAME_BYTES).unwrap() {
        ids.push(Envelope::split(body).unwrap().0.correlation_id);
    }
    ids
}

#[test]
fn ids_start_at_1_wrap_to_1_and_skip_what_is_in_flight() {
    let mut link = link();
    link.send(&request(), 10);
    link.last_id = u32::MAX - 1;
    link.send(&request(), 11);
    link.send(&request(), 12);
    assert_eq!(sent(&mut link), [1, u32::MAX, 2]);
}

#[test]
fn an_unasked_error_is_the_last_word() {
    let mut link = link();
    link.send(&request(), 1);
    let word = answer(0, &Response::Error(Reason::ServerShutdown));
    link.incoming().extend_from_slice(&word);
    assert!(matches!(link.receive(), Err(Error::Refused(Reason::ServerShutdown))));
    assert_eq!(link.abandon(), [1]);
}

#[test]
fn what_is_not_an_answer_breaks_the_link_and_no_ticket_is_lost() {
    let success_without_count = [0, 0, 0, 6, 0, 0, 0, 1, 0, 0];
    let other_id = answer(9, &Response::Ok(Payload::Stored(1)));
    let oversize = [0xff; 4];
    let code_2 = [0, 0, 0, 6, 0, 0, 0, 1, 0, 2];
    for bytes in [&success_without_count[..], &other_id, &oversize, &code_2] {
        let mut link = link();
        link.send(&request(), 1);
        link.send(&request(), 2);
        link.incoming().extend_from_slice(bytes);
        assert!(matches!(link.receive(), Err(Error::Protocol(_))), "{bytes:?}");
        let good = answer(1, &Response::Ok(Payload::Stored(1)));
        link.incoming().extend_from_slice(&good);
        assert!(link.receive().is_err(), "still broken");
        assert_eq!(link.abandon(), [1, 2], "{bytes:?}");
    }
}

fn subscribe() -> Subscribe {
    Subscribe { topic: Some("t".into()), group: Some("g".into()), member: None, window: 10, max: 5 }
}

fn ack(count: u32) -> StreamAck {
    let (topic, group) = (Some("t".into()), Some("g".into()));
    StreamAck { topic, group, member: None, cursor: Some("c1".into()), count }
}

fn push() -> Page {
    let record = types::record::Record {
        key: None,
        value: Bytes::from_static(b"v"),
        timestamp: 0,
        headers: Vec::new(),
    };
    let Produce { records, count, .. } = Produce::of(b"", &[record]);
    Page { count, records: vec![records], next_cursor: "c1".into() }
}

fn hear(link: &mut Link<u32>, id: u32, response: &Response) -> Result<Option<Received<u32>>, Error> {
    let bytes = answer(id, response);
    link.incoming().extend_from_slice(&bytes);
    link.receive()
}

#[test]
fn a_stream_pushes_under_its_own_id_until_an_error_ends_it() {
    let mut link = link();
    link.subscribe(&subscribe(), 7);
    assert_eq!(sent(&mut link), [1]);
    for _ in 0..3 {
        let received = hear(&mut link, 1, &Response::Ok(Payload::Page(push())));
        assert_eq!(received.unwrap(), Some(Received::Push(push())));
    }
    assert_eq!(link.in_flight(), 0);
    let end = Response::Error(Reason::PermissionDenied);
    assert_eq!(hear(&mut link, 1, &end).unwrap(), Some(Received::Ended(7, end)));
    assert!(link.abandon().is_empty(), "the ticket came back once");
}

#[test]
fn a_refused_acknowledgement_does_not_end_the_stream() {
    let mut link = link();
    link.subscribe(&subscribe(), 7);
    let (first, second) = (link.ack(&ack(1)), link.ack(&ack(1)));
    assert_eq!(sent(&mut link), [1, first, second]);
    let refusal = Response::Error(Reason::InvalidCursor);
    assert_eq!(hear(&mut link, second, &refusal).unwrap(), Some(Received::AckRefused(second, refusal)));
    let malformed = Response::Error(Reason::MalformedRequest);
    assert_eq!(hear(&mut link, 0, &malformed).unwrap(), Some(Received::AckRefused(0, malformed)));
    let received = hear(&mut link, 1, &Response::Ok(Payload::Page(push())));
    assert_eq!(received.unwrap(), Some(Received::Push(push())));
    assert_eq!(link.abandon(), [7]);
}

#[test]
fn the_brokers_last_word_breaks_a_stream_too() {
    let mut link = link();
    link.subscribe(&subscribe(), 7);
    let received = hear(&mut link, 0, &Response::Error(Reason::ServerShutdown));
    assert!(matches!(received, Err(Error::Refused(Reason::ServerShutdown))));
    assert_eq!(link.abandon(), [7]);
}

#[test]
fn a_push_without_a_record_and_a_praised_acknowledgement_make_no_sense() {
    let none = Response::Ok(Payload::Page(Page { count: 0, records: Vec::new(), next_cursor: "c".into() }));
    for (id, response) in [(1, none), (2, Response::Ok(Payload::Empty)), (1, Response::Ok(Payload::Empty))] {
        let mut link = link();
        link.subscribe(&subscribe(), 7);
        link.ack(&ack(0));
        assert!(matches!(hear(&mut link, id, &response), Err(Error::Protocol(_))), "{response:?}");
        assert_eq!(link.abandon(), [7]);
    }
}

#[test]
fn requests_before_a_stream_are_answered_beside_it() {
    let mut link = link();
    link.send(&request(), 1);
    link.subscribe(&subscribe(), 2);
    link.send(&request(), 3);
    let received = hear(&mut link, 1, &Response::Ok(Payload::Stored(4))).unwrap();
    assert_eq!(received, Some(Received::Answer(1, Response::Ok(Payload::Stored(4)))));
    let unexpected = Response::Error(Reason::UnexpectedFrame);
    assert_eq!(hear(&mut link, 3, &unexpected).unwrap(), Some(Received::Answer(3, unexpected)));
    assert_eq!(link.abandon(), [2]);
}

proptest! {
    #[test]
    fn answers_find_their_tickets_in_any_order_and_any_cut(
        order in Just((0_u32..12).collect::<Vec<_>>()).prop_shuffle(),
        answered in 0_usize..=12, cut in 1_usize..40,
    ) {
        let mut link = link();
        (0..12).for_each(|ticket| link.send(&request(), ticket));
        let ids = sent(&mut link);
        let mut bytes = Vec::new();
        for ticket in &order[..answered] {
            bytes.extend_from_slice(&answer(ids[*ticket as usize], &Response::Ok(Payload::Stored(*ticket))));
        }
        let mut received = Vec::new();
        for bytes in bytes.chunks(cut) {
            link.incoming().extend_from_slice(bytes);
            while let Some(answer) = link.receive().unwrap() {
                    let Received::Answer(ticket, response) = answer else { panic!("{answer:?}") };
                prop_assert_eq!(response, Response::Ok(Payload::Stored(ticket)));
                received.push(ticket);
            }
        }
        prop_assert_eq!(&received[..], &order[..answered]);
        let mut rest = order[answered..].to_vec();
        rest.sort_unstable();
        prop_assert_eq!(link.in_flight(), rest.len());
        prop_assert_eq!(link.abandon(), rest);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut link = link();
        (0..3).for_each(|ticket| link.send(&request(), ticket));
        link.incoming().extend_from_slice(&bytes);
        let mut answered = 0;
        while let Ok(Some(_)) = link.receive() {
            answered += 1;
        }
        prop_assert_eq!(link.abandon().len() + answered, 3);
    }

    // Bytes that are likely to be frames about the stream, its acknowledgements or nothing.
    #[test]
    fn any_bytes_on_a_stream_are_survived(frames in prop::collection::vec((0_u32..5, 0_u16..3, prop::collection::vec(any::<u8>(), 0..40)), 0..6)) {
        let mut link = link();
        link.subscribe(&subscribe(), 7);
        link.ack(&ack(1));
        for (id, code, payload) in frames {
            let body = [&id.to_be_bytes()[..], &code.to_be_bytes(), &payload].concat();
            link.incoming().extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
            link.incoming().extend_from_slice(&body);
        }
        let mut ended = 0;
        while let Ok(Some(received)) = link.receive() {
            ended += usize::from(matches!(received, Received::Ended(7, _)));
        }
        prop_assert_eq!(link.abandon().len() + ended, 1);
    }
}
