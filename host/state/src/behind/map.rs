//! A store in memory: for tests and simulation. Clones share what is in it, so that a clone is what a
//! killed process would find.

use super::{Behind, Each, Failure, Fill, Marker, Pass, View, Write};
use crate::keys::MARKER;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// An ordered map.
#[derive(Clone, Default)]
pub(crate) struct Map(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    pairs: Arc<Pairs>,
    fault: Option<Fault>,
}

/// What goes wrong until told otherwise; a write fault only once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A write fails and does nothing.
    WriteRefused,
    /// A write does its work and fails.
    WriteUnclear,
    /// Nothing can be read.
    Read,
}

impl Map {
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        self.inside().fault = fault;
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readable(&self) -> Result<Arc<Pairs>, Failure> {
        let inside = self.inside();
        if inside.fault == Some(Fault::Read) {
            Err(told_to_fail())
        } else {
            Ok(inside.pairs.clone())
        }
    }
}

fn told_to_fail() -> Failure {
    Failure::Broken("told to fail".into())
}

impl Behind for Map {
    fn marker(&self) -> Result<Marker, Failure> {
        let pairs = self.readable()?;
        Ok(match pairs.get(MARKER) {
            Some(bytes) => Marker::read(bytes),
            None if pairs.is_empty() => Marker::Empty,
            None => Marker::Torn,
        })
    }

    fn get_many(
        &self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        let pairs = self.readable()?;
        for (at, key) in keys.iter().enumerate() {
            found(at, pairs.get(key).map(Vec::as_slice));
        }
        Ok(())
    }

    fn write(&self, batch: &[Write<'_>], marker: Option<Marker>) -> Result<(), Failure> {
        let mut inside = self.inside();
        let fault = inside.fault.take_if(|fault| *fault != Fault::Read);
        if fault == Some(Fault::WriteRefused) {
            return Err(told_to_fail());
        }
        let pairs = Arc::make_mut(&mut inside.pairs);
        for write in batch {
            match &write.value {
                Some(value) => pairs.insert(write.key.clone(), value.to_vec()),
                None => pairs.remove(&write.key),
            };
        }
        if let Some(marker) = marker {
            pairs.insert(MARKER.to_vec(), marker.to_bytes());
        }
        if fault.is_some() {
            Err(told_to_fail())
        } else {
            Ok(())
        }
    }

    fn fill(&self) -> Result<Box<dyn Fill + '_>, Failure> {
        Ok(Box::new(Filled {
            map: self,
            pairs: Vec::new(),
        }))
    }

    fn view(&self) -> Result<Box<dyn View>, Failure> {
        Ok(Box::new(self.readable()?))
    }

    fn pass(&self) -> Result<Pass, Failure> {
        let pairs = self.readable()?;
        Ok(Box::new(move |each| {
            let all = pairs.iter().filter(|(key, _)| *key != MARKER);
            let mut all = all.map(|(key, value)| each(key, value));
            all.find(|goes_on| goes_on.is_break());
            Ok(())
        }))
    }

    fn count(&self) -> u64 {
        self.inside().pairs.len() as u64
    }

    fn clear(&self) -> Result<(), Failure> {
        self.inside().pairs = Arc::default();
        Ok(())
    }

    fn persist(&self) -> Result<(), Failure> {
        Ok(())
    }
}

struct Filled<'m> {
    map: &'m Map,
    pairs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Fill for Filled<'_> {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure> {
        let last = self.pairs.last();
        assert!(last.is_none_or(|(last, _)| last.as_slice() < key));
        self.pairs.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        let write = |(key, value): (Vec<u8>, Option<Vec<u8>>)| Write {
            key,
            value: value.map(Into::into),
        };
        let writes: Vec<_> = self.pairs.into_iter().map(write).collect();
        self.map.write(&writes, None)
    }
}

impl View for Arc<Pairs> {
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok((**self).get(key).map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Option<&[u8]>,
        each: &mut Each<'_>,
    ) -> Result<(), Failure> {
        if let (Bound::Included(from) | Bound::Excluded(from), Some(to)) = (from, to)
            && from >= to
        {
            return Ok(());
        }
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        for (key, value) in self.range::<[u8], _>((from, to)) {
            if each(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}
