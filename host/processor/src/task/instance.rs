//! A task's instance: taken from the shelf with the room it needs, and put back.

use super::{Slice, Task};
use crate::instances::{Room, Warm, bytes, pages};
use std::sync::atomic::Ordering;
use tidemill_types::ByteSize;

/// What a function that was never run is expected to use, and what one may grow by without asking again.
const SPARE_PAGES: u32 = 32;

impl Task {
    /// Makes sure of the room for an instance, and takes the one from before if it is still there; gives
    /// what there is to wait for otherwise.
    pub(super) fn warm_up(&mut self) -> Option<Slice> {
        if self.guest.room.is_some() {
            return None;
        }
        let instances = &self.parts.instances;
        let limit = pages(self.deployment.limits().memory);
        let seen = self.deployment.pages.load(Ordering::Relaxed);
        let wanted = match self.guest.wants_all {
            true => limit,
            false => seen.saturating_add(SPARE_PAGES).min(limit),
        };
        let (kept, held) = match instances.take(self.guest.number) {
            Some(warm) => (Some((warm.instance, warm.packer)), Some(warm.room)),
            None => (None, None),
        };
        let room = match self.guest.granted.take() {
            Some(granted) => Ok(granted),
            None => instances.grow(held, wanted),
        };
        let room = match room {
            Ok(room) => room,
            Err(held) => {
                if let (Some((instance, packer)), Some(room)) = (kept, held) {
                    let warm = Warm {
                        instance,
                        packer,
                        room,
                    };
                    instances.shelve(self.guest.number, warm);
                }
                return Some(Slice::Instance(wanted));
            }
        };
        if let Some((instance, packer)) = kept {
            (self.guest.instance, self.guest.packer) = (Some(instance), packer);
        }
        self.guest.room = Some(room);
        let grant = self.grant();
        if let Some(instance) = &mut self.guest.instance {
            instance.grant(grant);
        }
        None
    }

    /// What the instance may use now. With all the room there is it may use all that its limit allows, even
    /// where that is more.
    pub(super) fn grant(&self) -> ByteSize {
        match &self.guest.room {
            Some(_) if self.guest.wants_all => self.deployment.limits().memory,
            Some(room) => bytes(room),
            None => ByteSize(0),
        }
    }

    /// Takes the room that was waited for.
    pub(crate) fn granted(&mut self, room: Room) {
        self.guest.granted = Some(room);
        self.view.goes_on();
    }

    /// The call needed more room than it had: next time it gets all that its limit allows.
    pub(super) fn ran_short(&mut self) {
        self.guest.wants_all = true;
        self.guest.instance = None;
        self.guest.room = None;
    }

    /// Puts the instance aside until there is more to do.
    pub(super) fn shelve(&mut self) {
        self.guest.granted = None;
        let Some(room) = self.guest.room.take() else {
            return;
        };
        let packer = std::mem::take(&mut self.guest.packer);
        if let Some(instance) = self.guest.instance.take() {
            let used = pages(instance.memory());
            self.deployment.pages.fetch_max(used, Ordering::Relaxed);
            self.guest.wants_all = false;
            let warm = Warm {
                instance,
                packer,
                room,
            };
            self.parts.instances.shelve(self.guest.number, warm);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        drop(self.parts.instances.take(self.guest.number));
    }
}
