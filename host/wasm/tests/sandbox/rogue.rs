//! The sandbox and the kit that functions are written with, together.

use super::*;
use std::sync::OnceLock;
use tidemill_wasm::{Command, Commands, Failure, FailureKind, Outcome};

/// Limits under which each kind of harm meets its own.
const TIGHT: CallLimits = CallLimits {
    memory: ByteSize::mib(16),
    deadline: Duration::from_millis(300),
    output_bytes: ByteSize::mib(1),
};

fn begin(sandbox: &Sandbox, component: &Component) -> Instance {
    sandbox
        .instantiate(component, TIGHT, Arc::new(Stateless { input: Some("in") }))
        .expect("an instance")
}

fn rogue(sandbox: &Sandbox) -> Component {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| crate::built::component("rogue"));
    sandbox.compile(bytes).expect("a sound component")
}

fn harm(what: &str) -> Failure {
    let sandbox = sandbox();
    let component = rogue(&sandbox);
    let events = batch(&[br#"{"what":"fine"}"#, what.as_bytes()]);
    let failure = begin(&sandbox, &component)
        .on_batch(CALL, &events)
        .expect_err(what);
    let mut next = begin(&sandbox, &component);
    next.on_batch(CALL, &batch(&[b"fine"]))
        .expect("the next instance works");
    failure
}

#[test]
fn it_says_what_it_is() {
    let component = rogue(&sandbox());
    let manifest = component.manifest().expect("it is embedded");
    assert!(manifest.contains(r#""name":"rogue""#), "{manifest}");
    let only = |name: &String| name.starts_with("tidemill:function/");
    assert!(
        component.imports().iter().all(only),
        "{:?}",
        component.imports()
    );
}

#[test]
fn each_harm_has_its_name() {
    for (what, kind, words) in [
        ("trap", FailureKind::Trap, "unreachable"),
        ("loop", FailureKind::Deadline, "deadline of 300ms passed"),
        ("hog", FailureKind::Memory, "memory limit of 16MiB"),
        ("deep", FailureKind::Trap, "call stack exhausted"),
        (
            "flood",
            FailureKind::OutputLimit,
            "output_bytes limit of 1MiB",
        ),
    ] {
        let failure = harm(what);
        assert_eq!(failure.kind, kind, "{what}: {failure:?}");
        assert!(failure.message.contains(words), "{what}: {failure:?}");
    }
}

#[test]
fn outcomes_of_neighbours_stand_beside_each_other() {
    let sandbox = sandbox();
    let mut instance = begin(&sandbox, &rogue(&sandbox));
    let events = batch(&[b"one", b"skip", b"dead", b"two"]);
    let answer = instance.on_batch(CALL, &events).expect("an answer");
    let commands = Commands::parse(&answer, 4, 0, 1).expect("a sound answer");
    let outcomes = [0, 1, 2, 3].map(|event| (commands.outcome(event), commands.reason(event)));
    assert_eq!(
        outcomes,
        [
            (Outcome::Effect, ""),
            (Outcome::Skip, "skipped on demand"),
            (Outcome::DeadLetter, "given up on demand"),
            (Outcome::Effect, ""),
        ]
    );
    let emitted: Vec<_> = commands
        .iter()
        .map(|(event, command)| match command {
            Command::Emit(emit) => (event, emit.output, emit.key, emit.value),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (0, 0, None, Some(b"one".as_slice())),
        (3, 0, None, Some(b"two".as_slice())),
    ];
    assert_eq!(emitted, expected, "what the others emitted is taken back");

    let answer = instance
        .on_batch(CALL, &batch(&[b"one", b"fatal", b"two"]))
        .expect("an answer");
    let commands = Commands::parse(&answer, 3, 0, 1).expect("a sound answer");
    assert_eq!(commands.processed(), 1);
    assert_eq!(
        commands.stopped(),
        Some(tidemill_wasm::Stop::Fatal("stopped on demand"))
    );
}
