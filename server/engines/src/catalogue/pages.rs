//! Lists that come in pages, read to their end. It must not know how a provider names its pages.

use tns_server_core::engine::{EngineError, EngineErrorKind};

/// Most pages of one list. More → an error, so that a provider that never comes to an end is noticed.
pub(crate) const MAX_PAGES: usize = 20;

/// One page, and what to ask the next one with.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

/// Reads all pages; `page` asks for one, the first without a mark.
///
/// # Errors
/// Those of `page`, and [`EngineErrorKind::Provider`] beyond [`MAX_PAGES`].
pub(crate) async fn all<T, F>(
    provider: &str,
    mut page: impl FnMut(Option<String>) -> F,
) -> Result<Vec<T>, EngineError>
where
    F: Future<Output = Result<Page<T>, EngineError>>,
{
    let (mut items, mut next) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let read = page(next).await?;
        items.extend(read.items);
        next = read.next.filter(|mark| !mark.is_empty());
        if next.is_none() {
            return Ok(items);
        }
    }
    let message = format!("{provider} lists more than {MAX_PAGES} pages, or the same one again and again");
    Err(EngineError { kind: EngineErrorKind::Provider, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a list of so many pages.
    async fn read(pages: usize) -> Result<Vec<usize>, EngineError> {
        all("openai", |mark| async move {
            let at: usize = mark.map_or(1, |mark| mark.parse().unwrap());
            Ok(Page { items: vec![at], next: (at < pages).then(|| (at + 1).to_string()) })
        })
        .await
    }

    #[tokio::test]
    async fn pages_are_read_to_the_end_up_to_their_limit() {
        assert_eq!(read(3).await.unwrap(), [1, 2, 3]);
        assert_eq!(read(MAX_PAGES).await.unwrap().len(), MAX_PAGES);
        let error = read(MAX_PAGES + 1).await.unwrap_err();
        assert_eq!(error.kind, EngineErrorKind::Provider);
        assert!(error.message.contains("more than 20 pages"), "{error}");
    }
}
