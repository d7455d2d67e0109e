//! The manifest as JSON, in the shape of `function.toml`.

use std::fmt::Write;

/// What the attribute and the signature say.
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Topics, in order.
    pub(crate) inputs: Vec<String>,
    pub(crate) start: Option<String>,
    pub(crate) key: Option<String>,
    /// In order.
    pub(crate) outputs: Vec<Output>,
    /// Parameters, in order.
    pub(crate) slots: Vec<Slot>,
    /// Whether it has timers.
    pub(crate) timers: bool,
    /// Names of secrets.
    pub(crate) secrets: Vec<String>,
    /// What it calls.
    pub(crate) http: Vec<String>,
}

/// One slot: the parameter, its kind, and how long its values last.
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) ttl: Option<Ttl>,
}

/// How long a slot's values last.
pub(crate) struct Ttl {
    pub(crate) text: String,
    pub(crate) micros: i64,
    pub(crate) processing: bool,
}

impl Slot {
    /// As its table of the manifest.
    fn to_json(&self) -> String {
        let mut json = format!("{}:{{\"kind\":\"{}\"", quoted(&self.name), self.kind);
        if let Some(ttl) = &self.ttl {
            let _ = write!(json, ",\"ttl\":{}", quoted(&ttl.text));
            if ttl.processing {
                json.push_str(",\"ttl_time\":\"processing\"");
            }
        }
        json.push('}');
        json
    }
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
        let slots_order = list(self.slots.iter().map(|slot| slot.name.as_str()).collect());
        let input = |topic: &String| {
            let mut input = format!("{{\"topic\":{}", quoted(topic));
            for (name, value) in [("start", &self.start), ("key", &self.key)] {
                if let Some(value) = value {
                    let _ = write!(input, ",\"{name}\":{}", quoted(value));
                }
            }
            input.push('}');
            input
        };
        let inputs: Vec<_> = self.inputs.iter().map(input).collect();
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
        let slots: Vec<_> = self.slots.iter().map(Slot::to_json).collect();
        let timers = if self.timers { ",\"timers\":true" } else { "" };
        format!(
            "{{\"function\":{{\"name\":{},\"description\":{},\"outputs_order\":{outputs_order},\"slots_order\":{slots_order}{timers}}},\
             \"input\":[{}],\"output\":{{{}}},\"state\":{{{}}}{}}}",
            quoted(&self.name),
            quoted(&self.description),
            inputs.join(","),
            outputs.join(","),
            slots.join(","),
            self.grants(),
        )
    }

    /// The table of grants, if there are any.
    fn grants(&self) -> String {
        if self.secrets.is_empty() && self.http.is_empty() {
            return String::new();
        }
        let secrets: Vec<_> = self.secrets.iter().map(|name| quoted(name)).collect();
        let http = self.http.iter();
        let http: Vec<_> = http
            .map(|url| format!("{{\"allow\":{}}}", quoted(url)))
            .collect();
        format!(
            ",\"grants\":{{\"secrets\":[{}],\"http\":[{}]}}",
            secrets.join(","),
            http.join(",")
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
