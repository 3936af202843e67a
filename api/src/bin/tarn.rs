//! The `tarn` command: the only place that reads arguments and the environment.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use secrecy::SecretString;
use tarn_api::app::books::{audit, journal};
use tarn_api::app::operators::credits::CreditRules;
use tarn_api::app::operators::log::{self, By};
use tarn_api::app::operators::{join_tokens, promote};
use tarn_api::app::people::email::{Email, NewPassword};
use tarn_api::config::{Config, Seller};
use tarn_api::serve::Ambient;
use tarn_api::till::sandbox::{Courier, Sandbox};
use tarn_api::till::stripe::StripeConfig;
use tarn_api::{demo, serve};
use tarn_billing::invoice::Party;
use tarn_billing::money::Micros;
use tarn_protocol::units::Timestamp;
use tracing_subscriber::EnvFilter;

#[derive(Debug, Parser)]
#[command(
    name = "tarn",
    version,
    about = "Rent pooled GPUs: several cards as one device, one of them billed"
)]
struct Command {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    action: Action,
}

/// Where the state is.
#[derive(Debug, Args)]
struct Place {
    /// Directory that holds all state.
    #[arg(long, env = "TARN_DATA_DIR", default_value = "./data", global = true)]
    data_dir: PathBuf,
    /// `postgres://…`; without it, an SQLite file in the data directory.
    #[arg(long, env = "DATABASE_URL", global = true, hide_env_values = true)]
    database_url: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Answer the API and run the workers.
    Serve {
        #[arg(long, env = "TARN_LISTEN", default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
        /// Let anyone top up for free. For a machine of your own only.
        #[arg(long, env = "TARN_LOCAL_PAYMENTS")]
        local_payments: bool,
        /// Credit beyond this many CNY, from one operator within a day, waits for another operator's approval.
        #[arg(long, env = "TARN_FOUR_EYES_ABOVE", value_name = "CNY")]
        four_eyes_above: Option<Micros>,
        /// Die at this named place; for tests.
        #[arg(long, hide = true)]
        failpoint: Option<String>,
        #[command(flatten)]
        seller: Issuer,
        #[command(flatten)]
        stripe: StripeArgs,
    },
    /// A payment provider of pretended money, on this machine: speaks Stripe's language, delivers callbacks as carelessly as real ones.
    SandboxPayments {
        #[arg(long, default_value = "127.0.0.1:4242")]
        listen: SocketAddr,
        /// Holds the key that calls must carry; the control plane's --stripe-key-file.
        #[arg(long)]
        key_file: PathBuf,
        /// Holds the secret that callbacks are signed with; the control plane's --stripe-webhook-secret-file.
        #[arg(long)]
        webhook_secret_file: PathBuf,
        /// Where callbacks go.
        #[arg(long, default_value = "http://127.0.0.1:8080/v1/payments/callbacks/stripe")]
        callbacks: String,
    },
    /// Show the whole story on this machine: a simulated host, a customer, a Pool-96, the bill. Then keep serving.
    Demo {
        /// The port that is printed at the start; another is taken when it is in use.
        #[arg(long, env = "TARN_LISTEN", default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
        /// End after the story; the last line says what was observed.
        #[arg(long)]
        once: bool,
        /// After the story, rent and end a Pool-96 this many times and print how long the starts took.
        #[arg(long, default_value_t = 0)]
        starts: usize,
        /// Where tarn-agent, tarn-broker, tarn-witness and the libraries are; default: beside this program.
        #[arg(long)]
        artefacts: Option<PathBuf>,
    },
    /// Bring the database up to date and end.
    Migrate,
    /// Print the OpenAPI document.
    Openapi,
    /// What an operator does by hand, on the data itself.
    #[command(subcommand)]
    Admin(Office),
}

#[derive(Debug, Subcommand)]
enum Office {
    #[command(flatten)]
    Deed(Admin),
    #[command(flatten)]
    Books(Books),
}

