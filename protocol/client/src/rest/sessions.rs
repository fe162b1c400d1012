//! The calls about sessions: making, reading, naming, copying, rating, finding, erasing.

use reqwest::Method;
use tns_protocol::approval::RulesListResult;
use tns_protocol::rest::{
    CreateSession, EventList, ForkSession, MessageList, RenameSession, Renamed, SearchList, SessionDetail,
    SessionList,
};
use tns_protocol::session::{Feedback, FeedbackStored};
use tns_protocol::{RuleId, Seq, SessionId};

use super::{Rest, accepted};
use crate::ClientError;

impl Rest {
    /// POST `/api/sessions`: makes the session, or returns it unchanged when its id is there.
    ///
    /// # Errors
    /// As [`Self::health`].
    pub async fn create_session(&self, body: CreateSession) -> Result<SessionDetail, ClientError> {
        self.post(&["api", "sessions"], &body).await
    }

    /// GET `/api/sessions`: one page, newest first; the server's own page size when `limit` is absent.
    ///
    /// # Errors
    /// As [`Self::health`].
    pub async fn sessions(
        &self,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<SessionList, ClientError> {
        let limit = limit.map(|limit| limit.to_string());
        let query: Vec<_> =
            cursor.map(|c| ("cursor", c)).into_iter().chain(limit.as_deref().map(|l| ("limit", l))).collect();
        self.get(&["api", "sessions"], &query).await
    }

    /// GET `/api/sessions/{id}`.
    ///
    /// # Errors
    /// As [`Self::health`]; an unknown session is `SESSION_NOT_FOUND`.
    pub async fn session(&self, id: &SessionId) -> Result<SessionDetail, ClientError> {
        self.get(&["api", "sessions", id.as_str()], &[]).await
    }

    /// GET `/api/sessions/{id}/messages`: one page after `after_seq`, oldest first.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn messages(
        &self,
        id: &SessionId,
        after_seq: Seq,
        limit: Option<u32>,
    ) -> Result<MessageList, ClientError> {
        let after = after_seq.to_string();
        let limit = limit.map(|limit| limit.to_string());
        let query: Vec<_> = std::iter::once(("afterSeq", after.as_str()))
            .chain(limit.as_deref().map(|limit| ("limit", limit)))
            .collect();
        self.get(&["api", "sessions", id.as_str(), "messages"], &query).await
    }

    /// GET `/api/sessions/{id}/events`: one page of durable events after `after`, ascending.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn events(&self, id: &SessionId, after: Seq) -> Result<EventList, ClientError> {
        let after = after.to_string();
        let query = [("after", after.as_str()), ("live", "0")];
        self.get(&["api", "sessions", id.as_str(), "events"], &query).await
    }

    /// GET `/api/sessions/{id}/rules`: what runs unasked since an `always`, oldest first.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn rules(&self, id: &SessionId) -> Result<RulesListResult, ClientError> {
        self.get(&["api", "sessions", id.as_str(), "rules"], &[]).await
    }

    /// DELETE `/api/sessions/{id}/rules/{ruleId}`: what it covered asks again.
    ///
    /// # Errors
    /// As [`Self::session`]; `NOT_FOUND` for a rule that does not hold there.
    pub async fn remove_rule(&self, id: &SessionId, rule: &RuleId) -> Result<(), ClientError> {
        let url = self.url_of(&["api", "sessions", id.as_str(), "rules", rule.as_str()], &[]);
        accepted(self.call(Method::DELETE, url, None).await?).await?;
        Ok(())
    }

    /// GET `/api/sessions/search`: one page of messages and titles that have all words, best first; the server's own
    /// page size when `limit` is absent.
    ///
    /// # Errors
    /// As [`Self::health`]; `INVALID_MESSAGE` for a blank query.
    pub async fn search_sessions(
        &self,
        query: &str,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<SearchList, ClientError> {
        let limit = limit.map(|limit| limit.to_string());
        let query: Vec<_> = std::iter::once(("q", query))
            .chain(cursor.map(|cursor| ("cursor", cursor)))
            .chain(limit.as_deref().map(|limit| ("limit", limit)))
            .collect();
        self.get(&["api", "sessions", "search"], &query).await
    }

    /// PATCH `/api/sessions/{id}`: names the session; `None` takes the title away.
    ///
    /// # Errors
    /// As [`Self::session`]; `INVALID_MESSAGE` for a title that is too long.
    pub async fn rename_session(
        &self,
        id: &SessionId,
        title: Option<String>,
    ) -> Result<Renamed, ClientError> {
        self.send(Method::PATCH, &["api", "sessions", id.as_str()], &RenameSession { title }).await
    }

    /// POST `/api/sessions/{id}/fork`: makes a session that begins with a part of this one's log.
    ///
    /// # Errors
    /// As [`Self::session`]; `INVALID_MESSAGE` where a turn has not ended there, or the new id is taken.
    pub async fn fork_session(
        &self,
        id: &SessionId,
        body: ForkSession,
    ) -> Result<SessionDetail, ClientError> {
        self.post(&["api", "sessions", id.as_str(), "fork"], &body).await
    }

    /// DELETE `/api/sessions/{id}`: ends what runs and erases everything of it.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn delete_session(&self, id: &SessionId) -> Result<(), ClientError> {
        let url = self.url_of(&["api", "sessions", id.as_str()], &[]);
        accepted(self.call(Method::DELETE, url, None).await?).await.map(drop)
    }

    /// POST `/api/sessions/{id}/feedback`: keeps what somebody thinks of a message.
    ///
    /// # Errors
    /// As [`Self::session`]; `NOT_FOUND` for an unknown message.
    pub async fn rate_message(&self, id: &SessionId, body: Feedback) -> Result<FeedbackStored, ClientError> {
        self.post(&["api", "sessions", id.as_str(), "feedback"], &body).await
    }
}
