//! A key in and out of a running pool: start `clockwise up`, then
//! `cargo run -p clockwise-client --example get_set [FOLDER]`.

use clockwise_client::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "./clockwise-data".to_owned());
    let client = Client::builder().folder(folder).build().await?;
    client.set("user:42", "hello").await?;
    let value = client.get("user:42").await?.unwrap_or_default();
    println!(
        "{} at epoch {}",
        String::from_utf8_lossy(&value),
        client.epoch()
    );
    println!("owned by {}", client.owner("user:42"));
    client.close().await;
    Ok(())
}