/// Who is the seller on invoices.
#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "they are the names of the options")]
struct Issuer {
    /// Begins every invoice number, as in TARN-2027-000001; another code begins another row of numbers.
    #[arg(long, env = "TARN_SELLER_CODE", default_value = "TARN", value_parser = seller_code)]
    seller_code: String,
    #[arg(long, env = "TARN_SELLER_NAME", default_value = "Tarn")]
    seller_name: String,
    /// Its lines, with a semicolon between two.
    #[arg(long, env = "TARN_SELLER_ADDRESS", value_delimiter = ';')]
    seller_address: Vec<String>,
    #[arg(long, env = "TARN_SELLER_TAX_ID")]
    seller_tax_id: Option<String>,
    #[arg(long, env = "TARN_SELLER_EMAIL")]
    seller_email: Option<String>,
}

fn seller_code(text: &str) -> Result<String, String> {
    let legal = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    if legal && (1..=16).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err("1 to 16 of A-Z and 0-9".to_owned())
    }
}

impl From<Issuer> for Seller {
    fn from(issuer: Issuer) -> Self {
        let party = Party {
            name: issuer.seller_name,
            address: issuer.seller_address.iter().map(|line| line.trim().to_owned()).collect(),
            tax_id: issuer.seller_tax_id,
            email: issuer.seller_email,
        };
        Self { code: issuer.seller_code, party }
    }
}

/// Payments through Stripe. Secrets are read from files, so that neither a list of processes nor an environment shows them.
#[derive(Debug, Args)]
struct StripeArgs {
    /// Holds the secret key; with it, top-ups are paid through Stripe.
    #[arg(long, env = "TARN_STRIPE_KEY_FILE", requires = "stripe_webhook_secret_file")]
    stripe_key_file: Option<PathBuf>,
    /// Holds the webhook endpoint's signing secret; two, one a line, while one is rotated.
    #[arg(long, env = "TARN_STRIPE_WEBHOOK_SECRET_FILE", requires = "stripe_key_file")]
    stripe_webhook_secret_file: Option<PathBuf>,
    /// Where Stripe is; or a server that speaks like it (`tarn sandbox-payments`).
    #[arg(long, env = "TARN_STRIPE_ADDRESS", default_value = tarn_api::till::stripe::ADDRESS)]
    stripe_address: String,
    /// Where a customer's browser goes after paying or giving up.
    #[arg(long, env = "TARN_PAYMENT_RETURN_URL", default_value = "http://127.0.0.1:8080/")]
    payment_return_url: String,
}

impl StripeArgs {
    fn config(self) -> anyhow::Result<Option<StripeConfig>> {
        let (Some(key), Some(webhook)) = (self.stripe_key_file, self.stripe_webhook_secret_file) else {
            return Ok(None);
        };
        let key = secrets(&key)?.into_iter().next().context("the key's file is empty")?;
        let webhook_secrets = secrets(&webhook)?;
        anyhow::ensure!(!webhook_secrets.is_empty(), "the file of the webhook's secret is empty");
        let (address, return_url) = (self.stripe_address, self.payment_return_url);
        Ok(Some(StripeConfig { address, key, webhook_secrets, return_url }))
    }
}

/// The lines of a file that are not empty.
fn secrets(path: &std::path::Path) -> anyhow::Result<Vec<SecretString>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(SecretString::from).collect())
}

