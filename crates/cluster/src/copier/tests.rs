use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

type Key = &'static str;
const T: Lane = Lane(0);

fn unlimited() -> Throttle {
    Throttle::new(Rate::default(), 0)
}

fn copier() -> Copier<Key> {
    Copier::new(1, Limits::default())
}

fn batch(copier: &mut Copier<Key>) -> Batch<Key> {
    match copier.next(&mut unlimited(), 0) {
        Next::Batch(batch) => batch,
        other => panic!("no batch but {other:?}"),
    }
}

fn value(bytes: u64) -> Found {
    Found::Value {
        bytes,
        untracked: false,
    }
}

fn land(copier: &mut Copier<Key>, mut batch: Batch<Key>) {
    let found = vec![value(10); batch.keys.len()];
    copier.read(&mut batch, &found, &mut unlimited());
    copier.landed(batch);
}

#[test]
fn a_key_touched_while_it_is_copied_is_dirty_again_when_it_has_landed() {
    let mut copier = copier();
    copier.listed(T, "a");
    let flight = batch(&mut copier);
    copier.touched(T, "a");
    assert_eq!(copier.dirty(), 0, "in flight, so it waits for the landing");
    copier.begin_round();
    assert_eq!(
        copier.next(&mut unlimited(), 0),
        Next::Nothing,
        "one copy of a key in flight"
    );
    land(&mut copier, flight);
    assert_eq!(copier.dirty(), 1);
    copier.begin_round();
    assert_eq!(batch(&mut copier).keys, ["a"]);
}

#[test]
fn a_key_leaves_the_dirty_set_before_it_is_read() {
    let mut copier = copier();
    copier.touched(T, "a");
    copier.begin_round();
    let flight = batch(&mut copier);
    assert_eq!((copier.dirty(), copier.in_flight()), (0, 1));
    copier.touched(T, "a");
    land(&mut copier, flight);
    assert_eq!(
        copier.dirty(),
        1,
        "a touch after it was taken is not cleared by its landing"
    );
}

#[test]
fn a_key_listed_twice_or_listed_while_it_waits_or_flies_travels_once() {
    let mut copier = copier();
    for key in ["a", "a", "b"] {
        copier.listed(T, key);
    }
    copier.touched(T, "b");
    let flight = batch(&mut copier);
    assert_eq!(flight.keys, ["a"], "b waits for the next round");
    copier.listed(T, "a");
    assert_eq!(copier.next(&mut unlimited(), 0), Next::Nothing);
    land(&mut copier, flight);
    copier.begin_round();
    let round = batch(&mut copier);
    assert_eq!(round.keys, ["b"]);
    land(&mut copier, round);
    assert!(copier.is_landed());
    assert_eq!(copier.counts().copied, 2);
}

#[test]
fn each_target_gets_its_own_batches_in_turn() {
    let mut copier: Copier<Key> = Copier::new(
        2,
        Limits {
            batch_keys_max: 1,
            ..Limits::default()
        },
    );
    for (lane, key) in [(Lane(0), "a"), (Lane(0), "b"), (Lane(1), "c")] {
        copier.listed(lane, key);
    }
    let order: Vec<_> = (0..3)
        .map(|_| batch(&mut copier))
        .map(|batch| (batch.lane, batch.keys[0]))
        .collect();
    assert_eq!(order, [(Lane(0), "a"), (Lane(1), "c"), (Lane(0), "b")]);
}

#[test]
fn batches_shrink_to_the_bytes_they_may_hold_once_large_values_were_seen() {
    let limits = Limits {
        batch_keys_max: 100,
        batch_bytes_max: 10_000,
        ..Limits::default()
    };
    let mut copier: Copier<Vec<u8>> = Copier::new(1, limits);
    for number in 0..200_u8 {
        copier.listed(T, vec![number]);
    }
    let mut throttle = unlimited();
    let mut sizes = Vec::new();
    while let Next::Batch(mut batch) = copier.next(&mut throttle, 0) {
        sizes.push(batch.keys.len());
        let found = vec![value(2_000); batch.keys.len()];
        copier.read(&mut batch, &found, &mut throttle);
        copier.landed(batch);
    }
    assert_eq!(
        sizes[0], 39,
        "10,000 bytes at the 256 guessed before anything was seen"
    );
    assert!(sizes[1..].iter().all(|&keys| keys <= 5), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 200);
}

