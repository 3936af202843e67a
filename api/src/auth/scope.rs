//! Scopes: what a credential may touch. A role is a set of scopes; a key has its own set.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! scopes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// What a credential may touch.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        pub enum Scope { $($(#[$doc])* #[serde(rename = $text)] $name,)* }

        impl Scope {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

scopes! {
    OffersRead = "offers:read";
    InstancesRead = "instances:read";
    InstancesWrite = "instances:write";
    WalletRead = "wallet:read";
    WalletWrite = "wallet:write";
    SshKeysRead = "ssh-keys:read";
    SshKeysWrite = "ssh-keys:write";
    KeysRead = "keys:read";
    KeysWrite = "keys:write";
    /// The tenant itself and its members.
    TenantRead = "tenant:read";
    TenantWrite = "tenant:write";
    /// The operator's side; only a key that an operator made can hold it.
    Admin = "admin";
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope {0:?}")]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;
    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        Self::ALL
            .iter()
            .copied()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| UnknownScope(text.to_owned()))
    }
}

/// A set of scopes, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scopes(u32);

impl Scopes {
    pub const fn none() -> Self {
        Self(0)
    }

    pub const fn with(self, scope: Scope) -> Self {
        Self(self.0 | 1 << scope as u32)
    }

    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u32) != 0
    }

    pub const fn includes(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.iter().copied().filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::none(), Self::with)
    }
}
