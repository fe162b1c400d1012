//! The threads that read, each with its own connection, opened at its first job.
//! An async thread only waits for the answer; a reader never writes.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tns_server_core::store::StoreError;
use tokio::sync::oneshot;

use super::error::{Fault, from_io, stopped};

/// Threads that read. Reads are short and mostly in memory; the second keeps a long page of one session
/// from holding up another.
const READERS: usize = 2;
/// Reads that may wait; full → [`StoreError::Busy`] at once.
const READ_QUEUE: usize = 256;

/// A read; it is told why where there is no connection.
type Job = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

/// The handle to the threads. Dropped, it waits until the reads that were asked for are done.
pub(super) struct Readers {
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts the threads.
    pub(super) fn start(path: &Path, busy_timeout: Duration) -> Result<Self, StoreError> {
        let (sender, receiver) = sync_channel(READ_QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut readers = Self { jobs: Some(sender), threads: Vec::with_capacity(READERS) };
        for number in 0..READERS {
            let (path, jobs) = (path.to_owned(), Arc::clone(&receiver));
            let thread = std::thread::Builder::new()
                .name(format!("store-read-{number}"))
                .spawn(move || serve(path, &jobs, busy_timeout))
                .map_err(|error| from_io("start a reading thread", &error))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Runs `read` on one of the threads, in a snapshot of its own. It is left out if nobody waits for it any more.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            if !reply.is_closed() {
                // Whoever asked may have left meanwhile.
                let _ = reply.send(connection.and_then(|connection| Ok(in_snapshot(connection, read)?)));
            }
        });
        let Some(jobs) = &self.jobs else { return Err(stopped()) };
        match jobs.try_send(job) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(stopped())),
            Err(TrySendError::Full(_)) => Err(StoreError::Busy),
            Err(TrySendError::Disconnected(_)) => Err(stopped()),
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reading thread of the store had panicked");
            }
        }
    }
}

fn serve(path: PathBuf, jobs: &Mutex<Receiver<Job>>, busy_timeout: Duration) {
    let mut connection = None;
    loop {
        // One thread waits at the queue, the others at the lock: both get one job a turn.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        if connection.is_none() {
            match super::connection::open_reader(&path, busy_timeout) {
                Ok(opened) => connection = Some(opened),
                Err(fault) => {
                    job(Err(fault.into()));
                    continue;
                }
            }
        }
        job(connection.as_ref().ok_or_else(stopped));
    }
}

fn in_snapshot<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let value = read(&snapshot)?;
    snapshot.finish()?;
    Ok(value)
}
