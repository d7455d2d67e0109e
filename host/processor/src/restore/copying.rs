//! Copies state that is kept, beside everything else: the function is at work meanwhile, and whoever changes
//! functions waits for a page of it at most.

use super::{Keeping, Point, points};
use crate::parked;
use crate::processor::Inner;
use crate::shadow::Pages;
use std::sync::Arc;
use tidemill_log::Draft;
use tidemill_state::{Frozen, Scope};
use tidemill_types::{FunctionId, FunctionName, Result};

/// State that is to be copied.
pub(crate) struct Copying {
    pub(super) name: FunctionName,
    pub(super) version: u32,
    pub(super) point: Point,
    pub(super) frozen: Arc<Frozen>,
    /// Under which number it lies.
    pub(super) from: FunctionId,
}

impl Copying {
    /// Does it. What can't be copied can't be gone back to, and is taken away; the version that was put in force
    /// is in force all the same.
    pub(crate) async fn run(self, inner: &Inner) {
        let Err(wrong) = self.copy(inner).await else {
            return;
        };
        tracing::warn!(function = %self.name, version = self.version, error = %wrong, "the state of a version that was left can't be kept; it can't be gone back to");
        let _admin = inner.admin.lock().await;
        if let Err(left) = self.drop(inner).await {
            tracing::warn!(function = %self.name, error = %left, "what was copied of it goes at the next start");
        }
    }

    async fn copy(&self, inner: &Inner) -> Result<()> {
        for partition in 0..self.point.partitions {
            let of = |function| Scope {
                function,
                partition,
            };
            let (from, to) = (of(self.from), of(self.point.function()));
            let scopes = [(from, to), (parked::scope(from), parked::scope(to))];
            for (from, to) in scopes {
                let mut pages = Pages::new(&self.frozen, from);
                while let Some(values) = pages.next().await? {
                    let admin = inner.admin.lock().await;
                    if !self.is_wanted(inner)? {
                        return Ok(());
                    }
                    let changes = values.under(to);
                    inner.parts.commit_durably(Draft::new(), &[changes]).await?;
                    drop(admin);
                    inner.parts.state.room().await;
                }
            }
        }
        let _admin = inner.admin.lock().await;
        if !self.is_wanted(inner)? {
            return Ok(());
        }
        let mut draft = Draft::new();
        let point = Point {
            copied: true,
            ..self.point.clone()
        };
        Keeping::add(&mut draft, &self.name, (self.version, &point))?;
        inner.parts.commit_durably(draft, &[]).await
    }

    /// Whether it is still to be kept: the function may have gone, or too many versions have come since.
    fn is_wanted(&self, inner: &Inner) -> Result<bool> {
        let points = points(&inner.parts, &self.name)?;
        let known = points.get(&self.version);
        Ok(known.is_some_and(|known| known.kept == self.point.kept))
    }

    async fn drop(&self, inner: &Inner) -> Result<()> {
        if !self.is_wanted(inner)? {
            return Ok(());
        }
        let (mut draft, mut keeping) = (Draft::new(), Keeping::default());
        keeping.drop_point(&mut draft, &self.name, (self.version, &self.point));
        inner.parts.commit_durably(draft, &keeping.cleared).await?;
        keeping.done(&inner.parts);
        Ok(())
    }
}
