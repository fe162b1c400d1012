//! Changes one key in the text of a config file and leaves the rest, comments too, as it is. Pure.

use secrecy::{ExposeSecret, SecretString};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// Returns the text with this provider's key.
pub(crate) fn with_key(text: &str, provider: &str, key: &SecretString) -> Result<String, &'static str> {
    let mut document = parse(text)?;
    let providers = table(document.as_table_mut(), "providers", Header::Hidden)?;
    let own = table(providers, provider, Header::Shown)?;
    match own.get_mut("api_key").and_then(Item::as_value_mut) {
        Some(value) => {
            let decor = value.decor().clone();
            *value = Value::from(key.expose_secret());
            *value.decor_mut() = decor;
        }
        None => drop(own.insert("api_key", toml_edit::value(key.expose_secret()))),
    }
    Ok(document.to_string())
}

/// Returns the text without this provider's key; `None` when it holds none.
pub(crate) fn without_key(text: &str, provider: &str) -> Result<Option<String>, &'static str> {
    let mut document = parse(text)?;
    let own = document
        .get_mut("providers")
        .and_then(Item::as_table_like_mut)
        .and_then(|providers| providers.get_mut(provider))
        .and_then(Item::as_table_like_mut);
    let removed = own.and_then(|own| own.remove("api_key"));
    Ok(removed.map(|_| document.to_string()))
}

fn parse(text: &str) -> Result<DocumentMut, &'static str> {
    text.parse().map_err(|_| "it is no TOML")
}

/// Whether a new table gets a line of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Shown,
    Hidden,
}

fn table<'a>(
    parent: &'a mut dyn TableLike,
    name: &str,
    header: Header,
) -> Result<&'a mut dyn TableLike, &'static str> {
    if parent.get(name).is_none() {
        let mut table = Table::new();
        table.set_implicit(header == Header::Hidden);
        parent.insert(name, Item::Table(table));
    }
    parent.get_mut(name).and_then(Item::as_table_like_mut).ok_or("providers has another form")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> String {
        with_key(text, "openai", &"new".into()).unwrap()
    }

    #[test]
    fn a_key_is_added_or_replaced_and_the_rest_stays() {
        assert_eq!(set(""), "[providers.openai]\napi_key = \"new\"\n");
        assert_eq!(
            set("# mine\nmodel = \"m\" # why\n"),
            "# mine\nmodel = \"m\" # why\n\n[providers.openai]\napi_key = \"new\"\n"
        );
        assert_eq!(
            set("[providers.openai]\n# one\napi_key = 'old' # two\nbase_url = \"http://h\"\n"),
            "[providers.openai]\n# one\napi_key = \"new\" # two\nbase_url = \"http://h\"\n"
        );
        assert_eq!(
            set("providers = { gemini = { api_key = \"g\" } }\n").matches("api_key").count(),
            2,
            "an inline table is added to"
        );
        assert!(set("providers.openai.base_url = \"http://h\"\n").contains("api_key = \"new\""));
    }

    #[test]
    fn a_key_is_removed_alone() {
        let text = "[providers.openai] # a\napi_key = \"k\"\nbase_url = \"http://h\"\n";
        let without = without_key(text, "openai").unwrap().unwrap();
        assert_eq!(without, "[providers.openai] # a\nbase_url = \"http://h\"\n");
        assert_eq!(without_key(&without, "openai"), Ok(None));
        assert_eq!(without_key("", "openai"), Ok(None));
    }

    #[test]
    fn quotes_and_backslashes_in_a_key_stay_what_they_are() {
        let text = with_key("", "openai", &"a\"b\\c'".into()).unwrap();
        let values = super::super::read::read(&text).unwrap();
        assert_eq!(values.keys["openai"].expose_secret(), "a\"b\\c'");
    }
}
