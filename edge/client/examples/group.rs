//! Shares a topic among the members of a group: run it several times at once, with a name for each,
//! `cargo run -p malachi-client --example group -- m1`.
//!
//! Talks to `MALACHI_ADDRESS`, else `localhost:4040`, as the development user `consumer`. Ends when it was
//! given nothing for five seconds.

extern crate malachi_client as client;

use std::time::Duration;

use client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("MALACHI_ADDRESS").unwrap_or_else(|_| "localhost:4040".to_owned());
    let member = std::env::args().nth(1).unwrap_or_else(|| "m1".to_owned());
    let client = Client::connect(&address, "consumer", "consumer123").await?;

    let builder = client.consumer("orders").group("workers").member(member);
    let mut consumer = builder.wait(Duration::from_secs(5)).open().await?;
    loop {
        let page = consumer.poll().await?;
        if page.count == 0 {
            break;
        }
        // Work first, commit then: a crash in between repeats the page and loses nothing.
        let records = page.decode_records().map_err(|error| Error::Protocol(error.to_string()))?;
        assert_eq!(records.len(), page.count as usize);
        consumer.commit().await?;
    }
    // The others take over at once instead of after half a minute.
    consumer.leave().await
}
