//! The page that describes the routes: OpenAPI 3.1, whose schemas are JSON Schema 2020-12 as they come from the types.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use tns_protocol::rest::ErrorBody;

use super::route::{Content, Route};
use super::table;

/// Where schemas that have a name are kept.
const SCHEMAS: &str = "/components/schemas";

/// Returns the page.
pub(crate) fn page() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = SCHEMAS.into());
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in table() {
        for verb in route.verbs {
            let operation = operation(&mut generator, &route);
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            path[verb.as_str()] = operation;
        }
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "tns",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Sessions of AI agents over HTTP. Every error is {\"error\": {\"code\", \"message\"}}.",
        },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn operation(generator: &mut SchemaGenerator, route: &Route) -> Value {
    let mut parameters = path_parameters(route.path);
    parameters.extend(query_parameters(generator, route));
    let mut operation = json!({ "summary": route.summary, "responses": responses(generator, route) });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !route.body.is_empty() {
        let mut content = Map::new();
        route.body.iter().for_each(|body| add_content(generator, &mut content, *body));
        operation["requestBody"] = json!({ "required": route.body_required, "content": content });
    }
    operation
}

/// Returns the names in braces.
fn path_parameters(path: &str) -> Vec<Value> {
    let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    named
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect()
}

fn query_parameters(generator: &mut SchemaGenerator, route: &Route) -> Vec<Value> {
    let Some(make) = route.query else { return Vec::new() };
    let schema = make(generator).to_value();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    properties
        .into_iter()
        .map(|(name, schema)| {
            let required = required.contains(&json!(name));
            json!({ "name": name, "in": "query", "required": required, "schema": schema })
        })
        .collect()
}

fn responses(generator: &mut SchemaGenerator, route: &Route) -> Value {
    let mut responses = Map::new();
    for (status, content) in &route.answers {
        let response = responses
            .entry(status.to_string())
            .or_insert_with(|| json!({ "description": described(*status) }));
        let mut held = response["content"].as_object().cloned().unwrap_or_default();
        add_content(generator, &mut held, *content);
        if !held.is_empty() {
            response["content"] = held.into();
        }
    }
    let error = generator.subschema_for::<ErrorBody>();
    let content = json!({ "application/json": { "schema": error } });
    responses.insert("default".into(), json!({ "description": "It could not be done", "content": content }));
    responses.into()
}

fn add_content(generator: &mut SchemaGenerator, to: &mut Map<String, Value>, content: Content) {
    let (media, schema) = match content {
        Content::Json(make) => ("application/json", make(generator).to_value()),
        Content::Text(media) => (media, json!({ "type": "string" })),
        Content::Nothing => return,
    };
    to.insert(media.to_owned(), json!({ "schema": schema }));
}

fn described(status: u16) -> &'static str {
    match status {
        101 => "The connection is a WebSocket now",
        201 => "Made",
        202 => "Accepted",
        204 => "Done",
        501 => "Not offered",
        503 => "Not well, or not ready",
        _ => "The answer",
    }
}
