//! The scanners of memcached's protocols against a table of readings, an independent reader, themselves
//! under every split of the input, and bytes nobody meant.

mod answers;
mod replies;
mod requests;
mod twin;

use clockwise_client::memcached::{Quiet, RequestLimits, RequestScanner, Scan};

/// What one scan of a stream gave, with everything it borrowed copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Request {
        frame: Vec<u8>,
        keys: Vec<Vec<u8>>,
        quiet: Quiet,
    },
    Refused {
        line: String,
        quiet: Quiet,
        instead: Option<Vec<u8>>,
    },
    Lost(String),
}

/// Small enough that every bound is met.
pub(crate) fn limits() -> RequestLimits {
    RequestLimits {
        line_bytes_max: 4_000,
        keys_max: 40,
        value_bytes_max: 100,
        skip_bytes_max: 1_000,
    }
}

/// Feeds `input` in pieces that end at `cuts` and collects what came of it.
pub(crate) fn scan_in_pieces(input: &[u8], cuts: &[usize]) -> Vec<Event> {
    let limits = limits();
    let mut scanner = RequestScanner::default();
    let (mut events, mut kept) = (Vec::new(), Vec::new());
    let mut from = 0;
    for cut in cuts.iter().copied().chain([input.len()]) {
        kept.extend_from_slice(&input[from..cut]);
        from = cut;
        loop {
            let consumed = match scanner.scan(&limits, &kept) {
                Ok(Scan::More) => break,
                Ok(Scan::Skip(bytes)) => bytes,
                Ok(Scan::Request { consumed, request }) => {
                    let keys = (0..request.key_count()).map(|at| request.key(at).to_vec());
                    events.push(Event::Request {
                        frame: request.frame().to_vec(),
                        keys: keys.collect(),
                        quiet: request.quiet(),
                    });
                    consumed
                }
                Ok(Scan::Refused {
                    consumed,
                    refusal,
                    quiet,
                    instead,
                }) => {
                    events.push(Event::Refused {
                        line: refusal.to_string(),
                        quiet,
                        instead: instead.map(|instead| instead.frame().to_vec()),
                    });
                    consumed
                }
                Err(error) => {
                    events.push(Event::Lost(error.to_string()));
                    return events;
                }
            };
            assert!(consumed > 0 && consumed <= kept.len(), "it goes on");
            kept.drain(..consumed);
        }
        assert!(
            kept.len() <= limits.line_bytes_max + limits.value_bytes_max + 2,
            "{} bytes are kept",
            kept.len()
        );
    }
    events
}

pub(crate) fn scan(input: &[u8]) -> Vec<Event> {
    scan_in_pieces(input, &[])
}
