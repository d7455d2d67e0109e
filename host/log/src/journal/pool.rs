//! The files of the journal directory: the next one ready ahead, old ones waiting to be used again.

use super::{FILE_HEAD, FileHead, JournalFile, disk_error, journal_path, number_of, spare_path};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_env::Random;
use tidemill_env::files::Files;
use tidemill_types::{Error, Result};

/// Bytes of spares kept; more are removed. The journal swings by what is sealed at once, and a file
/// that has to be written with zeros costs as much of the disk as one full of events.
const SPARE_BYTES: u64 = 1 << 30;

/// How a file is made that no spare can become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filling {
    /// Full of zeros: small groups are synced sooner, for only data changes.
    Zeros,
    /// Its space set aside: where groups are large the disk is what everybody waits for, and zeros would
    /// be as much to write as the events.
    Reserved,
}

/// Makes, hands out and takes back journal files.
pub(crate) struct Pool {
    files: Arc<dyn Files>,
    dir: PathBuf,
    size: u64,
    data_id: u64,
    random: Random,
    stock: Mutex<Stock>,
}

#[derive(Default)]
struct Stock {
    next_number: u64,
    ready: Option<Arc<JournalFile>>,
    spares: Vec<PathBuf>,
}

impl Pool {
    /// The pool of a directory, whose spares it takes over; `next_number` is above all numbers in use.
    pub(crate) fn new(
        files: Arc<dyn Files>,
        dir: PathBuf,
        size: u64,
        data_id: u64,
        random: Random,
        next_number: u64,
    ) -> Result<Self> {
        let listed = files
            .list(&dir)
            .map_err(|e| disk_error(&dir, "can't be listed", &e))?;
        let mut spares: Vec<PathBuf> = listed
            .into_iter()
            .filter(|path| number_of(path, "spare").is_some())
            .collect();
        spares.sort();
        let highest = spares
            .iter()
            .filter_map(|path| number_of(path, "spare"))
            .max();
        let next_number = next_number.max(highest.map_or(0, |n| n + 1));
        let stock = Mutex::new(Stock {
            next_number,
            ready: None,
            spares,
        });
        Ok(Self {
            files,
            dir,
            size,
            data_id,
            random,
            stock,
        })
    }

    /// Bytes a file has for frames.
    pub(crate) fn room(&self) -> u64 {
        self.size.saturating_sub(FILE_HEAD)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the next file ready if it isn't.
    ///
    /// # Errors
    /// `StorageFull`, or whatever the disk says; nothing is lost by it.
    pub(crate) fn prepare(&self, filling: Filling) -> Result<()> {
        let mut stock = self.stock();
        if stock.ready.is_none() {
            stock.ready = Some(self.make(&mut stock, filling)?);
        }
        Ok(())
    }

    /// The next file, ready or made now.
    ///
    /// # Errors
    /// As [`Pool::prepare`].
    pub(crate) fn take(&self, filling: Filling) -> Result<Arc<JournalFile>> {
        let mut stock = self.stock();
        match stock.ready.take() {
            Some(ready) => Ok(ready),
            None => self.make(&mut stock, filling),
        }
    }

    /// Takes a file off the journal: to be used again, or removed while somebody still reads it.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub(crate) fn put_back(&self, file: Arc<JournalFile>) -> Result<()> {
        let mut stock = self.stock();
        let path = file.path.clone();
        let failed = |e: std::io::Error| disk_error(&path, "can't be cut off", &e);
        let read_by_others = Arc::strong_count(&file) > 1;
        if read_by_others || stock.spares.len() as u64 * self.size >= SPARE_BYTES {
            self.files.remove(&file.path).map_err(failed)?;
        } else {
            let spare = spare_path(&self.dir, file.number);
            self.files.rename(&file.path, &spare).map_err(failed)?;
            stock.spares.push(spare);
        }
        self.files.sync_folder(&self.dir).map_err(failed)
    }

    /// Removes the spares, because space is short; answers how many there were.
    pub(crate) fn drop_spares(&self) -> usize {
        let spares = std::mem::take(&mut self.stock().spares);
        for spare in &spares {
            if let Err(error) = self.files.remove(spare) {
                tracing::warn!(%error, path = %spare.display(), "a spare journal file can't be removed");
            }
        }
        spares.len()
    }

    fn make(&self, stock: &mut Stock, filling: Filling) -> Result<Arc<JournalFile>> {
        let number = stock.next_number;
        let nonce = self.random.next_u64();
        let head = FileHead {
            number,
            nonce,
            data_id: self.data_id,
        };
        let path = journal_path(&self.dir, number);
        let spare = self.usable_spare(stock)?;
        let failed = |e: std::io::Error| disk_error(&spare, "can't become a journal file", &e);
        let file = match self.files.open(&spare) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => match filling {
                Filling::Zeros => self.files.create_zeroed(&spare, self.size),
                Filling::Reserved => self.files.create_reserved(&spare, self.size),
            }
            .map_err(failed)?,
            Err(e) => return Err(failed(e)),
        };
        // Only a file whose head is durable gets a name that counts.
        file.write_at(0, &[&head.to_bytes()]).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        self.files.rename(&spare, &path).map_err(failed)?;
        stock.next_number += 1;
        self.files.sync_folder(&self.dir).map_err(failed)?;
        Ok(Arc::new(JournalFile {
            number,
            nonce,
            path,
            file,
        }))
    }

    /// The path of a spare of the right size, or of one that doesn't exist yet.
    fn usable_spare(&self, stock: &mut Stock) -> Result<PathBuf> {
        while let Some(spare) = stock.spares.pop() {
            let failed = |e: std::io::Error| disk_error(&spare, "can't be used again", &e);
            match self.files.open(&spare).and_then(|file| file.size()) {
                Ok(size) if size == self.size => return Ok(spare),
                _ => self.files.remove(&spare).map_err(failed)?,
            }
        }
        Ok(spare_path(&self.dir, stock.next_number))
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that a file can hold the largest frame a setting allows, and that places in it fit into 32 bits.
pub(crate) fn check_size(size: u64) -> Result<()> {
    const LEAST: u64 = 4 * FILE_HEAD;
    if size > u32::MAX.into() {
        return Err(Error::invalid(
            "invalid-setting",
            format!("a journal file has less than 4 GiB, not {size} bytes"),
        ));
    }
    if size < LEAST {
        return Err(Error::invalid(
            "invalid-setting",
            format!("a journal file needs at least {LEAST} bytes, not {size}"),
        ));
    }
    Ok(())
}
