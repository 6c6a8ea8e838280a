//! Where in a request its keys stand.
//!
//! Most commands have their keys at fixed places, given by three numbers. Where options move them
//! (`XREAD … STREAMS …`, `ZUNIONSTORE dest 2 …`) servers from version 7 on describe how to find
//! them: where to begin, and what to take from there. We read those descriptions rather than keep a
//! list of our own. A description that admits to be incomplete makes the command unusable here: a
//! key we overlook could be written on a node that does not own it.

use crate::resp::{Request, Value};

/// How the keys of a command are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySpec {
    /// There are none.
    None,
    /// One, at this argument.
    One(usize),
    /// Every `step`-th argument from `first` to `last`, which counts from the end if negative.
    Range {
        /// The first argument.
        first: usize,
        /// The last, from the end if negative.
        last: i64,
        /// From one key to the next.
        step: usize,
    },
    /// Those that each of these searches finds.
    Search(Box<[Search]>),
    /// As `SORT` has them: one at the start, one behind `STORE`.
    Sort,
}

/// One of a server's key specifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    begin: Begin,
    take: Take,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Begin {
    /// At this argument.
    At(usize),
    /// Behind the first such word at or after argument `from`, which counts from the end if negative.
    Behind { word: Box<str>, from: i64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Take {
    /// Up to the argument `last` after the first, or before the end if negative; then of what is
    /// there only one part in `limit`.
    Range { last: i64, step: usize, limit: i64 },
    /// As many as the argument `count_at` after the begin says, from `first` after it.
    Counted {
        count_at: usize,
        first: usize,
        step: usize,
    },
}

/// The server does not fully say where the keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undescribed;

/// Why keys cannot be found in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKeys {
    /// The arguments do not have the form the command needs.
    Malformed,
    /// They say that there are none.
    Zero,
    /// `SORT` with patterns that name keys only the server would find. With `GET #`, too, which names
    /// none: a server takes no `GET` from a user who may not read every key, and no client user may.
    Patterns,
}

impl KeySpec {
    /// Reads it from a command's entry in the reply to `COMMAND`.
    pub(super) fn read(name: &str, movable: bool, fields: &[Value]) -> Result<Self, Undescribed> {
        if matches!(name, "sort" | "sort_ro") {
            return Ok(Self::Sort);
        }
        if movable {
            let searches = fields
                .get(8)
                .and_then(Value::as_array)
                .filter(|specs| !specs.is_empty());
            let searches = searches.ok_or(Undescribed)?.iter().map(search);
            return Ok(Self::Search(searches.collect::<Result<_, _>>()?));
        }
        let number = |at: usize| {
            fields
                .get(at)
                .and_then(Value::as_integer)
                .ok_or(Undescribed)
        };
        let (first, last, step) = (number(3)?, number(4)?, number(5)?);
        if first == 0 {
            return Ok(Self::None);
        }
        let first = usize::try_from(first).map_err(|_| Undescribed)?;
        let step = usize::try_from(step)
            .ok()
            .filter(|step| *step > 0)
            .ok_or(Undescribed)?;
        if usize::try_from(last) == Ok(first) {
            return Ok(Self::One(first));
        }
        Ok(Self::Range { first, last, step })
    }

    /// The arguments of `request` that are keys, in order.
    pub fn positions(&self, request: &Request<'_>) -> Result<Vec<usize>, NoKeys> {
        let mut positions = Vec::new();
        match self {
            Self::None => {}
            Self::One(at) => positions.push(*at),
            Self::Range { first, last, step } => {
                let last = from_end(*last, request.count()).ok_or(NoKeys::Malformed)?;
                positions.extend((*first..=last).step_by(*step));
            }
            Self::Search(searches) => {
                for search in searches {
                    search.find(request, &mut positions)?;
                }
            }
            Self::Sort => sort_keys(request, &mut positions)?,
        }
        if positions.iter().any(|at| *at >= request.count()) {
            return Err(NoKeys::Malformed);
        }
        match self {
            Self::Range { .. } if positions.is_empty() => Err(NoKeys::Malformed),
            Self::Search(_) if positions.is_empty() => Err(NoKeys::Zero),
            _ => Ok(positions),
        }
    }
}

/// A place that counts from the end if negative: -1 is the last argument.
fn from_end(at: i64, count: usize) -> Option<usize> {
    let from = if at < 0 {
        i64::try_from(count).ok()?
    } else {
        0
    };
    usize::try_from(from + at).ok()
}

fn search(spec: &Value) -> Result<Search, Undescribed> {
    let flags = field(spec, "flags")
        .and_then(Value::as_array)
        .unwrap_or_default();
    if flags
        .iter()
        .filter_map(Value::as_text)
        .any(|flag| flag.eq_ignore_ascii_case("incomplete"))
    {
        return Err(Undescribed);
    }
    let part = |name| {
        let part = field(spec, name)?;
        Some((field(part, "type")?.as_text()?, field(part, "spec")?))
    };
    let (Some((begin, begin_spec)), Some((find, find_spec))) =
        (part("begin_search"), part("find_keys"))
    else {
        return Err(Undescribed);
    };
    let integer = |spec, name| {
        field(spec, name)
            .and_then(Value::as_integer)
            .ok_or(Undescribed)
    };
    let index = |spec, name| {
        integer(spec, name).and_then(|number| usize::try_from(number).map_err(|_| Undescribed))
    };
    let step = |spec| {
        index(spec, "keystep").and_then(|step| if step > 0 { Ok(step) } else { Err(Undescribed) })
    };
    let begin = match begin {
        "index" => Begin::At(index(begin_spec, "index")?),
        "keyword" => Begin::Behind {
            word: field(begin_spec, "keyword")
                .and_then(Value::as_text)
                .ok_or(Undescribed)?
                .into(),
            from: integer(begin_spec, "startfrom")?,
        },
        _ => return Err(Undescribed),
    };
    let take = match find {
        "range" => Take::Range {
            last: integer(find_spec, "lastkey")?,
            step: step(find_spec)?,
            limit: integer(find_spec, "limit")?,
        },
        "keynum" => Take::Counted {
            count_at: index(find_spec, "keynumidx")?,
            first: index(find_spec, "firstkey")?,
            step: step(find_spec)?,
        },
        _ => return Err(Undescribed),
    };
    Ok(Search { begin, take })
}

fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    map.pairs()
        .into_iter()
        .find(|(key, _)| key.as_text() == Some(name))
        .map(|(_, value)| value)
}

