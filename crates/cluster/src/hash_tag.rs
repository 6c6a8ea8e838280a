//! The part of a key that is hashed where hash tags are on, so that keys can be kept together.

/// The part of a key that is hashed where hash tags are on: what stands between the first `{` and the next
/// `}`, or all of it if there is no such part or it is empty.
///
/// ```
/// use clockwise_cluster::hash_tag;
/// assert_eq!(hash_tag(b"user:{42}:name"), b"42");
/// assert_eq!(hash_tag(b"user:{}:name"), b"user:{}:name");
/// ```
#[must_use]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let tail = &key[open + 1..];
    match tail.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &tail[..close],
    }
}

#[cfg(test)]
mod tests {
    use super::hash_tag;

    #[test]
    fn the_tag_is_what_redis_cluster_takes_for_it() {
        for (key, tag) in [
            ("", ""),
            ("user:42", "user:42"),
            ("{42}", "42"),
            ("user:{42}:name", "42"),
            ("a{b}{c}", "b"),
            ("a{{b}}", "{b"),
            ("}{b}", "b"),
            ("{}{b}", "{}{b}"),
            ("{b", "{b"),
            ("b}", "b}"),
        ] {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }
}
