//! Which cache holds a user, where the copies are, and what moves when a node joins.
//! `cargo run -p clockwise-placement --example service`
use clockwise_placement::{Member, Ring, RingSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members = ["cache-a", "cache-b", "cache-c"].map(|id| id.parse().map(Member::new));
    let mut spec = RingSpec::new(members.into_iter().collect::<Result<Vec<_>, _>>()?);
    spec.replicas = 2;
    let mut ring = Ring::new(spec)?;
    println!("user:42 belongs to {}", ring.owner(b"user:42"));
    let copies: Vec<_> = ring.placement().replicas(b"user:42").collect();
    println!("its copies are on {copies:?}");

    let change = ring.add_node(Member::new("cache-d".parse()?))?;
    let moved = change.primaries();
    let share: f64 = moved.iter().map(|moved| moved.interval.share()).sum();
    let version = ring.ring_version();
    println!("cache-d takes {:.1} % in version {version}", share * 100.0);
    Ok(())
}
