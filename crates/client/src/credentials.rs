//! Secrets: the pool key, the passwords that follow from it, and those of the nodes' administrators.
//!
//! A client of a node logs in as the user of the node's generation. The password follows from the
//! pool key, the node and the generation's nonce, so whoever has the key and the record can
//! compute it, and nobody else can. The fence removes the user; the next generation has another
//! nonce and so another password.
//!
//! Secrets come from files of mode 0600 or from the environment, never from the record. They are
//! not shown by `Debug` and have no `Display`.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{env, process};

use clockwise_cluster::{Generation, Node, Nonce};
use clockwise_placement::NodeId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The variable that holds the pool key where there is no file.
pub const POOL_KEY_VARIABLE: &str = "CLOCKWISE_POOL_KEY";

const KEY_BYTES: usize = 32;
/// The longest password Redis takes is 512 bytes.
const SECRET_BYTES_MAX: usize = 512;
/// Group and others.
const FOREIGN_ACCESS: u32 = 0o077;

/// The secret that all passwords of a pool's client users follow from.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolKey([u8; KEY_BYTES]);

/// A password, or a token that serves as one.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<str>);

/// Why there is no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// There is no such file or variable.
    #[error("{place} does not exist")]
    Missing {
        /// The file or variable.
        place: String,
    },
    /// Others than its owner could read the file.
    #[error("{} has mode {mode:03o}: others can read it; chmod 600 it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not 64 hexadecimal digits.
    #[error("{place} holds no pool key, which is 64 hexadecimal digits")]
    NotAKey {
        /// The file or variable.
        place: String,
    },
    /// Empty, too long, or with blanks or control characters.
    #[error("{place} holds no password, which is 1 to {SECRET_BYTES_MAX} visible ASCII characters")]
    NotAPassword {
        /// The file or variable.
        place: String,
    },
    /// The system refuses.
    #[error("{place}: {why}")]
    Io {
        /// The file, or the source of random bytes.
        place: String,
        /// The system's words.
        why: String,
    },
}

impl PoolKey {
    /// A new random key.
    ///
    /// # Errors
    /// If the system has no random bytes to give.
    pub fn generate() -> Result<PoolKey, CredentialError> {
        random_bytes().map(PoolKey)
    }

    /// The key in a file that only its owner can read.
    ///
    /// # Errors
    /// If the file is missing, readable by others, or holds something else.
    pub fn from_file(path: &Path) -> Result<PoolKey, CredentialError> {
        PoolKey::parse(&read_secret(path)?, || path.display().to_string())
    }

    /// The key in an environment variable, usually [`POOL_KEY_VARIABLE`].
    ///
    /// # Errors
    /// If the variable is missing or holds something else.
    pub fn from_env(variable: &str) -> Result<PoolKey, CredentialError> {
        PoolKey::parse(&read_variable(variable)?, || variable.to_owned())
    }

    /// The key in a file, which is made with a new key if there is none. Of several processes that
    /// make it at the same time one succeeds, and all return the same key.
    ///
    /// # Errors
    /// As [`PoolKey::from_file`], or if the file cannot be made.
    pub fn load_or_create(path: &Path) -> Result<PoolKey, CredentialError> {
        load_or_create(path)?;
        PoolKey::from_file(path)
    }

    fn parse(text: &str, place: impl Fn() -> String) -> Result<PoolKey, CredentialError> {
        let not_a_key = || CredentialError::NotAKey { place: place() };
        if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(not_a_key());
        }
        let mut key = [0; KEY_BYTES];
        for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = str::from_utf8(digits).map_err(|_not_text| not_a_key())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_not_hex| not_a_key())?;
        }
        Ok(PoolKey(key))
    }
}

impl From<[u8; KEY_BYTES]> for PoolKey {
    fn from(bytes: [u8; KEY_BYTES]) -> Self {
        PoolKey(bytes)
    }
}

impl fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolKey(secret)")
    }
}

impl Password {
    /// A new random password of 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the system has no random bytes to give.
    pub fn generate() -> Result<Password, CredentialError> {
        Ok(Password(hex(&random_bytes()?).into()))
    }

    /// The password in a file that only its owner can read; one line end at its end is not part
    /// of it.
    ///
    /// # Errors
    /// If the file is missing, readable by others, or holds something else.
    pub fn from_file(path: &Path) -> Result<Password, CredentialError> {
        Password::parse(&read_secret(path)?, || path.display().to_string())
    }

    /// The password in an environment variable.
    ///
    /// # Errors
    /// If the variable is missing or holds something else.
    pub fn from_env(variable: &str) -> Result<Password, CredentialError> {
        Password::parse(&read_variable(variable)?, || variable.to_owned())
    }

