//! The two schemes that articles on consistent hashing publish figures for.
//!
//! They are here to be measured against, not to be used: MD5 and SHA-256 cost forty times what XXH3 does.

use alloc::format;
use alloc::sync::Arc;

use clockwise_placement::{NodeId, Position, Recipe, Scheme};
use md5::{Digest, Md5};
use sha2::Sha256;

/// `article-md5`: the first eight bytes of MD5, big endian; points are labelled `{node}#{copy}`.
#[must_use]
pub fn article_md5() -> Scheme {
    Scheme::foreign(Arc::new(ArticleMd5))
}

/// `article-sha256`: SHA-256, big endian; points are labelled `node:{node}:{copy}`.
///
/// The article orders points by all 256 bits. The first 64 order them alike unless two agree in those.
/// `hash % N` takes the remainder of all 256.
#[must_use]
pub fn article_sha256() -> Scheme {
    Scheme::foreign(Arc::new(ArticleSha256))
}

struct ArticleMd5;

impl Recipe for ArticleMd5 {
    fn name(&self) -> &str {
        "article-md5"
    }

    fn key(&self, key: &[u8]) -> Position {
        leading(&Md5::digest(key))
    }

    fn point(&self, node: &NodeId, copy: u32) -> Position {
        self.key(format!("{node}#{copy}").as_bytes())
    }
}

struct ArticleSha256;

impl Recipe for ArticleSha256 {
    fn name(&self) -> &str {
        "article-sha256"
    }

    fn key(&self, key: &[u8]) -> Position {
        leading(&Sha256::digest(key))
    }

    fn point(&self, node: &NodeId, copy: u32) -> Position {
        self.key(format!("node:{node}:{copy}").as_bytes())
    }

    fn modulo(&self, key: &[u8], nodes: usize) -> usize {
        let divisor = nodes as u128;
        let rest = Sha256::digest(key)
            .iter()
            .fold(0, |rest, &byte| (rest * 256 + u128::from(byte)) % divisor);
        // Below `nodes`, so it fits where that does.
        rest as usize
    }
}

fn leading(digest: &[u8]) -> Position {
    let first = digest
        .first_chunk()
        .expect("a digest has at least eight bytes");
    Position(u64::from_be_bytes(*first))
}
