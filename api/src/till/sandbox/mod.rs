//! A payment provider of pretended money: speaks Stripe's language, and misbehaves as real ones do.
//!
//! For machines of one's own (`tarn sandbox-payments`) and for tests. It keeps payment pages, payments without the customer and refunds,
//! answers the calls that [`super::stripe`] makes (for a day the same key gets the same answer, then it is forgotten, as at the real
//! one), and has a page on which to pay, decline or give up. Of everything that happens it makes an event; whoever holds the [`Sandbox`] delivers events as it likes: never, once,
//! several times, in any order, late, forged. [`Faults`] make it slow to pay, collect other amounts, decline, or not answer at all.

mod book;
mod courier;
mod events;
mod pages;
mod server;

pub use book::{Book, Faults, Paying};
pub use courier::Courier;
pub use events::Event;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use secrecy::SecretString;
use tokio::net::TcpListener;

use super::stripe::StripeConfig;
use crate::clock::Clock;

/// A running sandbox; dropped, it stops answering.
#[derive(Debug)]
pub struct Sandbox {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    book: Mutex<Book>,
    key: SecretString,
    clock: Arc<dyn Clock>,
    address: std::sync::OnceLock<SocketAddr>,
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sandbox {
    /// Answers on `listen` (port 0 takes a free one) to calls with `key`.
    pub async fn start(
        listen: SocketAddr,
        key: SecretString,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            book: Mutex::new(Book::default()),
            key,
            clock,
            address: std::sync::OnceLock::from(address),
        });
        let routes = server::routes(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the payment sandbox stopped answering");
            }
        });
        Ok(Self { address, shared, serving })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How a control plane reaches it.
    pub fn config(&self, webhook_secret: SecretString) -> StripeConfig {
        StripeConfig {
            address: self.url(),
            key: self.shared.key.clone(),
            webhook_secrets: vec![webhook_secret],
            return_url: format!("{}/thanks", self.url()),
        }
    }

    /// What happens from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.book().faults = faults;
    }

    /// The customer at the payment page. `None`: there is no such page, or it is over.
    pub fn pay(&self, session: &str, how: Paying) -> Option<()> {
        let now = self.shared.clock.now();
        self.shared.book().pay(session, how, now)
    }

    /// Pages that are open.
    pub fn open_pages(&self) -> Vec<String> {
        self.shared.book().open_sessions()
    }

    /// Decides the refunds that are pending.
    pub fn decide_refunds(&self, done: bool) {
        let now = self.shared.clock.now();
        self.shared.book().decide_refunds(done, now);
    }

    /// The bank sends back every refund that was paid out.
    pub fn bounce_refunds(&self) {
        let now = self.shared.clock.now();
        self.shared.book().bounce_refunds(now);
    }

    /// How often somebody asked what became of a refund.
    pub fn refunds_asked(&self) -> usize {
        self.shared.book().refunds_asked
    }

    /// Everything that happened since the last call, oldest first.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.shared.book().events)
    }

    /// Money collected less money given back, in fen: what an auditor compares a ledger with.
    pub fn collected_fen(&self) -> i64 {
        self.shared.book().collected_fen()
    }

    /// Calls that moved money or tried to, by idempotency key: how often each was made.
    pub fn charges_made(&self) -> usize {
        self.shared.book().intents_made()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
