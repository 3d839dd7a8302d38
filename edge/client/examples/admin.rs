//! Makes a topic, splits its range and merges the halves again, and looks at it all:
//! `cargo run -p malachi-client --example admin`.
//!
//! Talks to `MALACHI_ADDRESS`, else `localhost:4040`, as the development user `admin`.

extern crate malachi_client as client;

use client::{Client, Error, RangeState};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("MALACHI_ADDRESS").unwrap_or_else(|_| "localhost:4040".to_owned());
    let client = Client::connect(&address, "admin", "admin123").await?;

    client.create_topic("example-admin", 0).await?;
    let (_, ranges) = client.topic("example-admin").await?;
    let (left, right) = client.split_range("example-admin", ranges[0].range).await?;
    let merged = client.merge_ranges("example-admin", left, right).await?;

    let (summary, ranges) = client.topic("example-admin").await?;
    assert_eq!((summary.ranges, summary.active_ranges), (4, 1));
    let active = ranges.iter().find(|range| range.state == RangeState::Active);
    assert_eq!(active.map(|range| range.range), Some(merged));

    for topic in client.topics("example-").await? {
        let groups = client.groups(&String::from_utf8_lossy(&topic.name)).await?;
        assert_eq!(groups.len(), topic.groups as usize);
    }
    client.delete_topic("example-admin").await
}
