//! Taking a session in that comes from elsewhere: gathered aside a batch at a time, checked as a whole, then there.
//!
//! What holds after its last event is read from its events, never from what somebody says of them.

use tns_protocol::{MessageId, SessionId};

use super::actor::Lifetime;
use super::fork::Fold;
use super::registry::{Registry, RegistryError, is_alive};
use super::{MAX_QUEUED, SessionHandle};
use crate::agent::MAX_AGENTS;
use crate::event::DurableEvent;
use crate::recovery;
use crate::store::{ImportKey, ImportedEvent, NewImport, Score, SessionState, StoreError};

/// Events that are handed to the store together.
const BATCH_EVENTS: usize = 500;
/// Bytes of events after which they are handed to the store; one event may be larger.
const BATCH_BYTES: usize = 1 << 20;
/// Most messages of an imported session that somebody rated. They wait in memory for the end.
pub const MAX_RATED: usize = 1_000;
/// What is told of a turn that was exported before its end.
const CUT: &str = "the session was exported while this reply was written; send the message again";

/// A session that is being taken in. Whoever drops it unfinished calls [`Registry::abandon_import`].
#[derive(Debug)]
pub struct Import {
    key: ImportKey,
    principal: String,
    id: SessionId,
    /// What held before its first event.
    begins: SessionState,
    fold: Fold,
    batch: Vec<ImportedEvent>,
    bytes: usize,
    rated: Vec<(MessageId, Score)>,
}

impl Import {
    /// Returns the store's key of it.
    pub fn key(&self) -> ImportKey {
        self.key
    }
}

impl Registry {
    /// Whether a session has this id, kept or temporary.
    ///
    /// # Errors
    /// The store's reason.
    pub async fn is_taken(&self, principal: &str, id: &SessionId) -> Result<bool, RegistryError> {
        let place = self.place(principal, id);
        let place = place.lock().await;
        let store = &self.deps_of(Lifetime::Kept).store;
        Ok(is_alive(place.as_ref()) || store.find_session(principal, id).await?.is_some())
    }

    /// Begins to take a session in. `begins` is what held before its first event: of it count the agents, the
    /// budget, and whether sensitive data was read.
    ///
    /// # Errors
    /// The store's reason, or that the id is taken, or that there are no agents or too many.
    pub async fn begin_import(&self, new: NewImport, begins: SessionState) -> Result<Import, RegistryError> {
        check_roster(begins.agents.len())?;
        let (principal, id) = (new.principal.clone(), new.id.clone());
        let store = &self.deps_of(Lifetime::Kept).store;
        let Some(key) = store.begin_import(new).await? else { return Err(RegistryError::Exists(id)) };
        let fold = Fold::default();
        Ok(Import { key, principal, id, begins, fold, batch: Vec::new(), bytes: 0, rated: Vec::new() })
    }

    /// Adds an event of `size` bytes, with what somebody thinks of it.
    ///
    /// # Errors
    /// The store's reason, or why no session may have such an event here.
    pub async fn import_event(
        &self,
        import: &mut Import,
        event: ImportedEvent,
        score: Option<Score>,
        size: usize,
    ) -> Result<(), RegistryError> {
        check(&event.event)?;
        import.fold.take(event.turn.as_ref(), &event.event);
        if import.fold.open_turns() > MAX_QUEUED + 1 {
            let text = format!("more than {} turns have no end", MAX_QUEUED + 1);
            return Err(RegistryError::NotTakenIn(text));
        }
        if let Some(score) = score {
            let Some(message) = message_of(&event.event) else {
                return Err(RegistryError::NotTakenIn("only a message can have feedback".into()));
            };
            if import.rated.len() == MAX_RATED {
                let text = format!("more than {MAX_RATED} messages have feedback");
                return Err(RegistryError::NotTakenIn(text));
            }
            import.rated.push((message.clone(), score));
        }
        import.batch.push(event);
        import.bytes += size;
        if import.batch.len() >= BATCH_EVENTS || import.bytes >= BATCH_BYTES {
            self.hand_over(import).await?;
        }
        Ok(())
    }

    async fn hand_over(&self, import: &mut Import) -> Result<(), StoreError> {
        import.bytes = 0;
        let events = std::mem::take(&mut import.batch);
        self.deps_of(Lifetime::Kept).store.import_events(import.key, events).await
    }

    /// Makes the session. A turn that was exported before its end gets one.
    ///
    /// # Errors
    /// The store's reason, or that the id was taken meanwhile; then there is nothing of it.
    pub async fn finish_import(&self, mut import: Import) -> Result<SessionHandle, RegistryError> {
        self.hand_over(&mut import).await?;
        let store = self.deps_of(Lifetime::Kept).store.clone();
        let Import { key, principal, id, begins, fold, rated, .. } = import;
        // Held to the end, so that nobody finds it before it is whole.
        let place = self.place(&principal, &id);
        let mut place = place.lock().await;
        if is_alive(place.as_ref()) {
            return Err(RegistryError::Exists(id));
        }
        let Some(record) = store.finish_import(key, fold.taken_in(&begins)).await? else {
            return Err(RegistryError::Exists(id));
        };
        let completed = async {
            for (message, score) in rated {
                store.rate(record.key, &message, Some(score)).await?;
            }
            recovery::end_turns_of(store.as_ref(), &record, CUT).await?;
            store.find_session(&principal, &id).await?.ok_or(StoreError::NoSession)
        };
        match completed.await {
            Ok(record) => Ok(self.launch(&mut place, record, Lifetime::Kept)),
            Err(error) => {
                // Half of a session is worse than none, and the file is still where it was.
                if let Err(error) = store.delete_session(record.key).await {
                    tracing::error!(session = %id, %error, "a session was taken in without its end");
                }
                Err(error.into())
            }
        }
    }

    /// Throws an import away. One that is finished or gone is no error.
    ///
    /// # Errors
    /// The store's reason; the next start throws it away.
    pub async fn abandon_import(&self, key: ImportKey) -> Result<(), StoreError> {
        self.deps_of(Lifetime::Kept).store.abandon_import(key).await
    }
}

fn check(event: &DurableEvent) -> Result<(), RegistryError> {
    match event {
        DurableEvent::Closing(_) => {
            Err(RegistryError::NotTakenIn("a session that has ended can't be taken in".into()))
        }
        DurableEvent::TeamUpdated(team) => check_roster(team.agents.len()),
        _ => Ok(()),
    }
}

fn check_roster(agents: usize) -> Result<(), RegistryError> {
    match (1..=MAX_AGENTS).contains(&agents) {
        true => Ok(()),
        false => {
            Err(RegistryError::NotTakenIn(format!("a session has 1 to {MAX_AGENTS} agents, not {agents}")))
        }
    }
}

fn message_of(event: &DurableEvent) -> Option<&MessageId> {
    match event {
        DurableEvent::UserMessage(message) => Some(&message.id),
        DurableEvent::AssistantMessage(message) => Some(&message.id),
        _ => None,
    }
}
