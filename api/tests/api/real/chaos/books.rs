//! The books as a killed process left them: audited by `tarn admin audit`, exported by `tarn admin export-ledger`, and added up by
//! hledger and beancount. All of it in processes of their own, on the files or the database alone.

use std::path::Path;
use std::process::{Command, Output};

use tarn_api::app::books::journal::Format;

use super::super::control_plane::ControlPlane;
use super::super::host::artefact;
use crate::books::bookkeepers;

/// Where the data is.
#[derive(Debug, Clone)]
pub struct Books {
    data: std::path::PathBuf,
    database_url: Option<String>,
}

impl Books {
    pub fn of(control_plane: &ControlPlane) -> Self {
        Self { data: control_plane.data().to_owned(), database_url: control_plane.database_url() }
    }

    fn admin(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(artefact("tarn"));
        command.arg("admin").args(arguments).arg("--data-dir").arg(&self.data);
        match &self.database_url {
            Some(url) => command.env("DATABASE_URL", url),
            None => command.env_remove("DATABASE_URL"),
        };
        command.env("RUST_LOG", "warn").output().unwrap()
    }

    /// What the audit says; it has to be content.
    pub fn audited(&self) -> String {
        let audit = self.admin(&["audit"]);
        let said = String::from_utf8_lossy(&audit.stdout).into_owned();
        assert!(audit.status.success(), "{said}{}", String::from_utf8_lossy(&audit.stderr));
        said.trim().to_owned()
    }

    /// The journal, once the program that it is for has accepted it.
    pub fn exported(&self, format: Format) -> String {
        let (name, file) = match format {
            Format::Hledger => ("hledger", "ledger.journal"),
            Format::Beancount => ("beancount", "ledger.beancount"),
        };
        let path = self.data.join(file);
        let export = self.admin(&["export-ledger", "--format", name, "--output", path.to_str().unwrap()]);
        assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
        accepted(format, &path);
        std::fs::read_to_string(path).unwrap()
    }

    /// All three, beside each other; gives what the audit said and hledger's journal.
    pub async fn add_up(&self) -> (String, String) {
        let each = [self.clone(), self.clone(), self.clone()];
        let [one, two, three] = each;
        let audit = tokio::task::spawn_blocking(move || one.audited());
        let hledger = tokio::task::spawn_blocking(move || two.exported(Format::Hledger));
        let beancount = tokio::task::spawn_blocking(move || three.exported(Format::Beancount));
        let (said, journal) = (audit.await.unwrap(), hledger.await.unwrap());
        beancount.await.unwrap();
        (said, journal)
    }
}

fn accepted(format: Format, journal: &Path) {
    bookkeepers::accepts(format, journal).unwrap_or_else(|said| panic!("{format:?}: {said}"));
}
