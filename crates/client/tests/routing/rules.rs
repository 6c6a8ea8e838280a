//! Each rule of the routing core on its own.

use clockwise_client::resp::Protocol;
use clockwise_client::routing::{
    Admission, Command, ConnectFailure, Millis, NodeSlot, Obstacle, Target, Traffic, Waiting,
};
use clockwise_cluster::{Epoch, Generation};

use crate::{limits, target};

fn adopt(
    traffic: &mut Traffic<u32>,
    epoch: u64,
    targets: Vec<Target>,
    now: u64,
) -> Vec<Waiting<u32>> {
    traffic
        .adopt(Epoch::new(epoch), targets, Millis(now))
        .expect("a later epoch")
}

fn waiting(request: u32, since: u64) -> Waiting<u32> {
    Waiting {
        request,
        bytes: 1,
        since: Millis(since),
    }
}

const LANE: Protocol = Protocol::Resp2;

/// One node at generation 1 with an open connection.
fn open_node() -> (Traffic<u32>, NodeSlot) {
    let mut traffic = Traffic::new(limits());
    adopt(&mut traffic, 1, vec![target(0, 1)], 0);
    let Admission::Wait(slot) = traffic.admit(0, LANE, Millis(0)) else {
        panic!("nothing is open yet")
    };
    assert_eq!(traffic.take_commands(), [Command::Connect(slot, LANE)]);
    assert_eq!(traffic.connected(slot, LANE), []);
    (traffic, slot)
}

#[test]
fn the_next_generation_is_used_when_nothing_is_in_flight_on_the_one_before() {
    let (mut traffic, slot) = open_node();
    assert_eq!(traffic.admit(0, LANE, Millis(1)), Admission::Send(slot));
    adopt(&mut traffic, 2, vec![target(0, 2)], 2);
    assert_eq!(traffic.take_commands(), []);
    assert_eq!(traffic.admit(0, LANE, Millis(3)), Admission::Wait(slot));
    traffic.wait(slot, LANE, waiting(7, 3)).expect("room");
    traffic.answered(slot, LANE, Millis(4));
    assert_eq!(
        traffic.take_commands(),
        [Command::Close(slot, LANE), Command::Connect(slot, LANE)]
    );
    assert_eq!(
        traffic.target(slot).map(|target| target.generation),
        Some(Generation::new(2))
    );
    assert_eq!(traffic.connected(slot, LANE), [waiting(7, 3)]);
}

#[test]
fn an_idle_connection_of_the_generation_before_is_closed_at_once() {
    let (mut traffic, slot) = open_node();
    adopt(&mut traffic, 2, vec![target(0, 2)], 2);
    assert_eq!(
        traffic.take_commands(),
        [Command::Close(slot, LANE), Command::Connect(slot, LANE)]
    );
}

#[test]
fn a_joining_node_is_connected_before_it_owns_anything() {
    let (mut traffic, _) = open_node();
    adopt(&mut traffic, 2, vec![target(0, 1), target(1, 1)], 2);
    let commands = traffic.take_commands();
    assert_eq!(commands, [Command::Connect(traffic.slot(1), LANE)]);
}

#[test]
fn what_was_not_sent_is_routed_again_with_the_next_view() {
    let (mut traffic, slot) = open_node();
    assert_eq!(traffic.admit(0, LANE, Millis(1)), Admission::Send(slot));
    adopt(&mut traffic, 2, vec![target(0, 2)], 2);
    traffic.wait(slot, LANE, waiting(1, 3)).expect("room");
    traffic.hold(waiting(2, 4)).expect("room");
    assert_eq!(
        adopt(&mut traffic, 3, vec![target(0, 2)], 5),
        [waiting(1, 3), waiting(2, 4)]
    );
    assert_eq!(traffic.held(), 0);
}

#[test]
fn a_lower_epoch_is_refused_and_the_same_one_changes_nothing() {
    let (mut traffic, _) = open_node();
    adopt(&mut traffic, 5, vec![target(0, 1)], 1);
    let stale = traffic
        .adopt(Epoch::new(4), Vec::new(), Millis(1))
        .expect_err("epochs only rise");
    assert_eq!(stale.to_string(), "epoch 4 was offered after epoch 5");
    assert_eq!(
        traffic.adopt(Epoch::new(5), Vec::new(), Millis(1)),
        Ok(Vec::new())
    );
    assert_eq!(traffic.slot(0), NodeSlot(0));
}

