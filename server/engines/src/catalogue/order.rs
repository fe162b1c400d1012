//! The order of models, and which of each kind is recommended. Pure.

use tns_protocol::provider::{ModelInfo, ModelKind};

/// Sorts models by kind and recommends exactly one of each kind: the first of `preferred` that is there,
/// else the first that is. It comes first of its kind; the others keep their order.
pub(super) fn sorted<'a>(
    mut models: Vec<ModelInfo>,
    preferred: impl Iterator<Item = &'a &'static str> + Clone,
) -> Vec<ModelInfo> {
    for kind in ModelKind::ALL {
        let at = |id: &&str| models.iter().position(|model| model.kind == kind && model.id == *id);
        let best = preferred.clone().find_map(at);
        let best = best.or_else(|| models.iter().position(|model| model.kind == kind));
        if let Some(best) = best.and_then(|at| models.get_mut(at)) {
            best.recommended = true;
        }
    }
    models.sort_by_key(|model| (model.kind, !model.recommended));
    models
}

/// Returns the kinds of models, each once, in order.
pub(super) fn kinds(models: &[ModelInfo]) -> Vec<ModelKind> {
    let is_there = |kind: &ModelKind| models.iter().any(|model| model.kind == *kind);
    ModelKind::ALL.into_iter().filter(is_there).collect()
}

#[cfg(test)]
mod tests {
    use ModelKind::{Embedding, Stt, Text};

    use super::*;
    use crate::catalogue::model;

    #[test]
    fn one_of_each_kind_is_recommended_and_comes_first() {
        let listed = [("e", Embedding), ("a", Text), ("b", Text), ("s", Stt), ("t", Stt), ("c", Text)];
        let listed = listed.map(|(id, kind)| model(id, kind)).to_vec();
        assert_eq!(kinds(&listed), [Text, Stt, Embedding]);
        // A preferred name of another kind is none of this one's.
        let sorted = sorted(listed, ["missing", "s", "c", "b"].iter());
        let shown: Vec<_> = sorted.iter().map(|model| (model.id.as_str(), model.recommended)).collect();
        assert_eq!(shown, [("c", true), ("a", false), ("b", false), ("s", true), ("t", false), ("e", true)]);
        assert!(kinds(&[]).is_empty());
    }
}
