//! When keys expire: setting it, asking for it, taking it away.

use super::call::{Call, Outcome};

/// A time as a command gives it: an argument, its unit, and what it counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Which argument.
    at: usize,
    unit_ms: i64,
    from_now: bool,
}

impl Moment {
    pub(super) fn seconds_from_now(at: usize) -> Self {
        Self {
            at,
            unit_ms: 1000,
            from_now: true,
        }
    }

    pub(super) fn ms_from_now(at: usize) -> Self {
        Self {
            at,
            unit_ms: 1,
            from_now: true,
        }
    }

    fn at_second(at: usize) -> Self {
        Self {
            at,
            unit_ms: 1000,
            from_now: false,
        }
    }

    fn at_ms(at: usize) -> Self {
        Self {
            at,
            unit_ms: 1,
            from_now: false,
        }
    }

    /// The moment that an option (in lower case) of `SET` announces.
    pub(super) fn of_option(option: &str, at: usize) -> Option<Self> {
        match option {
            "ex" => Some(Self::seconds_from_now(at)),
            "px" => Some(Self::ms_from_now(at)),
            "exat" => Some(Self::at_second(at)),
            "pxat" => Some(Self::at_ms(at)),
            _ => None,
        }
    }

    pub(super) fn same_unit(self, other: Self) -> bool {
        (self.unit_ms, self.from_now) == (other.unit_ms, other.from_now)
    }

    /// Milliseconds since 1970; must lie behind 1970 and, counted from now, behind now.
    pub(super) fn resolve(self, call: &Call<'_>) -> Result<u64, String> {
        let given = call.integer_arg(self.at)?;
        let invalid = || format!("ERR invalid expire time in '{}' command", call.name);
        if given <= 0 {
            return Err(invalid());
        }
        self.absolute(given, call.now_ms)
            .and_then(|ms| u64::try_from(ms).ok())
            .ok_or_else(invalid)
    }

    fn absolute(self, given: i64, now_ms: u64) -> Option<i64> {
        let base = if self.from_now {
            i64::try_from(now_ms).ok()?
        } else {
            0
        };
        given.checked_mul(self.unit_ms)?.checked_add(base)
    }
}

/// Sets or takes away the expiry of a key that is there. One that lies in the past takes the key.
pub(super) fn set(call: &mut Call<'_>, key: &[u8], expires_at_ms: Option<u64>) {
    if expires_at_ms.is_some_and(|at| at <= call.now_ms) {
        call.data.remove(key);
        return;
    }
    let Some(entry) = call.data.get(key, call.now_ms) else {
        return;
    };
    // What changes nothing touches nothing.
    if entry.expires_at_ms.is_none() && expires_at_ms.is_none() {
        return;
    }
    call.data
        .modify(key, |entry| entry.expires_at_ms = expires_at_ms);
}

pub(super) fn expire(call: &mut Call<'_>) -> Outcome {
    set_if(call, Moment::seconds_from_now(2))
}

pub(super) fn pexpire(call: &mut Call<'_>) -> Outcome {
    set_if(call, Moment::ms_from_now(2))
}

pub(super) fn expireat(call: &mut Call<'_>) -> Outcome {
    set_if(call, Moment::at_second(2))
}

pub(super) fn pexpireat(call: &mut Call<'_>) -> Outcome {
    set_if(call, Moment::at_ms(2))
}

/// The options `NX`, `XX`, `GT` and `LT`.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Conditions {
    fn read(call: &Call<'_>) -> Result<Self, String> {
        let mut conditions = Self::default();
        for at in 3..call.args.len() {
            match call.option(at).as_str() {
                "nx" => conditions.if_none = true,
                "xx" => conditions.if_some = true,
                "gt" => conditions.if_later = true,
                "lt" => conditions.if_sooner = true,
                _ => {
                    return Err(format!(
                        "ERR Unsupported option {}",
                        String::from_utf8_lossy(call.arg(at))
                    ));
                }
            }
        }
        let Self {
            if_none,
            if_some,
            if_later,
            if_sooner,
        } = conditions;
        if if_none && (if_some || if_later || if_sooner) {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".to_owned(),
            );
        }
        if if_later && if_sooner {
            return Err("ERR GT and LT options at the same time are not compatible".to_owned());
        }
        Ok(conditions)
    }

    /// No expiry counts as one at the end of all time.
    fn hold(self, current: Option<u64>, new_ms: i64) -> bool {
        let current_ms = current.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        !(self.if_none && current.is_some()
            || self.if_some && current.is_none()
            || self.if_later && current_ms.is_none_or(|current| new_ms <= current)
            || self.if_sooner && current_ms.is_some_and(|current| new_ms >= current))
    }
}

fn set_if(call: &mut Call<'_>, moment: Moment) -> Outcome {
    let conditions = Conditions::read(call)?;
    let given = call.integer_arg(2)?;
    let Some(new_ms) = moment.absolute(given, call.now_ms) else {
        return Err(format!(
            "ERR invalid expire time in '{}' command",
            call.name
        ));
    };
    let key = call.arg(1);
    let Some(entry) = call.data.get(key, call.now_ms) else {
        return call.reply_integer(0);
    };
    if !conditions.hold(entry.expires_at_ms, new_ms) {
        return call.reply_integer(0);
    }
    set(call, key, Some(u64::try_from(new_ms).unwrap_or(0)));
    call.reply_integer(1)
}

pub(super) fn ttl(call: &mut Call<'_>) -> Outcome {
    reply_expiry(call, |at, now| {
        at.saturating_sub(now).saturating_add(500) / 1000
    })
}

pub(super) fn pttl(call: &mut Call<'_>) -> Outcome {
    reply_expiry(call, |at, now| at.saturating_sub(now))
}

pub(super) fn expiretime(call: &mut Call<'_>) -> Outcome {
    reply_expiry(call, |at, _| at.saturating_add(500) / 1000)
}

pub(super) fn pexpiretime(call: &mut Call<'_>) -> Outcome {
    reply_expiry(call, |at, _| at)
}

fn reply_expiry(call: &mut Call<'_>, shown: impl Fn(u64, u64) -> u64) -> Outcome {
    let reply = match call
        .data
        .get(call.arg(1), call.now_ms)
        .map(|entry| entry.expires_at_ms)
    {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => i64::try_from(shown(at, call.now_ms)).unwrap_or(i64::MAX),
    };
    call.reply_integer(reply)
}

pub(super) fn persist(call: &mut Call<'_>) -> Outcome {
    let key = call.arg(1);
    let expires = call
        .data
        .get(key, call.now_ms)
        .is_some_and(|entry| entry.expires_at_ms.is_some());
    if expires {
        set(call, key, None);
    }
    call.reply_integer(i64::from(expires))
}
