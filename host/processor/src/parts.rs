//! What all tasks share.

use crate::broken::Faults;
use crate::calls::Caller;
use crate::compiling::Compiler;
use crate::function_log::Keeper;
use crate::instances::Instances;
use crate::measure::FunctionMetrics;
use crate::pool::Pool;
use crate::replay::Aside;
use bytes::Bytes;
use std::sync::{Arc, PoisonError, RwLock};
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_log::{Draft, Log, Read, ReadLimit, Ticket, Topic, TopicSettings};
use tidemill_state::{Changes, Store};
use tidemill_types::{CommitSeq, Error, ErrorKind, PartitionId, Result, TopicName};
use tidemill_wasm::Sandbox;

/// The parts a processor was given, and its own.
pub(crate) struct Parts {
    pub(crate) log: Log,
    pub(crate) state: Store,
    pub(crate) sandbox: Sandbox,
    pub(crate) compiler: Compiler,
    pub(crate) instances: Arc<Instances>,
    pub(crate) objects: Objects,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) pool: Pool,
    pub(crate) metrics: FunctionMetrics,
    pub(crate) keeper: Arc<Keeper>,
    /// Who makes calls to the outside; nobody does in replays.
    pub(crate) caller: Option<Arc<Caller>>,
    /// What tests break.
    pub(crate) faults: Faults,
    /// Where transactions go that aren't committed: those of replays.
    pub(crate) aside: Option<Aside>,
    /// Read from the moment a transaction with state is sequenced until its state is applied.
    pub(crate) applying: RwLock<()>,
}

impl Parts {
    /// Commits a task's transaction, or puts it aside. Whoever `has_more` to do at once waits for no disk, and neither
    /// does anybody for what it emits.
    ///
    /// # Errors
    /// As [`Log::commit`]; the draft comes back where nothing happened.
    #[expect(
        clippy::result_large_err,
        reason = "the draft comes back so that nothing is copied"
    )]
    pub(crate) fn commit(
        &self,
        draft: Draft,
        sections: &[Bytes],
        has_more: bool,
    ) -> Result<(), (Error, Option<Draft>)> {
        match &self.aside {
            None if has_more => {
                let commit = |draft| {
                    let commit = self.log.commit_unawaited(draft)?;
                    Ok((commit, ()))
                };
                self.sequence(draft, sections, commit)
            }
            None => self.sequence_awaited(draft, sections).map(drop),
            Some(aside) => aside
                .take(&self.state, draft, sections)
                .map_err(|error| (error, None)),
        }
    }

    /// The next events of a partition, if they are in memory; a replay is handed its events.
    pub(crate) fn read_ahead(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Option<Read> {
        match &self.aside {
            None => self.log.read_ahead(at, from, limit),
            Some(_) => None,
        }
    }

    /// Commits a transaction and applies its state sections; until that is done the store doesn't
    /// believe that it has them, however soon the frame is durable.
    ///
    /// # Errors
    /// As [`Log::commit`]; the draft comes back where nothing happened.
    #[expect(
        clippy::result_large_err,
        reason = "the draft comes back so that nothing is copied"
    )]
    fn sequence<T>(
        &self,
        draft: Draft,
        sections: &[Bytes],
        commit: impl FnOnce(Draft) -> Result<(CommitSeq, T), (Error, Draft)>,
    ) -> Result<T, (Error, Option<Draft>)> {
        let _intent = (!sections.is_empty()).then(|| self.state.intend());
        let _applying = self.applying.read().unwrap_or_else(PoisonError::into_inner);
        let (commit, taken) = commit(draft).map_err(|(error, draft)| (error, Some(draft)))?;
        for section in sections {
            self.state
                .apply_shared(commit, section)
                .map_err(|error| (error, None))?;
        }
        Ok(taken)
    }

    #[expect(
        clippy::result_large_err,
        reason = "the draft comes back so that nothing is copied"
    )]
    fn sequence_awaited(
        &self,
        draft: Draft,
        sections: &[Bytes],
    ) -> Result<Ticket, (Error, Option<Draft>)> {
        self.sequence(draft, sections, |draft| {
            let ticket = self.log.commit(draft)?;
            Ok((ticket.commit, ticket))
        })
    }
}

impl Parts {
    /// Waits until the state of everything sequenced before is applied and all of it is durable: what was
    /// read of positions is true of state and outputs, too, and stays true.
    ///
    /// # Errors
    /// `journal-failed`.
    pub(crate) async fn settled(&self) -> Result<()> {
        drop(
            self.applying
                .write()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.log.settled().await
    }

    /// The topic of a name, made with these settings where there is none.
    ///
    /// # Errors
    /// As [`Log::create_topic`].
    pub(crate) async fn topic(
        &self,
        name: &TopicName,
        settings: TopicSettings,
    ) -> Result<Arc<Topic>> {
        match self.log.topic(name.as_str()) {
            Some(topic) => Ok(topic),
            None => Ok(self.log.create_topic(name, settings).await?.0),
        }
    }

    /// Commits and waits until it is durable; waits for room where too much is in flight.
    ///
    /// # Errors
    /// As [`Log::commit`] and [`Ticket::durable`].
    pub(crate) async fn commit_durably(&self, draft: Draft, changes: &[Changes]) -> Result<()> {
        let sections = changes.iter().map(Changes::as_bytes);
        let sections: Vec<_> = sections.map(Bytes::copy_from_slice).collect();
        let mut draft = draft;
        for section in &sections {
            draft.state(section);
        }
        loop {
            match self.sequence_awaited(draft, &sections) {
                Ok(ticket) => return ticket.durable().await,
                Err((error, Some(again))) if error.kind == ErrorKind::Busy => {
                    draft = again;
                    self.log.room().await;
                }
                Err((error, _)) => return Err(error),
            }
        }
    }
}
