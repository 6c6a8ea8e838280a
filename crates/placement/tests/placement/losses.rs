//! What the loss of a node means to the others, for every algorithm.

use clockwise_placement::{
    Algorithm, Jump, Maglev, Member, Modulo, Rendezvous, Ring, RingSpec, Scheme, Slots, SlotsSpec,
    Weight, losses_by_keys,
};

fn nodes(count: usize) -> Vec<Member> {
    let node = |n| Member::new(format!("node-{n:02}").parse().expect("a short name"));
    (0..count).map(node).collect()
}

fn keys() -> impl Iterator<Item = String> + Clone {
    (0..50_000).map(|n| format!("user:{n}"))
}

#[test]
fn a_lost_node_of_ten_is_inherited_by_all_nine_and_evenly_where_no_ring_decides() {
    let scheme = Scheme::default;
    let all: [(Box<dyn Algorithm>, f64); 5] = [
        (
            Box::new(Ring::new(RingSpec::new(nodes(10))).expect("a ring")),
            1.35,
        ),
        (
            Box::new(Slots::new(SlotsSpec::new(nodes(10))).expect("slots")),
            1.2,
        ),
        (
            Box::new(Rendezvous::new(scheme(), nodes(10)).expect("nodes")),
            1.15,
        ),
        (
            Box::new(Maglev::new(scheme(), nodes(10), 65_537).expect("a table")),
            1.15,
        ),
        (
            Box::new(Modulo::new(scheme(), nodes(10)).expect("nodes")),
            1.15,
        ),
    ];
    for (algorithm, most) in all {
        let name = algorithm.name();
        for (rank, loss) in losses_by_keys(&*algorithm, keys()).into_iter().enumerate() {
            let loss = loss.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((loss.node.get(), loss.heirs), (rank, 9), "{name}: {loss:?}");
            // Nine nodes with the load of ten cannot all have less than ten ninths of it.
            let fits = (10.0 / 9.0..most).contains(&loss.worst_over_mean);
            assert!(fits && loss.worst != Some(loss.node), "{name}: {loss:?}");
        }
    }
}

#[test]
fn keys_show_the_losses_that_a_ring_s_intervals_tell_exactly() {
    let mut members = nodes(6);
    members[2].weight = Weight::from_hundredths(250);
    let ring = Ring::new(RingSpec::new(members)).expect("a ring");
    let by_keys = losses_by_keys(&ring, keys());
    for (exact, by_keys) in ring.placement().losses().iter().zip(by_keys) {
        let by_keys = by_keys.expect("a ring walks on");
        assert_eq!((by_keys.node, by_keys.heirs), (exact.node, exact.heirs));
        let difference = by_keys.worst_over_mean - exact.worst_over_mean;
        assert!(difference.abs() < 0.03, "{by_keys:?} {exact:?}");
    }
}

#[test]
fn jump_can_be_without_its_last_node_only_and_says_so_of_the_others() {
    let jump = Jump::new(Scheme::default(), nodes(5)).expect("nodes");
    let mut losses = losses_by_keys(&jump, keys());
    let last = losses.pop().expect("five nodes").expect("the last can go");
    assert_eq!(last.heirs, 4);
    assert!((1.25..1.3).contains(&last.worst_over_mean), "{last:?}");
    for loss in losses {
        let error = loss.expect_err("it stands in the middle");
        assert_eq!(
            error.to_string(),
            "jump cannot remove a node that is not the last"
        );
    }
}

#[test]
fn a_node_that_was_the_only_one_has_no_heirs() {
    for algorithm in [
        Box::new(Modulo::new(Scheme::default(), nodes(1)).expect("a node")) as Box<dyn Algorithm>,
        Box::new(Rendezvous::new(Scheme::default(), nodes(1)).expect("a node")),
    ] {
        let loss = losses_by_keys(&*algorithm, keys())
            .remove(0)
            .expect("one node");
        assert_eq!((loss.heirs, loss.worst), (0, None), "{}", algorithm.name());
    }
}
