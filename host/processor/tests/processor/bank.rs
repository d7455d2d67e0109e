//! The whole processor over a disk that forgets, from a seed: a bank whose sum never changes.
//!
//! Transfers are keyed by a pointer (so they go through an internal topic), taken from one account by one
//! function, at once or when a timer is due, and brought to another by the next. Meanwhile versions are
//! deployed and gone back to, functions paused, and the power goes at any moment: what wasn't synced is
//! lost or torn, and the state store is thrown away or put back to how it once was.

use crate::host::{Ground, Host, process, sandbox, usual};
use crate::kept::nothing_left;
use guest::Order;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tidemill_env::Random;
use tidemill_env::files::SimDisk;
use tidemill_env::objects::{MemoryObjects, Objects};
use tidemill_log::Format;
use tidemill_processor::{Fault, FunctionStatus, KeepState, Rollback};
use tidemill_types::ByteSize;
use tidemill_wasm::Component;

#[path = "../../../../tests/guests/bank/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is a crate of its own, too")]
mod guest;

const LIVES: u64 = 5;
const STEPS: u64 = 6;
const PARTITIONS: u32 = 2;
const ACCOUNTS: u64 = 12;

fn component() -> Vec<u8> {
    static BUILT: OnceLock<(Vec<u8>, Component)> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let bytes = crate::built::component("bank");
        let compiled = sandbox().compile(&bytes).expect("a sound component");
        // It stays compiled over all lives.
        (bytes, compiled)
    });
    built.0.clone()
}

/// One simulated machine and what was done on it.
struct World {
    disk: SimDisk,
    /// A promise that functions' tasks break.
    fault: Option<Fault>,
    objects: Objects,
    random: Random,
    dir: tempfile::TempDir,
    /// Where the state store of this life lies, and where one lies as it was closed once.
    state: PathBuf,
    closed: Option<PathBuf>,
    lives: u64,
    next: u64,
    /// Transfers that were acknowledged.
    acknowledged: Vec<u64>,
}

impl World {
    fn new(seed: u64, fault: Option<Fault>) -> Self {
        let random = Random::seeded(seed);
        let dir = tempfile::tempdir().expect("a folder");
        Self {
            disk: SimDisk::new(random.clone(), 1 << 30),
            fault,
            objects: Objects::new(Arc::new(MemoryObjects::new(random.clone()))),
            random,
            state: dir.path().join("0"),
            closed: None,
            lives: 0,
            dir,
            next: 0,
            acknowledged: Vec::new(),
        }
    }

    async fn open(&self) -> Host {
        let ground = Ground {
            files: Arc::new(self.disk.clone()),
            objects: self.objects.clone(),
            random: self.random.clone(),
            memory: ByteSize::mib(2),
            fault: self.fault,
        };
        let small = |settings: &mut tidemill_log::Settings| {
            settings.dir = "/disk".into();
            settings.journal_file_bytes = ByteSize::mib(1);
        };
        let host = Host::open_on(&self.state, ground, usual(), small).await;
        host.expect("the host opens")
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn transfer(&mut self) -> (u64, String, Order) {
        self.next += 1;
        let account = |number: u64| format!("a{number}");
        let (id, from) = (self.next, account(self.below(ACCOUNTS)));
        let then = ["", "", "", "", "", "", "skip", "trap"][self.at(8)];
        let order = Order::Give {
            id,
            from: from.clone(),
            to: account(self.below(ACCOUNTS)),
            amount: i64::try_from(self.below(100)).expect("small"),
            after: [0, 0, 3, 40][self.at(4)],
            then: then.to_owned(),
        };
        (id, from, order)
    }

    fn at(&self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).expect("small")
    }

    async fn send(&mut self, host: &Host) {
        let count = 1 + self.below(12);
        let some: Vec<_> = (0..count).map(|_| self.transfer()).collect();
        let events: Vec<_> = some
            .iter()
            .map(|(id, from, order)| {
                let time = i64::try_from(*id).expect("small") * 1000;
                (from.as_str(), time, json!(order).to_string())
            })
            .collect();
        let partition = u32::try_from(self.below(PARTITIONS.into())).expect("small");
        host.send_at("transfers", partition, &events).await;
        self.acknowledged.extend(some.iter().map(|(id, ..)| *id));
    }

    /// One step of a life.
    async fn step(&mut self, host: &Host) {
        let name = ["debit", "credit"][self.at(2)];
        match self.below(8) {
            0 => deploy(host, name, 1 + self.below(30)).await,
            1 => {
                host.processor.pause(name).await.expect("pauses");
                self.send(host).await;
                host.processor.resume(name).await.expect("resumes");
            }
            2 => {
                let rollback = Rollback {
                    version: 1,
                    state: KeepState::Keep,
                    dry_run: false,
                };
                let back = host.processor.rollback(name, rollback).await;
                back.expect("goes back");
            }
            3 => crate::crash::some_time(host, 1 + self.below(3)).await,
            _ => self.send(host).await,
        }
    }

