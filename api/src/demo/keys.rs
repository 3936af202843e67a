//! What a second run on the same data needs to continue: who the demo's customer and operator are.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::DemoError;
use crate::entropy::Entropy;

/// Sign-in of one person.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Login {
    pub email: String,
    pub password: String,
}

/// The demo's own file, readable by its owner only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Keys {
    pub operator: Login,
    pub customer: Login,
    /// Tells the customers of successive runs apart once one has spent the trial credit.
    pub customers: u32,
}

impl Keys {
    /// The keys of an earlier run, if there was one.
    pub fn load(path: &Path) -> Result<Option<Self>, DemoError> {
        match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|source| DemoError::Keys { path: path.to_owned(), source }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DemoError::Data { path: path.to_owned(), source }),
        }
    }

    pub fn new(entropy: &dyn Entropy) -> Self {
        let login = |name: &str| Login { email: format!("{name}@demo.example"), password: password(entropy) };
        Self { operator: login("operator"), customer: login("customer-1"), customers: 1 }
    }

    /// The next customer, with trial credit of their own.
    pub fn next_customer(&mut self, entropy: &dyn Entropy) {
        self.customers += 1;
        self.customer =
            Login { email: format!("customer-{}@demo.example", self.customers), password: password(entropy) };
    }

    /// Written whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), DemoError> {
        let failed = |source| DemoError::Data { path: path.to_owned(), source };
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| DemoError::Keys { path: path.to_owned(), source })?;
        let fresh = path.with_extension("json.new");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&fresh, path).map_err(failed)
    }
}

/// 128 random bits as 32 hexadecimal digits.
fn password(entropy: &dyn Entropy) -> String {
    format!("{:032x}", entropy.bits())
}
