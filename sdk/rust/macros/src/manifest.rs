//! The manifest as JSON, in the shape of `function.toml`.

use std::fmt::Write;

/// What the attribute and the signature say.
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input: String,
    pub(crate) start: Option<String>,
    pub(crate) key: Option<String>,
    /// In order.
    pub(crate) outputs: Vec<Output>,
    /// Parameters, in order.
    pub(crate) slots: Vec<String>,
}

/// One output: the parameter, its topic, and whether it carries bytes instead of JSON.
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) topic: String,
    pub(crate) bytes: bool,
}

impl Manifest {
    /// JSON text. Objects have no order that readers agree on, so that of the parameters, by which the
    /// host numbers outputs and slots, is said in lists.
    pub(crate) fn to_json(&self) -> String {
        let list = |names: Vec<&str>| {
            format!(
                "[{}]",
                names.into_iter().map(quoted).collect::<Vec<_>>().join(",")
            )
        };
        let outputs_order = list(
            self.outputs
                .iter()
                .map(|output| output.name.as_str())
                .collect(),
        );
        let slots_order = list(self.slots.iter().map(String::as_str).collect());
        let mut input = format!("\"topic\":{}", quoted(&self.input));
        for (name, value) in [("start", &self.start), ("key", &self.key)] {
            if let Some(value) = value {
                let _ = write!(input, ",\"{name}\":{}", quoted(value));
            }
        }
        let output = |output: &Output| {
            let format = if output.bytes {
                ",\"format\":\"bytes\""
            } else {
                ""
            };
            format!(
                "{}:{{\"topic\":{}{format}}}",
                quoted(&output.name),
                quoted(&output.topic)
            )
        };
        let outputs: Vec<_> = self.outputs.iter().map(output).collect();
        let slots: Vec<_> = self
            .slots
            .iter()
            .map(|name| format!("{}:{{\"kind\":\"value\"}}", quoted(name)))
            .collect();
        format!(
            "{{\"function\":{{\"name\":{},\"description\":{},\"outputs_order\":{outputs_order},\"slots_order\":{slots_order}}},\
             \"input\":[{{{input}}}],\"output\":{{{}}},\"state\":{{{}}}}}",
            quoted(&self.name),
            quoted(&self.description),
            outputs.join(","),
            slots.join(","),
        )
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
