//! What each role may do in its tenant.

use tarn_rows::accounts::Role;

use crate::auth::scope::{Scope, Scopes};

/// The scopes of a person with `role`. Owners differ from admins in one thing: only they make and unmake owners.
pub const fn scopes_of(role: Role) -> Scopes {
    let read = Scopes::none()
        .with(Scope::OffersRead)
        .with(Scope::InstancesRead)
        .with(Scope::WalletRead)
        .with(Scope::SshKeysRead)
        .with(Scope::KeysRead)
        .with(Scope::TenantRead);
    let rent = read.with(Scope::InstancesWrite).with(Scope::SshKeysWrite);
    match role {
        Role::Viewer => read,
        Role::Member => rent,
        Role::Admin | Role::Owner => {
            rent.with(Scope::WalletWrite).with(Scope::KeysWrite).with(Scope::TenantWrite)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_power_only_adds_scopes_and_none_is_an_operator() {
        for pair in Role::ALL.windows(2) {
            assert!(scopes_of(pair[0]).includes(scopes_of(pair[1])));
        }
        assert!(!scopes_of(Role::Owner).contains(Scope::Admin));
        assert!(!scopes_of(Role::Viewer).iter().any(|scope| scope.as_str().ends_with(":write")));
    }
}
