//! Appends records one by one and in batches: `cargo run -p malachi-client --example produce`.
//!
//! Talks to `MALACHI_ADDRESS`, else `localhost:4040`, as the development user `producer`.

extern crate malachi_client as client;

use client::{Batch, Client, Effect, Error, Reason, Record};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("MALACHI_ADDRESS").unwrap_or_else(|_| "localhost:4040".to_owned());
    let client = Client::connect(&address, "producer", "producer123").await?;
    match client.create_topic("orders", 0).await {
        Ok(()) | Err(Error::Refused(Reason::AlreadyExists)) => {}
        Err(error) => return Err(error),
    }

    // Single records: they share requests when there are many, and none waits for company.
    let outbox = client.outbox("orders");
    let mut receipts = Vec::new();
    for n in 0..1000_u32 {
        let (key, value) = (Some(format!("user-{}", n % 10).into()), format!("order {n}").into());
        receipts.push(outbox.send(Record { key, value, timestamp: 0, headers: Vec::new() }).await?);
    }
    for receipt in receipts {
        if let Err(error) = receipt.stored().await {
            // After `Unknown` the record may be there: sending it again may store it twice.
            assert!(error.effect() == Effect::None, "{error}");
            return Err(error);
        }
    }

    // Batches of one's own, eight of them under way at once.
    let mut producer = client.producer("orders", 8);
    for n in 0..100_u32 {
        let mut batch = Batch::default();
        (0..50_u32).for_each(|m| batch.push_parts(None, format!("{n}/{m}").as_bytes(), 0));
        producer.send(batch).await?;
    }
    producer.flush().await?;
    assert_eq!(producer.progress().stored, 5000);
    Ok(())
}
