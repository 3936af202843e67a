//! Email addresses and passwords as people type them.

use std::fmt;
use std::str::FromStr;

const EMAIL_BYTES_MAX: usize = 254;
pub const PASSWORD_CHARACTERS_MIN: usize = 8;
/// Hashing reads all of it, so it has a limit.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// A plausible address in lower case. Only a message to it could prove more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Email(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an email address")]
pub struct InvalidEmail;

impl Email {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Email {
    type Err = InvalidEmail;

    fn from_str(text: &str) -> Result<Self, InvalidEmail> {
        let (name, domain) = text.rsplit_once('@').ok_or(InvalidEmail)?;
        let printable = text.chars().all(|character| !character.is_whitespace() && !character.is_control());
        let dotted = domain.split('.').count() >= 2 && domain.split('.').all(|label| !label.is_empty());
        let known_domain = dotted || domain == "localhost";
        if text.len() <= EMAIL_BYTES_MAX
            && printable
            && !name.is_empty()
            && !name.contains('@')
            && known_domain
        {
            Ok(Self(text.to_lowercase()))
        } else {
            Err(InvalidEmail)
        }
    }
}

/// A password that may be set. Never printed.
#[derive(Clone)]
pub struct NewPassword(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a password has {PASSWORD_CHARACTERS_MIN} characters at least and {PASSWORD_BYTES_MAX} bytes at most"
)]
pub struct InvalidPassword;

impl NewPassword {
    pub fn into_inner(self) -> String {
        self.0
    }
}

impl FromStr for NewPassword {
    type Err = InvalidPassword;

    fn from_str(text: &str) -> Result<Self, InvalidPassword> {
        let long_enough = text.chars().count() >= PASSWORD_CHARACTERS_MIN;
        if long_enough && text.len() <= PASSWORD_BYTES_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidPassword)
        }
    }
}

impl fmt::Debug for NewPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewPassword(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plausible_and_lower_case() {
        assert_eq!("Ada@Example.COM".parse::<Email>().unwrap().as_str(), "ada@example.com");
        for text in
            ["", "ada", "@example.com", "ada@", "ada@example", "a@b@example.com", "a b@example.com", "a@b..c"]
        {
            assert!(text.parse::<Email>().is_err(), "{text}");
        }
    }

    #[test]
    fn passwords_have_a_length() {
        assert!("1234567".parse::<NewPassword>().is_err());
        assert!("12345678".parse::<NewPassword>().is_ok());
        assert!("x".repeat(PASSWORD_BYTES_MAX + 1).parse::<NewPassword>().is_err());
    }
}