#[test]
fn a_held_request_ends_after_its_limit() {
    let (mut traffic, _) = open_node();
    traffic.hold(waiting(1, 10)).expect("room");
    assert!(traffic.needs_ticks());
    assert_eq!(traffic.tick(Millis(109)), []);
    assert_eq!(
        traffic.tick(Millis(110)),
        [(waiting(1, 10), None, Obstacle::Handover)]
    );
    assert!(!traffic.needs_ticks());
}

#[test]
fn a_down_node_refuses_at_once_and_is_probed_in_the_background() {
    let (mut traffic, slot) = open_node();
    assert_eq!(traffic.broken(slot, LANE, Millis(1)), []);
    // Another chance at once, by a request that waits for it.
    assert_eq!(traffic.admit(0, LANE, Millis(2)), Admission::Wait(slot));
    traffic.wait(slot, LANE, waiting(1, 2)).expect("room");
    assert_eq!(traffic.take_commands(), [Command::Connect(slot, LANE)]);
    let refused = traffic.connect_failed(slot, LANE, ConnectFailure::Unreachable, Millis(3));
    assert_eq!(refused, [(waiting(1, 2), Some(slot), Obstacle::Down)]);
    // Down: no request is a probe, not even after the pause.
    assert_eq!(traffic.admit(0, LANE, Millis(60)), Admission::Refuse(slot));
    assert_eq!(traffic.take_commands(), []);
    assert_eq!(traffic.tick(Millis(60)), []);
    assert_eq!(traffic.take_commands(), [Command::Connect(slot, LANE)]);
    assert_eq!(traffic.admit(0, LANE, Millis(61)), Admission::Refuse(slot));
    assert_eq!(traffic.connected(slot, LANE), []);
    assert_eq!(traffic.admit(0, LANE, Millis(62)), Admission::Send(slot));
}

#[test]
fn a_node_that_refuses_our_user_is_asked_again_while_requests_wait() {
    let (mut traffic, slot) = open_node();
    traffic.broken(slot, LANE, Millis(0));
    assert_eq!(traffic.admit(0, LANE, Millis(0)), Admission::Wait(slot));
    traffic.wait(slot, LANE, waiting(1, 0)).expect("room");
    traffic.take_commands();
    let mut attempts = 0;
    let mut refused = Vec::new();
    for now in (0..300).map(Millis) {
        refused.extend(traffic.tick(now));
        for command in traffic.take_commands() {
            assert_eq!(command, Command::Connect(slot, LANE));
            attempts += 1;
            refused.extend(traffic.connect_failed(slot, LANE, ConnectFailure::Denied, now));
        }
        if now == Millis(0) {
            refused.extend(traffic.connect_failed(slot, LANE, ConnectFailure::Denied, now));
        }
    }
    assert!((4..12).contains(&attempts), "{attempts} attempts");
    assert_eq!(refused, [(waiting(1, 0), Some(slot), Obstacle::Denied)]);
}

#[test]
fn an_attempt_to_connect_has_a_deadline() {
    let mut traffic = Traffic::new(limits());
    adopt(&mut traffic, 1, vec![target(0, 1)], 0);
    let Admission::Wait(slot) = traffic.admit(0, LANE, Millis(0)) else {
        panic!("nothing is open yet")
    };
    traffic.wait(slot, LANE, waiting(1, 0)).expect("room");
    traffic.take_commands();
    assert_eq!(traffic.tick(Millis(50)), []);
    assert_eq!(
        traffic.take_commands(),
        [Command::Close(slot, LANE), Command::Connect(slot, LANE)]
    );
    assert_eq!(
        traffic.tick(Millis(100)),
        [(waiting(1, 0), Some(slot), Obstacle::Connecting)]
    );
}

#[test]
fn a_departed_node_answers_what_it_has_and_is_forgotten() {
    let (mut traffic, slot) = open_node();
    assert_eq!(traffic.admit(0, LANE, Millis(1)), Admission::Send(slot));
    adopt(&mut traffic, 2, vec![target(1, 1)], 2);
    assert!(traffic.target(slot).is_some());
    traffic.take_commands();
    traffic.answered(slot, LANE, Millis(3));
    assert_eq!(traffic.take_commands(), [Command::Close(slot, LANE)]);
    assert!(traffic.target(slot).is_none());
}
