//! People: signing up, in and out, tenants and their members, keys.

pub mod api_keys;
pub mod email;
pub mod members;
pub mod sessions;
pub mod sign_up;
pub mod ssh_key;
pub mod ssh_keys;
pub mod tenants;