    /// The host ends: in order, or because the process is killed, or because the power goes.
    async fn end(&mut self, host: Host) {
        self.lives += 1;
        match self.below(4) {
            0 => {
                host.close().await;
                self.closed = Some(self.state.clone());
            }
            1 => self.disk.kill(),
            _ => self.disk.crash(),
        }
        // The store is a cache: it may be gone, or be what it was long ago.
        self.state = self.dir.path().join(self.lives.to_string());
        if let Some(closed) = self.closed.as_ref().filter(|_| self.random.below(3) > 0) {
            copy(closed, &self.state);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(std::fs::copy(&from, &to)),
        }
    }
}

async fn deploy(host: &Host, name: &str, events: u64) {
    let (input, output) = match name {
        "debit" => (
            json!({"topic": "transfers", "start": "earliest", "key": "/give/from"}),
            "credits",
        ),
        _ => (json!({"topic": "credits", "start": "earliest"}), "nowhere"),
    };
    let manifest = json!({
        "input": [input],
        "output": {"credits": {"topic": output, "format": "json"}},
        "retry": {"attempts": 2, "backoff": "1ms..2ms"},
        "time": {"disorder": "5ms"},
        "batch": {"events": events},
    });
    host.deploy_guest(name, component(), manifest, KeepState::Keep)
        .await
        .expect("it deploys");
}

/// What there is in the end.
#[derive(Clone, Debug, Default)]
struct Facts {
    acknowledged: Vec<u64>,
    /// Everything in the topic of transfers.
    transfers: Vec<Order>,
    /// Account and credit, in the topic between.
    credits: Vec<(String, Order)>,
    /// Balances that each function keeps.
    debit: BTreeMap<String, i64>,
    credit: BTreeMap<String, i64>,
    /// Entries that say what is on its way.
    waiting: usize,
    /// Orders that trapped, and credits that came twice.
    dead: (usize, usize),
}

/// What is wrong, if anything is.
fn wrong(facts: &Facts) -> Result<(), String> {
    let mut expected: BTreeMap<u64, (String, i64)> = BTreeMap::new();
    let (mut debit, mut credit) = (BTreeMap::new(), BTreeMap::new());
    let (mut traps, mut all) = (0, BTreeMap::new());
    for order in &facts.transfers {
        let Order::Give {
            id,
            from,
            to,
            amount,
            then,
            ..
        } = order
        else {
            return Err(format!("{order:?} is no transfer"));
        };
        if all.insert(*id, ()).is_some() {
            return Err(format!("transfer {id} was appended twice"));
        }
        if then == "trap" {
            traps += 1;
        }
        if then.is_empty() {
            expected.insert(*id, (to.clone(), *amount));
            *debit.entry(from.clone()).or_default() -= amount;
            *credit.entry(to.clone()).or_default() += amount;
        }
    }
    if let Some(lost) = facts.acknowledged.iter().find(|id| !all.contains_key(id)) {
        return Err(format!("transfer {lost} was acknowledged and is lost"));
    }
    for (key, order) in &facts.credits {
        let Order::Get { id, amount } = order else {
            return Err(format!("{order:?} is no credit"));
        };
        match expected.remove(id) {
            Some(wanted) if wanted == (key.clone(), *amount) => {}
            other => return Err(format!("{order:?} of {key}, expected {other:?}")),
        }
    }
    if !expected.is_empty() {
        return Err(format!("transfers that never arrived: {expected:?}"));
    }
    if (&facts.debit, &facts.credit) != (&debit, &credit) {
        return Err(format!(
            "balances are {:?} and {:?}, not {debit:?} and {credit:?}",
            facts.debit, facts.credit
        ));
    }
    let sum: i64 = facts.debit.values().chain(facts.credit.values()).sum();
    if (sum, facts.waiting, facts.dead) != (0, 0, (traps, 0)) {
        return Err(format!(
            "sum {sum}, {} on their way, {:?} dead, {traps} traps",
            facts.waiting, facts.dead
        ));
    }
    Ok(())
}

async fn balances(host: &Host, name: &str) -> BTreeMap<String, i64> {
    let listed = host
        .processor
        .state_list(name, "balance", None, b"", None, 10_000);
    let mut balances = BTreeMap::new();
    for entry in listed.await.expect("lists").entries {
        let key = String::from_utf8(entry.key.to_vec()).expect("text");
        let text = String::from_utf8(entry.value.to_vec()).expect("a number");
        let before = balances.insert(key, text.parse().expect("a number"));
        assert_eq!(before, None, "an account lies in one partition");
    }
    balances
}

