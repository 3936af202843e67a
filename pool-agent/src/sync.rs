//! The two loops that talk to the control plane: one pulls what is wanted, one pushes what is. Neither waits for the other, and
//! nothing that fails in them touches a workload.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tarn_protocol::control::{Desired, DesiredInstance, FailReason, ObservedInstance, Phase};
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::Generation;
use tokio::sync::watch;
use tokio::task::JoinError;

use crate::backoff::{Backoff, entropy};
use crate::control_plane::{CallError, ControlPlane};
use crate::durable_file::DurableError;
use crate::instance::worker::{Mailbox, Surroundings, Worker};
use crate::join::Identity;
use crate::probe::errands;
use crate::probe::pair::Occasion;
use crate::report::Reporter;
use crate::wanted::WantedBook;

/// A full pull at least this often, hints or none.
const POLL_WAIT: Duration = Duration::from_secs(25);
/// How long a change waits for others that come with it.
const GATHER: Duration = Duration::from_millis(20);

/// Every instance's worker, by id.
#[derive(Debug)]
pub struct Workers {
    around: Arc<Surroundings>,
    mailboxes: Mutex<BTreeMap<InstanceId, Arc<Mailbox>>>,
}

impl Workers {
    pub fn new(around: Arc<Surroundings>) -> Arc<Self> {
        Arc::new(Self { around, mailboxes: Mutex::default() })
    }

    /// Takes up everything that earlier runs of this agent left, before anything new is accepted.
    pub fn recover(self: &Arc<Self>, stored: Vec<DesiredInstance>) {
        let mut goals: BTreeMap<InstanceId, DesiredInstance> =
            stored.into_iter().map(|goal| (goal.instance_id.clone(), goal)).collect();
        for id in self.around.state.known_instances() {
            let goal = goals.remove(&id);
            self.give(&id, goal);
        }
    }

    /// Tells an instance's worker its goal; starts one if there is none.
    pub fn give(self: &Arc<Self>, id: &InstanceId, goal: Option<DesiredInstance>) {
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(mailbox), Some(goal)) = (mailboxes.get(id), &goal) {
            mailbox.post(goal.clone());
            return;
        }
        let mailbox = Arc::new(Mailbox::default());
        match Worker::take_up(&self.around, id, goal, Arc::clone(&mailbox)) {
            Ok(Some(worker)) => {
                worker.announce();
                let (own, id_kept) = (Arc::clone(self), id.clone());
                let thread = std::thread::Builder::new().name(id.to_string());
                let started = thread.spawn(move || {
                    worker.run();
                    own.mailboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id_kept);
                });
                match started {
                    Ok(_) => drop(mailboxes.insert(id.clone(), mailbox)),
                    Err(error) => tracing::error!(%error, instance = %id, "no thread for the instance"),
                }
            }
            Ok(None) => self.tell_leftover(id, "left without a journal and a goal"),
            Err(error) => {
                tracing::error!(%error, instance = %id, "the journal cannot be read; the instance is left alone");
                self.tell_leftover(id, "left with an unreadable journal");
            }
        }
    }

    /// Absence from reports is proof that nothing is left, so what is left is told even if nobody knows what it is.
    fn tell_leftover(&self, id: &InstanceId, detail: &str) {
        let alive = !self.around.runtime.members(id, None).is_empty();
        let phase = if alive {
            Phase::Stopping
        } else {
            Phase::Failed { reason: FailReason::HostError, detail: detail.to_owned(), exit_code: None }
        };
        self.around.board.instance(ObservedInstance {
            instance_id: id.clone(),
            generation: Generation::new(0),
            phase,
            residency: Vec::new(),
            log_tail: None,
            pool_bytes: None,
        });
    }
}

/// Pulls desired state for ever. A disk that refuses is waited for: paid time is still enforced meanwhile.
pub async fn pull(
    around: Arc<Surroundings>,
    control_plane: ControlPlane,
    identity: Identity,
    mut book: WantedBook,
    workers: Arc<Workers>,
    report_seconds: watch::Sender<u32>,
) {
    let mut backoff = Backoff::new(200, 10_000);
    // A restarted agent asks for everything once: its own memory of the document is only its goals.
    let mut after = -1;
    loop {
        match control_plane.desired(&identity.credential, after, POLL_WAIT).await {
            Ok(desired) => match take_in(&around, &mut book, &workers, &desired) {
                Ok(revision) => {
                    backoff.succeeded();
                    after = revision.unwrap_or(after);
                    report_seconds.send_replace(desired.report_seconds.max(1));
                    order_probes(&around, &desired);
                }
                Err(error) => {
                    for goal in book.endings(&desired) {
                        let id = goal.instance_id.clone();
                        workers.give(&id, Some(goal));
                    }
                    wait_for_disk(&mut backoff, &error, "pull").await;
                }
            },
            Err(error) => wait_after(&mut backoff, &error, "pull").await,
        }
    }
}

