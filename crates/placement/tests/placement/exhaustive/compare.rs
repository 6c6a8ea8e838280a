//! One ring, and one change of a ring, against what the twin says of them.

use clockwise_placement::{Change, Diff, NodeIx, Placement, Position, diff};

/// Up to four nodes in order: a byte each, one more than its number, the first one lowest.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct List(u32);

impl List {
    pub(super) fn of(nodes: impl IntoIterator<Item = usize>) -> Self {
        let mut list = 0;
        for (at, node) in nodes.into_iter().enumerate() {
            assert!(at < 4 && node < 4, "of four nodes none comes up twice");
            list |= (node as u32 + 1) << (8 * at);
        }
        Self(list)
    }

    fn cut(self, replicas: u8) -> Self {
        Self(self.0 & (u32::MAX >> (32 - 8 * u32::from(replicas))))
    }

    /// Which nodes there are, a bit each.
    fn set(self) -> u32 {
        let bytes = self.0.to_le_bytes();
        bytes.iter().fold(0, |set, &byte| set | 1 << byte) & !1
    }
}

/// A ring, and what the twin says of it.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) ring: &'a Placement,
    /// Its nodes, ascending.
    pub(super) nodes: &'a [usize],
    /// What each position of the space prefers.
    pub(super) preferences: &'a [List],
}

impl Known<'_> {
    fn list(&self, owners: &[NodeIx]) -> List {
        List::of(owners.iter().map(|owner| self.nodes[owner.get()]))
    }

    /// Compares lookup, replicas, interval and preference at each of these positions.
    pub(super) fn check_lookups(&self, positions: &[u64], replicas: u8) {
        let ring = self.ring;
        for (&position, &preference) in positions.iter().zip(self.preferences) {
            let at = Position(position);
            let expected = preference.cut(replicas);
            let owners = ring.replicas_at(at);
            let owned = ring.interval_at(at);
            let preferred = ring.preference(at).map(|node| self.nodes[node.get()]);
            let holds = self.list(&[ring.owner_at(at)]) == expected.cut(1)
                && self.list(owners) == expected
                && owned.interval.contains(at)
                && owned.owners == owners
                && List::of(preferred) == preference;
            assert!(holds, "{position}: {owners:?}, {owned:?}: {}", show(ring));
        }
    }
}

/// An interval whose owners differ, as the twin sees it, or one between two neighbouring ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    after: u64,
    through: u64,
    old: List,
    new: List,
}

/// A comparison of the crate with the twin; its storage is used again and again.
#[derive(Default)]
pub(super) struct Comparison {
    stretches: Vec<Stretch>,
    runs: Vec<Stretch>,
}

impl Comparison {
    /// Compares the diff of two rings of one space both ways. At the positions with these indexes either has
    /// a point; at the `changed` ones only one of them does.
    pub(super) fn check_change(
        &mut self,
        [a, b]: [Known; 2],
        positions: &[u64],
        ends: impl Iterator<Item = usize>,
        changed: &[Position],
        replicas: u8,
    ) {
        self.stretches.clear();
        let stretch = |at: usize| Stretch {
            after: 0,
            through: positions[at],
            old: a.preferences[at].cut(replicas),
            new: b.preferences[at].cut(replicas),
        };
        self.stretches.extend(ends.map(stretch));
        self.check([a, b], changed, replicas);
        for stretch in &mut self.stretches {
            (stretch.old, stretch.new) = (stretch.new, stretch.old);
        }
        self.check([b, a], changed, replicas);
    }

    fn check(&mut self, [old, new]: [Known; 2], changed: &[Position], replicas: u8) {
        let diff = diff(old.ring, new.ring).expect("one scheme");
        self.join_stretches(replicas);
        let sets = |run: &Stretch| run.old.set() != run.new.set();
        self.check_runs([old, new], &diff, sets, diff.replica_sets());
        let lists = |run: &Stretch| run.old != run.new;
        self.check_runs([old, new], &diff, lists, diff.lists());
        if replicas > 1 {
            self.join_stretches(1);
        }
        self.check_runs([old, new], &diff, lists, diff.primaries());
        let fast = diff.primaries_at(changed);
        self.check_runs([old, new], &diff, lists, fast.into_iter());
    }

    /// The longest runs of stretches with the same first owners before and after, all around the circle.
    fn join_stretches(&mut self, replicas: u8) {
        let cut = |list: List| list.cut(replicas);
        self.runs.clear();
        for &stretch in &self.stretches {
            let (old, new) = (cut(stretch.old), cut(stretch.new));
            let through = stretch.through;
            match self.runs.last_mut() {
                Some(last) if (last.old, last.new) == (old, new) => last.through = through,
                last => {
                    let after = last.map_or(0, |last| last.through);
                    self.runs.push(Stretch {
                        after,
                        through,
                        old,
                        new,
                    });
                }
            }
        }
        let last = *self.runs.last().expect("a ring has points");
        let first = &mut self.runs[0];
        first.after = last.through;
        if (last.old, last.new) == (first.old, first.new) && self.runs.len() > 1 {
            self.runs[0].after = last.after;
            self.runs.pop();
        }
    }

    /// The diff must be those of the runs that differ, each once, in clockwise order from any of them.
    fn check_runs<'a>(
        &self,
        [old, new]: [Known; 2],
        diff: &Diff,
        differ: impl Fn(&Stretch) -> bool,
        found: impl Iterator<Item = Change<'a>>,
    ) {
        let mut expected = self.runs.iter().filter(|run| differ(run)).cycle();
        let mut left = self.runs.iter().filter(|run| differ(run)).count();
        for (at, change) in found.enumerate() {
            let change = Stretch {
                after: change.interval.after.0,
                through: change.interval.through.0,
                old: old.list(change.old),
                new: new.list(change.new),
            };
            let is_next = |run: &&Stretch| **run == change;
            let is_expected = left > 0
                && if at == 0 {
                    expected.by_ref().take(left).any(|run| is_next(&run))
                } else {
                    expected.next().as_ref().is_some_and(is_next)
                };
            assert!(
                is_expected,
                "{change:?} is not next in {:?}: {}",
                self.runs,
                show_both(diff)
            );
            left -= 1;
        }
        assert_eq!(left, 0, "missing of {:?}: {}", self.runs, show_both(diff));
    }
}

fn show(ring: &Placement) -> String {
    let domain = |node: NodeIx| format!("{:?} in {:?}", ring.node(node).id, ring.node(node).domain);
    let point = |(position, node): (Position, NodeIx)| format!("{}: {}", position.0, domain(node));
    ring.points().map(point).collect::<Vec<_>>().join(", ")
}

fn show_both(diff: &Diff) -> String {
    format!("[{}] -> [{}]", show(diff.older()), show(diff.newer()))
}
