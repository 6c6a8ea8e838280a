//! The handoff in every order: what must hold holds, and each broken rule is noticed.

use clockwise_sim::{
    Bounds, Handover, Invariant, MILESTONES, PLANTED, SCENARIOS, Scenario, search,
};

const STATES_MAX: u64 = 2_000_000;

/// Checks a scenario as the command does, and returns the states of the handoff that it passed.
fn check(scenario: &Scenario) -> Vec<&'static str> {
    let mut model = Handover::new(scenario.bounds, None);
    let found = search(&mut model, STATES_MAX);
    assert!(
        found.violation.is_none(),
        "{}: {:#?}",
        scenario.name,
        found.violation
    );
    assert!(
        found.complete,
        "{}: more than {STATES_MAX} states",
        scenario.name
    );
    model.milestones().collect()
}

#[test]
fn what_must_hold_holds_in_every_order() {
    let small = SCENARIOS.iter().filter(|scenario| scenario.small);
    let mut passed: Vec<_> = small.flat_map(check).collect();
    passed.sort_unstable();
    passed.dedup();
    let mut all = MILESTONES.to_vec();
    all.sort_unstable();
    assert_eq!(passed, all, "a model that never gets there says nothing");
}

#[test]
fn each_broken_rule_is_noticed_by_its_invariant() {
    for planted in &PLANTED {
        let found = search(&mut Handover::planted(planted), STATES_MAX);
        let (invariant, way) = found
            .violation
            .unwrap_or_else(|| panic!("{planted:?} is not noticed"));
        assert_eq!(invariant, planted.breaks);
        assert!(!way.is_empty(), "{planted:?} was broken from the beginning");
    }
}

#[test]
fn each_invariant_notices_something() {
    for invariant in Invariant::ALL {
        let notices = PLANTED.iter().any(|planted| planted.breaks == invariant);
        assert!(notices, "{invariant:?} could be left out");
    }
}

#[test]
fn no_rule_is_planted_twice() {
    let mut bugs: Vec<_> = PLANTED.iter().map(|planted| planted.bug).collect();
    bugs.sort_unstable();
    bugs.dedup();
    assert_eq!(bugs.len(), PLANTED.len());
}

#[test]
fn the_same_world_is_searched_the_same_way() {
    let look = || {
        let found = search(&mut Handover::new(Bounds::QUIET, None), STATES_MAX);
        (found.states, found.transitions, found.depth)
    };
    assert_eq!(look(), look());
}
