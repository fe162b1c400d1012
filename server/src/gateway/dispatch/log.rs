//! What extension `events.1` asks of the server rather than of a session's task: hello, and reading the log.

use tns_protocol::log::{EXTENSION, Hello, HistoryGet, MAX_SYNC_EVENTS};
use tns_protocol::session::{Feedback, SessionFork, SessionForked, SessionList, SessionListResult};
use tns_protocol::{RequestId, SessionId};
use tns_server_core::session::{JoinKind, SessionCommand};
use tns_server_core::store::{EventQuery, Take};

use super::{Dispatcher, Refused, invalid};
use crate::gateway::error::ApiError;
use crate::gateway::{rest, translate};

/// Most characters of a client's name and version that are logged.
const MAX_PROGRAM_CHARS: usize = 64;

impl Dispatcher {
    pub(super) async fn hello(
        &mut self,
        id: &SessionId,
        re: Option<RequestId>,
        hello: Hello,
    ) -> Result<(), Refused> {
        let Hello { ext, client, last_seq, epoch, watch } = hello;
        if !ext.iter().any(|name| name == EXTENSION) {
            return Err(invalid(format!("ext names nothing that this server knows; it knows {EXTENSION}")));
        }
        if let Some(client) = client {
            let shown = |text: &str| text.chars().take(MAX_PROGRAM_CHARS).collect::<String>();
            tracing::debug!(name = shown(&client.name), version = shown(&client.version), "hello");
        }
        // Before it joins, so that it is never sent a frame of the other face.
        self.outbox.extend();
        self.watches = watch;
        let kind = if last_seq.is_some() { JoinKind::Resumes } else { JoinKind::Pending };
        let handle = self.session(id, true, kind).await?;
        let send = |command| handle.try_send(command).map_err(|error| (error.code(), error.to_string()));
        send(SessionCommand::Hello(self.reply_to(re.clone())))?;
        match last_seq {
            Some(seq) => send(SessionCommand::Resume(seq, epoch, self.reply_to(re))),
            None => Ok(()),
        }
    }

    /// Answers a page of the log.
    pub(super) async fn history(
        &mut self,
        id: &SessionId,
        re: Option<RequestId>,
        get: HistoryGet,
    ) -> Result<(), Refused> {
        let limit = get.limit.map_or(MAX_SYNC_EVENTS, |limit| limit as usize);
        if !(1..=MAX_SYNC_EVENTS).contains(&limit) {
            return Err(invalid(format!("limit must be 1 to {MAX_SYNC_EVENTS}")));
        }
        let handle = self.session(id, true, JoinKind::Pending).await?;
        let newest = get.after_seq.is_none() && get.before_seq.is_some();
        let take = if newest { Take::Last } else { Take::First };
        let after = get.after_seq.unwrap_or(0);
        let query = EventQuery { after, before: get.before_seq, limit, take, kinds: None };
        let page = handle.log().store.events(handle.log().session, query).await;
        let page = page.map_err(|error| (error.code(), error.to_string()))?;
        self.outbox.push(translate::history_sync(id, re, after, &page.events, page.more));
        Ok(())
    }

    pub(super) async fn list(
        &mut self,
        id: &SessionId,
        re: Option<RequestId>,
        list: SessionList,
    ) -> Result<(), Refused> {
        let limit = list.limit.map(|limit| limit as usize);
        let page = rest::sessions::page(&self.gateway, list.cursor.as_deref(), limit).await;
        let page = page.map_err(ApiError::into_refusal)?;
        let result = SessionListResult { sessions: page.sessions, next_cursor: page.next_cursor };
        self.outbox.push(translate::to_one(id, re, result.into()));
        Ok(())
    }

    pub(super) async fn fork(
        &mut self,
        id: &SessionId,
        re: Option<RequestId>,
        fork: SessionFork,
    ) -> Result<(), Refused> {
        let handle = self.session(id, false, JoinKind::Pending).await?;
        let forked = rest::sessions::fork(&self.gateway, &handle, fork.at_seq, None, None).await;
        let forked = forked.map_err(ApiError::into_refusal)?;
        let forked = SessionForked { new_session_id: forked.identity().id.clone(), head_seq: fork.at_seq };
        self.outbox.push(translate::to_one(id, re, forked.into()));
        Ok(())
    }

    pub(super) async fn feedback(
        &mut self,
        id: &SessionId,
        re: Option<RequestId>,
        feedback: Feedback,
    ) -> Result<(), Refused> {
        let handle = self.session(id, false, JoinKind::Pending).await?;
        let stored = rest::sessions::rate(&handle, feedback).await.map_err(ApiError::into_refusal)?;
        self.outbox.push(translate::to_one(id, re, stored.into()));
        Ok(())
    }
}
