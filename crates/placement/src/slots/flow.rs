//! The fewest moves: every slot has a valid row, every node is within its bounds, and of all such tables
//! this one keeps the most of what is kept.
//!
//! This is a minimum-cost flow from slots to nodes, solved by prices. A node's price is subtracted from
//! the worth of having it in a row, and every row is the best one at the present prices. Nodes above their
//! bound look for a chain of swaps, each worth as much as it costs, that ends at a node with room; when
//! there is none, the price of all nodes that the search has reached rises by one. Nodes below their bound
//! look the other way and get cheaper. The shortest chain is taken, and then its swaps do not get into
//! each other's way (the lemma of weighted matroid intersection: rows are bases of matroids, see
//! [`super::target`]).
//!
//! The final prices are the proof: no table within the bounds can be worth more than
//! Σ over slots of the best row at these prices, plus Σ over nodes of price × bound.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::NodeIx;

/// What the solver asks about rows.
pub(crate) trait Rows {
    /// 1 where having the node in the row of the slot keeps something, else 0.
    fn worth(&self, slot: usize, node: NodeIx) -> i32;

    /// Whether a valid row stays valid when `leaving` makes place for `entering`, which is not in it.
    fn may_swap(&self, slot: usize, row: &[NodeIx], leaving: NodeIx, entering: NodeIx) -> bool;
}

/// The fewest and the most slots of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

/// A table on its way to its bounds.
pub(crate) struct Flow<'a, R: Rows> {
    rules: &'a R,
    width: usize,
    // Invariant: row-major; every row is valid, and worth as much at the present prices as any other.
    pub(crate) rows: Vec<NodeIx>,
    // By node: the slots whose rows it is in.
    held: Vec<Vec<u32>>,
    pub(crate) bounds: Vec<Bounds>,
    pub(crate) prices: Vec<i32>,
}

/// A swap on a chain: in the row of `slot`, `leaving` makes place for the node that the swap stands at.
#[derive(Clone, Copy)]
struct Swap {
    slot: u32,
    other: NodeIx,
}

/// The nodes that cannot get within their bounds, since no swap leads out of them or into them.
#[derive(Debug)]
pub(crate) struct Stuck {
    pub(crate) nodes: Vec<NodeIx>,
}

enum Search {
    /// The chain from its end to its beginning.
    Chain(Vec<(NodeIx, Swap)>),
    /// No chain at these prices. Whether other prices could open one.
    Dead {
        reached: Vec<NodeIx>,
        could_open: bool,
    },
}

impl<'a, R: Rows> Flow<'a, R> {
    /// Begins with valid rows that keep as much as rows can; prices are 0.
    ///
    /// `order` is the order in which a node's slots are looked at.
    pub(crate) fn new(
        rules: &'a R,
        rows: Vec<NodeIx>,
        width: usize,
        bounds: Vec<Bounds>,
        order: &[u32],
    ) -> Self {
        let nodes = bounds.len();
        let mut held = alloc::vec![Vec::new(); nodes];
        for &slot in order {
            for node in &rows[slot as usize * width..][..width] {
                held[node.get()].push(slot);
            }
        }
        Self {
            rules,
            width,
            rows,
            held,
            bounds,
            prices: alloc::vec![0; nodes],
        }
    }

    pub(crate) fn row(&self, slot: usize) -> &[NodeIx] {
        &self.rows[slot * self.width..][..self.width]
    }

    /// How many slots a node is in.
    pub(crate) fn count(&self, node: NodeIx) -> usize {
        self.held[node.get()].len()
    }

    /// Relieves the nodes above their bound. Prices only rise.
    pub(crate) fn relieve(&mut self) -> Result<(), Stuck> {
        self.swap_directly();
        while let Some(sources) = self.nodes_where(Self::is_above) {
            match self.search_takers(sources) {
                Search::Chain(chain) => {
                    // Each node on it takes from the one before.
                    for (entering, swap) in chain {
                        self.swap(swap.slot, swap.other, entering);
                    }
                }
                Search::Dead {
                    reached,
                    could_open,
                } => {
                    self.reprice(reached, could_open, 1)?;
                    self.swap_directly();
                }
            }
        }
        Ok(())
    }

