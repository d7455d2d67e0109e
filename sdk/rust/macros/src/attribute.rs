//! The settings inside `#[tidemill::function(…)]`.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Ident, LitStr, Path, Token, parenthesized};

const KNOWN: &str =
    "input, inputs(…), output, outputs(…), name, start, key, ttl(…), on_timer, secrets(…), http(…)";

/// What the attribute says, checked as far as that goes without the function.
pub(crate) struct Settings {
    /// At least one.
    pub(crate) inputs: Vec<LitStr>,
    pub(crate) outputs: Outputs,
    pub(crate) name: Option<LitStr>,
    pub(crate) start: Option<LitStr>,
    pub(crate) key: Option<LitStr>,
    /// By slot.
    pub(crate) ttls: Vec<Ttl>,
    /// The handler of timers.
    pub(crate) on_timer: Option<Path>,
    /// Names of secrets.
    pub(crate) secrets: Vec<LitStr>,
    /// What it calls.
    pub(crate) http: Vec<LitStr>,
}

/// How long the values of a slot last.
pub(crate) struct Ttl {
    pub(crate) slot: Ident,
    /// As written.
    pub(crate) text: String,
    pub(crate) micros: i64,
    pub(crate) processing: bool,
}

/// Where outputs go.
pub(crate) enum Outputs {
    None,
    /// `output = "topic"`.
    Only(LitStr),
    /// `outputs(parameter = "topic", …)`.
    Named(Vec<(Ident, LitStr)>),
}

enum Setting {
    Text(Ident, LitStr),
    Inputs(Ident, Vec<LitStr>),
    Outputs(Ident, Vec<(Ident, LitStr)>),
    Ttls(Ident, Vec<(Ident, LitStr)>),
    OnTimer(Ident, Path),
    /// `secrets("name", …)` or `http("https://…", …)`.
    Texts(Ident, Vec<LitStr>),
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key: Ident = input
            .parse()
            .map_err(|error| syn::Error::new(error.span(), format!("expected one of {KNOWN}")))?;
        if key == "inputs" {
            let topics = listed(input, &key, "write inputs(\"orders\", \"payments\")")?;
            return Ok(Self::Inputs(key, topics));
        }
        if key == "outputs" || key == "ttl" {
            if !input.peek(syn::token::Paren) {
                let right = if key == "ttl" {
                    "write ttl(total = \"30d\"), with the name of a slot"
                } else {
                    "write outputs(alerts = \"topic\", stats = \"other-topic\")"
                };
                return Err(syn::Error::new(key.span(), right));
            }
            let inner;
            parenthesized!(inner in input);
            let named = Punctuated::<Named, Token![,]>::parse_terminated(&inner)?;
            let named = named.into_iter().map(|named| (named.0, named.1)).collect();
            return Ok(if key == "ttl" {
                Self::Ttls(key, named)
            } else {
                Self::Outputs(key, named)
            });
        }
        if key == "secrets" || key == "http" {
            let right = if key == "http" {
                "write http(\"https://api.example.com/v1/\"), with what is called"
            } else {
                "write secrets(\"stripe\"), with the names of secrets"
            };
            let texts =
                listed(input, &key, right).map_err(|error| syn::Error::new(error.span(), right))?;
            return Ok(Self::Texts(key, texts));
        }
        if key == "on_timer" {
            let path = input.parse::<Token![=]>().and_then(|_| input.parse());
            return path.map(|path| Self::OnTimer(key, path)).map_err(|error| {
                let right = "write on_timer = handler, with the name of a fn that has #[tidemill::on_timer]";
                syn::Error::new(error.span(), right)
            });
        }
        if !["input", "output", "name", "start", "key"]
            .iter()
            .any(|known| key == known)
        {
            return Err(syn::Error::new(
                key.span(),
                format!("there is no setting `{key}`; known are {KNOWN}"),
            ));
        }
        let Named(key, value) = Named::after(key, input)?;
        Ok(Self::Text(key, value))
    }
}

struct Named(Ident, LitStr);

impl Named {
    fn after(key: Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        let wrong = |span: Span| {
            syn::Error::new(span, format!("write {key} = \"…\", with a text in quotes"))
        };
        input
            .parse::<Token![=]>()
            .map_err(|error| wrong(error.span()))?;
        let value: LitStr = input.parse().map_err(|error| wrong(error.span()))?;
        Ok(Self(key, value))
    }
}