#[derive(Debug, Subcommand)]
enum Admin {
    /// Make an operator of someone who has signed up, or of someone new with the password read from standard input.
    CreateOperator {
        #[arg(long)]
        email: Email,
        /// Sign them up with the first line of standard input as password.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Print a token with which one host joins, within a day.
    CreateJoinToken {
        #[arg(long, default_value = "local")]
        region: String,
    },
    /// Follow the chain of the operators' log and say whether every line is as it was written.
    VerifyLog,
}

/// What only reads the data, and leaves even the schema as it is.
#[derive(Debug, Subcommand)]
enum Books {
    /// Derive every balance and every charge again from the facts; the first row that differs is printed and makes this fail.
    Audit,
    /// Print the ledger for another bookkeeping program to add up.
    ExportLedger {
        #[arg(long)]
        format: journal::Format,
        /// Only what was posted before this date (UTC) or RFC 3339 instant.
        #[arg(long, value_parser = journal::until)]
        until: Option<Timestamp>,
        /// Write to this file; default: standard output.
        #[arg(long)]
        output: Option<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = Command::parse();
    // The demo tells its own story; a server's log is its only voice.
    let unless_told = if matches!(command.action, Action::Demo { .. }) { "warn" } else { "info,sqlx=warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(unless_told));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tarn: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    let Place { data_dir, database_url } = command.place;
    // An empty variable is an unset one.
    let database_url = database_url.filter(|url| !url.is_empty());
    let config = Config { database_url, ..Config::local(data_dir) };
    match command.action {
        Action::Serve { listen, local_payments, four_eyes_above, failpoint, seller, stripe } => {
            let credits = CreditRules { alone_max: four_eyes_above, ..config.credits };
            let (seller, stripe) = (seller.into(), stripe.config()?);
            let config = Config { listen, local_payments, credits, failpoint, seller, stripe, ..config };
            let server = serve::serve(config).await?;
            until_told_to_stop().await?;
            server.stop().await;
        }
        Action::Demo { listen, once, starts, artefacts } => {
            let artefacts = match artefacts {
                Some(directory) => directory,
                None => own_directory()?,
            };
            let listen = free_address(listen);
            let config = Config { listen, ..config };
            demo::run(demo::Options { config, once, starts, artefacts }, async {
                if let Err(error) = until_told_to_stop().await {
                    tracing::warn!(%error, "cannot watch for signals");
                }
            })
            .await?;
        }
        Action::SandboxPayments { listen, key_file, webhook_secret_file, callbacks } => {
            let first = |path| anyhow::Ok(secrets(path)?.into_iter().next().context("the file is empty")?);
            let Ambient { clock, entropy } = Ambient::of_system();
            let sandbox = Sandbox::start(listen, first(&key_file)?, Arc::clone(&clock)).await?;
            tracing::info!(address = %sandbox.address(), callbacks, "pretended payments");
            let courier = Courier { url: callbacks, secret: first(&webhook_secret_file)?, clock, entropy };
            tokio::select! {
                () = courier.run(&sandbox) => {}
                stopped = until_told_to_stop() => stopped?,
            }
        }
        Action::Migrate => drop(serve::open(config, serve::Ambient::of_system()).await?),
        Action::Openapi => print!("{}", tarn_api::openapi::text()),
        Action::Admin(Office::Deed(action)) => administer(config, action).await?,
        Action::Admin(Office::Books(books)) => read_books(&config, books).await?,
    }
    Ok(())
}

async fn administer(config: Config, action: Admin) -> anyhow::Result<()> {
    let state = serve::open(config, serve::Ambient::of_system()).await?;
    match action {
        Admin::CreateOperator { email, password_stdin } => {
            let password = if password_stdin { Some(password_from_stdin()?) } else { None };
            promote::promote(&state, email.clone(), password).await?;
            eprintln!("{} is an operator", email.as_str());
        }
        Admin::CreateJoinToken { region } => {
            println!("{}", join_tokens::create(&state, region.parse()?, By::command_line()).await?.token);
        }
        Admin::VerifyLog => println!("{} lines stand", log::verify(&state.store).await?),
    }
    state.store.close().await;
    Ok(())
}

async fn read_books(config: &Config, books: Books) -> anyhow::Result<()> {
    let store = serve::open_books(config).await?;
    match books {
        Books::Audit => {
            let audited = audit::audit(&store, None).await?;
            println!(
                "consistent: {} transfers, {} entries, {} segments, {} pieces of evidence; {} s settled, {} s not settled",
                audited.transfers,
                audited.entries,
                audited.segments,
                audited.evidence,
                audited.settled_seconds,
                audited.unsettled_seconds
            );
        }
        Books::ExportLedger { format, until, output } => {
            let out: Box<dyn Write + Send> = match output {
                Some(path) => Box::new(File::create(path)?),
                None => Box::new(std::io::stdout()),
            };
            let (_, exported) = journal::export(&store, format, until, BufWriter::new(out)).await?;
            eprintln!("{} transfers, {} accounts", exported.transfers, exported.accounts);
        }
    }
    store.close().await;
    Ok(())
}

fn password_from_stdin() -> anyhow::Result<NewPassword> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).parse()?)
}

fn own_directory() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().map(PathBuf::from).unwrap_or_default())
}

/// `wanted`, or the same address with a free port when another program has it.
fn free_address(wanted: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(wanted) {
        Ok(_free) => wanted,
        Err(_taken) => SocketAddr::new(wanted.ip(), 0),
    }
}

/// SIGTERM or Ctrl-C.
async fn until_told_to_stop() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}
