//! Reads a topic from its beginning, keeping its place by itself:
//! `cargo run -p malachi-client --example consume`.
//!
//! Talks to `MALACHI_ADDRESS`, else `localhost:4040`, as the development user `consumer`.

extern crate malachi_client as client;

use std::time::Duration;

use client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("MALACHI_ADDRESS").unwrap_or_else(|_| "localhost:4040".to_owned());
    let client = Client::connect(&address, "consumer", "consumer123").await?;

    let mut consumer = client.consumer("orders").max(500).wait(Duration::ZERO).open().await?;
    let mut count = 0;
    loop {
        let page = consumer.poll().await?;
        if page.count == 0 {
            break;
        }
        for record in page.decode_records().map_err(|error| Error::Protocol(error.to_string()))? {
            count += usize::from(!record.value.is_empty());
        }
    }

    // The place is a piece of text to keep anywhere; a later run goes on from it.
    let place = consumer.position().cloned();
    if let Some(place) = place {
        let mut later = client.consumer("orders").cursor(place).wait(Duration::ZERO).open().await?;
        assert_eq!(later.poll().await?.count, 0, "everything was read");
    }

    // Or skip to a time: the records of the last hour.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    consumer.seek_time(now_ms.saturating_sub(3_600_000)).await?;
    assert!(consumer.poll().await?.count as usize <= count);
    Ok(())
}
