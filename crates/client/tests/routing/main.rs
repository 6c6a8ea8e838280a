//! The routing core: each rule by name, and all of them under random histories.

mod conversations;
mod histories;
mod rules;

use clockwise_client::routing::{QueueLimits, Target, TrafficLimits};
use clockwise_cluster::{Generation, Nonce};
use clockwise_placement::NodeId;

fn target(node: usize, generation: u64) -> Target {
    Target {
        id: NodeId::new(&format!("n{node}")).expect("a name"),
        address: format!("127.0.0.1:{}", 7000 + node)
            .parse()
            .expect("an address"),
        generation: Generation::new(generation),
        nonce: Nonce::new([generation as u8; 16]),
    }
}

fn limits() -> TrafficLimits {
    let queue = QueueLimits {
        requests_max: 64,
        bytes_max: 1 << 20,
        wait_ms_max: 100,
    };
    TrafficLimits {
        hold: queue,
        wait: queue,
        connect_ms_max: 50,
        ..TrafficLimits::default()
    }
}
