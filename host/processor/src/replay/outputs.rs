//! A replay for what it emits: handed on as it comes, or put into a topic.

use super::aside::Frame;
use super::diff::emitted;
use super::job::{Outcome, Progress};
use super::lane::{Events, Lane, Run, cancelled, gone};
use super::same::Emitted;
use super::source::Span;
use crate::deployment::Deployment;
use crate::effects::partition_of;
use crate::note::Note;
use crate::parts::Parts;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_log::{Draft, Format, Ticket, Topic, TopicSettings};
use tidemill_types::{Error, ErrorKind, PackedRows, Result, RowView, TopicName};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The header that says which topic an event of a replay is for.
const FOR: &str = "tidemill-replay-of";

/// What comes out of a stream.
#[derive(Clone, Debug)]
pub enum Replayed {
    /// Events emitted by a stretch of a partition's events, in order.
    Events(Vec<Emitted>),
    /// The function stopped before the end of a partition.
    Stopped(u32, String),
    /// Everything before was all.
    Done,
}

/// One version over spans.
pub(crate) struct Emitting {
    pub(crate) live: Arc<Parts>,
    pub(crate) run: Arc<Run>,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) spans: Vec<Span>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) stop: Shutdown,
}

/// Takes what a partition's task emits.
trait Sink: Send {
    /// What some transactions emitted, in order.
    fn take(&mut self, frames: &[Frame]) -> impl Future<Output = Result<()>> + Send;
}

impl Emitting {
    /// Runs it, and hands on what it emits; the order of each partition is kept.
    ///
    /// # Errors
    /// `cancelled`, also when nobody takes it any more; what can't be read.
    pub(crate) async fn stream(self, out: mpsc::Sender<Replayed>) -> Result<()> {
        let this = Arc::new(self);
        let lanes = this.spans.iter().map(|span| {
            let (this, span) = (Arc::clone(&this), span.clone());
            let mut sink = Handed {
                deployment: Arc::clone(&this.deployment),
                out: out.clone(),
            };
            async move {
                let Some(why) = this.lane(&span, &mut sink).await? else {
                    return Ok(());
                };
                sink.hand(Replayed::Stopped(span.partition, why)).await
            }
        });
        side_by_side(lanes, this.run.memory.lanes).await?;
        out.send(Replayed::Done).await.map_err(|_| cancelled())
    }

    /// Runs it, and puts what it emits into a topic, each event with a header that says which topic it is for.
    /// Dead letters stay away from it: they are counted by a comparison. The order of each partition is kept.
    ///
    /// # Errors
    /// `cancelled`; what can't be read; as a commit.
    pub(crate) async fn into_topic(self, topic: Arc<Topic>) -> Result<Outcome> {
        let many = self.run.memory.lanes;
        let this = Arc::new(self);
        let lanes = this.spans.iter().map(|span| {
            let (this, span) = (Arc::clone(&this), span.clone());
            let mut sink = Kept::new(&this, &topic);
            async move {
                let stopped = this.lane(&span, &mut sink).await?;
                let emitted = sink.end().await?;
                Ok((emitted, stopped.map(|why| (span.partition, why))))
            }
        });
        let (emitted, stopped): (Vec<u64>, Vec<_>) =
            side_by_side(lanes, many).await?.into_iter().unzip();
        Ok(Outcome::Into {
            topic: topic.name.to_string(),
            emitted: emitted.iter().sum(),
            stopped: stopped.into_iter().flatten().collect(),
        })
    }

    /// One partition; why the function stopped before its end, if it did.
    async fn lane(&self, span: &Span, sink: &mut impl Sink) -> Result<Option<String>> {
        let begin = (span.from.clone(), Note::default());
        let (run, deployment) = (&self.run, &self.deployment);
        let mut lane = Lane::new(run, deployment, span.partition, begin, &self.stop);
        let mut events = Events::new(&self.deployment, span, self.run.memory.chunk);
        while let Some(read) = events.next(&self.live.log).await? {
            let count = read.len() as u64;
            let (frames, stopped) = lane.feed(read).await?;
            self.progress.done(count);
            sink.take(&frames).await?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        Ok(None)
    }
}

/// Runs lanes as tasks of their own, so many at a time; they end with whoever waits for them.
async fn side_by_side<T: Send + 'static>(
    lanes: impl Iterator<Item = impl Future<Output = Result<T>> + Send + 'static>,
    many: usize,
) -> Result<Vec<T>> {
    let lanes: Vec<_> = lanes.collect();
    let lanes = futures::stream::iter(lanes).map(|lane| async move {
        let mut task = Ends(tokio::spawn(lane));
        (&mut task.0).await.unwrap_or_else(|_| Err(gone()))
    });
    lanes.buffer_unordered(many).try_collect().await
}