    /// The password in a file, which is made with a new password if there is none. Of several
    /// processes that make it at the same time one succeeds, and all return the same password.
    ///
    /// # Errors
    /// As [`Password::from_file`], or if the file cannot be made.
    pub fn load_or_create(path: &Path) -> Result<Password, CredentialError> {
        load_or_create(path)?;
        Password::from_file(path)
    }

    /// The password itself, for whoever has to send it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `guess` is this password; takes as long wherever they differ.
    #[must_use]
    pub fn matches(&self, guess: &str) -> bool {
        let (own, guess) = (self.0.as_bytes(), guess.as_bytes());
        let differences = own.iter().zip(guess).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == guess.len() && differences == 0
    }

    fn parse(text: &str, place: impl Fn() -> String) -> Result<Password, CredentialError> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if visible && (1..=SECRET_BYTES_MAX).contains(&text.len()) {
            Ok(Password(text.into()))
        } else {
            Err(CredentialError::NotAPassword { place: place() })
        }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(secret)")
    }
}

/// The name of a node's client user of a generation: `cw-g7`.
#[must_use]
pub fn client_user(generation: Generation) -> String {
    format!("cw-g{generation}")
}

/// The password of a node's client user: HMAC-SHA256 under the pool key of the node's id, a zero
/// byte and the generation's nonce, in hexadecimal digits. No id has a zero byte and every nonce
/// has the same length, so no two of them give the same bytes.
#[must_use]
pub fn client_password(key: &PoolKey, node: &NodeId, nonce: &Nonce) -> Password {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("a key of 32 bytes is a key");
    mac.update(node.as_str().as_bytes());
    mac.update(&[0]);
    mac.update(nonce.as_bytes());
    Password(hex(&mac.finalize().into_bytes()).into())
}

/// User and password with which clients get into a node as the record has it.
#[must_use]
pub fn client_login(key: &PoolKey, node: &Node) -> (String, Password) {
    let password = client_password(key, &node.id, &node.nonce);
    (client_user(node.generation), password)
}

