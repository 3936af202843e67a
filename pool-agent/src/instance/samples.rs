//! Values for tests.

use tarn_protocol::control::{DesiredInstance, Goal, InstanceSpec};
use tarn_protocol::ids::{GpuUuid, InstanceId, LeaseId};
use tarn_protocol::pool_config::Policy;
use tarn_protocol::units::{Generation, Timestamp};

pub fn desired(instance_id: InstanceId, generation: Generation, goal: Goal) -> DesiredInstance {
    DesiredInstance {
        instance_id,
        lease_id: LeaseId::new(Timestamp::from_micros(0), 1),
        generation,
        goal,
        spec: InstanceSpec {
            command: vec!["/bin/true".to_owned()],
            env: vec![],
            ssh_public_keys: vec![],
            primary: GpuUuid::from_bytes([1; 16]),
            donors: vec![],
            policy: Policy::default(),
            cap_bytes: None,
        },
        run_until: None,
    }
}
