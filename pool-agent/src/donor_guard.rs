//! Only the primary is metered, so nobody computes on a donor: what does is found here and ended by the instance's worker.

/// Compute processes on a donor that belong to the tenant. A broker, a probe or a scrubber is none of the instance's members;
/// those are recognised by cgroup and namespace, never by name.
pub fn escapes(on_donor: &[(u32, u64)], members: &[u32]) -> Vec<(u32, u64)> {
    on_donor.iter().filter(|(pid, _)| members.contains(pid)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b10_members_on_a_donor_are_escapes_and_others_are_not() {
        assert_eq!(escapes(&[(10, 5), (11, 6), (12, 7)], &[9, 11]), [(11, 6)]);
        assert!(escapes(&[(10, 5)], &[]).is_empty());
    }
}
