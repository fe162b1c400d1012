//! Searching a store in memory: everything is looked at, the newest first.

use super::Inner;
use crate::search::{Candidate, MAX_CANDIDATE_BYTES, MAX_CANDIDATES, MAX_TITLES, Question, rank, text_of};
use crate::store::{SearchHit, SearchPage, SearchQuery, SearchSource};

impl Inner {
    pub(super) fn search(&self, query: &SearchQuery) -> SearchPage {
        let question = Question::parse(&query.text);
        let head = query.after.map_or(self.gseq, |cursor| cursor.head);
        let mut candidates = self.messages(query, &question, head);
        candidates.extend(self.titles(query, &question));
        SearchPage::of(rank(candidates), query, head)
    }

    fn messages(&self, query: &SearchQuery, question: &Question, head: u64) -> Vec<Candidate<SearchHit>> {
        let sessions = self.sessions.values().filter(|session| session.record.principal == query.principal);
        let mut rows: Vec<_> = sessions
            .flat_map(|session| session.events.iter().map(move |event| (&session.record, event)))
            .filter(|(_, event)| event.place.gseq <= head)
            .collect();
        rows.sort_by_key(|(_, event)| std::cmp::Reverse(event.place.gseq));
        let mut bytes = 0;
        let mut candidates = Vec::new();
        for (record, event) in rows {
            let Some((source, text)) = text_of(&event.event) else { continue };
            let Some(found) = question.find_in(&text) else { continue };
            if candidates.len() == MAX_CANDIDATES || bytes >= MAX_CANDIDATE_BYTES {
                break;
            }
            bytes += text.len();
            let hit = SearchHit {
                key: record.key,
                session: record.id.clone(),
                title: record.title.clone(),
                source,
                seq: Some(event.place.seq),
                at: event.place.at,
                snippet: String::new(),
                matches: Vec::new(),
                score: 0.0,
            };
            candidates.push(Candidate { item: hit, at: event.place.at, found });
        }
        candidates
    }

    fn titles(&self, query: &SearchQuery, question: &Question) -> Vec<Candidate<SearchHit>> {
        let records = self.sessions.values().rev().map(|session| &session.record);
        let titled = records.filter(|record| record.principal == query.principal).filter_map(|record| {
            let found = question.find_in(record.title.as_deref()?)?;
            let hit = SearchHit {
                key: record.key,
                session: record.id.clone(),
                title: record.title.clone(),
                source: SearchSource::Title,
                seq: None,
                at: record.created_at,
                snippet: String::new(),
                matches: Vec::new(),
                score: 0.0,
            };
            Some(Candidate { item: hit, at: record.created_at, found })
        });
        titled.take(MAX_TITLES).collect()
    }
}
