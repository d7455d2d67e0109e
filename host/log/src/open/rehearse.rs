//! A start as far as it changes nothing: what it would refuse.

use super::{Replay, check_data, check_marks, check_reach, empty_manifest};
use crate::journal::{Survey, survey};
use crate::manifest::Manifest;
use crate::marks::{self, Marks};
use crate::{Recovery, Settings, SnapshotRef};
use std::path::Path;
use tidemill_env::Random;
use tidemill_env::files::Files;
use tidemill_types::{CommitSeq, Error, Result};

/// Nobody rebuilds anything.
struct NoState;

#[async_trait::async_trait]
impl Recovery for NoState {
    async fn begin(&mut self, _: Option<&SnapshotRef>) -> Result<CommitSeq> {
        Ok(CommitSeq(0))
    }
    fn state(&mut self, _: CommitSeq, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// The journal below `dir`, replayed over a manifest and its marks, and the first thing beside damage
/// that a start would refuse.
///
/// # Errors
/// What the disk says.
pub(crate) fn rehearse(
    files: &dyn Files,
    dir: &Path,
    manifest: Option<&Manifest>,
    mut saved: marks::Saved,
) -> Result<(Survey, Option<Error>)> {
    let fresh = manifest.is_none();
    let mut manifest = manifest
        .cloned()
        .unwrap_or_else(|| empty_manifest(&Random::system()));
    let marks_from = saved.commit;
    saved.keep_topics(|topic| manifest.topics.iter().any(|known| known.topic.id == topic));
    let marks = Marks::new(marks::Limits::of(&Settings::default()), saved);
    let base = manifest.commit.0;
    // State that is younger than what the snapshot reflects is in the journal or isn't needed.
    let state_from = manifest
        .snapshot
        .as_ref()
        .map_or(CommitSeq(0), |snapshot| snapshot.commit);
    let mut nobody = NoState;
    let mut replay = Replay::new(&manifest, marks, marks_from, state_from, &mut nobody);
    let mut refused = None;
    let looked = survey(files, dir, Some(base), |found| {
        if refused.is_none() {
            let (path, at) = (found.file.path.display(), found.at);
            let wrong = |error: Error| error.at(format_args!("{path}, byte {at}"));
            refused = replay.frame(&found).err().map(wrong);
        }
        Ok(())
    })?;
    let Replay {
        sequencer, topics, ..
    } = replay;
    let recovered = &looked.recovered;
    let gone = recovered.last_seq.is_none() && !fresh && base > 0;
    if looked.damage.is_none() && refused.is_none() {
        let fits = check_data(recovered, &mut manifest, fresh);
        let fits = fits.and_then(|_| match gone {
            // A start goes on without it and says so.
            true => Ok(()),
            false => check_reach(recovered, &manifest, state_from, &topics)
                .and_then(|()| check_marks(&manifest, &sequencer)),
        });
        refused = fits.err();
    }
    Ok((looked, refused))
}
