//! What can be done where a start refuses the journal, and doing it. What is taken away is kept beside.

use super::{Directory, known};
use crate::journal::{HeadState, Survey, copy, cut_tail, disk_error, write_head};
use crate::manifest::Manifest;
use crate::open::rehearse;
use std::path::{Path, PathBuf};
use tidemill_env::Random;
use tidemill_env::objects::Objects;
use tidemill_types::{Error, Result};

/// What a repair would do. A start does everything else by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Nothing: a start accepts the journal as it is, and drops so many frames of torn tails that
    /// nobody was told of.
    Nothing {
        /// Frames that the start drops.
        torn_frames: u64,
        /// Their bytes.
        torn_bytes: u64,
    },
    /// Heads of these files are written again as their frames prove them. Nothing is lost.
    WriteHeads {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// The journal ends behind the last good frame before the damage.
    Cut {
        /// The damaged file.
        file: PathBuf,
        /// Everything from this byte on goes; the whole file if it has no frame before.
        at: u64,
        /// The last frame that stays.
        keeps: u64,
        /// Later files, which go as a whole.
        also: Vec<PathBuf>,
        /// What is lost.
        loss: Loss,
    },
    /// The damage lies before what storage knows already: all of the journal is put aside, and the next
    /// start goes on from object storage alone.
    Leave {
        /// The files.
        files: Vec<PathBuf>,
        /// What is lost.
        loss: Loss,
    },
    /// This can't be repaired here.
    Impossible {
        /// Why, and what to do.
        why: String,
    },
}

/// What goes with a repair; readers beyond it, and whoever was told of it, will not find it again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// The first frame that is lost.
    pub from: u64,
    /// The last frame of which that is known.
    pub to: Option<u64>,
    /// Events of which that is known; in the damaged part there may be more.
    pub events: u64,
}

impl Plan {
    /// Whether something that was acknowledged may be lost by it.
    pub fn loses(&self) -> bool {
        matches!(self, Self::Cut { .. } | Self::Leave { .. })
    }
}

impl Directory {
    /// What [`Directory::repair`] would do, and why.
    ///
    /// # Errors
    /// What disk and storage say.
    pub async fn plan(&self, objects: &Objects) -> Result<Plan> {
        let known = known(objects).await?;
        let (looked, refused) = rehearse(
            &*self.files,
            &self.journal(),
            known.manifest.as_ref(),
            known.marks,
        )?;
        Ok(decide(&looked, known.manifest.as_ref(), refused))
    }

    /// Does what [`Directory::plan`] says now; answers where what was changed or taken away is kept, if
    /// something was. Folders below the data directory named in `derived` are put aside as well when
    /// frames are lost: what is in them is made from the journal, and from frames that are gone.
    ///
    /// # Errors
    /// `directory-in-use` while a host runs; `loss-not-accepted` when something would be lost and that
    /// isn't accepted; `not-repairable`; what disk and storage say. It can be called again then.
    pub async fn repair(
        &self,
        objects: &Objects,
        accept_loss: bool,
        derived: &[&str],
        random: &Random,
    ) -> Result<(Plan, Option<PathBuf>)> {
        if self.lock.is_none() {
            return Err(Error::conflict(
                "directory-in-use",
                format!(
                    "{} is used by a running host, or nothing may be written there: stop the host first",
                    self.dir.display()
                ),
            ));
        }
        let plan = self.plan(objects).await?;
        if plan.loses() && !accept_loss {
            return Err(Error::conflict(
                "loss-not-accepted",
                "this repair loses what was acknowledged; see what with --dry-run, restore the journal from a copy of the disk if there is one, or say --accept-loss".to_owned(),
            ));
        }
        let (from, manifest) = match &plan {
            Plan::Nothing { .. } => return Ok((plan, None)),
            Plan::Impossible { why } => {
                return Err(Error::conflict("not-repairable", why.clone()));
            }
            Plan::WriteHeads { .. } => (0, known(objects).await?.manifest),
            Plan::Cut { loss, .. } | Plan::Leave { loss, .. } => (loss.from, None),
        };
        let kept = self
            .dir
            .join("cut")
            .join(format!("{from:020}-{}", random.nonce()));
        self.files
            .create_folder(&kept)
            .map_err(|e| disk_error(&kept, "can't be created", &e))?;
        if plan.loses() {
            for folder in derived {
                self.put_aside(&self.dir.join(folder), &kept)?;
            }
        }
        match &plan {
            Plan::WriteHeads { files } => self.write_heads(files, &kept, manifest.as_ref())?,
            Plan::Cut { file, at, also, .. } => {
                copy(&*self.files, file, &kept.join(name_of(file)))?;
                // The newest first: what is left meanwhile is refused as before.
                for later in also.iter().rev() {
                    self.put_aside(later, &kept)?;
                }
                self.sync(&kept)?;
                match *at > crate::journal::FILE_HEAD {
                    true => cut_tail(&*self.files, file, *at)?,
                    false => self.remove(file)?,
                }
            }
            Plan::Leave { files, .. } => {
                for file in files.iter().rev() {
                    self.put_aside(file, &kept)?;
                }
            }
            Plan::Nothing { .. } | Plan::Impossible { .. } => {}
        }
        self.sync(&kept)?;
        Ok((plan, Some(kept)))
    }

