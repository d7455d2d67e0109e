//! What a standard library takes from its surroundings, as far as a function may have it: WASI 0.2 out of
//! the call's own values.
//!
//! The clock stands at the event's processing time, which its frame carries; random numbers are drawn from
//! the call's seed and the event's offset; what is printed goes to the function's log; there are no
//! variables, arguments, files or network. So the same event sees the same wherever and whenever it is
//! handled, provided that it is alone with its instance: what a standard library keeps from one event to
//! the next (a generator, keys of hash maps) would depend on where batches end. [`is_alone`] says who is.

use super::check;
use super::guest::{Guest, LogLevel, LogLine};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, ComponentType, Linker, LinkerInstance, Lower, Resource, ResourceType, WasmList,
};
use wasmtime::{Engine, Error, Result, StoreContextMut};

/// Most bytes of random numbers drawn at once.
const RANDOM_BYTES: u64 = 1 << 20;
/// Most streams and moments to wait for that one instance is given.
const HANDLES: u32 = 10_000;
/// Longest line that is gathered from pieces.
const LINE_BYTES: usize = 8 << 10;
/// What is written at once.
const WRITE_BYTES: u64 = 64 << 10;
/// Random numbers before the first event.
const START: u64 = 0x7374_616e_6461_7264;

/// Interfaces that are served, each in any version 0.2.
const SERVED: [&str; 18] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/",
];

/// Why an import of WASI is refused, if it is.
pub(super) fn refusal(import: &str) -> Option<String> {
    let (interface, version) = import.split_once('@').unwrap_or((import, ""));
    let network = ["wasi:sockets/", "wasi:http/"];
    if network.iter().any(|package| interface.starts_with(package)) {
        return Some("functions have no network".into());
    }
    let served = SERVED
        .iter()
        .any(|name| interface == *name || (name.ends_with('/') && interface.starts_with(name)));
    if !served {
        return Some("functions have no such surroundings".into());
    }
    (!version.starts_with("0.2."))
        .then(|| "this host serves WASI 0.2; build the function for wasm32-wasip2".into())
}

/// Whether each event has to be alone with a fresh instance, because the component can ask for the time or
/// for random numbers, and what it makes of them may outlast the event.
pub(super) fn is_alone(imports: &[String]) -> bool {
    let kept = ["wasi:clocks/", "wasi:random/"];
    imports
        .iter()
        .any(|import| kept.iter().any(|package| import.starts_with(package)))
}

/// What one instance is given by turns.
pub(super) struct Surroundings {
    /// µs since 1970.
    now: i64,
    random: u64,
    handles: u32,
    /// Lines of standard output and error that haven't ended.
    lines: [Vec<u8>; 2],
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            now: 0,
            random: START,
            handles: 0,
            lines: Default::default(),
        }
    }
}

impl Surroundings {
    /// A call begins with an event.
    pub(super) fn begin(&mut self, seed: u64, (offset, received): (u64, i64)) {
        self.now = received.max(0);
        self.random = mix(seed ^ mix(offset.wrapping_add(START)));
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }

    fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        if count > RANDOM_BYTES {
            return Err(Error::msg(format!(
                "at most {RANDOM_BYTES} random bytes can be drawn at once"
            )));
        }
        let count = usize::try_from(count)?;
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.draw().to_le_bytes());
        }
        bytes.truncate(count);
        Ok(bytes)
    }

    fn handle<T: 'static>(&mut self, number: u32) -> Result<Resource<T>> {
        self.handles += 1;
        if self.handles > HANDLES {
            return Err(Error::msg("too many streams or moments to wait for"));
        }
        Ok(Resource::new_own(number))
    }

    fn micros(&self) -> u64 {
        self.now.unsigned_abs()
    }
}