/// Journals the document, then tells the workers; its revision, if it was accepted.
fn take_in(
    around: &Surroundings,
    book: &mut WantedBook,
    workers: &Arc<Workers>,
    desired: &Desired,
) -> Result<Option<i64>, DurableError> {
    match book.accept(desired)? {
        Ok(accepted) => {
            for (id, stale) in accepted.stale {
                tracing::warn!(instance = %id, ?stale, "an older goal is not obeyed");
            }
            for goal in accepted.fresh {
                let id = goal.instance_id.clone();
                workers.give(&id, Some(goal));
            }
            around.board.desired_journaled(desired.revision);
            Ok(Some(desired.revision))
        }
        Err(stale) => {
            tracing::warn!(epoch = %desired.host_epoch, ?stale, "desired state of an older epoch is not obeyed");
            Ok(None)
        }
    }
}

fn order_probes(around: &Arc<Surroundings>, desired: &Desired) {
    let pairs: Vec<(GpuUuid, GpuUuid)> =
        desired.probes.iter().map(|order| (order.from.clone(), order.to.clone())).collect();
    if !pairs.is_empty() {
        errands::send(around, pairs, Occasion::Order);
    }
}

/// Pushes reports for ever: at once on a change, else every so many seconds. Returns only when a report cannot be drafted for a
/// fault of our own.
pub async fn push(
    around: Arc<Surroundings>,
    control_plane: ControlPlane,
    identity: Identity,
    mut reporter: Reporter,
    report_seconds: watch::Receiver<u32>,
) -> JoinError {
    let mut backoff = Backoff::new(200, 5_000);
    loop {
        // Drafting asks the cards, which blocks: not on the loops' own threads.
        let drafting = tokio::task::spawn_blocking(move || {
            let draft = reporter.draft();
            (reporter, draft)
        });
        let draft = match drafting.await {
            Ok((returned, draft)) => {
                reporter = returned;
                draft
            }
            Err(panicked) => return panicked,
        };
        let draft = match draft {
            Ok(draft) => draft,
            Err(error) => {
                wait_for_disk(&mut backoff, &error, "report").await;
                continue;
            }
        };
        around.failpoints.hit("report.before_send");
        match control_plane.report(&identity.credential, &draft.report).await {
            Ok(answer) => {
                around.failpoints.hit("report.after_send");
                backoff.succeeded();
                if !answer.fresh {
                    tracing::warn!(seq = %draft.report.seq, "the control plane has a later report already");
                }
                if let Err(error) = reporter.accepted(draft, answer.usage_through) {
                    // Sent again with the next report; a repeat changes nothing.
                    tracing::error!(%error, "what was accepted is not on disk");
                }
                let every = Duration::from_secs(u64::from(*report_seconds.borrow()));
                if tokio::time::timeout(every, around.board.changed()).await.is_ok() {
                    tokio::time::sleep(GATHER).await;
                }
            }
            Err(error) => wait_after(&mut backoff, &error, "report").await,
        }
    }
}

async fn wait_for_disk(backoff: &mut Backoff, error: &DurableError, call: &'static str) {
    let wait = backoff.failed(entropy());
    let source = std::error::Error::source(error);
    tracing::error!(call, %error, ?source, wait_ms = wait.as_millis(), "the state directory takes nothing");
    tokio::time::sleep(wait).await;
}

async fn wait_after(backoff: &mut Backoff, error: &CallError, call: &'static str) {
    let wait = backoff.failed(entropy());
    match error {
        CallError::Unauthorized => {
            tracing::error!(
                call,
                "this host's credential is not accepted; workloads go on, an operator has to look"
            );
        }
        other => {
            tracing::warn!(call, error = %other, wait_ms = wait.as_millis(), "the control plane does not answer");
        }
    }
    tokio::time::sleep(wait).await;
}
