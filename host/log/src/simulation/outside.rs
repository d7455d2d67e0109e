//! What the world does to the log beside taking its power away: a clock that is set, a storage that
//! misbehaves, an owner that doesn't know that it is one no longer, somebody who looks before a start.

use super::world::World;
use crate::keeper::Keeper;
use crate::open;
use bytes::Bytes;
use tidemill_env::objects::Faults;
use tidemill_types::ErrorKind;

/// Milliseconds and a day, in µs.
const MILLI: i64 = 1000;
const DAY: i64 = 86_400_000_000;

impl World {
    /// Somebody sets the clock, forward or back.
    pub(super) fn set_clock(&mut self) {
        let steps = [20 * MILLI, 5 * MILLI, -3 * MILLI, -15 * MILLI, DAY, -DAY];
        let step = steps[self.pick(steps.len())];
        self.move_clock(step);
        self.trace.push(format!("clock by {step}"));
    }

    pub(super) fn move_clock(&mut self, micros: i64) {
        self.clock.advance(micros);
        self.shown.push(self.clock.now());
    }

    /// From now on the storage is like this.
    pub(super) fn set_faults(&mut self) {
        let worst = [0, 0, 15][self.pick(3)];
        let sometimes = |world: &Self| if world.pick(2) == 0 { worst } else { 0 };
        self.bucket.set_faults(Faults {
            lost_answers: worst.max(self.faulty.lost_answers()),
            late: sometimes(self),
            errors: worst,
            slow: worst,
            throttled: sometimes(self),
            refused: sometimes(self) / 3,
            silent: 0,
        });
    }

    /// The process is taken for dead, another one starts, and then the first goes on.
    pub(super) fn outlive(&mut self) -> Result<(), String> {
        if !self.flush_all()? {
            return Ok(());
        }
        let Some(old) = self.running.take() else {
            return Ok(());
        };
        self.trace.push("taken for dead".into());
        self.tickets.clear();
        self.disk.kill();
        self.start()?;
        let before = self.manifests();
        let went_on = self.runtime.block_on(old.keeper.seal_all(&old.shard));
        self.runtime.block_on(old.keeper.keep(&old.shard));
        match went_on {
            Ok(()) if self.manifests() != before => {
                return Err("an owner that was replaced has committed a manifest".into());
            }
            // What it wants to commit had been, before it was replaced: only the answer had got lost.
            Ok(()) => self.trace.push("the old one: committed before".into()),
            Err(error) => self.trace.push(format!("the old one: {}", error.code)),
        }
        if self.flush_all()?
            && let Some(running) = &self.running
        {
            let sealed = self
                .runtime
                .block_on(running.keeper.seal_all(&running.shard));
            if let Err(error) = sealed.as_ref()
                && error.kind == ErrorKind::Fenced
            {
                return Err("the owner was fenced by the one that it replaced".into());
            }
        }
        self.check()
    }

    /// The manifests there are, as they are.
    fn manifests(&self) -> Vec<(String, Option<Bytes>)> {
        let paths = self.bucket.paths().into_iter();
        let manifests = paths.filter(|path| path.starts_with("manifests/"));
        let read = |path: String| {
            let body = self.bucket.tamper(&path, None);
            self.bucket.tamper(&path, body.clone());
            (path, body)
        };
        manifests.map(read).collect()
    }

    /// What is said of the log before a start must be what the start says: that all is well.
    pub(super) fn rehearse(&mut self) -> Result<(), String> {
        let found = Keeper::find(self.objects.clone(), &self.random);
        // Whether storage answers is another matter.
        let Ok(found) = self.runtime.block_on(found) else {
            return Ok(());
        };
        let journal = self.journal();
        let looked = open::rehearse(&self.disk, &journal, found.manifest.as_ref(), found.marks);
        let (looked, refused) = looked.map_err(|error| error.to_string())?;
        match (looked.damage, refused) {
            (None, None) => Ok(()),
            (damage, refused) => Err(format!("a start would refuse {damage:?} {refused:?}")),
        }
    }
}
