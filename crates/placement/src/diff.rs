//! What changes hands between two placements of one key space, exactly.
//!
//! Both circles are walked together over the union of their ends, so the result is exact and complete: the
//! intervals that come out are all that differs, each as long as it can be, and between them nothing moves.

use alloc::vec::Vec;
use core::fmt;

use crate::{Interval, NodeId, NodeIx, Placement, Position};

/// The comparison of an older placement with a newer one; see [`diff`].
#[derive(Clone)]
pub struct Diff<'a> {
    pub(crate) old: &'a Placement,
    pub(crate) new: &'a Placement,
    // For each old rank the new one, or none.
    pub(crate) new_rank: Vec<NodeIx>,
}

/// Compares two placements of one key space, however either of them was generated.
///
/// # Errors
/// When the schemes differ: a key then has two positions, and only [`Placement::owner`] of each can say
/// whether it moves.
///
/// ```
/// use clockwise_placement::{Interval, Member, Placement, Point, Position, Scheme, diff};
/// let member = |id: &str| Member::new(id.parse().unwrap());
/// let point = |position, member| Point { position: Position(position), member };
/// let abc = [point(20, 0), point(50, 1), point(80, 2)];
/// let old = Placement::from_points(Scheme::default(), ["A", "B", "C"].map(member), 1, abc)?;
/// let abcd = abc.into_iter().chain([point(35, 3)]);
/// let new = Placement::from_points(Scheme::default(), ["A", "B", "C", "D"].map(member), 1, abcd)?;
/// let change = diff(&old, &new).unwrap().primaries().next().unwrap();
/// assert_eq!(change.interval, Interval { after: Position(20), through: Position(35) });
/// assert_eq!(old.node(change.old[0]).id.as_str(), "B");
/// assert_eq!(new.node(change.new[0]).id.as_str(), "D");
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
pub fn diff<'a>(old: &'a Placement, new: &'a Placement) -> Result<Diff<'a>, KeySpaceError> {
    if old.scheme() != new.scheme() {
        return Err(KeySpaceError);
    }
    let rank = |id: &NodeId| new.index_of(id).unwrap_or(NodeIx::NONE);
    Ok(Diff {
        old,
        new,
        new_rank: old.nodes().iter().map(|member| rank(&member.id)).collect(),
    })
}

/// The two placements do not turn keys into positions alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySpaceError;

impl fmt::Display for KeySpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the placements have different schemes: compare the owners of each key instead")
    }
}

impl core::error::Error for KeySpaceError {}

/// An interval whose owners differ, as long as it can be.
///
/// Ranks in `old` belong to the old placement, ranks in `new` to the new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change<'a> {
    /// The positions.
    pub interval: Interval,
    /// Who had them.
    pub old: &'a [NodeIx],
    /// Who has them now.
    pub new: &'a [NodeIx],
}

/// What counts as a difference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grain {
    Primary,
    Set,
    List,
}

impl<'a> Diff<'a> {
    /// The older placement.
    #[must_use]
    pub fn older(&self) -> &'a Placement {
        self.old
    }

    /// The newer placement.
    #[must_use]
    pub fn newer(&self) -> &'a Placement {
        self.new
    }

    /// The intervals with another first owner; `old` and `new` hold one node each.
    pub fn primaries(&self) -> impl Iterator<Item = Change<'a>> + '_ {
        Changes::new(self, Grain::Primary)
    }

    /// The intervals that some node must fetch or may drop: the sets of owners differ.
    pub fn replica_sets(&self) -> impl Iterator<Item = Change<'a>> + '_ {
        Changes::new(self, Grain::Set)
    }

    /// The intervals whose owners or their order differ.
    pub fn lists(&self) -> impl Iterator<Item = Change<'a>> + '_ {
        Changes::new(self, Grain::List)
    }

    /// Whether nothing differs, the order of owners included.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists().next().is_none()
    }

    /// The rank in the new placement of a node of the old one.
    #[must_use]
    pub fn new_rank(&self, old: NodeIx) -> Option<NodeIx> {
        Some(self.new_rank[old.get()]).filter(|&rank| rank != NodeIx::NONE)
    }

    fn differs(&self, grain: Grain, old: &[NodeIx], new: &[NodeIx]) -> bool {
        let renamed = |node: &NodeIx| self.new_rank[node.get()];
        match grain {
            Grain::Primary | Grain::List => !old.iter().map(renamed).eq(new.iter().copied()),
            Grain::Set => {
                old.len() != new.len() || !old.iter().all(|node| new.contains(&renamed(node)))
            }
        }
    }
}