#[test]
fn the_throttle_is_honoured_in_keys() {
    let mut copier: Copier<Vec<u8>> = Copier::new(1, Limits::default());
    for number in 0..200_u8 {
        copier.listed(T, vec![number]);
    }
    let mut throttle = Throttle::new(
        Rate {
            keys_per_second: Some(100),
            bytes_per_second: None,
        },
        0,
    );
    let (mut now_ms, mut taken) = (0, 0);
    loop {
        match copier.next(&mut throttle, now_ms) {
            Next::Batch(batch) => taken += batch.keys.len(),
            Next::At(ready_ms) => now_ms = ready_ms,
            _ => break,
        }
        assert!(
            taken as u64 <= 5 + now_ms / 10,
            "{taken} keys after {now_ms} ms"
        );
    }
    assert_eq!(taken, 200);
}

#[test]
fn a_large_value_travels_alone_and_stops_the_copy_when_three_passes_were_dirty() {
    let mut copier = copier();
    copier.listed(T, "big");
    copier.listed(T, "small");
    let mut flight = batch(&mut copier);
    copier.read(&mut flight, &[Found::Big, value(5)], &mut unlimited());
    assert_eq!(flight.keys, ["small"]);
    copier.landed(flight);
    for pass in 1..=3 {
        assert!(!copier.is_landed(), "it waits");
        assert_eq!(
            copier.next(&mut unlimited(), 0),
            Next::Big(T, "big"),
            "pass {pass}"
        );
        assert_eq!(
            copier.next(&mut unlimited(), 0),
            Next::Nothing,
            "one at a time"
        );
        copier.touched(T, "big");
        copier.big_landed(1_000_000, None);
        if pass < 3 {
            assert_eq!(copier.stop(), None);
            copier.begin_round();
            let mut again = batch(&mut copier);
            copier.read(&mut again, &[Found::Big], &mut unlimited());
            copier.landed(again);
        }
    }
    let stop = CopyStop::BigKeyUnsteady {
        key: b"big".to_vec(),
        passes: 3,
    };
    assert_eq!(copier.stop(), Some(&stop));
    assert_eq!(copier.next(&mut unlimited(), 0), Next::Nothing);
}

#[test]
fn one_clean_pass_over_a_large_value_forgives_the_dirty_ones() {
    let mut copier = copier();
    for dirty in [true, true, false, true, true, false] {
        copier.touched(T, "big");
        copier.begin_round();
        let mut flight = batch(&mut copier);
        copier.read(&mut flight, &[Found::Big], &mut unlimited());
        assert_eq!(copier.next(&mut unlimited(), 0), Next::Big(T, "big"));
        if dirty {
            copier.touched(T, "big");
        }
        copier.big_landed(1, None);
    }
    assert_eq!(copier.stop(), None);
}

#[test]
fn untracked_values_are_copied_again_in_the_last_round_and_forgotten_when_gone() {
    let mut copier = copier();
    for key in ["stream", "string"] {
        copier.listed(T, key);
    }
    let mut flight = batch(&mut copier);
    let found = [
        Found::Value {
            bytes: 7,
            untracked: true,
        },
        value(3),
    ];
    copier.read(&mut flight, &found, &mut unlimited());
    copier.landed(flight);
    let untracked = Untracked {
        keys: 1,
        bytes: 7,
        ..Untracked::default()
    };
    assert_eq!(copier.untracked(), untracked);
    assert!(
        copier.will_be_copied(T, &"stream"),
        "a difference before that means nothing"
    );
    copier.begin_round();
    assert_eq!(copier.next(&mut unlimited(), 0), Next::Nothing);
    copier.add_untracked_to_round();
    let mut last = batch(&mut copier);
    assert_eq!(last.keys, ["stream"]);
    copier.read(&mut last, &[Found::Gone], &mut unlimited());
    copier.landed(last);
    assert_eq!(copier.untracked(), Untracked::default());
    assert!(copier.is_landed());
}

#[test]
fn more_untracked_values_than_fit_under_the_fence_stop_the_copy() {
    let mut copier: Copier<Key> = Copier::new(
        1,
        Limits {
            untracked_keys_max: 1,
            ..Limits::default()
        },
    );
    copier.listed(T, "a");
    copier.listed(T, "b");
    let mut flight = batch(&mut copier);
    copier.read(
        &mut flight,
        &[Found::Value {
            bytes: 1,
            untracked: true,
        }; 2],
        &mut unlimited(),
    );
    assert_eq!(copier.stop(), Some(&CopyStop::TooManyUntracked { keys: 2 }));
}

