//! What a tenant sends about instances, checked before anything reads the database.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tarn_protocol::hardware::LinkClass;
use tarn_protocol::ids::{HostId, OfferId, SshKeyId};
use tarn_protocol::pool_config::{Placement, Policy};
use tarn_protocol::units::Bytes;
use utoipa::ToSchema;

use crate::app::metering::storage;
use crate::http::error::{ApiError, ApiResult, Code, FieldError};

const LABEL_CHARS_MAX: usize = 100;
const TAGS_MAX: usize = 32;
const TAG_CHARS_MAX: usize = 128;
const ARGUMENTS_MAX: usize = 256;
const COMMAND_BYTES_MAX: usize = 32 * 1024;
const ENV_MAX: usize = 256;
const ENV_BYTES_MAX: usize = 64 * 1024;
const SSH_KEYS_MAX: usize = 32;
const TTL_SECONDS: std::ops::RangeInclusive<u64> = 60..=31_536_000;
const GRANULE: u64 = 2 * Bytes::MIB;

/// A new instance. Placement constraints are stored and checked again at every start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "offer_id": "pool-96", "label": "finetune", "tags": {"team": "vision"}, "command": ["/usr/bin/python3", "train.py"],
    "env": {"EPOCHS": "3"}, "constraints": {"link_class_min": "pcie_p2p"}, "ttl_seconds": 86400,
}))]
pub struct CreateInstance {
    /// What to rent, for example `pool-96`.
    #[schema(value_type = String, example = "pool-96")]
    pub offer_id: OfferId,
    /// For people; defaults to the offer's id.
    #[serde(default)]
    pub label: Option<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Program and arguments; empty: an idle instance.
    #[serde(default)]
    #[schema(example = json!(["/usr/bin/python3", "train.py"]))]
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub policy: Option<PolicyChoice>,
    #[serde(default)]
    pub constraints: Constraints,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub ssh_key_ids: Vec<SshKeyId>,
    /// Terminated this long after creation.
    #[serde(default)]
    #[schema(minimum = 60, maximum = 31_536_000)]
    pub ttl_seconds: Option<u64>,
    /// Of its disk (its home directory), in GiB of 2^30 bytes. What is above the included 20 is charged for as long as the disk exists,
    /// also while the instance is stopped. Charged as chosen; hosts do not enforce it yet.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 16_384, default = 20)]
    pub disk_gb: Option<u32>,
}

/// Where spilled bytes go; what is left out keeps its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyChoice {
    /// `local_first`, `interleave` or `balanced`.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "local_first")]
    pub placement: Option<Placement>,
    #[serde(default)]
    pub reserve_bytes: Option<u64>,
    #[serde(default)]
    pub large_bytes: Option<u64>,
    /// A multiple of 2 MiB.
    #[serde(default)]
    pub granule_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"link_class_min": "pcie_p2p"}))]
pub struct Constraints {
    #[serde(default)]
    pub region: Option<String>,
    /// `none`, `pcie_p2p` or `nvlink`; every donor reaches the primary at least so.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "pcie_p2p")]
    pub link_class_min: Option<LinkClass>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub host_id: Option<HostId>,
}

/// What may change of an instance while it lives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"label": "finetune-2", "tags": {"team": "vision"}, "ttl_seconds": 7200}))]
pub struct PatchInstance {
    #[serde(default)]
    pub label: Option<String>,
    /// Replaces all tags.
    #[serde(default)]
    pub tags: Option<BTreeMap<String, String>>,
    /// Terminated this long after this change.
    #[serde(default)]
    pub ttl_seconds: Option<u64>,
}

fn demand(errors: &mut Vec<FieldError>, holds: bool, pointer: &str, detail: &str) {
    if !holds {
        errors.push(FieldError { pointer: pointer.to_owned(), detail: detail.to_owned() });
    }
}

/// 422 with everything that is wrong, if anything is.
fn valid(errors: Vec<FieldError>) -> ApiResult<()> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::new(Code::InvalidRequest, "see errors").with_errors(errors))
    }
}

