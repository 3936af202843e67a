//! Builds again when a migration or the offline query data changes.

fn main() {
    for path in ["..", "extra", ".sqlx", "sqlx.toml"] {
        println!("cargo:rerun-if-changed={path}");
    }
}
