//! Group commit on SQLite: writers that wait for each other share one commit.
//!
//! SQLite has one writer, and a durable commit waits for the disk, so a commit for each write makes the disk decide how many
//! writes a second there are. Here a writer that is done while others wait leaves its transaction open for them; the last one, or
//! the one that fills the group, commits for all. Each works in a savepoint of its own, so one that fails undoes only itself, and
//! none is acknowledged before the commit that holds its work. Alone, a writer commits at once, as before.
//!
//! A group whose transaction is lost (a panic, a full disk) tells its members so, and each tries again by itself.
//!
//! PostgreSQL needs none of this: its sessions commit at the same time and share the log's flush by themselves.

use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::SqlitePool;
use tokio::sync::{Mutex, oneshot};

use crate::Work;
use crate::error::StoreError;
use crate::tx::{Conn, Part, Tx};

/// Writers that share a commit at most, so that the first of them need not wait for ever.
const MEMBERS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// Writers on their way to the lock below. They come in tasks that nobody cancels, so who counted itself arrives.
    waiting: AtomicUsize,
    /// A transaction that was left open for the next writer.
    open: Mutex<Option<Group>>,
}

#[derive(Debug)]
struct Group {
    tx: Tx,
    /// Who is done and waits for the commit.
    members: Vec<oneshot::Sender<Fate>>,
}

/// What became of a group's transaction.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Committed,
    /// Nothing of it happened.
    Lost,
    /// It happened or it did not.
    Unknown,
}

impl GroupCommit {
    /// One attempt: `Err` is what to return should no retry be left.
    pub(crate) async fn attempt<T, E, F>(&self, writer: &SqlitePool, work: F) -> Result<Result<T, E>, E>
    where
        F: for<'tx> FnOnce(&'tx mut Tx) -> Work<'tx, Result<T, E>>,
        E: From<StoreError>,
    {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let mut group = match open.take() {
            Some(group) => group,
            None => match Group::begin(writer).await {
                Ok(group) => group,
                // Nothing happened yet, and the lock of another process may be free soon.
                Err(error) if error.lost_a_race() => return Err(error.into()),
                Err(error) => return Ok(Err(error.into())),
            },
        };
        let value = match group.tx.part(work).await {
            Part::Done(value) => value,
            Part::Undone { error, lost_a_race } => {
                if group.members.is_empty() {
                    group.tx.rollback().await;
                } else if self.full(&group) {
                    if let Err(error) = group.commit().await {
                        tracing::warn!(%error, "a shared commit failed");
                    }
                } else {
                    *open = Some(group);
                }
                return if lost_a_race { Err(error) } else { Ok(Err(error)) };
            }
            Part::Broken(error) => {
                group.tell(Fate::Lost);
                return Ok(Err(error));
            }
        };
        if self.full(&group) {
            return match group.commit().await {
                Ok(()) => Ok(Ok(value)),
                Err(error) if error.lost_a_race() => Err(error.into()),
                Err(error) => Ok(Err(error.into())),
            };
        }
        let (tell, told) = oneshot::channel();
        group.members.push(tell);
        *open = Some(group);
        drop(open);
        match told.await {
            Ok(Fate::Committed) => Ok(Ok(value)),
            Ok(Fate::Unknown) => Ok(Err(StoreError::OutcomeUnknown(lost()).into())),
            // Also when who held the transaction panicked: then it was rolled back.
            Ok(Fate::Lost) | Err(_) => Err(StoreError::Busy(lost()).into()),
        }
    }

    /// Whether nobody else may join.
    fn full(&self, group: &Group) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 || group.members.len() + 1 >= MEMBERS_MAX
    }
}

impl Group {
    async fn begin(writer: &SqlitePool) -> Result<Self, StoreError> {
        let conn = Conn::Sqlite(writer.acquire().await?);
        Ok(Self { tx: Tx::begin(conn, "BEGIN IMMEDIATE").await?, members: Vec::new() })
    }

    async fn commit(self) -> Result<(), StoreError> {
        let done = self.tx.commit().await;
        let fate = match &done {
            Ok(()) => Fate::Committed,
            Err(StoreError::OutcomeUnknown(_)) => Fate::Unknown,
            Err(_) => Fate::Lost,
        };
        told(self.members, fate);
        done
    }

    /// Dropping the transaction closes its connection, which rolls back.
    fn tell(self, fate: Fate) {
        drop(self.tx);
        told(self.members, fate);
    }
}

fn told(members: Vec<oneshot::Sender<Fate>>, fate: Fate) {
    for member in members {
        // Its task is gone only when the process ends.
        let _gone = member.send(fate);
    }
}

fn lost() -> sqlx::Error {
    sqlx::Error::Protocol("the transaction shared with other writers was lost".to_owned())
}
