//! The threads that move a shard: one writes, one does what that has no time for (the next file, partitions that get
//! theirs together), tasks watch its space and keep house.

use crate::journal::disk_error;
use crate::keeper::Keeper;
use crate::shard::{Flushed, Shard};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tidemill_env::files::Lock;
use tidemill_types::Result;

/// How often free space is looked at, and how often sealing is considered.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// The running threads; they hold the directory until they end.
pub(crate) struct Threads {
    flusher: JoinHandle<()>,
    preparer: JoinHandle<()>,
    watcher: tokio::task::JoinHandle<()>,
    housekeeper: tokio::task::JoinHandle<()>,
    compactor: tokio::task::JoinHandle<()>,
    _directory: Arc<Lock>,
}

impl Threads {
    /// Starts them on the current tokio run time.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub(crate) fn start(shard: &Arc<Shard>, keeper: &Arc<Keeper>, directory: Lock) -> Result<Self> {
        let directory = Arc::new(directory);
        let (chores, todo) = sync_channel(2);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let spawned = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work);
            spawned.map_err(|e| disk_error(&shard.settings.dir, "no thread for the journal", &e))
        };
        let preparer = {
            let shard = shard.clone();
            spawn("journal-files", Box::new(move || do_chores(&shard, &todo)))?
        };
        let flusher = {
            let (shard, directory) = (shard.clone(), directory.clone());
            let work = move || {
                flush(&shard, &chores);
                drop(directory);
            };
            spawn("journal", Box::new(work))?
        };
        let watcher = tokio::spawn(watch_space(shard.clone()));
        let housekeeper = tokio::spawn(keep_house(shard.clone(), keeper.clone()));
        let compactor = tokio::spawn(rewrite(shard.clone(), keeper.clone()));
        Ok(Self {
            flusher,
            preparer,
            watcher,
            housekeeper,
            compactor,
            _directory: directory,
        })
    }

    /// Waits until they have ended; the shard is closing.
    pub(crate) fn join(self) {
        for task in [self.watcher, self.housekeeper, self.compactor] {
            task.abort();
        }
        for thread in [self.flusher, self.preparer] {
            if thread.join().is_err() {
                tracing::error!("a thread of the journal panicked");
            }
        }
    }
}

fn flush(shard: &Shard, chores: &SyncSender<Chore>) {
    // A panic here must not leave others waiting for ever.
    let _stop = StopOnPanic(shard);
    // The file whose successor was asked for.
    let mut asked = None;
    loop {
        shard.wait_for_followers();
        shard.gather();
        match shard.flush() {
            Flushed::Group => {
                let half = shard.half_used_file();
                if half.is_some() && half != asked && chores.try_send(Chore::File).is_ok() {
                    asked = half;
                }
                if shard.has_to_deliver() {
                    let _ = chores.try_send(Chore::Deliver);
                }
            }
            Flushed::Nothing if shard.wait_for_work() => {}
            Flushed::Nothing => return,
            Flushed::NoSpace => shard.wait_for_space(HOUSEKEEPING),
            Flushed::Failed => return,
        }
    }
}

struct StopOnPanic<'s>(&'s Shard);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// What the flusher has no time for.
enum Chore {
    /// The next file.
    File,
    /// Bring partitions what was published for them.
    Deliver,
}

fn do_chores(shard: &Shard, todo: &Receiver<Chore>) {
    // Ends when the flusher is gone.
    while let Ok(chore) = todo.recv() {
        match chore {
            Chore::File => shard.prepare_file(),
            Chore::Deliver => shard.deliver(),
        }
    }
}

/// Looks at space and counts, also while sealing takes its time.
async fn watch_space(shard: Arc<Shard>) {
    let _stop = StopOnPanic(&shard);
    loop {
        shard.clock.sleep(HOUSEKEEPING).await;
        shard.check_space();
        shard.meter();
    }
}

async fn keep_house(shard: Arc<Shard>, keeper: Arc<Keeper>) {
    // A log that no longer seals would only be noticed when the disk is full.
    let _stop = StopOnPanic(&shard);
    let mut is_behind = false;
    loop {
        // One partition alone may have more than a segment for each pause.
        if !is_behind {
            shard.clock.sleep(HOUSEKEEPING).await;
        }
        keeper.retain(&shard);
        is_behind = keeper.keep(&shard).await;
    }
}

async fn rewrite(shard: Arc<Shard>, keeper: Arc<Keeper>) {
    let _stop = StopOnPanic(&shard);
    loop {
        shard.clock.sleep(shard.settings.compaction_interval).await;
        if let Err(error) = keeper.compact(&shard).await {
            shard.meters.compaction_failures.inc();
            tracing::warn!(%error, "compaction failed and will be tried again");
        }
        loop {
            match keeper.merge(&shard).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "merging segments failed and will be tried again");
                    break;
                }
            }
        }
    }
}