impl Search {
    fn find(&self, request: &Request<'_>, positions: &mut Vec<usize>) -> Result<(), NoKeys> {
        let begin = match &self.begin {
            Begin::At(at) => *at,
            Begin::Behind { word, from } => match keyword(request, word, *from) {
                Some(at) => at + 1,
                // An option that was not given.
                None => return Ok(()),
            },
        };
        let count = request.count();
        match self.take {
            Take::Range { last, step, limit } => {
                let last = range_end(begin, last, limit, count).ok_or(NoKeys::Malformed)?;
                positions.extend((begin..=last).step_by(step));
            }
            Take::Counted {
                count_at,
                first,
                step,
            } => {
                let keys = request.get(begin + count_at).ok_or(NoKeys::Malformed)?;
                let keys: usize = std::str::from_utf8(keys)
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .ok_or(NoKeys::Malformed)?;
                if keys > count {
                    return Err(NoKeys::Malformed);
                }
                positions.extend((0..keys).map(|key| begin + first + key * step));
            }
        }
        Ok(())
    }
}

fn range_end(begin: usize, last: i64, limit: i64, count: usize) -> Option<usize> {
    let (begin, count) = (i64::try_from(begin).ok()?, i64::try_from(count).ok()?);
    let end = match (last >= 0, limit > 0) {
        (true, _) => begin + last,
        (false, false) => count + last,
        (false, true) => begin + (count - begin) / limit + last,
    };
    usize::try_from(end).ok()
}

/// The place of an option's word, searched as servers search it.
fn keyword(request: &Request<'_>, word: &str, from: i64) -> Option<usize> {
    let is_word = |at: &usize| request.arg(*at).eq_ignore_ascii_case(word.as_bytes());
    let count = request.count();
    let start = from_end(from, count)?;
    if from > 0 {
        (start..count).find(is_word)
    } else {
        (1..=start.min(count - 1)).rev().find(is_word)
    }
}