fn check_label(errors: &mut Vec<FieldError>, label: Option<&String>) {
    let fits = label.is_none_or(|label| {
        (1..=LABEL_CHARS_MAX).contains(&label.chars().count()) && !label.chars().any(char::is_control)
    });
    demand(errors, fits, "/label", "1 to 100 characters, no control characters");
}

fn check_tags(errors: &mut Vec<FieldError>, tags: &BTreeMap<String, String>) {
    let fits = tags.len() <= TAGS_MAX
        && tags.iter().all(|(name, value)| {
            (1..=TAG_CHARS_MAX).contains(&name.chars().count()) && value.chars().count() <= TAG_CHARS_MAX
        });
    demand(errors, fits, "/tags", "at most 32 tags of at most 128 characters");
}

fn check_ttl(errors: &mut Vec<FieldError>, ttl_seconds: Option<u64>) {
    let fits = ttl_seconds.is_none_or(|ttl| TTL_SECONDS.contains(&ttl));
    demand(errors, fits, "/ttl_seconds", "from 60 seconds to 365 days");
}

/// A name that the process environment can carry.
fn env_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.as_bytes()[0].is_ascii_digit()
}

impl CreateInstance {
    pub fn check(&self) -> ApiResult<()> {
        let mut errors = Vec::new();
        let found = &mut errors;
        check_label(found, self.label.as_ref());
        check_tags(found, &self.tags);
        check_ttl(found, self.ttl_seconds);
        let command_bytes: usize = self.command.iter().map(String::len).sum();
        let fits = self.command.len() <= ARGUMENTS_MAX && command_bytes <= COMMAND_BYTES_MAX;
        demand(found, fits, "/command", "at most 256 arguments of 32 KiB together");
        let whole = self.command.iter().all(|argument| !argument.contains('\0'))
            && self.command.first().is_none_or(|program| !program.is_empty());
        demand(found, whole, "/command", "no NUL bytes, and a program that is not empty");
        let env_bytes: usize = self.env.iter().map(|(name, value)| name.len() + value.len()).sum();
        demand(
            found,
            self.env.len() <= ENV_MAX && env_bytes <= ENV_BYTES_MAX,
            "/env",
            "at most 256 variables of 64 KiB together",
        );
        let named = self.env.iter().all(|(name, value)| env_name(name) && !value.contains('\0'));
        demand(found, named, "/env", "names of A-Z, a-z, 0-9 and _, values without NUL bytes");
        let fits = self.disk_gb.is_none_or(|gib| (1..=storage::GIB_MAX).contains(&gib));
        demand(found, fits, "/disk_gb", "from 1 to 16384");
        demand(found, self.ssh_key_ids.len() <= SSH_KEYS_MAX, "/ssh_key_ids", "at most 32 keys");
        if let Some(policy) = &self.policy {
            let granule = policy.granule_bytes.unwrap_or(GRANULE);
            demand(
                found,
                granule > 0 && granule.is_multiple_of(GRANULE),
                "/policy/granule_bytes",
                "a positive multiple of 2 MiB",
            );
        }
        valid(errors)
    }

    pub fn policy(&self) -> Policy {
        let default = Policy::default();
        let Some(choice) = &self.policy else { return default };
        Policy {
            placement: choice.placement.unwrap_or(default.placement),
            reserve_bytes: choice.reserve_bytes.map(Bytes::new),
            large_bytes: choice.large_bytes.map_or(default.large_bytes, Bytes::new),
            granule_bytes: choice.granule_bytes.map_or(default.granule_bytes, Bytes::new),
        }
    }
}

impl PatchInstance {
    pub fn check(&self) -> ApiResult<()> {
        let mut errors = Vec::new();
        check_label(&mut errors, self.label.as_ref());
        if let Some(tags) = &self.tags {
            check_tags(&mut errors, tags);
        }
        check_ttl(&mut errors, self.ttl_seconds);
        valid(errors)
    }
}

impl From<Policy> for PolicyChoice {
    fn from(policy: Policy) -> Self {
        Self {
            placement: Some(policy.placement),
            reserve_bytes: policy.reserve_bytes.map(Bytes::get),
            large_bytes: Some(policy.large_bytes.get()),
            granule_bytes: Some(policy.granule_bytes.get()),
        }
    }
}
