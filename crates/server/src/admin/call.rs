//! What calls of the admin API take.

use clockwise_cluster::Edit;
use clockwise_placement::{Domain, NodeId, Weight};
use serde::{Deserialize, Serialize};

/// `POST stage`: edits, staged together or not at all.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageCall {
    /// The edits in order.
    pub edits: Vec<Edit>,
}

impl StageCall {
    /// One edit.
    #[must_use]
    pub fn of(edit: Edit) -> Self {
        Self { edits: vec![edit] }
    }
}

/// `POST nodes`: one more server of the same kind, and the edit that lets it join.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartCall {
    /// The node's name.
    pub id: String,
    /// How much it takes.
    #[serde(default = "one")]
    pub weight: String,
    /// Where it stands.
    #[serde(default)]
    pub domain: String,
}

fn one() -> String {
    "1".to_owned()
}

impl StartCall {
    /// A node to be started.
    #[must_use]
    pub fn new(id: &NodeId, weight: Weight, domain: &Domain) -> Self {
        Self {
            id: id.to_string(),
            weight: weight.to_string(),
            domain: domain.to_string(),
        }
    }
}

/// `POST unstage`: which edits to take back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnstageCall {
    /// All.
    All,
    /// The one of this number.
    Edit(u32),
    /// Those that name this node.
    Node(String),
}

/// `POST apply`: makes what is staged a change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyCall {
    /// The epoch the plan was looked at; the current one without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_epoch: Option<u64>,
    /// Users of the nodes who may write although they are not ours, from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_writers: Vec<String>,
}

/// `POST throttle`: how fast moves may go. What is not given stays as it is; 0 is without limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThrottleCall {
    /// Keys a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_per_second: Option<u64>,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// `POST accept`: takes a node that stays closed as it is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptCall {
    /// The node's name.
    pub id: String,
}

/// A call that takes nothing: an empty object, so that there is something to declare as JSON.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyCall {}
