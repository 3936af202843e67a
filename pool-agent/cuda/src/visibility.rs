//! What the tenant may ask of `CUDA_VISIBLE_DEVICES`, and what the driver is told instead.
//!
//! Donors are hidden by the driver's own rule: before its first initialisation the variable names the primary alone. A tenant that
//! asked for no device, or for one that the pool does not have, still gets none.

use std::ffi::{CStr, CString};

use tarn_protocol::ids::GpuUuid;

const VARIABLE: &CStr = c"CUDA_VISIBLE_DEVICES";
/// An index that no driver has.
const NOTHING: &str = "-1";

/// The value to impose, given the tenant's own.
fn imposed<'a>(wanted: Option<&str>, primary: &'a GpuUuid) -> &'a str {
    let Some(wanted) = wanted else { return primary.as_str() };
    // The driver reads entries up to the first invalid one; device 0 of a pool is the primary, and the only one.
    let first = wanted.split(',').next().unwrap_or_default().trim();
    let by_uuid =
        first.len() > "GPU-".len() && primary.as_str().to_lowercase().starts_with(&first.to_lowercase());
    if first == "0" || by_uuid { primary.as_str() } else { NOTHING }
}

/// Imposes the primary on this process, before the driver reads the variable.
pub(crate) fn impose(primary: &GpuUuid) {
    // SAFETY: the C environment is read here the same way as the driver reads it in the same call of the same thread.
    let wanted = unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
    };
    let value = imposed(wanted.as_deref(), primary);
    if wanted.as_deref() == Some(value) {
        return;
    }
    if let Ok(value) = CString::new(value) {
        // SAFETY: both are NUL-terminated; programs initialise the driver before they start to change their environment in
        // other threads, and the driver itself reads the variable here without a lock.
        unsafe { libc::setenv(VARIABLE.as_ptr(), value.as_ptr(), 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wanted: Option<&str>, visible: bool) {
        let primary: GpuUuid = "GPU-0a1b2c3d-0000-0000-0000-000000000001".parse().unwrap();
        let expected = if visible { primary.as_str() } else { NOTHING };
        assert_eq!(imposed(wanted, &primary), expected, "{wanted:?}");
    }

    #[test]
    fn only_the_primary_or_nothing() {
        check(None, true);
        check(Some("0"), true);
        check(Some("0,1"), true);
        check(Some(" 0 , 7"), true);
        check(Some("GPU-0a1b2c3d-0000-0000-0000-000000000001"), true);
        check(Some("GPU-0A1B"), true);
        check(Some("GPU-0a1b,GPU-ff"), true);
        check(Some(""), false);
        check(Some("-1"), false);
        check(Some("1"), false);
        check(Some("1,0"), false);
        check(Some("GPU-ff"), false);
        check(Some("GPU-"), false);
        check(Some("NoDevFiles"), false);
    }
}
