//! All algorithms behind one small interface, each honest about what it cannot do.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::measure::Owners;
use crate::{
    Jump, Maglev, Member, Modulo, NodeId, NodeIx, Placement, PlacementError, Rendezvous, Ring,
    SlotsPlan, SlotsSpec, Weight,
};

/// A change of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// A node comes.
    Join(Member),
    /// A node goes.
    Leave(NodeId),
    /// A node gets another weight.
    Reweight(NodeId, Weight),
}

/// Why a change cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EditError {
    /// The algorithm has no way to do it.
    Unsupported {
        /// The algorithm.
        algorithm: &'static str,
        /// What it cannot do.
        what: &'static str,
    },
    /// The members would not make a placement.
    Refused(PlacementError),
}

impl From<PlacementError> for EditError {
    fn from(error: PlacementError) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { algorithm, what } => write!(f, "{algorithm} cannot {what}"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for EditError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Unsupported { .. } => None,
            Self::Refused(error) => Some(error),
        }
    }
}

/// A way to place keys on nodes that can be asked, changed and measured like any other.
///
/// ```
/// use clockwise_placement::{Algorithm, Edit, Jump, Member, Scheme};
/// let nodes = ["shard-0", "shard-1", "shard-2"].map(|id| Member::new(id.parse().unwrap()));
/// let shards: Box<dyn Algorithm> = Box::new(Jump::new(Scheme::default(), nodes)?);
/// let middle = shards.edited(&Edit::Leave("shard-1".parse().unwrap()));
/// assert_eq!(middle.err().unwrap().to_string(), "jump cannot remove a node that is not the last");
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
pub trait Algorithm: Owners {
    /// The algorithm's name.
    fn name(&self) -> &'static str;

    /// The same algorithm with one node changed.
    ///
    /// # Errors
    /// When the algorithm cannot do it, or the members would not make a placement.
    fn edited(&self, edit: &Edit) -> Result<Box<dyn Algorithm>, EditError>;

    /// The intervals and their owners, for algorithms that have them: measures are exact then.
    fn intervals(&self) -> Option<&Placement> {
        None
    }

    /// What was found out when its owner table was planned, for algorithms that plan one.
    fn slots_plan(&self) -> Option<&SlotsPlan> {
        None
    }

    /// Writes the nodes that hold a key, as many as there is room for, and says how many there are.
    ///
    /// None where the algorithm has no replicas.
    fn replicas_of(&self, key: &[u8], replicas: &mut [NodeIx]) -> Option<usize> {
        let placement = self.intervals()?;
        let preference = placement.preference(placement.position(key));
        let written = replicas
            .iter_mut()
            .zip(preference)
            .map(|(slot, node)| *slot = node);
        Some(written.count())
    }
}

impl Edit {
    /// The members after the change.
    ///
    /// # Errors
    /// When the node that goes or gets another weight is no member.
    pub fn of(&self, members: &[Member]) -> Result<Vec<Member>, PlacementError> {
        let mut members = members.to_vec();
        let position = |members: &[Member], id: &NodeId| {
            let at = members.iter().position(|member| member.id == *id);
            at.ok_or_else(|| PlacementError::NotAMember { node: id.clone() })
        };
        match self {
            Self::Join(member) => members.push(member.clone()),
            Self::Leave(id) => drop(members.remove(position(&members, id)?)),
            Self::Reweight(id, weight) => {
                let at = position(&members, id)?;
                members[at].weight = *weight;
            }
        }
        Ok(members)
    }
}

/// The members of a numbered list after a change: only the last can go, and none has a weight.
fn edit_numbered(
    algorithm: &'static str,
    members: &[Member],
    edit: &Edit,
) -> Result<Vec<Member>, EditError> {
    let unsupported = |what| Err(EditError::Unsupported { algorithm, what });
    match edit {
        Edit::Reweight(..) => unsupported("weigh nodes"),
        Edit::Leave(id) if members.last().is_some_and(|last| last.id != *id) => {
            unsupported("remove a node that is not the last")
        }
        edit => Ok(edit.of(members)?),
    }
}

impl Algorithm for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn edited(&self, edit: &Edit) -> Result<Box<dyn Algorithm>, EditError> {
        let mut ring = self.clone();
        match edit {
            Edit::Join(member) => ring.add_node(member.clone())?,
            Edit::Leave(id) => ring.remove_node(id)?,
            Edit::Reweight(id, weight) => ring.set_weight(id, *weight)?,
        };
        Ok(Box::new(ring))
    }

    fn intervals(&self) -> Option<&Placement> {
        Some(self.placement())
    }
}

