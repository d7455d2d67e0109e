//! What a run measures: the command's arguments with what they leave open filled in.

use super::events::Form;
use super::ingest::Load;
use super::states::Sizes;
use super::{Bench, What};
use clap::ValueEnum;
use std::time::Duration;

const USUAL_SIZE: u32 = 200;
/// What history is read with, if sizes aren't said: events that cost by their number, and by their bytes.
const HISTORY_SIZES: [u32; 2] = [USUAL_SIZE, 1024];
const FULL_SIZES: [u32; 4] = [100, 200, 1024, 10_240];
const CONNECTIONS: [u16; 3] = [1, 8, 64];

/// Everything that a run measures.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) what: Vec<What>,
    pub(super) time: Duration,
    /// Sizes of values; at least one.
    pub(super) sizes: Vec<u32>,
    /// Those of `catch-up`.
    pub(super) history_sizes: Vec<u32>,
    /// How many functions there are in `many`.
    pub(super) functions: u32,
    /// How many keys of state there are in `restart`.
    pub(super) keys: u64,
    /// Of `state`.
    pub(super) state: Sizes,
    batch: u32,
    connections: Vec<u16>,
    forms: Vec<Form>,
}

impl Plan {
    pub(super) fn of(args: &Bench) -> Self {
        let sizes = if args.full {
            &FULL_SIZES[..]
        } else {
            &[USUAL_SIZE]
        };
        Self {
            what: or(&args.what, What::value_variants()),
            time: Duration::from_secs(args.seconds),
            sizes: or(&args.size, sizes),
            history_sizes: or(&args.size, if args.full { sizes } else { &HISTORY_SIZES }),
            functions: args.functions,
            keys: args.keys,
            state: Sizes {
                state: args
                    .state
                    .unwrap_or(if args.full { 10 << 30 } else { 1 << 30 }),
                limit: args.limit,
            },
            batch: args.batch,
            connections: or(&args.connections, &CONNECTIONS),
            forms: or(&args.form, Form::value_variants()),
        }
    }

    /// The loads of `ingest`.
    pub(super) fn batches(&self) -> Vec<Load> {
        let forms = self.forms.iter();
        forms
            .flat_map(|form| self.loads(*form, self.batch))
            .collect()
    }

    /// The loads of `single`.
    pub(super) fn singles(&self) -> Vec<Load> {
        self.loads(Form::Ndjson, 1)
    }

    /// What peers are sent: they take values as they are, in one form.
    pub(super) fn beside_peers(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        for (what, batch) in [(What::Ingest, self.batch), (What::Single, 1)] {
            if self.what.contains(&what) {
                loads.extend(self.loads(Form::Packed, batch));
            }
        }
        loads
    }

    fn loads(&self, form: Form, batch: u32) -> Vec<Load> {
        let each = |&size: &u32| {
            self.connections.iter().map(move |&connections| Load {
                form,
                batch,
                size,
                connections,
            })
        };
        self.sizes.iter().flat_map(each).collect()
    }
}

/// What was said, or else what is usual.
fn or<T: Clone>(said: &[T], usual: &[T]) -> Vec<T> {
    if said.is_empty() { usual } else { said }.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        bench: Bench,
    }

    fn plan(line: &str) -> Plan {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        Plan::of(&Program::try_parse_from(words).expect("arguments").bench)
    }

    #[test]
    fn what_is_not_said_is_usual() {
        let short = plan("");
        assert_eq!(short.what.len(), What::value_variants().len());
        assert_eq!((short.batches().len(), short.singles().len()), (6, 3));
        assert_eq!(short.history_sizes, [200, 1024]);
        let full = plan("--full");
        assert_eq!((full.batches().len(), full.singles().len()), (24, 12));
        assert_eq!((short.state.state, full.state.state), (1 << 30, 10 << 30));
        assert_eq!((short.state.limit, short.functions), (512 << 20, 1000));
    }

    #[test]
    fn what_is_said_counts() {
        let said = plan(
            "single --full --size 300 --connections 2,4 --form packed --state 2GiB --limit 1GiB",
        );
        assert_eq!((said.state.state, said.state.limit), (2 << 30, 1 << 30));
        assert_eq!(said.what, [What::Single]);
        assert_eq!(
            (&said.sizes[..], &said.history_sizes[..]),
            (&[300][..], &[300][..])
        );
        let loads = said.beside_peers();
        let few: Vec<_> = loads
            .iter()
            .map(|load| (load.batch, load.connections))
            .collect();
        assert_eq!(few, [(1, 2), (1, 4)]);
    }
}
