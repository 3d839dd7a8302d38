//! Has records pushed as they come: `cargo run -p malachi-client --example subscribe`.
//!
//! Talks to `MALACHI_ADDRESS`, else `localhost:4040`, as the development user `consumer`. Ends after the
//! first hundred records.

extern crate malachi_client as client;

use client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("MALACHI_ADDRESS").unwrap_or_else(|_| "localhost:4040".to_owned());
    let client = Client::connect(&address, "consumer", "consumer123").await?;

    // At most 50 records are on their way or being worked on, whatever is waiting in the topic.
    let mut subscription = client.subscription("orders", b"live").window(50).max(10).open();
    let mut count = 0;
    while count < 100 {
        // Asking for more says that the records before have been dealt with: they are committed.
        let push = subscription.next().await?;
        count += push.count;
    }
    subscription.ack().await?;
    subscription.close().await;
    Ok(())
}