    /// Fills the nodes below their bound, once no node is above. Prices only fall.
    pub(crate) fn fill(&mut self) -> Result<(), Stuck> {
        self.swap_directly();
        while let Some(sinks) = self.nodes_where(Self::is_below) {
            match self.search_givers(sinks) {
                Search::Chain(chain) => {
                    for (leaving, swap) in chain {
                        self.swap(swap.slot, leaving, swap.other);
                    }
                }
                Search::Dead {
                    reached,
                    could_open,
                } => {
                    self.reprice(reached, could_open, -1)?;
                    self.swap_directly();
                }
            }
        }
        Ok(())
    }

    /// Takes all chains of one swap that there are at these prices, in one pass.
    ///
    /// They are the shortest, and none of them gets into another's way; searching for each alone would look
    /// at the same slots again and again.
    fn swap_directly(&mut self) {
        for leaving in (0..self.bounds.len()).map(NodeIx::of) {
            // Backwards, since a slot given away makes place for the last one.
            for at in (0..self.held[leaving.get()].len()).rev() {
                if !self.may_give(leaving) {
                    break;
                }
                let slot = self.held[leaving.get()][at];
                if let Some(entering) = self.direct_taker(slot as usize, leaving) {
                    self.swap(slot, leaving, entering);
                }
            }
        }
    }

    /// A node that may take what `leaving` gives, one of the two being out of its bounds.
    fn direct_taker(&self, slot: usize, leaving: NodeIx) -> Option<NodeIx> {
        let (row, value) = (self.row(slot), self.value(slot, leaving));
        let urgent = self.is_above(leaving);
        let takes = |&entering: &NodeIx| {
            self.may_take(entering)
                && (urgent || self.is_below(entering))
                && self.value(slot, entering) == value
                && !row.contains(&entering)
                && self.rules.may_swap(slot, row, leaving, entering)
        };
        (0..self.bounds.len()).map(NodeIx::of).find(takes)
    }

    fn is_above(&self, node: NodeIx) -> bool {
        self.count(node) > self.bounds[node.get()].most
    }

    fn is_below(&self, node: NodeIx) -> bool {
        self.count(node) < self.bounds[node.get()].least
    }

    fn nodes_where(&self, holds: fn(&Self, NodeIx) -> bool) -> Option<Vec<NodeIx>> {
        let nodes: Vec<NodeIx> = (0..self.bounds.len())
            .map(NodeIx::of)
            .filter(|&node| holds(self, node))
            .collect();
        (!nodes.is_empty()).then_some(nodes)
    }

    fn reprice(&mut self, reached: Vec<NodeIx>, could_open: bool, by: i32) -> Result<(), Stuck> {
        if !could_open {
            return Err(Stuck { nodes: reached });
        }
        for node in reached {
            self.prices[node.get()] += by;
        }
        Ok(())
    }

    /// Whether a node may take one more slot at its price.
    ///
    /// A node with a price above 0 has to stay at its most, one with a price below 0 at its least.
    fn may_take(&self, node: NodeIx) -> bool {
        let (Bounds { least, most }, price) = (self.bounds[node.get()], self.prices[node.get()]);
        let count = self.count(node);
        (count < most && price == 0) || (count < least && price < 0)
    }

    fn may_give(&self, node: NodeIx) -> bool {
        let (Bounds { least, most }, price) = (self.bounds[node.get()], self.prices[node.get()]);
        let count = self.count(node);
        (count > least && price == 0) || (count > most && price > 0)
    }

    fn value(&self, slot: usize, node: NodeIx) -> i32 {
        self.rules.worth(slot, node) - self.prices[node.get()]
    }

