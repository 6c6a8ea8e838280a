//! Breadth-first search over every state that can be reached, with the shortest way to a bad one.
//!
//! Written here, not taken from a crate: the `stateright` crate keeps the last counter-example it meets, and a
//! shortest one is what a person can read. States are known by a 64-bit digest (as in TLC): among 20 million
//! states two share one with a probability of about 1 in 100,000. Cost: one digest and one look-up a
//! transition; about 40 bytes a state.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A world with everything that can happen in it.
pub trait Model {
    /// All there is at one moment.
    type State: Clone + Hash;
    /// Something that happens.
    type Action: core::fmt::Debug;
    /// What must never be.
    type Violation: Copy + core::fmt::Debug;

    /// Where it begins.
    fn first(&mut self) -> Self::State;
    /// Everything that can happen next.
    fn next(&mut self, state: &Self::State, out: &mut Vec<(Self::Action, Self::State)>);
    /// What is wrong with a state.
    fn violation(&mut self, state: &Self::State) -> Option<Self::Violation>;
}

/// What a search found.
#[derive(Debug)]
pub struct Found<V> {
    /// Distinct states.
    pub states: u64,
    /// Steps from one state to another, repeats counted.
    pub transitions: u64,
    /// The length of the longest of the shortest ways to a state.
    pub depth: u32,
    /// Whether every state was looked at.
    pub complete: bool,
    /// The first violation, and the shortest way to it.
    pub violation: Option<(V, Vec<String>)>,
}

/// Looks at every state that can be reached, or at `states_max` of them.
pub fn search<M: Model>(model: &mut M, states_max: u64) -> Found<M::Violation> {
    let first = model.first();
    let mut parents = HashMap::from([(digest(&first), 0)]);
    let mut found = Found {
        states: 1,
        transitions: 0,
        depth: 0,
        complete: false,
        violation: None,
    };
    let mut layer = vec![first];
    let mut next = Vec::new();
    while !layer.is_empty() {
        let mut deeper = Vec::new();
        for state in &layer {
            let from = digest(state);
            model.next(state, &mut next);
            for (_, state) in next.drain(..) {
                found.transitions += 1;
                let to = digest(&state);
                if parents.contains_key(&to) {
                    continue;
                }
                parents.insert(to, from);
                found.states += 1;
                if let Some(violation) = model.violation(&state) {
                    found.depth += 1;
                    let way = way_to(model, &parents, to);
                    found.violation = Some((violation, way));
                    return found;
                }
                deeper.push(state);
            }
            if found.states >= states_max {
                return found;
            }
        }
        found.depth += u32::from(!deeper.is_empty());
        layer = deeper;
    }
    found.complete = true;
    found
}

/// The actions on the way to a state: its digests backwards, then the same way forwards once more.
fn way_to<M: Model>(model: &mut M, parents: &HashMap<u64, u64>, to: u64) -> Vec<String> {
    let mut digests = vec![to];
    while let Some(&parent) = digests.last().and_then(|last| parents.get(last)) {
        digests.push(parent);
    }
    // The first state has no parent; in front of it stands a digest of nothing.
    digests.pop();
    digests.pop();
    let mut state = model.first();
    let mut way = Vec::new();
    let mut next = Vec::new();
    for wanted in digests.into_iter().rev() {
        model.next(&state, &mut next);
        let step = next.drain(..).find(|(_, state)| digest(state) == wanted);
        let (action, reached) = step.expect("it was reached this way before");
        way.push(format!("{action:?}"));
        state = reached;
    }
    way
}

fn digest(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that grows by one or by three up to an end.
    struct Stairs {
        end: u32,
        forbidden: Option<u32>,
    }

    impl Model for Stairs {
        type State = u32;
        type Action = u32;
        type Violation = u32;

        fn first(&mut self) -> u32 {
            0
        }

        fn next(&mut self, state: &u32, out: &mut Vec<(u32, u32)>) {
            let steps = [1, 3].map(|step| (step, state + step));
            out.extend(steps.into_iter().filter(|(_, to)| *to <= self.end));
        }

        fn violation(&mut self, state: &u32) -> Option<u32> {
            self.forbidden.filter(|forbidden| forbidden == state)
        }
    }

    #[test]
    fn every_state_is_looked_at_once() {
        let mut stairs = Stairs {
            end: 10,
            forbidden: None,
        };
        let found = search(&mut stairs, 100);
        assert!(found.complete && found.violation.is_none());
        assert_eq!((found.states, found.transitions, found.depth), (11, 18, 4));
    }

    #[test]
    fn the_way_to_a_violation_is_a_shortest_one() {
        let mut stairs = Stairs {
            end: 10,
            forbidden: Some(7),
        };
        let found = search(&mut stairs, 100);
        let (violation, way) = found.violation.expect("7 can be reached");
        assert_eq!(violation, 7);
        let sum: u32 = way.iter().map(|step| step.parse::<u32>().unwrap()).sum();
        assert_eq!((way.len(), sum), (3, 7));
        assert_eq!(found.depth, 3);
    }

    #[test]
    fn a_search_that_was_cut_short_says_so() {
        let mut stairs = Stairs {
            end: 10,
            forbidden: None,
        };
        let found = search(&mut stairs, 5);
        assert!(!found.complete && found.states >= 5);
    }
}
