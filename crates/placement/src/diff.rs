//! What changes hands between two placements of one key space, exactly.
//!
//! Both circles are walked together over the union of their ends, so the result is exact and complete: the
//! intervals that come out are all that differs, each as long as it can be, and between them nothing moves.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

use crate::{Interval, Member, NodeIx, Placement, Position};

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
    Ok(Diff {
        old,
        new,
        new_rank: new_ranks(old.nodes(), new.nodes()),
    })
}

/// For each of the old members its rank among the new ones, both ascending by id.
fn new_ranks(old: &[Member], new: &[Member]) -> Vec<NodeIx> {
    let mut at = 0;
    let mut rank = |member: &Member| {
        // Nearly all are the same nodes at almost the same ranks.
        while new.get(at).is_some_and(|new| new.id < member.id) {
            at += 1;
        }
        let same = new.get(at).is_some_and(|new| new.id == member.id);
        if same { NodeIx::of(at) } else { NodeIx::NONE }
    };
    old.iter().map(&mut rank).collect()
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

    /// The intervals with another first owner, where only points at these ascending positions differ.
    ///
    /// The same as [`Diff::primaries`] at a fraction of the cost: O(changed points) searches. Both must be
    /// rings, and each point of one that the other lacks must be at one of the positions.
    #[must_use]
    pub fn primaries_at(&self, points: &[Position]) -> Vec<Change<'a>> {
        let mut changes: Vec<Change<'a>> = Vec::new();
        let mut done = None;
        for &through in points {
            if done.replace(through) == Some(through) {
                continue;
            }
            let after = self.end_below(through);
            let old = &self.old.replicas_at(through)[..1];
            let new = &self.new.replicas_at(through)[..1];
            if !self.differs(Grain::Primary, old, new) {
                continue;
            }
            match changes.last_mut() {
                Some(last)
                    if last.interval.through == after && (last.old, last.new) == (old, new) =>
                {
                    last.interval.through = through;
                }
                _ => changes.push(Change {
                    interval: Interval { after, through },
                    old,
                    new,
                }),
            }
        }
        // The circle has no seam.
        if let [first, .., last] = changes.as_mut_slice() {
            let meet = last.interval.through == first.interval.after;
            if meet && (last.old, last.new) == (first.old, first.new) {
                first.interval.after = last.interval.after;
                changes.pop();
            }
        }
        changes
    }

    /// The nearest end of either circle below a position that is one; itself if there is no other.
    fn end_below(&self, position: Position) -> Position {
        // The end before the interval that ends there, or before the one that the position lies in.
        let below = |placement: &Placement| {
            let before = placement.ends.end_before(placement.ends.find(position));
            (before.next().steps_to(position), before)
        };
        let (old, new) = (below(self.old), below(self.new));
        if old.0 <= new.0 { old.1 } else { new.1 }
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

/// One of the two circles, and how far the walk has come on it.
struct Side<'a> {
    ends: Cow<'a, [Position]>,
    lists: &'a [NodeIx],
    width: usize,
    // The index of the next end.
    at: usize,
}

impl<'a> Side<'a> {
    fn new(placement: &'a Placement) -> Self {
        let lists = placement.all_lists();
        let ends = placement.ends.positions();
        Self {
            width: lists.len() / ends.len(),
            ends,
            lists,
            at: 0,
        }
    }

    /// The owners of what lies before the next end. Above the last end of a circle lies the interval of its first.
    fn owners(&self) -> &'a [NodeIx] {
        let at = if self.at < self.ends.len() {
            self.at
        } else {
            0
        };
        &self.lists[at * self.width..][..self.width]
    }

    /// Goes past all ends up to a position; whether there are none left.
    fn pass(&mut self, through: Position) -> bool {
        while self.ends.get(self.at).is_some_and(|&end| end <= through) {
            self.at += 1;
        }
        self.at == self.ends.len()
    }
}

/// The walk over both circles.
struct Changes<'d, 'a> {
    diff: &'d Diff<'a>,
    grain: Grain,
    old: Side<'a>,
    new: Side<'a>,
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
        let (old, new) = (Side::new(diff.old), Side::new(diff.new));
        let last = diff.old.ends.end_before(0).max(diff.new.ends.end_before(0));
        let mut walk = Self {
            diff,
            grain,
            old,
            new,
            after: last,
            begin: last,
            done: false,
        };
        // Begin where a run begins, lest one be cut in two. A circle of one run has no such place.
        let final_old = walk.part(diff.old.replicas_at(last));
        let final_new = walk.part(diff.new.replicas_at(last));
        loop {
            let next = walk.peek();
            if (next.old, next.new) != (final_old, final_new) {
                break;
            }
            walk.pass_to(next.through);
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

    #[inline]
    fn peek(&self) -> Stretch<'a> {
        let (old, new) = (
            self.old.ends.get(self.old.at),
            self.new.ends.get(self.new.at),
        );
        let through = match (old, new) {
            (Some(old), Some(new)) => *old.min(new),
            (Some(end), None) | (None, Some(end)) => *end,
            (None, None) => unreachable!("the walk begins again before both circles end"),
        };
        Stretch {
            through,
            old: self.part(self.old.owners()),
            new: self.part(self.new.owners()),
        }
    }

    #[inline]
    fn pass_to(&mut self, through: Position) {
        let lap = self.old.pass(through) & self.new.pass(through);
        if lap {
            (self.old.at, self.new.at) = (0, 0);
        }
        self.after = through;
    }

    /// Passes over what is alike at a glance: the same end with the same owners on both sides.
    ///
    /// Stops before the place where the walk began.
    #[inline]
    fn skip_alike(&mut self) {
        let (old, new) = (&self.old, &self.new);
        let old_ends = &old.ends[old.at..];
        let new_ends = &new.ends[new.at..];
        let old_lists = old.lists[old.at * old.width..].chunks_exact(old.width);
        let new_lists = new.lists[new.at * new.width..].chunks_exact(new.width);
        let pairs = old_ends.iter().zip(new_ends).zip(old_lists.zip(new_lists));
        let alike = pairs.take_while(|((old_end, new_end), (old, new))| {
            old_end == new_end
                && **old_end != self.begin
                && self.diff.new_rank[old[0].get()] == new[0]
                && (self.grain == Grain::Primary || !self.diff.differs(Grain::List, old, new))
        });
        let alike = alike.count();
        if alike > 0 {
            let through = old_ends[alike - 1];
            self.old.at += alike;
            self.new.at += alike;
            // Points that share their position with the last one have no interval.
            self.pass_to(through);
        }
    }
}

impl<'a> Iterator for Changes<'_, 'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        while !self.done {
            self.skip_alike();
            let after = self.after;
            let first = self.peek();
            let differs = self.diff.differs(self.grain, first.old, first.new);
            let mut stretch = first;
            while (stretch.old, stretch.new) == (first.old, first.new) {
                self.pass_to(stretch.through);
                self.done = self.after == self.begin;
                if self.done || !differs {
                    break;
                }
                stretch = self.peek();
            }
            if differs {
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
