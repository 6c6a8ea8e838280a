//! Staging: edits are collected and checked one by one, and nothing happens until `apply`.

use core::fmt;

use clockwise_placement::NodeId;
use serde_json::Map;

use crate::draft::{Draft, EditError, StaleEdit};
use crate::invalid::STAGED_MAX;
use crate::record::{Record, ServiceClass};
use crate::{Edit, Staged, StagedId};

/// Which staged edits to take back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unstage {
    /// All of them.
    All,
    /// One.
    Edit(StagedId),
    /// All that name this node.
    Node(NodeId),
}

impl Record {
    /// The record with one more staged edit. Routers see no difference: the epoch stays.
    ///
    /// The edit is checked against the pool as the edits staged before it leave it. What further edits may
    /// mend, such as domains of unequal depth, is refused by `plan` and `apply` only.
    ///
    /// # Errors
    /// An edit that does not fit, or one too many.
    ///
    /// ```
    /// use clockwise_cluster::{Edit, EditError, NewNode, NewPool, Nonce, Record, StageError};
    /// let a = NewNode::new("a".parse()?, "127.0.0.1:7001".parse()?);
    /// let record = Record::create(NewPool::new("main".parse()?, vec![a]), &mut || Nonce::new([7; 16]))?;
    /// let staged = record.stage(Edit::SetWeight { id: "a".parse()?, weight: "2".parse()? })?;
    /// assert_eq!(staged.staged()[0].edit.to_string(), "weight of a: 2");
    /// assert_eq!(staged.epoch(), record.epoch());
    /// let lonely = record.stage(Edit::Remove { id: "a".parse()? });
    /// assert!(matches!(lonely, Err(StageError::Edit(EditError::LastNode { .. }))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stage(&self, edit: Edit) -> Result<Self, StageError> {
        if self.staged.len() >= STAGED_MAX {
            return Err(StageError::TooMany);
        }
        if let (Edit::SetReplicas { replicas: 2.. }, ServiceClass::Store) = (&edit, self.class) {
            return Err(StageError::ReplicasInStore);
        }
        let draft = Draft::of(self).map_err(StageError::Stale)?;
        let draft = draft.edited(&edit).map_err(StageError::Edit)?;
        draft.check_buildable().map_err(StageError::Edit)?;
        let last = self
            .staged
            .iter()
            .map(|staged| staged.id.0)
            .max()
            .unwrap_or(0);
        let id = StagedId(last.checked_add(1).ok_or(StageError::TooMany)?);
        let mut next = self.clone();
        next.staged.push(Staged {
            id,
            edit,
            unknown: Map::new(),
        });
        Ok(next)
    }

    /// The record without some of the staged edits.
    ///
    /// # Errors
    /// Nothing to take back, or another staged edit that needs it.
    ///
    /// ```
    /// use clockwise_cluster::{Edit, NewNode, NewPool, Nonce, Record, StagedId, Unstage};
    /// let a = NewNode::new("a".parse()?, "127.0.0.1:7001".parse()?);
    /// let record = Record::create(NewPool::new("main".parse()?, vec![a]), &mut || Nonce::new([7; 16]))?;
    /// let staged = record.stage(Edit::SetWeight { id: "a".parse()?, weight: "2".parse()? })?;
    /// assert_eq!(staged.unstage(&Unstage::Edit(StagedId(1)))?, record);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unstage(&self, which: &Unstage) -> Result<Self, UnstageError> {
        let goes = |staged: &Staged| match which {
            Unstage::All => true,
            Unstage::Edit(id) => staged.id == *id,
            Unstage::Node(node) => staged.edit.names(node),
        };
        let mut next = self.clone();
        next.staged.retain(|staged| !goes(staged));
        if self.staged.is_empty() {
            return Err(UnstageError::NothingStaged);
        }
        if next.staged.len() == self.staged.len() {
            return Err(UnstageError::NotStaged);
        }
        // An edit that did not fit before does not stand in the way of taking others back.
        match (Draft::of(self), Draft::of(&next)) {
            (Ok(_), Err(StaleEdit { id, error })) => Err(UnstageError::Needed { by: id, error }),
            _ => Ok(next),
        }
    }
}

/// Why an edit was not staged.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StageError {
    /// The edit does not fit the pool.
    Edit(EditError),
    /// An edit staged earlier does not fit the pool any more: take it back first.
    Stale(StaleEdit),
    /// A pool of class store keeps one copy of each key.
    ReplicasInStore,
    /// As many edits are staged as one change may have.
    TooMany,
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edit(error) => error.fmt(f),
            Self::Stale(stale) => stale.fmt(f),
            Self::ReplicasInStore => {
                f.write_str("a pool of class store keeps one copy of each key")
            }
            Self::TooMany => write!(
                f,
                "{STAGED_MAX} edits are staged, no more are allowed in one change"
            ),
        }
    }
}

impl core::error::Error for StageError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Edit(error) => Some(error),
            Self::Stale(stale) => Some(stale),
            Self::ReplicasInStore | Self::TooMany => None,
        }
    }
}

/// Why a staged edit was not taken back.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UnstageError {
    /// Nothing is staged at all.
    NothingStaged,
    /// Nothing staged is meant.
    NotStaged,
    /// Another staged edit does not fit without it: take that back first, or all of them.
    Needed {
        /// The other edit.
        by: StagedId,
        /// Why it would not fit.
        error: EditError,
    },
}

impl fmt::Display for UnstageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingStaged => f.write_str("nothing is staged"),
            Self::NotStaged => f.write_str("no such edit is staged"),
            Self::Needed { by, error } => write!(f, "staged edit {by} needs it: {error}"),
        }
    }
}

impl core::error::Error for UnstageError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Needed { error, .. } => Some(error),
            Self::NothingStaged | Self::NotStaged => None,
        }
    }
}
