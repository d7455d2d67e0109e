//! Object storage in memory, with faults drawn from a seed.

use super::steady::{BUSY, REFUSED};
use super::{Backend, Created};
use crate::Random;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_types::{Error, Result};

/// How often requests go wrong, in percent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A write takes effect, its answer is lost.
    pub lost_answers: u64,
    /// A write fails, and takes effect all the same some requests later.
    pub late: u64,
    /// A request fails without effect.
    pub errors: u64,
    /// A request lets others run before it, and its answer after them.
    pub slow: u64,
    /// A request is refused because there are too many, without effect.
    pub throttled: u64,
    /// A request is refused for good, as with wrong credentials, without effect.
    pub refused: u64,
    /// A write takes effect or a read is made, and no answer ever comes.
    pub silent: u64,
}

/// Object storage in memory. A request fails only as [`Faults`] say; the same seed and the same order
/// of requests give the same faults.
pub struct MemoryObjects {
    objects: Mutex<BTreeMap<String, Bytes>>,
    faults: Mutex<Faults>,
    left: Mutex<Option<u64>>,
    /// Writes on their way, and after how many more requests they take effect.
    late: Mutex<Vec<(u64, Write)>>,
    random: Random,
    conditional: bool,
}

/// What changes the storage.
#[derive(Clone)]
enum Write {
    Put(String, Bytes),
    PutIfAbsent(String, Bytes),
    Delete(String),
}

impl Write {
    fn path(&self) -> &str {
        match self {
            Self::Put(path, _) | Self::PutIfAbsent(path, _) | Self::Delete(path) => path,
        }
    }

    fn apply(self, objects: &mut BTreeMap<String, Bytes>) -> Created {
        match self {
            Self::Put(path, body) => {
                objects.insert(path, body);
            }
            Self::PutIfAbsent(path, _) if objects.contains_key(&path) => return Created::Exists,
            Self::PutIfAbsent(path, body) => {
                objects.insert(path, body);
            }
            Self::Delete(path) => {
                objects.remove(&path);
            }
        }
        Created::Ours
    }
}

enum Fate {
    Good,
    Lost,
    Late,
    Failed,
    Throttled,
    Refused,
    Silent,
}

impl MemoryObjects {
    /// An empty storage without faults.
    pub fn new(random: Random) -> Self {
        Self {
            objects: Mutex::default(),
            faults: Mutex::default(),
            left: Mutex::default(),
            late: Mutex::default(),
            random,
            conditional: true,
        }
    }

    /// One that ignores the condition of create-if-absent, as some servers do.
    #[must_use]
    pub fn ignoring_conditions(self) -> Self {
        Self {
            conditional: false,
            ..self
        }
    }

    /// From now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// After so many requests none is answered any more, as if whoever asks had died; `None` lifts it.
    pub fn die_after(&self, requests: Option<u64>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = requests;
    }

    /// What is on its way takes effect now.
    pub fn settle(&self) {
        let late = std::mem::take(&mut *self.late());
        let mut objects = self.lock();
        for (_, write) in late {
            write.apply(&mut objects);
        }
    }

