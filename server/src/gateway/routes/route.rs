//! One route: how it is called, what answers it, and what is said of it.

use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{self, MethodRouter};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::gateway::Gateway;

/// Makes the schema of a type.
pub(super) type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// A method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Patch,
    Delete,
}

impl Verb {
    /// Returns its name in the page.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// What a body or an answer holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// JSON of a type.
    Json(MakeSchema),
    /// Text of a media type.
    Text(&'static str),
    /// Nothing.
    Nothing,
}

/// Returns the content of a type in JSON.
pub(super) fn json<T: JsonSchema>() -> Content {
    Content::Json(|generator| generator.subschema_for::<T>())
}

/// A route with what is said of it. Made by the table only, so that a route without words can't be.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) verbs: &'static [Verb],
    pub(super) handler: MethodRouter<Arc<Gateway>>,
    /// One line.
    pub(super) summary: &'static str,
    /// An object whose members are the parameters of the query.
    pub(super) query: Option<MakeSchema>,
    pub(super) body: Vec<Content>,
    /// Whether a request without a body is fine.
    pub(super) body_required: bool,
    pub(super) answers: Vec<(u16, Content)>,
}

impl Route {
    fn new(
        path: &'static str,
        verbs: &'static [Verb],
        handler: MethodRouter<Arc<Gateway>>,
        summary: &'static str,
    ) -> Self {
        let (body, answers) = (Vec::new(), Vec::new());
        Self { path, verbs, handler, summary, query: None, body, body_required: true, answers }
    }

    pub(super) fn get<H, T>(path: &'static str, handler: H, summary: &'static str) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self::new(path, &[Verb::Get], routing::get(handler), summary)
    }

    pub(super) fn post<H, T>(path: &'static str, handler: H, summary: &'static str) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self::new(path, &[Verb::Post], routing::post(handler), summary)
    }

    pub(super) fn patch<H, T>(path: &'static str, handler: H, summary: &'static str) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self::new(path, &[Verb::Patch], routing::patch(handler), summary)
    }

    pub(super) fn delete<H, T>(path: &'static str, handler: H, summary: &'static str) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self::new(path, &[Verb::Delete], routing::delete(handler), summary)
    }

    /// A route that answers every method alike; `verbs` are those that the page names.
    pub(super) fn any<H, T>(
        path: &'static str,
        verbs: &'static [Verb],
        handler: H,
        summary: &'static str,
    ) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self::new(path, verbs, routing::any(handler), summary)
    }

    /// Takes the members of `T` as its query.
    pub(super) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(|generator| T::json_schema(generator));
        self
    }

    /// Takes a body.
    pub(super) fn takes(mut self, content: Content) -> Self {
        self.body.push(content);
        self
    }

    /// Takes a body that may be left out.
    pub(super) fn may_take(mut self, content: Content) -> Self {
        self.body_required = false;
        self.takes(content)
    }

    /// Answers so.
    pub(super) fn answers(mut self, status: u16, content: Content) -> Self {
        self.answers.push((status, content));
        self
    }
}
