//! The thread that writes. Everything that waits goes into one transaction and is acknowledged after
//! its commit: the flush of the disk is the whole cost of a commit, and a group pays it once.
//!
//! A work that fails is undone alone, by its savepoint. A transaction that fails acknowledges nothing
//! of its group, and the next group starts afresh.
//!
//! What finds titles is written once a group, before its commit: the index pays by the transaction. What finds
//! messages follows when nothing was written for a while, or in a group that would leave the index too far behind.
//! While nothing waits, chores are done in small steps.

mod follow;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tns_server_core::store::StoreError;
use tokio::sync::oneshot;

use super::chores::Left;
use super::error::{Fault, from_io, stopped};
use super::index::{Change, Covered};
use super::{Numbers, Options, Shared, chores, index};

/// Writes that may wait; full → [`StoreError::Busy`] at once.
pub(super) const WRITE_QUEUE: usize = 1024;
/// Most writes of one transaction, so that the first of them is not kept waiting by those that follow.
const GROUP: usize = 256;
/// How long an erasing write waits for readers, so that the log file can be emptied; longer ones are waited
/// out beside other work.
const SCRUB_WAIT: Duration = Duration::from_millis(200);
/// How soon emptying the log file is tried again.
const SCRUB_AGAIN: Duration = Duration::from_secs(1);
/// Something to be written.
pub(super) trait Work: Send + 'static {
    /// What it gives back once it is committed.
    type Output: Send;

    /// How it shares a transaction.
    const COMPANY: Company = Company::Any;

    /// Writes. An error undoes what was written here, and nothing else.
    fn run(&self, write: &mut Write<'_>) -> Result<Self::Output, Fault>;
}

/// How a work shares a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// With whatever waits.
    Any,
    /// With none: it takes long, or it reads the index that others of its group had changed.
    Alone,
    /// With none, and what it erased must not stay in the log file.
    AloneErasing,
}

/// What a [`Work`] writes with.
pub(super) struct Write<'a> {
    /// The connection, inside the group's transaction.
    pub(super) connection: &'a Connection,
    /// The next places.
    pub(super) numbers: &'a mut Numbers,
    /// What the index is told of titles before the commit.
    pub(super) titles: &'a mut Vec<Change>,
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
        options: &Options,
    ) -> Result<Self, StoreError> {
        let indexed = Covered::read(&connection)?.to;
        let index_damaged = index::is_damaged(&connection)?;
        let (sender, jobs) = sync_channel(WRITE_QUEUE);
        let owner = Owner {
            connection,
            numbers,
            shared,
            busy_timeout: options.busy_timeout,
            jobs,
            held: None,
            titles: Vec::new(),
            indexed,
            follow_at: (indexed < numbers.last_gseq || index_damaged).then(|| Instant::now() + options.quiet),
            quiet: options.quiet,
            index_damaged,
            renewed: None,
            index_stuck: false,
            chores: Chores::Waiting,
            unscrubbed: None,
            #[cfg(test)]
            failing: options.failing.clone(),
        };
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
    fn company(&self) -> Company;
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

    fn company(&self) -> Company {
        W::COMPANY
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
    /// Taken from the queue too early.
    held: Option<Box<dyn Job>>,
    /// What the index is told of titles before this group's commit.
    titles: Vec<Change>,
    /// The last place up to which messages are in the index.
    indexed: u64,
    /// When the index is to follow. `None`: there is nothing for it, or it failed since the last write.
    follow_at: Option<Instant>,
    quiet: Duration,
    /// It is to be made anew; groups leave it alone until then.
    index_damaged: bool,
    /// When that was last tried.
    renewed: Option<Instant>,
    /// Its last step failed for another reason. Groups leave it alone until one succeeds.
    index_stuck: bool,
    chores: Chores,
    /// Erased text is still in the log file; when emptying that was last tried.
    unscrubbed: Option<Instant>,
    #[cfg(test)]
    failing: Failing,
}

/// Whether there is something to be done while nothing waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chores {
    Waiting,
    /// One failed: they rest until a write succeeds.
    Resting,
    Done,
}

impl Owner {
    /// Serves until every handle is gone and the queue is empty.
    fn serve(mut self) {
        while let Some(first) = self.next() {
            match self.begin(first.queued() + self.busy_timeout) {
                Ok(()) => self.write_group(first),
                // Those behind it stay in the queue and have their own deadline.
                Err(error) => first.answer(Err(error)),
            }
        }
    }

