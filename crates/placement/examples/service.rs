//! Which cache holds a user, where the copies are, and what moves when a node joins.
//!
//! `cargo run -p clockwise-placement --example service`

use std::error::Error;

use clockwise_placement::{Member, Ring, RingSpec};

fn main() -> Result<(), Box<dyn Error>> {
    let node = |id: &str, zone: &str| -> Result<Member, Box<dyn Error>> {
        Ok(Member::new(id.parse()?).with_domain(zone.parse()?))
    };
    let members = [
        node("cache-a", "z1")?,
        node("cache-b", "z2")?,
        node("cache-c", "z3")?,
    ];
    let mut ring = Ring::new(RingSpec {
        replicas: 2,
        ..RingSpec::new(members)
    })?;
    println!("user:42 belongs to {}", ring.owner(b"user:42"));
    println!(
        "its copies: {:?}",
        ring.placement().replicas(b"user:42").collect::<Vec<_>>()
    );

    let change = ring.add_node(node("cache-d", "z1")?)?;
    let moved = change
        .primaries()
        .iter()
        .map(|change| change.interval.share())
        .sum::<f64>();
    println!(
        "cache-d takes {:.1} % in version {}",
        moved * 100.0,
        ring.ring_version()
    );
    println!("user:42 belongs to {}", ring.owner(b"user:42"));
    Ok(())
}
