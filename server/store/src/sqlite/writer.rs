//! The thread that writes. Everything that waits goes into one transaction and is acknowledged after
//! its commit: the flush of the disk is the whole cost of a commit, and a group pays it once.
//!
//! A work that fails is undone alone, by its savepoint. A transaction that fails acknowledges nothing
//! of its group, and the next group starts afresh.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tns_server_core::store::StoreError;
use tokio::sync::oneshot;

use super::error::{Fault, from_io, stopped};
use super::{Numbers, Shared};

/// Writes that may wait; full → [`StoreError::Busy`] at once.
pub(super) const WRITE_QUEUE: usize = 1024;
/// Most writes of one transaction, so that the first of them is not kept waiting by those that follow.
const GROUP: usize = 256;

/// Something to be written.
pub(super) trait Work: Send + 'static {
    /// What it gives back once it is committed.
    type Output: Send;

    /// Writes. An error undoes what was written here, and nothing else.
    fn run(&self, write: &mut Write<'_>) -> Result<Self::Output, Fault>;
}

/// What a [`Work`] writes with.
pub(super) struct Write<'a> {
    /// The connection, inside the group's transaction.
    pub(super) connection: &'a Connection,
    /// The next places.
    pub(super) numbers: &'a mut Numbers,
}

/// The handle to the thread. Dropped, it waits until everything that was handed over is written.
pub(super) struct Writer {
    jobs: Option<SyncSender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread, which owns the connection from now on.
    pub(super) fn start(
        connection: Connection,
        numbers: Numbers,
        shared: Arc<Shared>,
        busy_timeout: Duration,
    ) -> Result<Self, StoreError> {
        let (sender, jobs) = sync_channel(WRITE_QUEUE);
        let owner = Owner { connection, numbers, shared, busy_timeout, jobs };
        let thread = std::thread::Builder::new()
            .name("store-write".into())
            .spawn(move || owner.serve())
            .map_err(|error| from_io("start the writing thread", &error))?;
        Ok(Self { jobs: Some(sender), thread: Some(thread) })
    }

    /// Puts `work` into the queue, now. The future only waits for its answer.
    pub(super) fn submit<W: Work>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<W::Output, StoreError>> + Send + use<W> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Pending { work, queued: Instant::now(), outcome: None, reply });
        let handed_over = match &self.jobs {
            None => Err(stopped()),
            Some(jobs) => jobs.try_send(job).map_err(|refused| match refused {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Disconnected(_) => stopped(),
            }),
        };
        async move {
            handed_over?;
            answer.await.unwrap_or_else(|_| Err(stopped()))
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writing thread of the store had panicked");
        }
    }
}

/// A work of any kind with whoever waits for it.
trait Job: Send {
    fn queued(&self) -> Instant;
    fn run(&mut self, write: &mut Write<'_>) -> Result<(), StoreError>;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Pending<W: Work> {
    work: W,
    queued: Instant,
    outcome: Option<Result<W::Output, StoreError>>,
    reply: oneshot::Sender<Result<W::Output, StoreError>>,
}

impl<W: Work> Job for Pending<W> {
    fn queued(&self) -> Instant {
        self.queued
    }

    fn run(&mut self, write: &mut Write<'_>) -> Result<(), StoreError> {
        let outcome = self.work.run(write).map_err(StoreError::from);
        let told = outcome.as_ref().map(|_| ()).map_err(StoreError::clone);
        self.outcome = Some(outcome);
        told
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let answer = match (self.outcome, committed) {
            (Some(Err(own)), _) => Err(own),
            (_, Err(group)) => Err(group),
            (Some(Ok(output)), Ok(())) => Ok(output),
            (None, Ok(())) => Err(stopped()),
        };
        // Whoever asked may have left meanwhile; what was written stays.
        let _ = self.reply.send(answer);
    }
}

/// What the thread owns.
struct Owner {
    connection: Connection,
    numbers: Numbers,
    shared: Arc<Shared>,
    busy_timeout: Duration,
    jobs: Receiver<Box<dyn Job>>,
}

impl Owner {
    /// Serves until every handle is gone and the queue is empty.
    fn serve(mut self) {
        while let Ok(first) = self.jobs.recv() {
            match self.begin(first.queued() + self.busy_timeout) {
                Ok(()) => self.write_group(first),
                // Those behind it stay in the queue and have their own deadline.
                Err(error) => first.answer(Err(error)),
            }
        }
    }

    fn begin(&self, deadline: Instant) -> Result<(), StoreError> {
        // SQLite counts whole milliseconds; a part of one is waited out, not cut off.
        let wait = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let begun = self.connection.busy_timeout(wait).map_err(Fault::from);
        Ok(begun.and_then(|()| self.step("BEGIN IMMEDIATE"))?)
    }

    fn write_group(&mut self, first: Box<dyn Job>) {
        let mut group = Vec::new();
        let mut next = Some(first);
        let mut intact = Ok(());
        while let Some(mut job) = next {
            intact = self.write_one(&mut *job);
            group.push(job);
            let go_on = intact.is_ok() && group.len() < GROUP;
            next = if go_on { self.jobs.try_recv().ok() } else { None };
        }
        let committed = intact.and_then(|()| Ok(self.step("COMMIT")?));
        match &committed {
            Ok(()) => {
                self.shared.document_head.store(self.numbers.document_head, Ordering::Release);
                self.shared.commits.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::error!(%error, writes = group.len(), "a transaction of the store failed");
                self.undo();
            }
        }
        for job in group {
            job.answer(committed.clone());
        }
    }

    /// Runs one job in its savepoint. An error here means that the whole transaction is lost.
    fn write_one(&mut self, job: &mut dyn Job) -> Result<(), StoreError> {
        self.step("SAVEPOINT one")?;
        let head = self.numbers.document_head;
        let done = job.run(&mut Write { connection: &self.connection, numbers: &mut self.numbers });
        // SQLite gives up the whole transaction by itself after some errors, such as a full disk.
        if self.connection.is_autocommit() {
            return Err(done.err().unwrap_or_else(stopped));
        }
        if done.is_err() {
            self.numbers.document_head = head;
            self.step("ROLLBACK TO one")?;
        }
        Ok(self.step("RELEASE one")?)
    }

    fn undo(&mut self) {
        self.numbers.document_head = self.shared.document_head.load(Ordering::Acquire);
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(fault) = self.step("ROLLBACK") {
            let error = StoreError::from(fault);
            tracing::error!(%error, "the store could not undo a failed transaction");
        }
    }

    fn step(&self, sql: &str) -> Result<(), Fault> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}
