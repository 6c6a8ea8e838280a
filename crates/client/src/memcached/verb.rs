//! The commands that are understood.

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// `get key…`
    Get,
    /// `gets key…`
    Gets,
    /// `gat exptime key…`
    Gat,
    /// `gats exptime key…`
    Gats,
    /// `set key flags exptime bytes`
    Set,
    /// `add key flags exptime bytes`
    Add,
    /// `replace key flags exptime bytes`
    Replace,
    /// `append key flags exptime bytes`
    Append,
    /// `prepend key flags exptime bytes`
    Prepend,
    /// `cas key flags exptime bytes unique`
    Cas,
    /// `incr key delta`
    Incr,
    /// `decr key delta`
    Decr,
    /// `touch key exptime`
    Touch,
    /// `delete key`
    Delete,
    /// `flush_all [delay]`
    FlushAll,
    /// `version`
    Version,
    /// `verbosity level`
    Verbosity,
    /// `stats [of what]`
    Stats,
    /// `quit`
    Quit,
    /// `mg key flags…`
    MetaGet,
    /// `ms key bytes flags…`
    MetaSet,
    /// `md key flags…`
    MetaDelete,
    /// `ma key flags…`
    MetaArithmetic,
    /// `me key [b]`
    MetaDebug,
    /// `mn`
    MetaNoop,
}

impl Verb {
    /// The command of this name; names are in lower case.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"get" => Self::Get,
            b"gets" => Self::Gets,
            b"gat" => Self::Gat,
            b"gats" => Self::Gats,
            b"set" => Self::Set,
            b"add" => Self::Add,
            b"replace" => Self::Replace,
            b"append" => Self::Append,
            b"prepend" => Self::Prepend,
            b"cas" => Self::Cas,
            b"incr" => Self::Incr,
            b"decr" => Self::Decr,
            b"touch" => Self::Touch,
            b"delete" => Self::Delete,
            b"flush_all" => Self::FlushAll,
            b"version" => Self::Version,
            b"verbosity" => Self::Verbosity,
            b"stats" => Self::Stats,
            b"quit" => Self::Quit,
            b"mg" => Self::MetaGet,
            b"ms" => Self::MetaSet,
            b"md" => Self::MetaDelete,
            b"ma" => Self::MetaArithmetic,
            b"me" => Self::MetaDebug,
            b"mn" => Self::MetaNoop,
            _ => return None,
        })
    }

    /// The command of a request as it goes to a server.
    #[must_use]
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let end = frame.iter().position(|byte| matches!(byte, b' ' | b'\r'))?;
        Self::of(&frame[..end])
    }

    /// Whether a value stands behind its line.
    #[must_use]
    pub fn has_value(self) -> bool {
        matches!(
            self,
            Self::Set
                | Self::Add
                | Self::Replace
                | Self::Append
                | Self::Prepend
                | Self::Cas
                | Self::MetaSet
        )
    }

    /// Whether it may have several keys.
    #[must_use]
    pub fn has_keys(self) -> bool {
        matches!(self, Self::Get | Self::Gets | Self::Gat | Self::Gats)
    }

    /// Whether it is of the meta protocol and has a key.
    #[must_use]
    pub fn is_meta(self) -> bool {
        matches!(
            self,
            Self::MetaGet
                | Self::MetaSet
                | Self::MetaDelete
                | Self::MetaArithmetic
                | Self::MetaDebug
        )
    }
}
