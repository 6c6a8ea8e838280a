//! Maglev: a table that nodes fill in turns, each in an order of its own.
//!
//! Eisenbud and others, 2016. Almost perfectly even and the fastest lookup there is. But a change of nodes
//! also moves keys between nodes that stay: little for a balancer that keeps nothing, too much for a store.
//! The larger the table beside the number of nodes, the fewer.
//!
//! The table's size is a prime, so that a node's order, `(offset + turn × skip) mod size`, meets every
//! entry. A node of half the weight of the heaviest takes every second turn.

use alloc::vec::Vec;

use crate::ends::Ends;
use crate::measure::Owners;
use crate::placement::Roll;
use crate::{Member, NodeIx, Placement, PlacementError, Scheme};

/// The largest table: some 10 MB.
pub const MAGLEV_SIZE_MAX: u32 = 5_000_011;

/// A filled table.
///
/// Its intervals are those of a [`Placement`], so all measures and the diff are exact.
///
/// ```
/// use clockwise_placement::{Maglev, Member, Scheme, diff};
/// let nodes = |count| (0..count).map(|n| Member::new(format!("n{n}").parse().unwrap()));
/// let ten = Maglev::new(Scheme::default(), nodes(10), 65_537)?;
/// assert!(ten.placement().balance().max_over_mean < 1.001);
/// let nine = Maglev::new(Scheme::default(), nodes(9), 65_537)?;
/// let movement = diff(ten.placement(), nine.placement()).unwrap().movement();
/// assert!(movement.primaries_share() > 0.1 && movement.copies_needless > 0);
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Maglev {
    placement: Placement,
    size: u32,
}

impl Maglev {
    /// Fills a table of `size` entries, a prime not smaller than the number of nodes.
    ///
    /// O(size × log size) in the mean, and no more memory than the table and one line a node.
    ///
    /// # Errors
    /// Faults of the members, a weight of 0 or so small that no entry is left for it, a size that is no prime,
    /// too small, or too large.
    pub fn new(
        scheme: Scheme,
        members: impl IntoIterator<Item = Member>,
        size: u32,
    ) -> Result<Self, PlacementError> {
        let roll = Roll::new(members, 1)?;
        roll.refuse_zero_weights()?;
        let fits = size as usize >= roll.members.len() && size <= MAGLEV_SIZE_MAX;
        if !fits || !is_prime(size) {
            let next = Self::size_from(size.max(u32::try_from(roll.members.len()).unwrap_or(size)));
            return Err(PlacementError::TableSize { size, next });
        }
        let table = fill(&scheme, &roll.members, size);
        let placement = roll.into_placement(scheme, Ends::Equal(size), table, 1);
        let mut ranked = (0..).map(NodeIx::of).zip(placement.nodes());
        if let Some((_, left_out)) = ranked.find(|&(node, _)| !placement.places(node)) {
            return Err(PlacementError::NoTableEntry {
                node: left_out.id.clone(),
                weight: left_out.weight,
                size,
            });
        }
        Ok(Self { placement, size })
    }

    /// A good size for so many nodes: the first prime from 1,000 a node on, at least 65,537.
    ///
    /// The authors' 100 a node keep entries within 1 % of even; with 1,000 a node a leave moves little more
    /// than it must.
    #[must_use]
    pub fn size_for(nodes: usize) -> u32 {
        Self::size_from(u32::try_from(nodes * 1000).unwrap_or(u32::MAX).max(65_537))
    }

    /// The first prime from here on, or the largest size.
    fn size_from(least: u32) -> u32 {
        (least.max(2)..MAGLEV_SIZE_MAX)
            .find(|&size| is_prime(size))
            .unwrap_or(MAGLEV_SIZE_MAX)
    }

    /// The table as a placement.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// How many entries the table has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }
}

impl Owners for Maglev {
    fn scheme(&self) -> &Scheme {
        self.placement.scheme()
    }

    fn nodes(&self) -> &[Member] {
        self.placement.nodes()
    }

    fn owner_of(&self, key: &[u8]) -> NodeIx {
        self.placement.owner_of(key)
    }
}

/// A node on its way through the table.
struct Turns {
    next: u32,
    skip: u32,
    weight: u32,
    // A turn is due once this reaches the heaviest weight.
    credit: u64,
}

fn fill(scheme: &Scheme, members: &[Member], size: u32) -> Vec<NodeIx> {
    let modulo = |copy, member: &Member, size: u32| {
        u32::try_from(scheme.point(&member.id, copy).0 % u64::from(size)).expect("below a u32")
    };
    let turns = |member: &Member| Turns {
        next: modulo(0, member, size),
        skip: modulo(1, member, size - 1) + 1,
        weight: member.weight.hundredths(),
        credit: 0,
    };
    let mut nodes: Vec<Turns> = members.iter().map(turns).collect();
    let heaviest = nodes
        .iter()
        .map(|node| u64::from(node.weight))
        .max()
        .unwrap_or(0);
    let mut table = alloc::vec![NodeIx::NONE; size as usize];
    let mut left = size;
    loop {
        for (rank, node) in nodes.iter_mut().enumerate() {
            node.credit += u64::from(node.weight);
            if node.credit < heaviest {
                continue;
            }
            node.credit -= heaviest;
            // The order meets every entry, and one is free.
            while table[node.next as usize] != NodeIx::NONE {
                node.step(size);
            }
            table[node.next as usize] = NodeIx::of(rank);
            left -= 1;
            if left == 0 {
                return table;
            }
        }
    }
}

impl Turns {
    fn step(&mut self, size: u32) {
        self.next += self.skip;
        if self.next >= size {
            self.next -= size;
        }
    }
}

fn is_prime(number: u32) -> bool {
    let mut divisors = (2..).take_while(|&divisor| divisor * divisor <= number);
    number >= 2 && divisors.all(|divisor| !number.is_multiple_of(divisor))
}
