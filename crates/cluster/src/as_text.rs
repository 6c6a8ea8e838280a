//! Stores what has a text form as that text: ids, weights, domains.

use alloc::borrow::Cow;
use core::fmt::Display;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer, de};

pub(crate) fn serialize<T: Display, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    let text = Cow::<'_, str>::deserialize(deserializer)?;
    text.parse()
        .map_err(|error| de::Error::custom(format_args!("{text:?}: {error}")))
}

/// The same for what may be absent.
pub(crate) fn option<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// The same for a list.
pub(crate) mod list {
    use alloc::borrow::Cow;
    use alloc::vec::Vec;
    use core::fmt::Display;
    use core::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<T: Display, S: Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| Text(value)))
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<Cow<'_, str>>::deserialize(deserializer)?;
        let parse = |text: Cow<'_, str>| {
            text.parse()
                .map_err(|error| de::Error::custom(format_args!("{text:?}: {error}")))
        };
        texts.into_iter().map(parse).collect()
    }

    struct Text<'a, T>(&'a T);

    impl<T: Display> serde::Serialize for Text<'_, T> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self.0)
        }
    }
}
