//! Every small ring there is, against the naive twin: lookup, replicas, preference, and the diff with each
//! ring that differs from it in one node.
//!
//! A release build takes them all, in some minutes: `cargo nextest run --release -p clockwise-placement
//! exhaustive`. A debug build, as the everyday gate uses it, takes a part of them, and another part for each
//! labelling of domains.
//!
//! Nothing is left out as alike, since what is alike by the rules may differ by a fault. What makes it fast is
//! that each ring is built once for all the changes it takes part in, and that the twin is asked once for each
//! order in which nodes can be met.

mod compare;
mod cyclic_orders;
mod eight_positions;
mod labellings;

/// One of so many rings is checked, under each labelling others. It is prime, so that all kinds come up.
const STRIDE: usize = if cfg!(debug_assertions) { 97 } else { 1 };

fn is_taken(ring: usize, labelling: usize) -> bool {
    (ring + labelling).is_multiple_of(STRIDE)
}

fn for_each_choice<T: Clone>(length: usize, options: &[T], act: &mut impl FnMut(&[T])) {
    fn go<T: Clone>(left: usize, options: &[T], chosen: &mut Vec<T>, act: &mut impl FnMut(&[T])) {
        if left == 0 {
            return act(chosen);
        }
        for option in options {
            chosen.push(option.clone());
            go(left - 1, options, chosen, act);
            chosen.pop();
        }
    }
    go(length, options, &mut Vec::new(), act);
}
