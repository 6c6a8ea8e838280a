//! Certificates and keys, from files in PEM.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clockwise_client::credentials::{CredentialError, open_private};

/// More than any chain of certificates has.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// A file in PEM that everybody may know.
///
/// # Errors
/// When it cannot be read or is too large.
pub(super) fn read_pem(path: &Path) -> Result<Vec<u8>, CredentialError> {
    read(
        File::open(path).map_err(|error| failed(path, &error))?,
        path,
    )
}

/// A file in PEM that only its owner may know.
///
/// # Errors
/// As [`read_pem`], and when others could read it.
pub(super) fn read_private_pem(path: &Path) -> Result<Vec<u8>, CredentialError> {
    read(open_private(path)?, path)
}

fn read(file: File, path: &Path) -> Result<Vec<u8>, CredentialError> {
    let mut pem = Vec::new();
    let mut limited = file.take(PEM_BYTES_MAX + 1);
    limited
        .read_to_end(&mut pem)
        .map_err(|error| failed(path, &error))?;
    if u64::try_from(pem.len()).unwrap_or(u64::MAX) > PEM_BYTES_MAX {
        return Err(CredentialError::Io {
            place: path.display().to_string(),
            why: format!("more than {PEM_BYTES_MAX} bytes are no certificates"),
        });
    }
    Ok(pem)
}

fn failed(path: &Path, error: &std::io::Error) -> CredentialError {
    let place = path.display().to_string();
    match error.kind() {
        std::io::ErrorKind::NotFound => CredentialError::Missing { place },
        _ => CredentialError::Io {
            place,
            why: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_key_that_others_could_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        fs::write(&path, "a-secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_pem(&path).is_ok());
        let refused = read_private_pem(&path);
        assert!(
            matches!(refused, Err(CredentialError::Exposed { mode: 0o640, .. })),
            "{refused:?}"
        );
    }
}
