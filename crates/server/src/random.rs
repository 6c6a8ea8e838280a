//! Nonces from the system's random source.

use clockwise_cluster::Nonce;

/// Lets `make` draw nonces.
///
/// # Errors
/// When the system had no random bytes for one of them: what was made with it is dropped.
pub(crate) fn with_nonces<T>(
    make: impl FnOnce(&mut dyn FnMut() -> Nonce) -> T,
) -> Result<T, getrandom::Error> {
    let mut exhausted = None;
    let made = make(&mut || {
        let mut bytes = [0; 16];
        if let Err(error) = getrandom::fill(&mut bytes) {
            exhausted = Some(error);
        }
        Nonce::new(bytes)
    });
    match exhausted {
        Some(error) => Err(error),
        None => Ok(made),
    }
}