/// The output step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Moves what was printed into the function's log, line by line; `all`: also what hasn't ended.
pub(super) fn print(guest: &mut Guest, all: bool) {
    for (stream, level) in [LogLevel::Info, LogLevel::Warn].into_iter().enumerate() {
        let gathered = &mut guest.outer.lines[stream];
        while let Some(end) = gathered.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = gathered.drain(..=end).collect();
            guest.log.add(LogLine {
                level,
                event: 0,
                message: String::from_utf8_lossy(&line[..end]).into_owned(),
            });
        }
        if gathered.len() >= LINE_BYTES || (all && !gathered.is_empty()) {
            let line = std::mem::take(gathered);
            guest.log.add(LogLine {
                level,
                event: 0,
                message: String::from_utf8_lossy(&line).into_owned(),
            });
        }
    }
}

/// Adds the imports of WASI that a component has.
///
/// # Errors
/// When one of them has another type.
pub(super) fn add(
    linker: &mut Linker<Guest>,
    engine: &Engine,
    component: &Component,
) -> Result<()> {
    linker.allow_shadowing(true);
    let ty = component.component_type();
    for (name, import) in ty.imports(engine) {
        let ComponentItem::ComponentInstance(interface) = import.ty else {
            continue;
        };
        if !name.starts_with(check::WASI) {
            continue;
        }
        let mut instance = linker.instance(name)?;
        // Whatever isn't served below needs a handle that nobody is given.
        for (function, item) in interface.exports(engine) {
            if let ComponentItem::ComponentFunc(_) = item.ty {
                let words = format!("functions have no {name} {function}");
                instance.func_new(function, move |_, _, _, _| Err(Error::msg(words.clone())))?;
            }
        }
        let interface = name
            .split_once('@')
            .map_or(name, |(interface, _)| interface);
        serve(interface, &mut instance)?;
    }
    Ok(())
}

fn serve(interface: &str, instance: &mut LinkerInstance<'_, Guest>) -> Result<()> {
    match interface {
        "wasi:cli/environment" => environment(instance),
        "wasi:cli/exit" => exit(instance),
        "wasi:cli/stdin" => instance.func_wrap("get-stdin", |mut store: Store<'_>, ()| {
            Ok((store.data_mut().outer.handle::<InputStream>(0)?,))
        }),
        "wasi:cli/stdout" => output(instance, "get-stdout", 0),
        "wasi:cli/stderr" => output(instance, "get-stderr", 1),
        "wasi:cli/terminal-input" => resource::<TerminalInput>(instance, "terminal-input"),
        "wasi:cli/terminal-output" => resource::<TerminalOutput>(instance, "terminal-output"),
        "wasi:cli/terminal-stdin" => instance
            .func_wrap("get-terminal-stdin", |_: Store<'_>, ()| {
                Ok((None::<Resource<TerminalInput>>,))
            }),
        "wasi:cli/terminal-stdout" => no_terminal(instance, "get-terminal-stdout"),
        "wasi:cli/terminal-stderr" => no_terminal(instance, "get-terminal-stderr"),
        "wasi:clocks/monotonic-clock" => monotonic_clock(instance),
        "wasi:clocks/wall-clock" => wall_clock(instance),
        "wasi:filesystem/preopens" => instance.func_wrap("get-directories", |_: Store<'_>, ()| {
            Ok((Vec::<(Resource<Descriptor>, String)>::new(),))
        }),
        "wasi:filesystem/types" => {
            resource::<Descriptor>(instance, "descriptor")?;
            resource::<DirectoryEntries>(instance, "directory-entry-stream")
        }
        "wasi:io/error" => resource::<IoError>(instance, "error"),
        "wasi:io/poll" => poll(instance),
        "wasi:io/streams" => streams(instance),
        "wasi:random/random" => random(instance, ["get-random-bytes", "get-random-u64"]),
        "wasi:random/insecure" => random(
            instance,
            ["get-insecure-random-bytes", "get-insecure-random-u64"],
        ),
        "wasi:random/insecure-seed" => {
            instance.func_wrap("insecure-seed", |mut store: Store<'_>, ()| {
                let outer = &mut store.data_mut().outer;
                Ok(((outer.draw(), outer.draw()),))
            })
        }
        _ => Ok(()),
    }
}

