//! Passwords: argon2id, on blocking threads, a few at a time.
//!
//! Hashing takes tens of milliseconds and megabytes, so a bounded number runs at once; the rest wait their turn. An unknown email
//! is checked against a hash of nothing, so that the time of an answer does not tell whether the email exists.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use tokio::sync::Semaphore;

use crate::config::PasswordCost;
use crate::entropy::Entropy;

#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("the password could not be hashed")]
    Hash,
    #[error("the stored hash cannot be read")]
    StoredHash,
    #[error("the hashing thread ended")]
    Thread(#[from] tokio::task::JoinError),
    #[error("shutting down")]
    Closed(#[from] tokio::sync::AcquireError),
}

#[derive(Debug, Clone)]
pub struct Passwords {
    argon2: Argon2<'static>,
    turns: Arc<Semaphore>,
    /// The hash that an unknown email is checked against.
    of_nobody: Arc<str>,
}

impl Passwords {
    pub fn new(cost: PasswordCost, entropy: &dyn Entropy) -> Result<Self, PasswordError> {
        let params = Params::new(cost.memory_kib, cost.passes, 1, None).map_err(|_| PasswordError::Hash)?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let mut unknown = [0; 32];
        entropy.fill(&mut unknown);
        let of_nobody = hash(&argon2, &unknown, &salt(entropy))?.into();
        Ok(Self { argon2, turns: Arc::new(Semaphore::new(cost.concurrent_max)), of_nobody })
    }

    /// The PHC string to store.
    pub async fn hash(&self, password: String, entropy: &dyn Entropy) -> Result<String, PasswordError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await?;
        let (argon2, salt) = (self.argon2.clone(), salt(entropy));
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            hash(&argon2, password.as_bytes(), &salt)
        })
        .await?
    }

    /// Whether `password` is the one behind `stored`. `None` (no such user) takes as long and is false.
    pub async fn verify(&self, password: String, stored: Option<String>) -> Result<bool, PasswordError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await?;
        let (argon2, known) = (self.argon2.clone(), stored.is_some());
        let stored = stored.unwrap_or_else(|| self.of_nobody.to_string());
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let stored = PasswordHash::new(&stored).map_err(|_| PasswordError::StoredHash)?;
            Ok(argon2.verify_password(password.as_bytes(), &stored).is_ok() && known)
        })
        .await?
    }
}

fn salt(entropy: &dyn Entropy) -> [u8; 16] {
    entropy.bits().to_be_bytes()
}

fn hash(argon2: &Argon2<'_>, password: &[u8], salt: &[u8]) -> Result<String, PasswordError> {
    let hashed = argon2.hash_password_with_salt(password, salt).map_err(|_| PasswordError::Hash)?;
    Ok(hashed.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SeededEntropy;

    #[tokio::test]
    async fn only_the_password_of_a_known_user_is_right() {
        let entropy = SeededEntropy::new(3);
        let cost = PasswordCost { memory_kib: 64, passes: 1, concurrent_max: 1 };
        let passwords = Passwords::new(cost, &entropy).unwrap();
        let stored = passwords.hash("correct horse".to_owned(), &entropy).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=64,t=1,p=1$"), "{stored}");
        assert!(passwords.verify("correct horse".to_owned(), Some(stored.clone())).await.unwrap());
        assert!(!passwords.verify("battery staple".to_owned(), Some(stored)).await.unwrap());
        assert!(!passwords.verify("correct horse".to_owned(), None).await.unwrap());
    }
}