/// Copies `big` as a large value with such a part.
fn land_big(copier: &mut Copier<Key>, part: Option<u64>) {
    copier.touched(T, "big");
    copier.begin_round();
    let mut flight = batch(copier);
    copier.read(&mut flight, &[Found::Big], &mut unlimited());
    copier.landed(flight);
    assert_eq!(copier.next(&mut unlimited(), 0), Next::Big(T, "big"));
    copier.big_landed(1_000_000, part);
}

#[test]
fn of_a_large_value_only_the_part_that_the_stream_does_not_show_is_brought_over_again() {
    let mut copier = copier();
    land_big(&mut copier, Some(100));
    let untracked = Untracked {
        parts: 1,
        part_bytes: 100,
        ..Untracked::default()
    };
    assert_eq!(copier.untracked(), untracked);
    assert!(copier.parts().eq([(T, &"big")]));
    assert!(
        !copier.will_be_copied(T, &"big"),
        "the rest of it is compared"
    );
    copier.add_untracked_to_round();
    assert_eq!(copier.next(&mut unlimited(), 0), Next::Nothing);
    copier.part_landed(T, &"big", None);
    copier.part_landed(T, &"another", Some(1));
    assert_eq!(copier.untracked(), Untracked::default());
}

#[test]
fn a_part_that_does_not_fit_under_the_fence_stops_the_copy_with_the_name_of_its_key() {
    let bytes = Limits::default().part_bytes_max + 1;
    let mut copier = copier();
    land_big(&mut copier, Some(bytes - 1));
    assert_eq!(copier.stop(), None);
    copier.part_landed(T, &"big", Some(bytes));
    let key = b"big".to_vec();
    assert_eq!(copier.stop(), Some(&CopyStop::PartTooLarge { key, bytes }));
}

#[test]
fn dirt_beyond_its_bound_goes_before_the_listing_and_twice_as_much_stops_the_copy() {
    let limits = Limits {
        dirty_bytes_max: 10 * (KEY_OVERHEAD_BYTES + 4),
        ..Limits::default()
    };
    let mut copier: Copier<alloc::string::String> = Copier::new(1, limits);
    let name = |number: usize| alloc::format!("k{number:03}");
    copier.listed(T, "listed".to_string());
    for number in 0..10 {
        copier.touched(T, name(number));
    }
    assert!(copier.wants_listing());
    copier.touched(T, name(10));
    assert!(!copier.wants_listing(), "the listing slows down");
    let Next::Batch(batch) = copier.next(&mut unlimited(), 0) else {
        panic!("no batch")
    };
    assert_eq!(batch.keys.len(), 12, "all the dirt, then what was listed");
    assert_eq!(batch.keys[0], name(0));
    for number in 100..121 {
        copier.touched(T, name(number));
    }
    assert_eq!(
        copier.stop(),
        Some(&CopyStop::DirtOutgrowsCopying { waiting: 21 })
    );
}

#[test]
fn a_difference_counts_only_if_nobody_touched_the_key() {
    let mut copier = copier();
    copier.suspect(T, "lagging");
    copier.suspect(T, "different");
    copier.suspect(T, "equal after all");
    copier.acquit(&"equal after all");
    copier.touched(T, "lagging");
    assert_eq!(copier.settle_suspects(), 1);
    assert_eq!(copier.counts().mismatches, 1);
    copier.begin_round();
    assert_eq!(
        batch(&mut copier).keys,
        ["different", "lagging"],
        "both are copied again"
    );
    copier.suspect(T, "different");
    assert_eq!(
        copier.settle_suspects(),
        0,
        "in flight: its next copy is compared"
    );
}

