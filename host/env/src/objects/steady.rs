//! Patience with a storage: every request has its time, what may succeed later is tried again after a
//! growing, jittered pause, and what became of an unclear create is read back. The only place in the
//! host where requests to the storage are repeated.

use super::create::{self, Put, Slots};
use super::watch::{Operation, Watch};
use super::{Backend, Created};
use crate::{Clock, Random};
use bytes::Bytes;
use futures::future::{Either, select};
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{Error, ErrorKind, Result};

/// The code of an error that repeating won't mend: wrong credentials, missing rights, a request that
/// the storage doesn't understand.
pub(super) const REFUSED: &str = "storage-refused";
/// The code of an error that says that the storage has too much to do.
pub(super) const BUSY: &str = "storage-busy";

/// Transfers and listings take several requests; they have this many times the time of one.
const LONG: u32 = 20;
/// A storage that has too much to do is left alone for this many times the usual pause.
const BUSY_PAUSES: u32 = 4;

/// How long one waits for a storage, and how often one asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// After this long without an answer a request counts as failed; zero: never.
    pub request: Duration,
    /// How often a request is made before its failure is told; at least 1.
    pub attempts: u32,
    /// The pause before the second attempt, doubled for each further one; half of it is drawn by lot.
    /// Zero: others may run in between, that is all.
    pub pause: Duration,
    /// The longest pause.
    pub most_pause: Duration,
}

impl Patience {
    /// No request is repeated; only what became of a create is found out.
    pub const NONE: Self = Self {
        request: Duration::ZERO,
        attempts: 1,
        pause: Duration::ZERO,
        most_pause: Duration::ZERO,
    };

    /// The pause before attempt number `attempt` (the second is 1).
    fn before(self, attempt: u32, busy: bool, random: &Random) -> Duration {
        let doubled = self
            .pause
            .saturating_mul(1 << attempt.saturating_sub(1).min(16));
        let longer = if busy { BUSY_PAUSES } else { 1 };
        let most = doubled.saturating_mul(longer).min(self.most_pause);
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros / 2 + random.below(micros / 2 + 1))
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(30),
            attempts: 5,
            pause: Duration::from_millis(100),
            most_pause: Duration::from_secs(5),
        }
    }
}

/// A storage, asked with patience.
pub(super) struct Steady {
    pub(super) inner: Arc<dyn Backend>,
    pub(super) patience: Patience,
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) watch: Arc<Watch>,
}

/// Whether the same request may succeed later.
fn may_pass(error: &Error) -> bool {
    error.kind == ErrorKind::Unavailable && error.code != REFUSED
}

impl Steady {
    /// One request, with its time.
    async fn once<T>(
        &self,
        operation: Operation,
        path: &str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let started = self.clock.elapsed();
        let outcome = self.in_time(operation, path, request).await;
        let took = self.clock.elapsed().saturating_sub(started);
        self.watch.asked(operation, outcome.as_ref().err(), took);
        outcome
    }

    async fn in_time<T>(
        &self,
        operation: Operation,
        path: &str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let time = match operation {
            Operation::Upload | Operation::List => self.patience.request.saturating_mul(LONG),
            _ => self.patience.request,
        };
        if time.is_zero() {
            return request.await;
        }
        match select(pin!(request), pin!(self.clock.sleep(time))).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(Error::unavailable(
                "storage-failed",
                format!("object storage gave no answer about {path:?} within {time:?}"),
            )),
        }
    }

    /// A request, again and again while it may pass. It must do no harm to make it twice.
    async fn again<T, F: Future<Output = Result<T>>>(
        &self,
        operation: Operation,
        path: &str,
        mut request: impl FnMut() -> F,
    ) -> Result<T> {
        let mut attempt = 0;
        let outcome = loop {
            let outcome = self.once(operation, path, request()).await;
            attempt += 1;
            match &outcome {
                Err(error) if may_pass(error) && attempt < self.patience.attempts => {
                    self.rest(operation, attempt, error.code == BUSY).await;
                }
                _ => break outcome,
            }
        };
        self.watch.ended(outcome.as_ref().err(), &self.clock);
        outcome
    }

    async fn rest(&self, operation: Operation, attempt: u32, busy: bool) {
        self.watch.repeated(operation);
        match self.patience.pause.is_zero() {
            true => tokio::task::yield_now().await,
            false => {
                let pause = self.patience.before(attempt, busy, &self.random);
                self.clock.sleep(pause).await;
            }
        }
    }
}

#[async_trait::async_trait]
impl Backend for Steady {
    async fn get(&self, path: &str) -> Result<Bytes> {
        self.again(Operation::Get, path, || self.inner.get(path))
            .await
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let request = || self.inner.get_range(path, range.clone());
        self.again(Operation::GetRange, path, request).await
    }

    async fn size(&self, path: &str) -> Result<Option<u64>> {
        self.again(Operation::Size, path, || self.inner.size(path))
            .await
    }

    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        let created = create::create(self, path, body).await;
        self.watch.ended(created.as_ref().err(), &self.clock);
        created
    }

    async fn upload(&self, path: &str, file: &Path) -> Result<()> {
        let request = || self.inner.upload(path, file);
        self.again(Operation::Upload, path, request).await
    }

    fn keeps_files(&self) -> bool {
        self.inner.keeps_files()
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.again(Operation::List, prefix, || self.inner.list(prefix))
            .await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.again(Operation::Delete, path, || self.inner.delete(path))
            .await
    }
}

#[async_trait::async_trait]
impl Slots for Steady {
    async fn put(&self, path: &str, body: Bytes) -> Put {
        let request = self.inner.create(path, body);
        match self.once(Operation::Create, path, request).await {
            Ok(Created::Ours) => Put::Done,
            Ok(Created::Exists) => Put::Exists,
            Err(error) if may_pass(&error) => Put::Unknown(error),
            Err(error) => Put::Refused(error),
        }
    }

    async fn peek(&self, path: &str) -> Result<Option<Bytes>> {
        match self.once(Operation::Get, path, self.inner.get(path)).await {
            Ok(body) => Ok(Some(body)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn pause(&self, attempt: u32, busy: bool) {
        self.rest(Operation::Create, attempt, busy).await;
    }
}