    /// Waits for the next job and does chores meanwhile.
    fn next(&mut self) -> Option<Box<dyn Job>> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        loop {
            if self.chores == Chores::Waiting {
                match self.jobs.try_recv() {
                    Ok(job) => return Some(job),
                    Err(TryRecvError::Disconnected) => return None,
                    Err(TryRecvError::Empty) if self.follow_at.is_some_and(|at| at <= Instant::now()) => {
                        self.follow_in_quiet();
                    }
                    Err(TryRecvError::Empty) => self.do_chore(),
                }
                continue;
            }
            let scrub = self.unscrubbed.map(|tried| tried + SCRUB_AGAIN);
            let Some(next) = self.follow_at.into_iter().chain(scrub).min() else {
                return self.jobs.recv().ok();
            };
            match self.jobs.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.follow_at == Some(next) => self.follow_in_quiet(),
                Err(RecvTimeoutError::Timeout) => self.scrub(),
            }
        }
    }

    /// Does one step of what can wait, in a transaction of its own.
    fn do_chore(&mut self) {
        self.chores = match self.alone(chores::step) {
            Ok(Left::Some) => Chores::Waiting,
            Ok(Left::SomeErased) => {
                self.unscrubbed = self.unscrubbed.or(Some(Instant::now()));
                Chores::Waiting
            }
            Ok(Left::Nothing) => Chores::Done,
            Err(fault) => {
                if fault.is_of_index() {
                    self.index_damaged = true;
                    self.follow_at = Some(Instant::now());
                }
                Chores::Resting
            }
        };
    }

    /// Does something that can wait, in a transaction of its own. Where it fails, nothing has changed.
    fn alone<T>(&self, step: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        self.in_transaction(step).inspect_err(|fault| {
            tracing::warn!(error = %fault.told(), "a chore of the store failed and is done later");
            self.roll_back();
        })
    }

    fn in_transaction<T>(&self, step: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        // Another process that holds the store is not waited for.
        self.connection.busy_timeout(Duration::ZERO)?;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let value = step(&self.connection)?;
        self.connection.execute_batch("COMMIT")?;
        Ok(value)
    }

    fn begin(&self, deadline: Instant) -> Result<(), StoreError> {
        // SQLite counts whole milliseconds; a part of one is waited out, not cut off.
        let wait = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let begun = self.connection.busy_timeout(wait).map_err(Fault::from);
        Ok(begun.and_then(|()| self.step("BEGIN IMMEDIATE"))?)
    }

    fn write_group(&mut self, first: Box<dyn Job>) {
        let company = first.company();
        let mut group = Vec::new();
        let mut next = Some(first);
        let mut intact = Ok(());
        while let Some(mut job) = next {
            intact = self.write_one(&mut *job);
            group.push(job);
            let go_on = intact.is_ok() && group.len() < GROUP && company == Company::Any;
            next = if go_on { self.next_of_group() } else { None };
        }
        let committed = intact.and_then(|()| {
            let indexed = self.tell_index()?;
            self.step("COMMIT")?;
            self.indexed = indexed;
            Ok(())
        });
        self.titles.clear();
        match &committed {
            Ok(()) => {
                self.shared.document_head.store(self.numbers.document_head, Ordering::Release);
                self.shared.head.store(self.numbers.last_gseq, Ordering::Release);
                self.shared.commits.fetch_add(1, Ordering::Relaxed);
                if self.chores == Chores::Resting || company != Company::Any {
                    self.chores = Chores::Waiting;
                }
                self.plan_to_follow();
                let due = self.unscrubbed.is_some_and(|tried| tried.elapsed() >= SCRUB_AGAIN);
                if company == Company::AloneErasing || due {
                    self.scrub();
                }
            }
            Err(error) => {
                tracing::error!(%error, writes = group.len(), "a transaction of the store failed");
                self.numbers.document_head = self.shared.document_head.load(Ordering::Acquire);
                self.roll_back();
            }
        }
        for job in group {
            job.answer(committed.clone());
        }
    }

    /// Returns a job that waits and shares a transaction.
    fn next_of_group(&mut self) -> Option<Box<dyn Job>> {
        let job = self.jobs.try_recv().ok()?;
        if job.company() == Company::Any {
            return Some(job);
        }
        self.held = Some(job);
        None
    }

    /// Runs one job in its savepoint. An error here means that the whole transaction is lost.
    fn write_one(&mut self, job: &mut dyn Job) -> Result<(), StoreError> {
        self.step("SAVEPOINT one")?;
        let (head, changes) = (self.numbers.document_head, self.titles.len());
        let done = job.run(&mut Write {
            connection: &self.connection,
            numbers: &mut self.numbers,
            titles: &mut self.titles,
        });
        // SQLite gives up the whole transaction by itself after some errors, such as a full disk.
        if self.connection.is_autocommit() {
            return Err(done.err().unwrap_or_else(stopped));
        }
        if done.is_err() {
            self.numbers.document_head = head;
            self.titles.truncate(changes);
            self.step("ROLLBACK TO one")?;
        }
        Ok(self.step("RELEASE one")?)
    }

    /// Folds the log into the file and empties it, so that nothing erased is left in it.
    fn scrub(&mut self) {
        self.unscrubbed = Some(Instant::now());
        let emptied = self.connection.busy_timeout(SCRUB_WAIT).and_then(|()| {
            let mut checkpoint = self.connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
            checkpoint.query_row([], |row| Ok(row.get::<_, i64>(0)? == 0))
        });
        match emptied {
            Ok(true) => self.unscrubbed = None,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the store's log file could not be emptied and is later"),
        }
    }

    fn roll_back(&self) {
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(fault) = self.step("ROLLBACK") {
            let error = StoreError::from(fault);
            tracing::error!(%error, "the store could not undo a failed transaction");
        }
    }

    fn step(&self, sql: &str) -> Result<(), Fault> {
        #[cfg(test)]
        self.failing.pass(sql)?;
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Lets one of the statements around a work fail, once: its beginning, its savepoint, the savepoint's end or the
/// commit. Undoing never fails.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
pub(super) struct Failing(Arc<std::sync::Mutex<Option<usize>>>);

#[cfg(test)]
impl Failing {
    /// So many statements pass before the one that fails.
    pub(super) fn fail_at(&self, number: usize) {
        *self.0.lock().unwrap() = Some(number);
    }

    fn pass(&self, sql: &str) -> Result<(), Fault> {
        let mut left = self.0.lock().unwrap();
        if sql.starts_with("ROLLBACK") {
            return Ok(());
        }
        match left.take() {
            Some(0) => Err(super::error::failed("it was told to fail").into()),
            Some(number) => {
                *left = Some(number - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}