/// Everything that can happen to two keys, in every order, up to a bound: writes at the source, late
/// news of them, listing, reading, landing. Whenever all is quiet, both sides are equal.
mod every_order {
    use super::*;

    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct World {
        source: [u8; 2],
        target: [u8; 2],
        news: Vec<usize>,
        flights: Vec<Flight>,
        writes_left: u8,
        listings_left: u8,
    }

    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Flight {
        keys: Vec<usize>,
        read: Option<Vec<u8>>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Bug {
        None,
        ClearedAfterTheCopy,
        SecondCopyInFlight,
    }

    const NAMES: [Key; 2] = ["a", "b"];

    fn index(key: Key) -> usize {
        NAMES.iter().position(|&name| name == key).unwrap()
    }

    fn steps(world: &World, copier: &Copier<Key>, bug: Bug) -> Vec<(World, Copier<Key>)> {
        let mut next = Vec::new();
        let mut push = |change: &dyn Fn(&mut World, &mut Copier<Key>)| {
            let (mut world, mut copier) = (world.clone(), copier.clone());
            change(&mut world, &mut copier);
            next.push((world, copier));
        };
        for key in 0..2 {
            if world.writes_left > 0 {
                push(&|world, _| {
                    world.writes_left -= 1;
                    world.source[key] += 1;
                    world.news.push(key);
                });
            }
        }
        if world.listings_left > 0 {
            push(&|world, copier| {
                world.listings_left -= 1;
                NAMES.iter().for_each(|&name| copier.listed(T, name));
            });
        }
        if !world.news.is_empty() {
            push(&|world, copier| {
                let key = world.news.remove(0);
                let flies = world
                    .flights
                    .iter()
                    .any(|flight| flight.keys.contains(&key));
                match bug {
                    Bug::ClearedAfterTheCopy if flies => {}
                    Bug::SecondCopyInFlight if flies => world.flights.push(Flight {
                        keys: vec![key],
                        read: None,
                    }),
                    _ => copier.touched(T, NAMES[key]),
                }
            });
        }
        push(&|_, copier| copier.begin_round());
        push(&|world, copier| {
            if let Next::Batch(batch) = copier.next(&mut unlimited(), 0) {
                let keys = batch.keys.iter().map(|&key| index(key)).collect();
                world.flights.push(Flight { keys, read: None });
            }
        });
        for at in 0..world.flights.len() {
            if world.flights[at].read.is_none() {
                push(&|world, _| {
                    let values = world.flights[at]
                        .keys
                        .iter()
                        .map(|&key| world.source[key])
                        .collect();
                    world.flights[at].read = Some(values);
                });
            } else {
                push(&|world, copier| {
                    let flight = world.flights.remove(at);
                    let values = flight.read.unwrap();
                    for (&key, value) in flight.keys.iter().zip(&values) {
                        world.target[key] = *value;
                    }
                    let keys: Vec<_> = flight.keys.iter().map(|&key| NAMES[key]).collect();
                    copier.landed(Batch {
                        lane: T,
                        keys,
                        bytes_estimated: 0,
                    });
                });
            }
        }
        next
    }

    fn is_quiet(world: &World, copier: &Copier<Key>) -> bool {
        world.news.is_empty()
            && world.flights.is_empty()
            && copier.is_landed()
            && copier.dirty() == 0
    }

    /// Explores every order; returns the number of worlds and the first quiet one with differing sides.
    fn explore(bug: Bug) -> (usize, Option<World>) {
        let start = World {
            source: [0, 0],
            target: [0, 0],
            news: Vec::new(),
            flights: Vec::new(),
            writes_left: 3,
            listings_left: 1,
        };
        let mut seen = BTreeMap::new();
        let mut todo = vec![(start, copier())];
        let mut count = 0;
        while let Some((world, copier)) = todo.pop() {
            if is_quiet(&world, &copier) && world.source != world.target {
                return (count, Some(world));
            }
            let known: &mut BTreeSet<_> = seen.entry(world.clone()).or_default();
            if known.insert(alloc::format!(
                "{:?}{:?}{:?}",
                copier.queues,
                copier.flying,
                copier.next_lane
            )) {
                count += 1;
                todo.extend(steps(&world, &copier, bug));
            }
        }
        (count, None)
    }

    #[test]
    fn both_sides_are_equal_whenever_all_is_quiet() {
        let (worlds, difference) = explore(Bug::None);
        assert_eq!(difference, None);
        assert!(worlds > 1_000, "only {worlds} worlds");
    }

    #[test]
    fn clearing_the_dirty_mark_after_the_copy_is_caught() {
        assert_ne!(explore(Bug::ClearedAfterTheCopy).1, None);
    }

    #[test]
    fn a_second_copy_of_a_key_in_flight_is_caught() {
        assert_ne!(explore(Bug::SecondCopyInFlight).1, None);
    }
}