/// The walk over both circles. Allocates nothing.
struct Changes<'d, 'a> {
    diff: &'d Diff<'a>,
    grain: Grain,
    // The next end of either circle.
    old_at: usize,
    new_at: usize,
    // Where the walk has come to, and where it began; it ends there after one lap.
    after: Position,
    begin: Position,
    done: bool,
}

/// A stretch between two neighbouring ends of either circle.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    through: Position,
    old: &'a [NodeIx],
    new: &'a [NodeIx],
}

impl<'d, 'a> Changes<'d, 'a> {
    fn new(diff: &'d Diff<'a>, grain: Grain) -> Self {
        let last = diff.old.ends.end_before(0).max(diff.new.ends.end_before(0));
        let mut walk = Self {
            diff,
            grain,
            old_at: 0,
            new_at: 0,
            after: last,
            begin: last,
            done: false,
        };
        // Begin where a run begins, lest one be cut in two. A circle of one run has no such place.
        let final_old = diff.old.list(diff.old.ends.find(last));
        let final_new = diff.new.list(diff.new.ends.find(last));
        loop {
            let next = walk.peek();
            if !walk.same(&next, final_old, final_new) {
                break;
            }
            walk.pass(&next);
            if walk.after == last {
                break;
            }
        }
        walk.begin = walk.after;
        walk
    }

    /// The part of an owner list that this comparison is about.
    fn part(&self, owners: &'a [NodeIx]) -> &'a [NodeIx] {
        match self.grain {
            Grain::Primary => &owners[..1],
            Grain::Set | Grain::List => owners,
        }
    }

    fn same(&self, stretch: &Stretch<'a>, old: &'a [NodeIx], new: &'a [NodeIx]) -> bool {
        stretch.old == self.part(old) && stretch.new == self.part(new)
    }

    fn peek(&self) -> Stretch<'a> {
        let (old, new) = (self.diff.old, self.diff.new);
        let (old_count, new_count) = (old.ends.count(), new.ends.count());
        let (old_left, new_left) = (self.old_at < old_count, self.new_at < new_count);
        let through = match (old_left, new_left) {
            (true, true) => old.ends.end(self.old_at).min(new.ends.end(self.new_at)),
            (true, false) => old.ends.end(self.old_at),
            (false, _) => new.ends.end(self.new_at),
        };
        // Above the last end of a circle lies the interval of its first.
        Stretch {
            through,
            old: self.part(old.list(if old_left { self.old_at } else { 0 })),
            new: self.part(new.list(if new_left { self.new_at } else { 0 })),
        }
    }

    fn pass(&mut self, stretch: &Stretch<'a>) {
        let skip = |placement: &Placement, mut at: usize| {
            let count = placement.ends.count();
            while at < count && placement.ends.end(at) <= stretch.through {
                at += 1;
            }
            (at, count)
        };
        let (old_at, old_count) = skip(self.diff.old, self.old_at);
        let (new_at, new_count) = skip(self.diff.new, self.new_at);
        let lap = old_at == old_count && new_at == new_count;
        (self.old_at, self.new_at) = if lap { (0, 0) } else { (old_at, new_at) };
        self.after = stretch.through;
    }
}

impl<'a> Iterator for Changes<'_, 'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        while !self.done {
            let after = self.after;
            let first = self.peek();
            let mut stretch = first;
            while stretch.old == first.old && stretch.new == first.new {
                self.pass(&stretch);
                if self.after == self.begin {
                    self.done = true;
                    break;
                }
                stretch = self.peek();
            }
            if self.diff.differs(self.grain, first.old, first.new) {
                let interval = Interval {
                    after,
                    through: self.after,
                };
                return Some(Change {
                    interval,
                    old: first.old,
                    new: first.new,
                });
            }
        }
        None
    }
}
