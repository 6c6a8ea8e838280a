//! What a memcached's general statistics (`stats`) say.

/// The text of an answer to `stats`, of whoever gave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statistics<'a>(pub(crate) &'a str);

impl<'a> Statistics<'a> {
    /// The first field of this name.
    pub(crate) fn field(self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| {
            let (known, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            (known == name).then_some(value)
        })
    }

    pub(crate) fn number(self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The process that answers. A router names none.
    pub(crate) fn pid(self) -> Option<i32> {
        self.field("pid")?.parse().ok()
    }

    /// What one run of a server has for itself: its process and its start.
    pub(crate) fn run_id(self) -> Option<String> {
        // Both are of the same clock, so that their difference is the start's.
        let started = self.number("time")?.checked_sub(self.number("uptime")?)?;
        Some(format!("{}-{started}", self.pid()?))
    }
}