impl Parse for Named {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input.parse()?;
        Self::after(key, input)
    }
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let given = Punctuated::<Setting, Token![,]>::parse_terminated(input)?;
        let (mut topics, mut name, mut start, mut key) = (None, None, None, None);
        let mut outputs = Outputs::None;
        let (mut ttls, mut on_timer) = (None, None);
        let (mut secrets, mut http) = (None, None);
        for setting in given {
            match setting {
                Setting::Outputs(at, named) => {
                    once(&at, matches!(outputs, Outputs::None))?;
                    outputs = Outputs::Named(named);
                }
                Setting::Ttls(at, named) => {
                    once(&at, ttls.is_none())?;
                    let read = named.into_iter().map(|(slot, text)| ttl(slot, &text));
                    ttls = Some(read.collect::<syn::Result<_>>()?);
                }
                Setting::Texts(at, texts) => {
                    let place = if at == "http" {
                        &mut http
                    } else {
                        &mut secrets
                    };
                    once(&at, place.is_none())?;
                    *place = Some(texts);
                }
                Setting::OnTimer(at, path) => {
                    once(&at, on_timer.is_none())?;
                    on_timer = Some(path);
                }
                Setting::Text(at, value) if at == "output" => {
                    once(&at, matches!(outputs, Outputs::None))?;
                    outputs = Outputs::Only(value);
                }
                Setting::Inputs(at, named) => {
                    once(&at, topics.is_none())?;
                    topics = Some(named);
                }
                Setting::Text(at, value) if at == "input" => {
                    once(&at, topics.is_none())?;
                    topics = Some(vec![value]);
                }
                Setting::Text(at, value) => {
                    let place = match at.to_string().as_str() {
                        "name" => &mut name,
                        "start" => &mut start,
                        _ => &mut key,
                    };
                    once(&at, place.is_none())?;
                    *place = Some(value);
                }
            }
        }
        let inputs = topics.filter(|topics| !topics.is_empty()).ok_or_else(|| {
            syn::Error::new(
                Span::call_site(),
                "say which topic the function reads: #[tidemill::function(input = \"flights\")]",
            )
        })?;
        let settings = Self {
            inputs,
            outputs,
            name,
            start,
            key,
            ttls: ttls.unwrap_or_default(),
            on_timer,
            secrets: secrets.unwrap_or_default(),
            http: http.unwrap_or_default(),
        };
        settings.check()?;
        Ok(settings)
    }
}

/// `30d`, or `30d processing`.
fn ttl(slot: Ident, text: &LitStr) -> syn::Result<Ttl> {
    let wrong = || {
        syn::Error::new(
            text.span(),
            "a time-to-live is a whole number and one of d, h, m, s, ms: \"30d\"; with \"30d processing\" it counts in processing time instead of event time",
        )
    };
    let value = text.value();
    let (duration, processing) = match value.strip_suffix(" processing") {
        Some(duration) => (duration, true),
        None => (value.as_str(), false),
    };
    let digits = duration
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(wrong)?;
    let (number, unit) = duration.split_at(digits);
    let unit: i64 = match unit {
        "d" => 86_400_000_000,
        "h" => 3_600_000_000,
        "m" => 60_000_000,
        "s" => 1_000_000,
        "ms" => 1_000,
        _ => return Err(wrong()),
    };
    let micros = number
        .parse::<i64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    Ok(Ttl {
        slot,
        text: duration.to_owned(),
        micros: micros.filter(|micros| *micros > 0).ok_or_else(wrong)?,
        processing,
    })
}

/// Texts in parentheses behind a setting; `right` says how they are written.
fn listed(input: ParseStream<'_>, key: &Ident, right: &str) -> syn::Result<Vec<LitStr>> {
    if !input.peek(syn::token::Paren) {
        return Err(syn::Error::new(key.span(), right));
    }
    let inner;
    parenthesized!(inner in input);
    let texts = Punctuated::<LitStr, Token![,]>::parse_terminated(&inner)?;
    Ok(texts.into_iter().collect())
}

fn once(at: &Ident, first: bool) -> syn::Result<()> {
    if first {
        Ok(())
    } else {
        Err(syn::Error::new(at.span(), format!("`{at}` is said twice")))
    }
}

impl Settings {
    fn check(&self) -> syn::Result<()> {
        for (at, topic) in self.inputs.iter().enumerate() {
            check_name(topic)?;
            if self.inputs[..at]
                .iter()
                .any(|other| other.value() == topic.value())
            {
                return Err(syn::Error::new(
                    topic.span(),
                    "this topic is an input already; each input is another topic",
                ));
            }
        }
        self.name.as_ref().map_or(Ok(()), check_name)?;
        self.secrets.iter().try_for_each(check_name)?;
        let called = |url: &&LitStr| {
            let url = url.value();
            !url.starts_with("https://") && !url.starts_with("http://")
        };
        if let Some(url) = self.http.iter().find(called) {
            return Err(syn::Error::new(
                url.span(),
                "what is called is a URL, such as \"https://api.example.com/v1/\"",
            ));
        }
        match &self.outputs {
            Outputs::None => {}
            Outputs::Only(topic) => check_name(topic)?,
            Outputs::Named(named) => named.iter().try_for_each(|(_, topic)| check_name(topic))?,
        }
        if let Some(key) = self
            .key
            .as_ref()
            .filter(|key| !key.value().starts_with('/'))
        {
            return Err(syn::Error::new(
                key.span(),
                "`key` is a JSON pointer into the value, such as \"/route\"",
            ));
        }
        let understood = |start: &str| {
            ["earliest", "latest"].contains(&start)
                || start.starts_with(|c: char| c.is_ascii_digit())
        };
        if let Some(start) = self
            .start
            .as_ref()
            .filter(|start| !understood(&start.value()))
        {
            return Err(syn::Error::new(
                start.span(),
                "`start` is \"earliest\", \"latest\" or a time such as \"2013-01-01T00:00:00Z\"",
            ));
        }
        Ok(())
    }
}

/// Names of topics and functions: 1 to 200 letters, digits, `.`, `_`, `-`.
fn check_name(name: &LitStr) -> syn::Result<()> {
    let text = name.value();
    let good = (1..=200).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && text != "."
        && text != "..";
    if good {
        Ok(())
    } else {
        Err(syn::Error::new(
            name.span(),
            "a name has 1 to 200 letters, digits, `.`, `_` or `-`",
        ))
    }
}