    fn write_heads(
        &self,
        files: &[PathBuf],
        kept: &Path,
        manifest: Option<&Manifest>,
    ) -> Result<()> {
        let looked = self.survey(None)?;
        let of_storage = manifest.and_then(|known| u64::from_str_radix(&known.data_id, 16).ok());
        let known = looked.recovered.data_id.or(of_storage);
        for seen in looked
            .files
            .iter()
            .filter(|it| files.contains(&it.file.path))
        {
            copy(
                &*self.files,
                &seen.file.path,
                &kept.join(name_of(&seen.file.path)),
            )?;
            self.sync(kept)?;
            // Where nobody else says whose data it is, there is nobody to contradict it.
            write_head(&*self.files, &seen.file, known.unwrap_or(seen.data_id))?;
        }
        Ok(())
    }

    fn put_aside(&self, path: &Path, kept: &Path) -> Result<()> {
        match self.files.rename(path, &kept.join(name_of(path))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(disk_error(path, "can't be put aside", &error))
            }
            _ => Ok(()),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = self.files.remove(path);
        removed.map_err(|e| disk_error(path, "can't be removed", &e))
    }

    fn sync(&self, kept: &Path) -> Result<()> {
        let cut = self.dir.join("cut");
        for folder in [kept, &cut, &self.journal(), &self.dir] {
            let synced = self.files.sync_folder(folder);
            synced.map_err(|e| disk_error(folder, "can't be synced", &e))?;
        }
        Ok(())
    }
}

fn name_of(path: &Path) -> &Path {
    path.file_name().map_or(path, Path::new)
}

/// Pure: what is to be done about what was seen.
fn decide(looked: &Survey, manifest: Option<&Manifest>, refused: Option<Error>) -> Plan {
    let base = manifest.map_or(0, |manifest| manifest.commit.0);
    let of_storage = manifest.and_then(|known| u64::from_str_radix(&known.data_id, 16).ok());
    if let (Some(ours), Some(theirs), Some(error)) =
        (looked.recovered.data_id, of_storage, &refused)
        && ours != theirs
    {
        let why = error.detail.clone();
        return Plan::Impossible { why };
    }
    let paths = |from: usize| -> Vec<PathBuf> {
        let files = looked.files.iter().skip(from);
        files.map(|seen| seen.file.path.clone()).collect()
    };
    let Some(damage) = &looked.damage else {
        let proven = looked
            .files
            .iter()
            .filter(|it| it.head == HeadState::Proven);
        let proven: Vec<PathBuf> = proven.map(|it| it.file.path.clone()).collect();
        return match refused {
            None if proven.is_empty() => Plan::Nothing {
                torn_frames: looked.files.iter().map(|it| it.torn.0).sum(),
                torn_bytes: looked.files.iter().map(|it| it.torn.1).sum(),
            },
            None => Plan::WriteHeads { files: proven },
            // The frames are good and yet not what storage goes on from.
            Some(_) if looked.recovered.last_seq.unwrap_or(0) < base => Plan::Leave {
                files: paths(0),
                loss: Loss {
                    from: looked.recovered.last_seq.unwrap_or(0) + 1,
                    to: None,
                    events: manifest.map_or(0, unsealed_events),
                },
            },
            Some(error) => Plan::Impossible { why: error.detail },
        };
    };
    let unsealed = manifest.map_or(0, unsealed_events);
    let keeps = looked.recovered.last_seq.unwrap_or(0);
    let loss = Loss {
        from: damage.missing.max(keeps + 1),
        to: damage.behind.last,
        events: damage.behind.events,
    };
    if keeps < base {
        return Plan::Leave {
            files: paths(0),
            loss: Loss {
                from: base + 1,
                events: unsealed + loss.events,
                ..loss
            },
        };
    }
    let Some(damaged) = looked.files.get(damage.nth) else {
        return Plan::Impossible {
            why: damage.what.clone(),
        };
    };
    Plan::Cut {
        file: damaged.file.path.clone(),
        at: damage.at,
        keeps,
        also: paths(damage.nth + 1),
        loss,
    }
}

/// Events that a manifest knows and no segment holds.
fn unsealed_events(manifest: &Manifest) -> u64 {
    let partitions = manifest.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|it| it.end - it.archived_end).sum()
}