type Store<'s> = StoreContextMut<'s, Guest>;
type Instance<'a, 'l> = &'a mut LinkerInstance<'l, Guest>;

/// Standard output or error, by what a handle of it holds.
struct OutputStream;
struct InputStream;
struct Pollable;
struct IoError;
struct Descriptor;
struct DirectoryEntries;
struct TerminalInput;
struct TerminalOutput;

#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    /// Never: what is printed is always taken.
    #[expect(dead_code, reason = "it is part of the type")]
    #[component(name = "last-operation-failed")]
    Failed(Resource<IoError>),
    #[component(name = "closed")]
    Closed,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

fn resource<T: 'static>(instance: Instance<'_, '_>, name: &str) -> Result<()> {
    instance.resource(name, ResourceType::host::<T>(), |_, _| Ok(()))
}

fn environment(instance: Instance<'_, '_>) -> Result<()> {
    instance.func_wrap("get-environment", |_: Store<'_>, ()| {
        Ok((Vec::<(String, String)>::new(),))
    })?;
    instance.func_wrap("get-arguments", |_: Store<'_>, ()| {
        Ok((Vec::<String>::new(),))
    })?;
    instance.func_wrap("initial-cwd", |_: Store<'_>, ()| Ok((None::<String>,)))
}

fn exit(instance: Instance<'_, '_>) -> Result<()> {
    instance.func_wrap("exit", |_: Store<'_>, (_,): (Result<(), ()>,)| {
        Err::<(), _>(Error::msg("the function ended its process"))
    })
}

fn output(instance: Instance<'_, '_>, name: &str, stream: u32) -> Result<()> {
    instance.func_wrap(name, move |mut store: Store<'_>, ()| {
        Ok((store.data_mut().outer.handle::<OutputStream>(stream)?,))
    })
}

fn no_terminal(instance: Instance<'_, '_>, name: &str) -> Result<()> {
    instance.func_wrap(name, |_: Store<'_>, ()| {
        Ok((None::<Resource<TerminalOutput>>,))
    })
}

/// Time doesn't pass while an event is handled: who waits for a moment doesn't wait.
fn monotonic_clock(instance: Instance<'_, '_>) -> Result<()> {
    instance.func_wrap("now", |store: Store<'_>, ()| {
        Ok((store.data().outer.micros().saturating_mul(1000),))
    })?;
    instance.func_wrap("resolution", |_: Store<'_>, ()| Ok((1000_u64,)))?;
    for name in ["subscribe-instant", "subscribe-duration"] {
        instance.func_wrap(name, |mut store: Store<'_>, (_,): (u64,)| {
            Ok((store.data_mut().outer.handle::<Pollable>(0)?,))
        })?;
    }
    Ok(())
}

fn wall_clock(instance: Instance<'_, '_>) -> Result<()> {
    instance.func_wrap("now", |store: Store<'_>, ()| {
        let micros = store.data().outer.micros();
        Ok((Datetime {
            seconds: micros / 1_000_000,
            nanoseconds: u32::try_from(micros % 1_000_000 * 1000)?,
        },))
    })?;
    instance.func_wrap("resolution", |_: Store<'_>, ()| {
        Ok((Datetime {
            seconds: 0,
            nanoseconds: 1000,
        },))
    })
}

fn poll(instance: Instance<'_, '_>) -> Result<()> {
    resource::<Pollable>(instance, "pollable")?;
    instance.func_wrap(
        "[method]pollable.ready",
        |_: Store<'_>, (_,): (Resource<Pollable>,)| Ok((true,)),
    )?;
    instance.func_wrap(
        "[method]pollable.block",
        |_: Store<'_>, (_,): (Resource<Pollable>,)| Ok(()),
    )?;
    instance.func_wrap(
        "poll",
        |_: Store<'_>, (all,): (Vec<Resource<Pollable>>,)| {
            let all = u32::try_from(all.len())?;
            Ok(((0..all).collect::<Vec<u32>>(),))
        },
    )
}

