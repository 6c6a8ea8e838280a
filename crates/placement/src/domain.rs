//! Where a node stands: the things that fail together, outermost first.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

use crate::node::{NameFault, check_name};

/// The most levels a path may have: region, zone, rack and host.
pub const DOMAIN_DEPTH_MAX: usize = 4;

/// A failure domain path, outermost level first: `region/zone/rack/host`, of none to four levels.
///
/// Cloning is cheap. Two nodes share a domain at a level when their paths agree down to that level, so rack `r1` of one
/// zone is not rack `r1` of another.
///
/// ```
/// use clockwise_placement::Domain;
/// let domain: Domain = "eu/eu-1a/r7".parse()?;
/// assert_eq!((domain.depth(), domain.level(1)), (3, Some("eu-1a")));
/// assert_eq!("".parse(), Ok(Domain::default()));
/// # Ok::<(), clockwise_placement::DomainError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Domain(Arc<str>);

impl Domain {
    /// How many levels the path has.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.levels().count()
    }

    /// The component at a level, counted from 0 at the outermost.
    #[must_use]
    pub fn level(&self, level: usize) -> Option<&str> {
        self.levels().nth(level)
    }

    /// The components, outermost first.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }

    /// The path as text; empty when no place is known.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Domain {
    type Err = DomainError;

    fn from_str(path: &str) -> Result<Self, DomainError> {
        if path.is_empty() {
            return Ok(Self::default());
        }
        let depth = path.split('/').count();
        if depth > DOMAIN_DEPTH_MAX {
            return Err(DomainError::TooDeep { depth });
        }
        for (level, component) in path.split('/').enumerate() {
            check_name(component).map_err(|fault| DomainError::Component { level, fault })?;
        }
        Ok(Self(Arc::from(path)))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({})", self.0)
    }
}

/// Why a text is no failure domain path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DomainError {
    /// More levels than region, zone, rack and host.
    TooDeep {
        /// How many it has.
        depth: usize,
    },
    /// A component that is no name.
    Component {
        /// Its level, counted from 0 at the outermost.
        level: usize,
        /// What is wrong with it.
        fault: NameFault,
    },
}

impl fmt::Display for DomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep { depth } => {
                write!(
                    f,
                    "domain has {depth} levels, at most {DOMAIN_DEPTH_MAX} are allowed"
                )
            }
            Self::Component { level, fault } => write!(f, "domain level {} {fault}", level + 1),
        }
    }
}

impl core::error::Error for DomainError {}
