//! The JSON that vswap prints, held against docs/schemas.

use serde_json::{Value, json};

use crate::{Failure, Outcome, ensure};

/// What `vswap status --json`, `--summary` and the daemon print.
pub const REPORT: &str = include_str!("../../docs/schemas/report-1.json");
/// What `vswap advise --json` prints.
pub const ADVICE: &str = include_str!("../../docs/schemas/advise-1.json");

/// Validates what is named in the schema of reports.
pub fn is_as_described(name: &str, printed: &Value) -> Outcome {
    is_as_described_in(REPORT, name, printed)
}

/// Validates what is named in the schema, which is closed for that: fields that it does not have are errors here.
pub fn is_as_described_in(schema: &str, name: &str, printed: &Value) -> Outcome {
    let mut schema = parsed(schema.as_bytes())?;
    close(&mut schema);
    let only = json!({"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": format!("#/$defs/{name}")});
    let validator = jsonschema::validator_for(&only);
    let validator = validator.map_err(|error| Failure::wrong(format!("the schema: {error}")))?;
    let wrong: Vec<String> = validator
        .iter_errors(printed)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    ensure!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    Ok(())
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.get("properties").is_some_and(Value::is_object) && fields.contains_key("type")
            {
                fields.insert("additionalProperties".to_owned(), false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Reads JSON.
pub fn parsed(bytes: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(bytes);
        Failure::wrong(format!("no JSON: {error}: {text:?}"))
    })
}
