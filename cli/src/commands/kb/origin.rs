//! Where a document comes from, as its metadata says it, and which older documents a new one takes the place
//! of. It asks the server nothing.

use std::path::Path;

use serde_json::{Map, Value};
use tns_protocol::DocumentId;
use tns_protocol::knowledge::DocumentInfo;

use crate::commands::kb::Scope;

/// The place as the command named it; what people read.
const SOURCE: &str = "source";
/// The file's whole path: the same name in two folders is two files.
const PATH: &str = "path";
/// Whose searches find the document, which a list does not tell otherwise.
const SCOPE: &str = "scope";

/// Where a document comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    source: Option<String>,
    path: Option<String>,
    scope: Scope,
}

impl Origin {
    /// Describes a text that is named `source` and, for a file, lies at `file`.
    pub(super) fn new(source: Option<String>, file: Option<&Path>, scope: Scope) -> Self {
        // A path that is not UTF-8 has no name that is surely its own.
        let path = file.and_then(|file| Some(std::path::absolute(file).ok()?.to_str()?.to_owned()));
        Self { source, path, scope }
    }

    /// Returns it as a document's metadata; `None` where the text has no place.
    pub(super) fn metadata(&self) -> Option<Map<String, Value>> {
        let mut metadata = Map::new();
        metadata.insert(SOURCE.to_owned(), self.source.clone()?.into());
        if let Some(path) = &self.path {
            metadata.insert(PATH.to_owned(), path.clone().into());
            metadata.insert(SCOPE.to_owned(), self.scope.as_str().into());
        }
        Some(metadata)
    }

    /// Returns those of the documents that hold what this file said before it became `current`.
    pub(super) fn older<'a>(
        &'a self,
        documents: &'a [DocumentInfo],
        current: &'a DocumentId,
    ) -> impl Iterator<Item = &'a DocumentId> {
        let said = |document: &'a DocumentInfo, key| document.metadata.get(key).and_then(Value::as_str);
        documents
            .iter()
            .filter(move |document| {
                self.path.is_some()
                    && said(document, PATH) == self.path.as_deref()
                    && said(document, SCOPE) == Some(self.scope.as_str())
                    && document.document_id != *current
            })
            .map(|document| &document.document_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(id: &str, origin: &Origin) -> DocumentInfo {
        DocumentInfo {
            document_id: DocumentId::parse(id).unwrap(),
            preview: "text".into(),
            content_length: 4,
            metadata: origin.metadata().unwrap_or_default(),
        }
    }

    fn of_file(path: &str, scope: Scope) -> Origin {
        Origin::new(Some("a.md".into()), Some(Path::new(path)), scope)
    }

    #[test]
    fn only_the_same_file_in_the_same_scope_is_older() {
        let own = of_file("/x/a.md", Scope::Project);
        let documents = [
            document("before", &own),
            document("current", &own),
            document("scope", &of_file("/x/a.md", Scope::User)),
            document("folder", &of_file("/y/a.md", Scope::Project)),
            document("named", &Origin::new(Some("a.md".into()), None, Scope::Project)),
            document("literal", &Origin::new(None, None, Scope::Project)),
        ];
        let current = DocumentId::parse("current").unwrap();
        let older: Vec<&str> = own.older(&documents, &current).map(DocumentId::as_str).collect();
        assert_eq!(older, ["before"]);
        // What is no file takes no place.
        let stdin = Origin::new(Some("stdin".into()), None, Scope::Project);
        assert_eq!(stdin.older(&documents, &current).count(), 0);
    }

    #[test]
    fn a_file_is_known_by_its_whole_path_and_a_literal_by_nothing() {
        let whole = std::path::absolute("a.md").unwrap();
        for name in ["a.md", "./a.md"] {
            let metadata = of_file(name, Scope::Session).metadata().unwrap();
            assert_eq!(metadata[PATH], whole.to_str().unwrap());
            assert_eq!((&metadata[SOURCE], &metadata[SCOPE]), (&"a.md".into(), &"session".into()));
        }
        assert_eq!(Origin::new(None, None, Scope::User).metadata(), None);
    }
}
