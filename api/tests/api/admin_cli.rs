//! `tarn admin`, as a program.

use std::path::Path;
use std::process::Output;

async fn admin(data: &Path, arguments: &[&str]) -> Output {
    let mut program = tokio::process::Command::new(env!("CARGO_BIN_EXE_tarn"));
    program.arg("admin").args(arguments).env("TARN_DATA_DIR", data).env_remove("DATABASE_URL");
    program.env("RUST_LOG", "error").kill_on_drop(true).output().await.unwrap()
}

#[tokio::test]
async fn a_join_token_is_for_a_region_that_can_be_read() {
    let data = tempfile::TempDir::new().unwrap();
    for region in ["", "  ", "cn\neast", "\u{1b}[2J"] {
        let refused = admin(data.path(), &["create-join-token", "--region", region]).await;
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{region:?}: {said}");
        assert_eq!(said, "tarn: a region has 1 to 100 printable characters\n", "{region:?}");
    }
    let made = admin(data.path(), &["create-join-token", "--region", "cn-east"]).await;
    let token = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success() && token.starts_with("tarn_join_"), "{token}");
}