async fn facts(world: &mut World, host: &Host) -> Facts {
    // Events from far ahead, for every partition between, make all timers due.
    for number in 0..40 {
        let (mut id, mut from, mut order) = world.transfer();
        if let Order::Give {
            from: who,
            after,
            then,
            ..
        } = &mut order
        {
            (*after, *who) = (0, format!("end{number}"));
            then.clear();
        }
        from.clear();
        id += 1_000_000;
        let time = i64::try_from(id).expect("small") * 1000;
        let event = (from.as_str(), time, json!(order).to_string());
        host.send_at("transfers", number % PARTITIONS, &[event])
            .await;
    }
    for name in ["debit", "credit"] {
        let report = host
            .until(name, |report| {
                nothing_left(report) || report.status == FunctionStatus::Stopped
            })
            .await;
        assert!(report.status != FunctionStatus::Stopped, "{report:?}");
        assert!(crate::host::conserved(&report), "{:?}", report.counts);
    }
    let order = |value: &[u8]| -> Order { serde_json::from_slice(value).expect("an order") };
    let dead = async |name: &str| host.read(&format!("{name}.dead-letters")).await.len();
    let credits = host.read("credits").await.into_iter();
    let waiting = host
        .processor
        .state_list("debit", "waiting", None, b"", None, 100);
    Facts {
        acknowledged: world.acknowledged.clone(),
        transfers: host
            .read("transfers")
            .await
            .iter()
            .map(|seen| order(&seen.value))
            .collect(),
        credits: credits
            .map(|seen| (seen.key.expect("keyed"), order(&seen.value)))
            .collect(),
        debit: balances(host, "debit").await,
        credit: balances(host, "credit").await,
        waiting: waiting.await.expect("lists").entries.len(),
        dead: (dead("debit").await, dead("credit").await),
    }
}

/// Runs a world from its seed; gives what there is in the end.
fn run(seed: u64, fault: Option<Fault>) -> Facts {
    let mut world = World::new(seed, fault);
    process(|runtime| {
        runtime.block_on(async {
            let host = world.open().await;
            host.topic("transfers", PARTITIONS, Format::Json).await;
            host.topic("credits", 3, Format::Json).await;
            deploy(&host, "debit", 7).await;
            deploy(&host, "credit", 7).await;
            world.end(host).await;
        });
    });
    for _ in 0..LIVES {
        process(|runtime| {
            runtime.block_on(async {
                let host = world.open().await;
                for _ in 0..STEPS {
                    world.step(&host).await;
                }
                world.end(host).await;
            });
        });
    }
    let mut end = Facts::default();
    process(|runtime| {
        runtime.block_on(async {
            let host = world.open().await;
            end = facts(&mut world, &host).await;
        });
    });
    end
}

fn seeds() -> u64 {
    let asked = std::env::var("TIDEMILL_TEST_BANKS").ok();
    asked.map_or(4, |count| count.parse().expect("a number of seeds"))
}

#[test]
fn the_sum_never_changes_and_each_transfer_arrives_once() {
    for seed in 0..seeds() {
        let facts = run(seed, None);
        if let Err(wrong) = wrong(&facts) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn a_promise_that_is_broken_is_noticed() {
    let end = |seed, fault| {
        let facts = std::panic::catch_unwind(|| run(seed, Some(fault)));
        facts.map_or_else(|_| Err("it ends".to_owned()), |facts| wrong(&facts))
    };
    for fault in Fault::ALL {
        assert!(
            (0..6).any(|seed| end(seed, fault).is_err()),
            "{fault:?} isn't noticed"
        );
    }
}

#[test]
fn a_step_that_is_not_whole_is_noticed() {
    let give = |id, then: &str| Order::Give {
        id,
        from: "a".into(),
        to: "b".into(),
        amount: 5,
        after: 0,
        then: then.into(),
    };
    let get = |id| ("b".to_owned(), Order::Get { id, amount: 5 });
    let sound = Facts {
        acknowledged: vec![1, 2],
        transfers: vec![give(1, ""), give(2, "skip"), give(3, "trap"), give(4, "")],
        credits: vec![get(4), get(1)],
        debit: BTreeMap::from([("a".into(), -10)]),
        credit: BTreeMap::from([("b".into(), 10)]),
        waiting: 0,
        dead: (1, 0),
    };
    assert_eq!(wrong(&sound), Ok(()));
    let bent: [fn(&mut Facts); 7] = [
        // A position without its state, and state without its position.
        |facts| *facts.debit.get_mut("a").expect("there") += 5,
        |facts| *facts.credit.get_mut("b").expect("there") += 5,
        // An output twice, and one that is lost.
        |facts| facts.credits.push(facts.credits[0].clone()),
        |facts| drop(facts.credits.pop()),
        // An event that was acknowledged, a timer that never comes, a letter that is missing.
        |facts| facts.acknowledged.push(9),
        |facts| facts.waiting = 1,
        |facts| facts.dead.0 = 0,
    ];
    for (number, bend) in bent.into_iter().enumerate() {
        let mut facts = sound.clone();
        bend(&mut facts);
        assert!(wrong(&facts).is_err(), "{number}");
    }
}