fn streams(instance: Instance<'_, '_>) -> Result<()> {
    resource::<InputStream>(instance, "input-stream")?;
    resource::<OutputStream>(instance, "output-stream")?;
    for name in ["read", "blocking-read"] {
        instance.func_wrap(
            &format!("[method]input-stream.{name}"),
            |_: Store<'_>, (_, _): (Resource<InputStream>, u64)| {
                Ok((Err::<Vec<u8>, _>(StreamError::Closed),))
            },
        )?;
    }
    instance.func_wrap(
        "[method]input-stream.subscribe",
        |mut store: Store<'_>, (_,): (Resource<InputStream>,)| {
            Ok((store.data_mut().outer.handle::<Pollable>(0)?,))
        },
    )?;
    instance.func_wrap(
        "[method]output-stream.check-write",
        |_: Store<'_>, (_,): (Resource<OutputStream>,)| Ok((Ok::<_, StreamError>(WRITE_BYTES),)),
    )?;
    for name in ["write", "blocking-write-and-flush"] {
        instance.func_wrap(&format!("[method]output-stream.{name}"), write)?;
    }
    for name in ["flush", "blocking-flush"] {
        instance.func_wrap(
            &format!("[method]output-stream.{name}"),
            |_: Store<'_>, (_,): (Resource<OutputStream>,)| Ok((Ok::<_, StreamError>(()),)),
        )?;
    }
    instance.func_wrap(
        "[method]output-stream.subscribe",
        |mut store: Store<'_>, (_,): (Resource<OutputStream>,)| {
            Ok((store.data_mut().outer.handle::<Pollable>(0)?,))
        },
    )
}

fn write(
    mut store: Store<'_>,
    (stream, bytes): (Resource<OutputStream>, WasmList<u8>),
) -> Result<(Result<(), StreamError>,)> {
    let bytes = bytes.as_le_slice(&store).to_vec();
    let guest = store.data_mut();
    let lines = &mut guest.outer.lines;
    let line = lines
        .get_mut(stream.rep() as usize)
        .ok_or_else(|| Error::msg("no such stream"))?;
    line.extend_from_slice(&bytes);
    print(guest, false);
    Ok((Ok(()),))
}

fn random(instance: Instance<'_, '_>, [bytes, number]: [&str; 2]) -> Result<()> {
    instance.func_wrap(bytes, |mut store: Store<'_>, (count,): (u64,)| {
        Ok((store.data_mut().outer.bytes(count)?,))
    })?;
    instance.func_wrap(number, |mut store: Store<'_>, ()| {
        Ok((store.data_mut().outer.draw(),))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_and_what_is_not() {
        for import in [
            "wasi:cli/stderr@0.2.0",
            "wasi:random/insecure-seed@0.2.6",
            "wasi:filesystem/types@0.2.12",
        ] {
            assert_eq!(refusal(import), None, "{import}");
        }
        for (import, words) in [
            ("wasi:sockets/tcp@0.2.0", "network"),
            ("wasi:http/outgoing-handler@0.2.0", "network"),
            ("wasi:clocks/wall-clock@0.3.0", "WASI 0.2"),
            ("wasi:clocks/timezone@0.2.0", "no such surroundings"),
            ("wasi:keyvalue/store@0.2.0", "no such surroundings"),
        ] {
            assert!(
                refusal(import).is_some_and(|why| why.contains(words)),
                "{import}"
            );
        }
    }

    #[test]
    fn numbers_repeat_for_an_event_and_differ_between_events() {
        let mut outer = Surroundings::default();
        let mut of = |seed, offset| {
            outer.begin(seed, (offset, 7));
            (outer.draw(), outer.bytes(13).expect("few"))
        };
        assert_eq!(of(1, 5), of(1, 5));
        assert_ne!(of(1, 5), of(1, 6));
        assert_ne!(of(1, 5), of(2, 5));
        assert_eq!(of(1, 5).1.len(), 13);
        assert!(outer.bytes(RANDOM_BYTES + 1).is_err());
        assert_eq!(outer.micros(), 7);
    }
}