impl Owners for Ring {
    fn scheme(&self) -> &crate::Scheme {
        self.placement().scheme()
    }

    fn nodes(&self) -> &[Member] {
        self.placement().nodes()
    }

    fn owner_of(&self, key: &[u8]) -> NodeIx {
        self.placement().owner_of(key)
    }
}

/// Planned slots that plan again at every change.
#[derive(Clone, Debug)]
pub struct Slots {
    // Its members stand in the placement instead.
    rules: SlotsSpec,
    plan: SlotsPlan,
}

impl Slots {
    /// Plans the slots of a new pool.
    ///
    /// # Errors
    /// As [`SlotsSpec::plan`].
    pub fn new(spec: SlotsSpec) -> Result<Self, PlacementError> {
        Self::planned(spec, None)
    }

    /// Plans the slots of a pool that has others, however much has changed, and keeps what it can of them.
    ///
    /// # Errors
    /// As [`SlotsSpec::plan`].
    pub fn following(spec: SlotsSpec, current: &Placement) -> Result<Self, PlacementError> {
        Self::planned(spec, Some(current))
    }

    fn planned(spec: SlotsSpec, current: Option<&Placement>) -> Result<Self, PlacementError> {
        let rules = SlotsSpec {
            members: Vec::new(),
            ..spec.clone()
        };
        Ok(Self {
            rules,
            plan: spec.plan(current)?,
        })
    }

    /// The table as a placement.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.plan.placement
    }
}

impl Owners for Slots {
    fn scheme(&self) -> &crate::Scheme {
        self.plan.placement.scheme()
    }

    fn nodes(&self) -> &[Member] {
        self.plan.placement.nodes()
    }

    fn owner_of(&self, key: &[u8]) -> NodeIx {
        self.plan.placement.owner_of(key)
    }
}

impl Algorithm for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn edited(&self, edit: &Edit) -> Result<Box<dyn Algorithm>, EditError> {
        let spec = SlotsSpec {
            members: edit.of(self.plan.placement.nodes())?,
            ..self.rules.clone()
        };
        Ok(Box::new(Self::following(spec, &self.plan.placement)?))
    }

    fn intervals(&self) -> Option<&Placement> {
        Some(&self.plan.placement)
    }

    fn slots_plan(&self) -> Option<&SlotsPlan> {
        Some(&self.plan)
    }
}

impl Algorithm for Rendezvous {
    fn name(&self) -> &'static str {
        "rendezvous"
    }

    fn edited(&self, edit: &Edit) -> Result<Box<dyn Algorithm>, EditError> {
        let members = edit.of(self.nodes())?;
        Ok(Box::new(Self::new(self.scheme().clone(), members)?))
    }

    fn replicas_of(&self, key: &[u8], replicas: &mut [NodeIx]) -> Option<usize> {
        let preference = self.preference(self.scheme().position(key));
        Some(
            replicas
                .iter_mut()
                .zip(preference)
                .map(|(slot, node)| *slot = node)
                .count(),
        )
    }
}

impl Algorithm for Maglev {
    fn name(&self) -> &'static str {
        "maglev"
    }

    fn edited(&self, edit: &Edit) -> Result<Box<dyn Algorithm>, EditError> {
        let members = edit.of(self.nodes())?;
        Ok(Box::new(Self::new(
            self.scheme().clone(),
            members,
            self.size(),
        )?))
    }

    fn intervals(&self) -> Option<&Placement> {
        Some(self.placement())
    }

    fn replicas_of(&self, _: &[u8], _: &mut [NodeIx]) -> Option<usize> {
        None
    }
}

impl Algorithm for Jump {
    fn name(&self) -> &'static str {
        "jump"
    }

    fn edited(&self, edit: &Edit) -> Result<Box<dyn Algorithm>, EditError> {
        let members = edit_numbered(self.name(), self.nodes(), edit)?;
        Ok(Box::new(Self::new(self.scheme().clone(), members)?))
    }
}

impl Algorithm for Modulo {
    fn name(&self) -> &'static str {
        "modulo"
    }

    /// Any node may go: those after it move up, which is what is wrong with it.
    fn edited(&self, edit: &Edit) -> Result<Box<dyn Algorithm>, EditError> {
        if matches!(edit, Edit::Reweight(..)) {
            return Err(EditError::Unsupported {
                algorithm: self.name(),
                what: "weigh nodes",
            });
        }
        let members = edit.of(self.nodes())?;
        Ok(Box::new(Self::new(self.scheme().clone(), members)?))
    }
}