/// A task that ends when nobody waits for it any more.
struct Ends<T>(JoinHandle<T>);

impl<T> Drop for Ends<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Hands events on.
struct Handed {
    deployment: Arc<Deployment>,
    out: mpsc::Sender<Replayed>,
}

impl Handed {
    async fn hand(&self, some: Replayed) -> Result<()> {
        self.out.send(some).await.map_err(|_| cancelled())
    }
}

impl Sink for Handed {
    async fn take(&mut self, frames: &[Frame]) -> Result<()> {
        let frames = frames.iter();
        let all: Vec<Emitted> = frames
            .flat_map(|frame| emitted(&self.deployment, frame))
            .collect();
        match all.is_empty() {
            true => Ok(()),
            false => self.hand(Replayed::Events(all)).await,
        }
    }
}

/// Puts events into a topic, a transaction at a time: one is gathered while the one before becomes durable. Both
/// are as much as a lane reads at once.
struct Kept {
    live: Arc<Parts>,
    deployment: Arc<Deployment>,
    topic: Arc<Topic>,
    rows: PackedRows,
    partitions: Vec<u32>,
    under_way: Option<Ticket>,
    /// Bytes of events of one transaction.
    frame: usize,
    emitted: u64,
}

impl Kept {
    fn new(emitting: &Emitting, topic: &Arc<Topic>) -> Self {
        Self {
            live: Arc::clone(&emitting.live),
            deployment: Arc::clone(&emitting.deployment),
            topic: Arc::clone(topic),
            rows: PackedRows::default(),
            partitions: Vec::new(),
            under_way: None,
            frame: emitting.run.memory.chunk.bytes / 2,
            emitted: 0,
        }
    }

    fn push(&mut self, output: &Topic, partition: u32, row: RowView<'_>) -> Result<()> {
        let of = (FOR, output.name.as_str().as_bytes());
        self.rows
            .push(row.time, row.key, row.value, row.headers.chain([of]))?;
        let count = self.topic.settings.partitions;
        self.partitions
            .push(partition_of(row.key, partition, count));
        self.emitted += 1;
        Ok(())
    }

    async fn put(&mut self) -> Result<()> {
        self.settle().await?;
        let mut draft = Draft::new();
        draft.append(self.topic.id, &self.rows, &self.partitions)?;
        self.rows.clear();
        self.partitions.clear();
        loop {
            draft = match self.live.log.commit(draft) {
                Ok(ticket) => {
                    self.under_way = Some(ticket);
                    return Ok(());
                }
                Err((error, draft)) if error.kind == ErrorKind::Busy => draft,
                Err((error, _)) => return Err(error),
            };
            self.live.log.room().await;
        }
    }

    async fn settle(&mut self) -> Result<()> {
        match self.under_way.take() {
            Some(ticket) => ticket.durable().await,
            None => Ok(()),
        }
    }

    /// Puts what is left; how many events there were.
    async fn end(mut self) -> Result<u64> {
        if !self.rows.is_empty() {
            self.put().await?;
        }
        self.settle().await?;
        Ok(self.emitted)
    }
}

impl Sink for Kept {
    async fn take(&mut self, frames: &[Frame]) -> Result<()> {
        let deployment = Arc::clone(&self.deployment);
        for (at, batch) in frames.iter().flat_map(|frame| &frame.rows) {
            let mut outputs = deployment.outputs.iter();
            let Some(output) = outputs.find(|output| output.id == at.topic) else {
                continue;
            };
            for event in batch.iter() {
                self.push(output, at.partition, event.row)?;
                if self.rows.payload.len() > self.frame {
                    self.put().await?;
                }
            }
        }
        Ok(())
    }
}

/// The topic a replay goes into, made if it isn't there.
///
/// # Errors
/// `invalid-replay` where the function or another one works with it.
pub(crate) async fn side_topic(
    live: &Parts,
    deployment: &Deployment,
    name: &str,
) -> Result<Arc<Topic>> {
    let own = deployment.outputs.iter();
    let inputs = deployment.inputs.iter();
    let inputs = inputs.flat_map(|input| [&input.topic, input.read()]);
    let mut own = own.chain([&deployment.dead_letters]).chain(inputs);
    if own.any(|topic| topic.name.as_str() == name) {
        return Err(Error::invalid(
            "invalid-replay",
            format!(
                "topic {name:?} is one the function itself works with; a replay goes into another"
            ),
        ));
    }
    let name: TopicName = name.parse()?;
    let json = deployment
        .outputs
        .iter()
        .all(|topic| topic.settings.format == Format::Json);
    let settings = TopicSettings {
        partitions: deployment.partitions(),
        // Dead letters may be anything.
        format: if json { Format::Json } else { Format::Bytes },
        ..TopicSettings::default()
    };
    live.topic(&name, settings).await
}