    /// All paths, in order, without faults.
    pub fn paths(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Replaces (or removes) an object behind everybody's back, without faults. Answers what was there.
    pub fn tamper(&self, path: &str, body: Option<Bytes>) -> Option<Bytes> {
        let mut objects = self.lock();
        match body {
            Some(body) => objects.insert(path.to_owned(), body),
            None => objects.remove(path),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn late(&self) -> MutexGuard<'_, Vec<(u64, Write)>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another request comes: what is due takes effect before it.
    fn arrive(&self) {
        let (mut late, mut objects) = (self.late(), self.lock());
        let all = std::mem::take(&mut *late);
        for (left, write) in all {
            match left.checked_sub(1) {
                Some(left) => late.push((left, write)),
                None => {
                    write.apply(&mut objects);
                }
            }
        }
    }

    async fn fate(&self) -> Fate {
        self.arrive();
        if let Some(left) = &mut *self.left.lock().unwrap_or_else(PoisonError::into_inner) {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => return Fate::Failed,
            }
        }
        let faults = *self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults == Faults::default() {
            return Fate::Good;
        }
        if self.random.below(100) < faults.slow {
            for _ in 0..self.random.below(20) {
                tokio::task::yield_now().await;
            }
        }
        let fates = [
            (faults.errors, Fate::Failed),
            (faults.lost_answers, Fate::Lost),
            (faults.late, Fate::Late),
            (faults.throttled, Fate::Throttled),
            (faults.refused, Fate::Refused),
            (faults.silent, Fate::Silent),
        ];
        let mut draw = self.random.below(100);
        for (percent, fate) in fates {
            match draw.checked_sub(percent) {
                Some(rest) => draw = rest,
                None => return fate,
            }
        }
        Fate::Good
    }

    /// Reads have no effect that an answer could be lost after.
    async fn read<T>(
        &self,
        path: &str,
        read: impl FnOnce(&BTreeMap<String, Bytes>) -> Result<T> + Send,
    ) -> Result<T> {
        match self.fate().await {
            Fate::Good => read(&self.lock()),
            fate => fate.without_effect(path).await,
        }
    }

    async fn write(&self, write: Write) -> Result<Created> {
        let path = write.path().to_owned();
        match self.fate().await {
            Fate::Good => Ok(write.apply(&mut self.lock())),
            fate @ (Fate::Lost | Fate::Silent) => {
                write.apply(&mut self.lock());
                fate.without_effect(&path).await
            }
            Fate::Late => {
                self.late().push((self.random.below(12), write));
                Fate::Late.without_effect(&path).await
            }
            fate => fate.without_effect(&path).await,
        }
    }
}

impl Fate {
    /// What whoever asked sees of it.
    async fn without_effect<T>(self, path: &str) -> Result<T> {
        let (code, what) = match self {
            Self::Silent => std::future::pending().await,
            Self::Throttled => (BUSY, "too many requests"),
            Self::Refused => (REFUSED, "access denied"),
            Self::Good | Self::Lost | Self::Late | Self::Failed => ("storage-failed", "no answer"),
        };
        Err(Error::unavailable(
            code,
            format!("object storage failed at {path:?}: {what}"),
        ))
    }
}

#[async_trait::async_trait]
impl Backend for MemoryObjects {
    async fn get(&self, path: &str) -> Result<Bytes> {
        self.read(path, |objects| {
            objects
                .get(path)
                .cloned()
                .ok_or_else(|| super::absent(path))
        })
        .await
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let whole = self.get(path).await?;
        let part = usize::try_from(range.start)
            .ok()
            .zip(usize::try_from(range.end).ok());
        match part {
            Some((start, end)) if start <= end && end <= whole.len() => Ok(whole.slice(start..end)),
            _ => Err(super::too_short(path, &range)),
        }
    }

    async fn size(&self, path: &str) -> Result<Option<u64>> {
        self.read(path, |objects| {
            Ok(objects.get(path).map(|body| body.len() as u64))
        })
        .await
    }

    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        self.write(match self.conditional {
            true => Write::PutIfAbsent(path.to_owned(), body),
            false => Write::Put(path.to_owned(), body),
        })
        .await
    }

    async fn upload(&self, path: &str, file: &std::path::Path) -> Result<()> {
        let body = std::fs::read(file).map_err(|error| {
            Error::internal(format!(
                "can't read {} to upload it: {error}",
                file.display()
            ))
        })?;
        let put = Write::Put(path.to_owned(), body.into());
        self.write(put).await.map(drop)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let folder = prefix.trim_end_matches('/');
        let below = |path: &&String| {
            folder.is_empty()
                || path
                    .strip_prefix(folder)
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        // Not every server lists in byte order, so nobody may rely on it.
        self.read(prefix, |objects| {
            Ok(objects.keys().filter(below).rev().cloned().collect())
        })
        .await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.write(Write::Delete(path.to_owned())).await.map(drop)
    }
}