/// `SORT key [BY pattern] [LIMIT a b] [GET pattern …] [ASC|DESC] [ALPHA] [STORE key]`.
fn sort_keys(request: &Request<'_>, positions: &mut Vec<usize>) -> Result<(), NoKeys> {
    positions.push(1);
    let mut at = 2;
    while let Some(option) = request.get(at) {
        at += match option.to_ascii_lowercase().as_slice() {
            b"limit" => 3,
            // A pattern without a star names nothing: the order is left as it is.
            b"by"
                if request
                    .get(at + 1)
                    .is_some_and(|pattern| !pattern.contains(&b'*')) =>
            {
                2
            }
            b"by" | b"get" => return Err(NoKeys::Patterns),
            b"store" => {
                positions.push(at + 1);
                2
            }
            _ => 1,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{RequestLimits, RequestScanner, Scan, write_command};

    fn positions(spec: &KeySpec, line: &str) -> Result<Vec<usize>, NoKeys> {
        let mut frame = Vec::new();
        write_command(&mut frame, &line.split(' ').collect::<Vec<_>>());
        let mut scanner = RequestScanner::default();
        let Ok(Scan::Request { request, .. }) = scanner.scan(&RequestLimits::default(), &frame)
        else {
            panic!("a whole request");
        };
        spec.positions(&request)
    }

    fn search(begin: Begin, take: Take) -> KeySpec {
        KeySpec::Search(Box::new([Search { begin, take }]))
    }

    #[test]
    fn keys_are_found_where_the_three_numbers_say() {
        let every = KeySpec::Range {
            first: 1,
            last: -1,
            step: 1,
        };
        assert_eq!(positions(&every, "mget a b c"), Ok(vec![1, 2, 3]));
        let pairs = KeySpec::Range {
            first: 1,
            last: -1,
            step: 2,
        };
        assert_eq!(positions(&pairs, "mset a 1 b 2"), Ok(vec![1, 3]));
        assert_eq!(
            positions(
                &KeySpec::Range {
                    first: 1,
                    last: 2,
                    step: 1
                },
                "rename a b"
            ),
            Ok(vec![1, 2])
        );
        assert_eq!(
            positions(&KeySpec::One(2), "object encoding a"),
            Ok(vec![2])
        );
        assert_eq!(
            positions(&KeySpec::One(2), "object help"),
            Err(NoKeys::Malformed)
        );
        assert_eq!(positions(&KeySpec::None, "ping"), Ok(vec![]));
    }

    #[test]
    fn keys_behind_a_word_are_half_of_what_follows() {
        let streams = Begin::Behind {
            word: "STREAMS".into(),
            from: 1,
        };
        let spec = search(
            streams,
            Take::Range {
                last: -1,
                step: 1,
                limit: 2,
            },
        );
        assert_eq!(
            positions(&spec, "xread count 5 streams a b 0 0"),
            Ok(vec![4, 5])
        );
        assert_eq!(positions(&spec, "xread streams a 0"), Ok(vec![2]));
        assert_eq!(positions(&spec, "xread count 5 a 0"), Err(NoKeys::Zero));
    }

    #[test]
    fn counted_keys_are_as_many_as_the_count_says_and_no_more_than_there_are() {
        let spec = search(
            Begin::At(2),
            Take::Counted {
                count_at: 0,
                first: 1,
                step: 1,
            },
        );
        assert_eq!(positions(&spec, "eval script 2 a b arg"), Ok(vec![3, 4]));
        for line in [
            "eval script 3 a b",
            "eval script x a",
            "eval script -1 a",
            "eval script 99999999999 a",
        ] {
            assert_eq!(positions(&spec, line), Err(NoKeys::Malformed), "{line}");
        }
        assert_eq!(positions(&spec, "eval script 0 a"), Err(NoKeys::Zero));
    }

    #[test]
    fn sort_has_its_own_key_and_the_one_it_stores_to() {
        for (line, expected) in [
            ("sort a", Ok(vec![1])),
            ("sort a limit 0 5 desc alpha store b", Ok(vec![1, 8])),
            ("sort a by nosort asc", Ok(vec![1])),
            ("sort a get #", Err(NoKeys::Patterns)),
            ("sort a by w_*", Err(NoKeys::Patterns)),
            ("sort a get o_*", Err(NoKeys::Patterns)),
            ("sort a store", Err(NoKeys::Malformed)),
        ] {
            assert_eq!(positions(&KeySpec::Sort, line), expected, "{line}");
        }
    }
}
