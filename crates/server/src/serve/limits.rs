//! The router's limits that a configuration may set, under the names that they have in the code.

use serde::Deserialize;
use toml::Spanned;

use super::fault::Finder;
use crate::router::Limits;

/// A whole number of a configuration and where it stands.
type Number = Option<Spanned<u64>>;

/// Section `[router.limits]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsText {
    clients_max: Number,
    own_links_max: Number,
    key_bytes_max: Number,
    value_bytes_max: Number,
    request_bytes_max: Number,
    in_flight_max: Number,
    in_flight_bytes_max: Number,
    output_bytes_max: Number,
    memory_bytes_max: Number,
    reply_ms_max: Number,
    answer_ms_max: Number,
    request_ms_max: Number,
    login_ms_max: Number,
    unread_ms_max: Number,
    idle_ms_max: Number,
}

/// Durations: a day is longer than anything that a client waits for.
const MS_MAX: u64 = 86_400_000;
const COUNT_MAX: u64 = 1_000_000;
const BYTES_MAX: u64 = 1 << 40;
/// What a request holds is counted in 32 bits.
const REQUEST_BYTES_MAX: u64 = (4 << 30) - 1;

impl LimitsText {
    /// The limits, those that are not said as they usually are.
    pub(super) fn limits(&self, finder: &mut Finder<'_>) -> Limits {
        let mut limits = Limits::default();
        let counts = [
            (&self.clients_max, &mut limits.clients_max, 1, COUNT_MAX),
            (&self.own_links_max, &mut limits.own_links_max, 0, COUNT_MAX),
            (&self.key_bytes_max, &mut limits.key_bytes_max, 1, 512 << 20),
            (&self.in_flight_max, &mut limits.in_flight_max, 1, COUNT_MAX),
            (
                &self.in_flight_bytes_max,
                &mut limits.in_flight_bytes_max,
                1 << 10,
                BYTES_MAX,
            ),
            (
                &self.output_bytes_max,
                &mut limits.output_bytes_max,
                1 << 16,
                BYTES_MAX,
            ),
            (
                &self.memory_bytes_max,
                &mut limits.memory_bytes_max,
                16 << 20,
                BYTES_MAX,
            ),
        ];
        for (text, limit, least, most) in counts {
            if let Some(number) = within(finder, text, least, most) {
                *limit = usize::try_from(number).unwrap_or(usize::MAX);
            }
        }
        // Kept below the hard bound, as it is by default.
        limits.output_bytes_soft = limits.output_bytes_soft.min(limits.output_bytes_max);
        let sizes = [
            (&self.value_bytes_max, &mut limits.request.bulk_bytes_max),
            (
                &self.request_bytes_max,
                &mut limits.request.request_bytes_max,
            ),
        ];
        for (text, limit) in sizes {
            if let Some(number) = within(finder, text, 1 << 10, REQUEST_BYTES_MAX) {
                *limit = u32::try_from(number).unwrap_or(u32::MAX);
            }
        }
        let times = [
            (&self.reply_ms_max, &mut limits.reply_ms_max, 100),
            (&self.answer_ms_max, &mut limits.answer_ms_max, 100),
            (&self.request_ms_max, &mut limits.request_ms_max, 100),
            (&self.login_ms_max, &mut limits.login_ms_max, 100),
            (&self.unread_ms_max, &mut limits.unread_ms_max, 100),
            // Zero is for ever.
            (&self.idle_ms_max, &mut limits.idle_ms_max, 0),
        ];
        for (text, limit, least) in times {
            if let Some(number) = within(finder, text, least, MS_MAX) {
                *limit = number;
            }
        }
        limits
    }
}

fn within(finder: &mut Finder<'_>, text: &Number, least: u64, most: u64) -> Option<u64> {
    let text = text.as_ref()?;
    let number = *text.get_ref();
    if (least..=most).contains(&number) {
        return Some(number);
    }
    let why = format!("{number} is not between {least} and {most}");
    finder.at(text.span(), why);
    None
}
