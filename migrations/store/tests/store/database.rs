//! A fresh database for each test, and the PostgreSQL server behind them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tarn_store::Store;

pub struct Fresh {
    pub store: Store,
    pub url: String,
    directory: Option<tempfile::TempDir>,
}

impl Fresh {
    pub async fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("tarn.db").display());
        Self::migrated(url, Some(directory)).await
    }

    pub async fn postgres() -> Self {
        Self::migrated(Self::empty_postgres().await, None).await
    }

    /// The URL of a database without a schema.
    pub async fn empty_postgres() -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("tarn_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let server = server_url();
        let mut admin = PgConnection::connect(server).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.unwrap();
        let (base, _) = server.rsplit_once('/').unwrap();
        format!("{base}/{name}")
    }

    pub async fn drop_postgres(url: &str) {
        let (_, name) = url.rsplit_once('/').unwrap();
        let mut admin = PgConnection::connect(server_url()).await.unwrap();
        let drop = AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"));
        sqlx::raw_sql(drop).execute(&mut admin).await.unwrap();
    }

    async fn migrated(url: String, directory: Option<tempfile::TempDir>) -> Self {
        let store = Store::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        Self { store, url, directory }
    }

    pub async fn remove(self) {
        self.store.close().await;
        if self.directory.is_none() {
            Self::drop_postgres(&self.url).await;
        }
    }
}

/// Address of the server's own database `postgres`.
pub fn server_url() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "the test binary has no main of its own")]
    let given = || std::env::var("TARN_TEST_POSTGRES_URL").ok();
    URL.get_or_init(|| given().unwrap_or_else(start_server))
}

/// Starts a server that ends, with its files, when this process does: its keeper waits for the end of a pipe that only this process
/// holds open.
fn start_server() -> String {
    static KEEPER: OnceLock<Child> = OnceLock::new();
    let programs = programs();
    let root = runs_as_root();
    // PostgreSQL refuses to run as root.
    let as_user = if root { "setpriv --reuid=postgres --regid=postgres --init-groups" } else { "" };
    let directory = tempfile::Builder::new().prefix("tarn-pg-").tempdir().unwrap().keep();
    if root {
        let done = Command::new("chown").arg("postgres").arg(&directory).status().unwrap();
        assert!(done.success());
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = format!(
        r#"set -e
        cd "$DIR"
        {as_user} "$BIN/initdb" -D "$DIR/data" -A trust -U postgres -E UTF8 --locale=C.UTF-8 >"$DIR/initdb.log" 2>&1
        {as_user} "$BIN/postgres" -D "$DIR/data" -p {port} -c listen_addresses=127.0.0.1 \
            -c "unix_socket_directories=$DIR" -c fsync=${{TARN_TEST_POSTGRES_FSYNC:-off}} -c max_connections=300 >"$DIR/log" 2>&1 &
        server=$!
        cat >/dev/null || true
        kill -INT $server || true
        wait $server || true
        rm -rf "$DIR""#
    );
    let keeper = Command::new("sh")
        .args(["-c", &script])
        .env("DIR", &directory)
        .env("BIN", &programs)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    KEEPER.get_or_init(|| keeper);
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    wait_for_server(&url, &directory);
    url
}

/// Waits until the server answers, and proves that it is ours: the port was free a moment ago, no more.
fn wait_for_server(url: &str, directory: &Path) {
    let url = url.to_owned();
    let expected = directory.join("data").display().to_string();
    let log = directory.join("log");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..600 {
                if let Ok(mut conn) = PgConnection::connect(&url).await {
                    let shown: String =
                        sqlx::query_scalar("SHOW data_directory").fetch_one(&mut conn).await.unwrap();
                    assert_eq!(shown, expected, "another PostgreSQL answers on this port");
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            panic!("PostgreSQL did not start: {}", std::fs::read_to_string(log).unwrap_or_default());
        });
    })
    .join()
    .unwrap();
}

fn programs() -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().expect("no PostgreSQL: install the Debian package postgresql, or set TARN_TEST_POSTGRES_URL")
}

fn runs_as_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}