fn random_bytes() -> Result<[u8; KEY_BYTES], CredentialError> {
    let mut bytes = [0; KEY_BYTES];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(CredentialError::Io {
            place: "the system's random source".to_owned(),
            why: error.to_string(),
        }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_variable(variable: &str) -> Result<String, CredentialError> {
    env::var(variable).map_err(|error| match error {
        env::VarError::NotPresent => CredentialError::Missing {
            place: variable.to_owned(),
        },
        env::VarError::NotUnicode(_) => CredentialError::Io {
            place: variable.to_owned(),
            why: "not text".to_owned(),
        },
    })
}

/// Opens a file that only its owner may read, like those of secrets and of private keys.
///
/// # Errors
/// When it is not there, cannot be opened, or others than its owner could read it.
pub fn open_private(path: &Path) -> Result<File, CredentialError> {
    let file = File::open(path).map_err(failed(path))?;
    // Of the file that is open, not of one that may have come to its place meanwhile.
    let mode = file.metadata().map_err(failed(path))?.mode() & 0o777;
    if mode & FOREIGN_ACCESS != 0 {
        return Err(CredentialError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(file)
}

fn read_secret(path: &Path) -> Result<String, CredentialError> {
    let file = open_private(path)?;
    let mut text = String::new();
    // Room for a line end, and one byte more that shows that it is too long.
    let limit = u64::try_from(SECRET_BYTES_MAX + 3).unwrap_or(u64::MAX);
    file.take(limit)
        .read_to_string(&mut text)
        .map_err(failed(path))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// Makes the file with 64 random hexadecimal digits, unless it is there. A name points to a whole
/// file or to none: the file is written under another name and linked, which never replaces.
fn load_or_create(path: &Path) -> Result<(), CredentialError> {
    if path.try_exists().map_err(failed(path))? {
        return Ok(());
    }
    let secret = Password::generate()?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.{}", process::id(), &secret.reveal()[..8]));
    let temporary = path.with_file_name(name);
    let created = create_once(path, &temporary, secret.reveal()).map_err(failed(path));
    // Gone already if it was never made.
    let _removed = fs::remove_file(&temporary);
    created
}

fn create_once(path: &Path, temporary: &Path, secret: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)?;
    writeln!(file, "{secret}")?;
    file.sync_all()?;
    match fs::hard_link(temporary, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

fn failed(path: &Path) -> impl Fn(io::Error) -> CredentialError {
    let place = path.display().to_string();
    move |error| match error.kind() {
        ErrorKind::NotFound => CredentialError::Missing {
            place: place.clone(),
        },
        _ => CredentialError::Io {
            place: place.clone(),
            why: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;

    /// Made with Python: `hmac.new(bytes(range(32)), id + b"\0" + nonce, "sha256").hexdigest()`.
    const PASSWORDS: [(&str, [u8; 16], &str); 3] = [
        (
            "a",
            [0; 16],
            "58b143c0ee81bd72ae5edbd178ea59b894413d2960a4a87fbbda3b91788b676c",
        ),
        (
            "cache-7",
            *b"0123456789abcdef",
            "91a6e99a87c2e04afef42971d478bebfd0f32b53b80755635e8044f8258dff8d",
        ),
        (
            "cache-7",
            [0xff; 16],
            "d6d4465af204344b8ce6a0aec6eafd0e01661bb1003f8f366e406f7f13e2181c",
        ),
    ];

    fn key() -> PoolKey {
        PoolKey(std::array::from_fn(|at| u8::try_from(at).unwrap()))
    }

    #[test]
    fn passwords_are_those_that_other_implementations_compute() {
        for (id, nonce, expected) in PASSWORDS {
            let password = client_password(&key(), &id.parse().unwrap(), &Nonce::new(nonce));
            assert_eq!(password.reveal(), expected, "{id}");
        }
    }

    #[test]
    fn another_key_node_or_nonce_gives_another_password() {
        let node = |id: &str| id.parse::<NodeId>().unwrap();
        let nonce = Nonce::new([1; 16]);
        let password = client_password(&key(), &node("a"), &nonce);
        assert_ne!(
            password,
            client_password(&PoolKey([9; 32]), &node("a"), &nonce)
        );
        assert_ne!(password, client_password(&key(), &node("b"), &nonce));
        assert_ne!(
            password,
            client_password(&key(), &node("a"), &Nonce::new([2; 16]))
        );
        assert_eq!(client_user(Generation::new(7)), "cw-g7");
    }

    #[test]
    fn secrets_are_not_printed() {
        let password = client_password(&key(), &"a".parse().unwrap(), &Nonce::new([1; 16]));
        assert_eq!(
            format!("{:?} {password:?}", key()),
            "PoolKey(secret) Password(secret)"
        );
    }

    #[test]
    fn a_key_is_made_once_and_only_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool.key");
        let keys: Vec<PoolKey> = thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| PoolKey::load_or_create(&path)))
                .collect();
            makers
                .into_iter()
                .map(|maker| maker.join().unwrap().unwrap())
                .collect()
        });
        assert!(keys.iter().all(|made| *made == keys[0]));
        assert_eq!(PoolKey::from_file(&path), Ok(keys[0].clone()));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.password");
        Password::load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let exposed = CredentialError::Exposed {
                path: path.clone(),
                mode,
            };
            assert_eq!(Password::from_file(&path), Err(exposed));
        }
        fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
        assert!(Password::from_file(&path).is_ok());
    }

    #[test]
    fn what_is_no_secret_is_refused_without_being_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let place = path.display().to_string();
        let missing = CredentialError::Missing {
            place: place.clone(),
        };
        assert_eq!(PoolKey::from_file(&path), Err(missing));
        OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        let hex_63 = "0".repeat(63);
        let hex_65 = "0".repeat(65);
        let signs = "+f".repeat(32);
        let long = "x".repeat(513);
        for text in ["", "\n", "hunter2", &hex_63, &hex_65, &signs] {
            fs::write(&path, text).unwrap();
            let error = PoolKey::from_file(&path).unwrap_err();
            assert_eq!(
                error,
                CredentialError::NotAKey {
                    place: place.clone()
                },
                "{text:?}"
            );
        }
        for text in [
            "",
            "\n",
            "two words",
            "tab\t",
            "two\nlines",
            "ümlaut",
            &long,
        ] {
            fs::write(&path, text).unwrap();
            let error = Password::from_file(&path).unwrap_err();
            assert_eq!(
                error,
                CredentialError::NotAPassword {
                    place: place.clone()
                },
                "{text:?}"
            );
        }
        fs::write(&path, "hunter2\r\n").unwrap();
        assert_eq!(Password::from_file(&path).unwrap().reveal(), "hunter2");
    }

    #[test]
    fn a_missing_variable_is_named() {
        let variable = "CLOCKWISE_TEST_NO_SUCH_VARIABLE";
        let place = variable.to_owned();
        assert_eq!(
            PoolKey::from_env(variable),
            Err(CredentialError::Missing { place })
        );
    }

    #[test]
    fn a_guess_matches_only_whole() {
        let password = Password("secret".into());
        assert!(password.matches("secret"));
        for guess in ["", "secre", "secret ", "Secret"] {
            assert!(!password.matches(guess), "{guess:?}");
        }
    }
}
