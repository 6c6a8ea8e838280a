//! The placements that `measure` and `sim` compare, by name.

use clockwise_dialects::article;
use clockwise_placement::{
    Algorithm, Edit, EditError, Jump, Maglev, Member, Modulo, Rendezvous, Ring, RingSpec,
    SLOTS_DEFAULT, Scheme, Slots, SlotsSpec,
};
use serde::{Deserialize, Serialize};

/// How keys find their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Name {
    /// Hashed points, as many as weights ask for.
    Ring,
    /// Equal intervals with a planned owner table.
    Slots,
    /// Every node draws for every key.
    Rendezvous,
    /// Numbered nodes; only the last can leave.
    Jump,
    /// A table that nodes fill in turns.
    Maglev,
    /// `hash % N`.
    Modulo,
}

/// How keys and nodes become positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Deserialize)]
pub(super) enum SchemeName {
    /// Our own: XXH3-64.
    #[default]
    #[value(name = "clockwise/v1")]
    #[serde(rename = "clockwise/v1")]
    ClockwiseV1,
    /// MD5, as one article publishes figures for it.
    #[value(name = "article-md5")]
    #[serde(rename = "article-md5")]
    ArticleMd5,
    /// SHA-256, as another article does.
    #[value(name = "article-sha256")]
    #[serde(rename = "article-sha256")]
    ArticleSha256,
    /// `hash % N` of our own hash: the same as `--algorithm modulo`.
    #[value(name = "modulo")]
    #[serde(skip)]
    Modulo,
}

impl SchemeName {
    /// The recipe of its positions.
    fn scheme(self) -> Scheme {
        match self {
            Self::ClockwiseV1 | Self::Modulo => Scheme::default(),
            Self::ArticleMd5 => article::article_md5(),
            Self::ArticleSha256 => article::article_sha256(),
        }
    }
}

/// All that decides a placement but for its nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) algorithm: Name,
    pub(super) scheme: SchemeName,
    /// Points of a node of weight 1 on a ring.
    pub(super) points: u32,
    /// Slots of an owner table.
    pub(super) slots: usize,
    /// Entries of a Maglev table; by the number of nodes unless given.
    pub(super) table: Option<u32>,
    pub(super) replicas: u8,
}

impl Rules {
    pub(super) const SLOTS: usize = SLOTS_DEFAULT;

    /// Places these nodes afresh.
    pub(super) fn build(&self, members: Vec<Member>) -> Result<Box<dyn Algorithm>, EditError> {
        let scheme = self.scheme.scheme();
        Ok(match self.algorithm {
            Name::Ring => Box::new(Ring::new(RingSpec {
                scheme,
                points_per_weight: self.points,
                replicas: self.replicas,
                ..RingSpec::new(members)
            })?),
            Name::Slots => Box::new(Slots::new(self.slots_of(members))?),
            Name::Rendezvous => Box::new(Rendezvous::new(scheme, members)?),
            Name::Jump => Box::new(Jump::new(scheme, members)?),
            Name::Maglev => {
                let size = self
                    .table
                    .unwrap_or_else(|| Maglev::size_for(members.len()));
                Box::new(Maglev::new(scheme, members, size)?)
            }
            Name::Modulo => Box::new(Modulo::new(scheme, members)?),
        })
    }

    /// The placement after some changes of nodes, made at once where the algorithm can.
    pub(super) fn change(
        &self,
        before: &dyn Algorithm,
        edits: &[Edit],
    ) -> Result<Box<dyn Algorithm>, EditError> {
        let mut members = before.nodes().to_vec();
        for edit in edits {
            members = edit.of(&members)?;
        }
        match (self.algorithm, before.intervals()) {
            (Name::Slots, Some(current)) => {
                Ok(Box::new(Slots::following(self.slots_of(members), current)?))
            }
            // They are numbered: which change they can make depends on the one before.
            (Name::Jump | Name::Modulo, _) => {
                let mut after = self.build(before.nodes().to_vec())?;
                for edit in edits {
                    after = after.edited(edit)?;
                }
                Ok(after)
            }
            _ => self.build(members),
        }
    }

    fn slots_of(&self, members: Vec<Member>) -> SlotsSpec {
        SlotsSpec {
            scheme: self.scheme.scheme(),
            slots: self.slots,
            replicas: self.replicas,
            ..SlotsSpec::new(members)
        }
    }
}
