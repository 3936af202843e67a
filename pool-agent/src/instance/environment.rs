//! The environment of an instance's first process: an allow-list of ours and what the tenant asked for, where it may.

use tarn_protocol::control::InstanceSpec;
use tarn_protocol::ids::InstanceId;

use super::directory::InstanceDirectory;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Nothing of the agent's own environment comes in. The tenant's library paths follow ours, and its preloads load inside only: no
/// process of the host ever sees them.
pub fn compose(spec: &InstanceSpec, id: &InstanceId, directory: &InstanceDirectory) -> Vec<(String, String)> {
    let lib = directory.lib().display().to_string();
    let home = directory.home().display().to_string();
    let mut env = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("USER".to_owned(), "root".to_owned()),
        ("CUDA_VISIBLE_DEVICES".to_owned(), spec.primary.to_string()),
    ];
    for (name, value) in &spec.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            continue;
        }
        env.retain(|(known, _)| known != name);
        env.push((name.clone(), value.clone()));
    }
    let theirs = env.iter().find(|(name, _)| name == "LD_LIBRARY_PATH").map(|(_, value)| value.clone());
    let library_path = match theirs {
        Some(theirs) if !theirs.is_empty() => format!("{lib}:{theirs}"),
        _ => lib,
    };
    for (name, value) in
        [("LD_LIBRARY_PATH", library_path), ("HOME", home), ("TARN_INSTANCE_ID", id.to_string())]
    {
        env.retain(|(known, _)| known != name);
        env.push((name.to_owned(), value));
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_protocol::control::Goal;
    use tarn_protocol::units::{Generation, Timestamp};

    #[test]
    fn h16_the_tenants_library_path_follows_ours() {
        let id = InstanceId::new(Timestamp::from_micros(0), 1);
        let mut spec = crate::instance::samples::desired(id.clone(), Generation::new(1), Goal::Running).spec;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        spec.env = vec![
            pair("LD_LIBRARY_PATH", "/evil"),
            pair("LD_PRELOAD", "/evil.so"),
            pair("HOME", "/"),
            pair("A=B", "x"),
            pair("GREETING", "hello"),
        ];
        let env = compose(&spec, &id, &InstanceDirectory::at("/i".into()));
        let value =
            |wanted: &str| env.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        assert_eq!(value("LD_LIBRARY_PATH"), Some("/i/lib:/evil"));
        assert_eq!(value("HOME"), Some("/i/home"));
        assert_eq!(value("GREETING"), Some("hello"));
        assert_eq!(value("A=B"), None);
        assert_eq!(value("CUDA_VISIBLE_DEVICES"), Some(spec.primary.as_str()));
    }
}
