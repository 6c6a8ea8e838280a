//! Every small change of planned slots there is, against the best of all tables.

use clockwise_placement::{Member, Placement, Scheme, Weight};

use crate::slots_plan::{check, fewest_moves, plan, spec};

const SLOTS: usize = 3;
/// No zones, and then each way to put three nodes into zones.
const ZONES: [[&str; 3]; 6] = [
    ["", "", ""],
    ["x", "x", "x"],
    ["x", "x", "y"],
    ["x", "y", "x"],
    ["y", "x", "x"],
    ["x", "y", "z"],
];

/// Three slots; every table that four nodes can have had, of which one is gone; then every choice of weights 0, 1
/// and 2 and of zones for the three that stay.
#[test]
fn every_change_of_three_slots_moves_as_little_as_the_best_of_all_tables() {
    let mut cases = 0;
    for replicas in 1..=3 {
        for before in &all_tables(replicas) {
            for weights in 1..27 {
                for zones in &ZONES {
                    cases += 1;
                    let weight = |place: u32| 100 * (weights / 3u32.pow(place) % 3);
                    let members = members(zones, [weight(0), weight(1), weight(2)]);
                    let spec = spec(SLOTS, replicas, members);
                    let plan = plan(&spec, Some(before));
                    check(&plan, &spec, Some(before));
                    let fewest = fewest_moves(&plan, before);
                    assert_eq!(plan.copies_moved, fewest, "{spec:?} after {before:?}");
                }
            }
        }
    }
    // Rows of one, two and three of four nodes, in any order for three slots.
    assert_eq!(cases, (64 + 216 + 64) * 26 * 6);
}

fn members(zones: &[&str; 3], weights: [u32; 3]) -> Vec<Member> {
    let member = |((id, zone), weight): ((&str, &&str), u32)| {
        Member::new(id.parse().expect("a short name"))
            .with_weight(Weight::from_hundredths(weight))
            .with_domain(zone.parse().expect("a short name or none"))
    };
    let places = ["a", "b", "c"].into_iter().zip(zones).zip(weights);
    places.map(member).collect()
}

fn all_tables(replicas: u8) -> Vec<Placement> {
    let rows: Vec<Vec<u16>> = (1u16..16)
        .filter(|row| row.count_ones() == u32::from(replicas))
        .map(|row| (0..4).filter(|node| row & 1 << node != 0).collect())
        .collect();
    let count = rows.len();
    let table = |number: usize| {
        let slots = [
            number % count,
            number / count % count,
            number / count / count,
        ];
        let table: Vec<u16> = slots.iter().flat_map(|&row| rows[row].clone()).collect();
        let nodes =
            ["a", "b", "c", "gone"].map(|id| Member::new(id.parse().expect("a short name")));
        Placement::from_slots(Scheme::default(), nodes, replicas, SLOTS, &table)
            .expect("a sound table")
    };
    (0..count.pow(3)).map(table).collect()
}
