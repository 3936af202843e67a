//! hledger and beancount, the real ones: what they make of a journal.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use tarn_api::app::books::journal::Format;
use tarn_billing::money::Micros;

/// Runs one of their programs; it has to be there.
fn run(program: &str, arguments: &[&str], journal: &Path) -> Output {
    let mut command = Command::new(program);
    // Without a UTF-8 locale they refuse what is not ASCII.
    command.env("LC_ALL", "C.UTF-8").args(arguments).arg(journal);
    command
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; `deploy/dev/install.sh test` installs it"))
}

/// `Err` with what they say against it.
pub fn accepts(format: Format, journal: &Path) -> Result<(), String> {
    let checked = match format {
        Format::Hledger => run("hledger", &["check", "--strict", "-f"], journal),
        Format::Beancount => run("bean-check", &[], journal),
    };
    let said =
        format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    if checked.status.success() && said.trim().is_empty() { Ok(()) } else { Err(said) }
}

/// What each account that ever moved holds by their sums, in their signs.
pub fn balances(format: Format, journal: &Path) -> BTreeMap<String, Micros> {
    let listed = match format {
        Format::Hledger => run("hledger", &["balance", "--flat", "-N", "-O", "csv", "-f"], journal),
        Format::Beancount => {
            let mut command = Command::new("bean-query");
            let question = "SELECT account, sum(number) GROUP BY account";
            command.env("LC_ALL", "C.UTF-8").args(["-f", "csv"]).arg(journal).arg(question);
            command.output().unwrap()
        }
    };
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let text = String::from_utf8(listed.stdout).unwrap();
    let cells = |line: &str| -> Option<(String, Micros)> {
        let (account, amount) = line.split_once(',')?;
        let plain = |cell: &str| cell.trim().trim_matches('"').replace(" CNY", "").trim().to_owned();
        Some((plain(account), plain(amount).parse().ok()?))
    };
    text.lines()
        .filter(|line| line.contains(':'))
        .map(|line| cells(line).unwrap_or_else(|| panic!("{line}")))
        .collect()
}