    /// Breadth first from nodes that hold too much to the nearest node that may take.
    fn search_takers(&self, sources: Vec<NodeIx>) -> Search {
        let mut swaps: Vec<Option<Swap>> = alloc::vec![None; self.bounds.len()];
        let mut reached = alloc::vec![false; self.bounds.len()];
        sources
            .iter()
            .for_each(|source| reached[source.get()] = true);
        let mut left: Vec<NodeIx> = (0..self.bounds.len())
            .map(NodeIx::of)
            .filter(|node| !reached[node.get()])
            .collect();
        let mut queue = VecDeque::from(sources);
        let mut visited = Vec::new();
        // For each node, whether a swap would reach it at other prices.
        let mut would_open = alloc::vec![false; self.bounds.len()];
        while let Some(leaving) = queue.pop_front() {
            visited.push(leaving);
            for &slot in &self.held[leaving.get()] {
                let row = self.row(slot as usize);
                let value = self.value(slot as usize, leaving);
                let mut at = 0;
                while let Some(&entering) = left.get(at) {
                    at += 1;
                    let tight = self.value(slot as usize, entering) == value;
                    if row.contains(&entering)
                        || (!tight && would_open[entering.get()])
                        || !self.rules.may_swap(slot as usize, row, leaving, entering)
                    {
                        continue;
                    }
                    if !tight {
                        would_open[entering.get()] = true;
                        continue;
                    }
                    swaps[entering.get()] = Some(Swap {
                        slot,
                        other: leaving,
                    });
                    if self.may_take(entering) {
                        return Search::Chain(chain(entering, &swaps));
                    }
                    queue.push_back(entering);
                    at -= 1;
                    left.swap_remove(at);
                }
            }
        }
        let could_open = left.iter().any(|node| would_open[node.get()]);
        Search::Dead {
            reached: visited,
            could_open,
        }
    }

    /// Breadth first, against the direction of the swaps, from nodes that lack slots to the nearest that may give.
    fn search_givers(&self, sinks: Vec<NodeIx>) -> Search {
        let mut swaps: Vec<Option<Swap>> = alloc::vec![None; self.bounds.len()];
        let mut reached = alloc::vec![false; self.bounds.len()];
        sinks.iter().for_each(|sink| reached[sink.get()] = true);
        let mut queue = VecDeque::from(sinks);
        let mut visited = Vec::new();
        let mut would_open = alloc::vec![false; self.bounds.len()];
        while let Some(entering) = queue.pop_front() {
            visited.push(entering);
            let left: Vec<NodeIx> = (0..self.bounds.len())
                .map(NodeIx::of)
                .filter(|node| !reached[node.get()])
                .collect();
            for leaving in left {
                let swap = self.held[leaving.get()].iter().copied().find(|&slot| {
                    let row = self.row(slot as usize);
                    let tight =
                        self.value(slot as usize, entering) == self.value(slot as usize, leaving);
                    let open = !row.contains(&entering)
                        && (tight || !would_open[leaving.get()])
                        && self.rules.may_swap(slot as usize, row, leaving, entering);
                    would_open[leaving.get()] |= open;
                    open && tight
                });
                if let Some(slot) = swap {
                    reached[leaving.get()] = true;
                    swaps[leaving.get()] = Some(Swap {
                        slot,
                        other: entering,
                    });
                    if self.may_give(leaving) {
                        return Search::Chain(chain(leaving, &swaps));
                    }
                    queue.push_back(leaving);
                }
            }
        }
        // A price above 0 keeps a node at its most: it may give once the price is down.
        let priced = |node: &NodeIx| {
            self.prices[node.get()] > 0 && self.count(*node) > self.bounds[node.get()].least
        };
        let mut nodes = (0..self.bounds.len()).map(NodeIx::of);
        let could_open = visited.iter().any(priced)
            || nodes.any(|node| would_open[node.get()] && !reached[node.get()]);
        Search::Dead {
            reached: visited,
            could_open,
        }
    }

    fn swap(&mut self, slot: u32, leaving: NodeIx, entering: NodeIx) {
        let row = &mut self.rows[slot as usize * self.width..][..self.width];
        let at = row
            .iter()
            .position(|&node| node == leaving)
            .expect("who leaves a row is in it");
        row[at] = entering;
        let held = &mut self.held[leaving.get()];
        let at = held
            .iter()
            .position(|&held| held == slot)
            .expect("a node knows its slots");
        held.swap_remove(at);
        self.held[entering.get()].push(slot);
    }
}

/// The swaps from the end of a chain back to its beginning, each with the node that it was found at.
fn chain(end: NodeIx, swaps: &[Option<Swap>]) -> Vec<(NodeIx, Swap)> {
    let mut chain = Vec::new();
    let mut at = end;
    while let Some(swap) = swaps[at.get()] {
        chain.push((at, swap));
        at = swap.other;
    }
    chain
}
