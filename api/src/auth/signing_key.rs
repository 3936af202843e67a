//! The key that signs access tokens and cursors: 32 random bytes in a file of the data directory, mode 0600.
//!
//! Created by whoever starts first; `create_new` decides a race of two. Replicas share it by sharing the file (or a secret mounted
//! in its place). What it signs is told apart by a label, so that a cursor can never pass for a token.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::entropy::Entropy;

const FILE: &str = "signing.key";
const LENGTH: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    #[error("cannot read or write the signing key")]
    File(#[from] std::io::Error),
    #[error("the signing key is not {LENGTH} bytes")]
    Length,
}

#[derive(Clone)]
pub struct SigningKey([u8; LENGTH]);

impl SigningKey {
    pub fn new(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    pub fn load_or_create(data_dir: &Path, entropy: &dyn Entropy) -> Result<Self, SigningKeyError> {
        let path = data_dir.join(FILE);
        let mut bytes = [0; LENGTH];
        entropy.fill(&mut bytes);
        // Written aside and linked into place, so that nobody ever reads half a key.
        let draft = data_dir.join(format!("{FILE}.{:032x}", entropy.bits()));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        let placed = std::fs::hard_link(&draft, &path);
        std::fs::remove_file(&draft)?;
        match placed {
            Ok(()) => Ok(Self(bytes)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let stored = std::fs::read(&path)?;
                stored.try_into().map(Self).map_err(|_| SigningKeyError::Length)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A key of its own for each use.
    pub fn derive(&self, label: &str) -> [u8; LENGTH] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(label.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// A public name of this key, for a token's `kid`.
    pub fn name(&self) -> String {
        let derived = self.derive("name");
        let (first, _) = derived.split_first_chunk().expect("32 bytes have a first 8");
        format!("{:016x}", u64::from_be_bytes(*first))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::OsEntropy;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_start_makes_the_key_and_later_ones_find_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = SigningKey::load_or_create(directory.path(), &OsEntropy).unwrap();
        let second = SigningKey::load_or_create(directory.path(), &OsEntropy).unwrap();
        assert_eq!(first.0, second.0);
        let mode = std::fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_ne!(first.derive("tokens"), first.derive("cursors"));
    }
}
