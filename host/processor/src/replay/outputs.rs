//! A replay for what it emits: handed on as it comes, or put into a topic.

use super::diff::{LANES, emitted};
use super::job::{Outcome, Progress};
use super::lane::{Events, Lane, Run, cancelled};
use super::same::Emitted;
use super::source::Span;
use crate::deployment::Deployment;
use crate::effects::partition_of;
use crate::note::Note;
use crate::parts::Parts;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_log::{Draft, Format, Topic, TopicSettings};
use tidemill_types::{Error, ErrorKind, PackedRows, Result, TopicName};
use tokio::sync::mpsc;

/// Bytes of events of one transaction into a topic.
const FRAME: usize = 4 << 20;

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
    pub(crate) run: Arc<Run>,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) spans: Vec<Span>,
}

impl Emitting {
    /// Runs it, and hands on what it emits; the order of each partition is kept.
    ///
    /// # Errors
    /// `cancelled`, also when nobody takes it any more; what can't be read.
    pub(crate) async fn stream(
        self,
        live: Arc<Parts>,
        (progress, stop): (Arc<Progress>, Shutdown),
        out: mpsc::Sender<Replayed>,
    ) -> Result<()> {
        let lanes = self.spans.iter().map(|span| {
            let (span, out) = (span.clone(), out.clone());
            let (this, live, progress, stop) = (&self, &live, &progress, &stop);
            async move { this.lane(live, span, (progress, stop), &out).await }
        });
        let lanes: Vec<_> = lanes.collect();
        let many = lanes.len().clamp(1, LANES);
        let lanes = futures::stream::iter(lanes).buffer_unordered(many);
        lanes.try_collect::<()>().await?;
        out.send(Replayed::Done).await.map_err(|_| cancelled())
    }

    async fn lane(
        &self,
        live: &Parts,
        span: Span,
        (progress, stop): (&Progress, &Shutdown),
        out: &mpsc::Sender<Replayed>,
    ) -> Result<()> {
        let begin = (span.from.clone(), Note::default());
        let mut lane = Lane::new(&self.run, &self.deployment, span.partition, begin, stop);
        let mut events = Events::new(&self.deployment, &span);
        while let Some(read) = events.next(&live.log).await? {
            let count = read.len() as u64;
            let (frames, stopped) = lane.feed(read).await?;
            progress.done(count);
            let all: Vec<Emitted> = frames
                .iter()
                .flat_map(|frame| emitted(&self.deployment, frame))
                .collect();
            if !all.is_empty() {
                let events = Replayed::Events(all);
                out.send(events).await.map_err(|_| cancelled())?;
            }
            if let Some(why) = stopped {
                let stopped = Replayed::Stopped(span.partition, why);
                return out.send(stopped).await.map_err(|_| cancelled());
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

/// Puts what comes into a topic, each event with a header that says which topic it is for. Dead letters
/// stay away from it: they are counted by a comparison.
///
/// # Errors
/// As a commit.
pub(crate) async fn collect(
    live: &Parts,
    topic: &Topic,
    dead_letters: &str,
    mut coming: mpsc::Receiver<Replayed>,
) -> Result<Outcome> {
    let (mut total, mut stopped) = (0, Vec::new());
    let mut gathered = (PackedRows::default(), Vec::new());
    loop {
        match coming.recv().await {
            Some(Replayed::Events(events)) => {
                for event in events.iter().filter(|event| event.topic != dead_letters) {
                    push(topic, event, &mut gathered)?;
                    total += 1;
                    if gathered.0.payload.len() > FRAME {
                        put(live, topic, &mut gathered).await?;
                    }
                }
            }
            Some(Replayed::Stopped(partition, why)) => stopped.push((partition, why)),
            Some(Replayed::Done) => break,
            None => return Err(cancelled()),
        }
    }
    put(live, topic, &mut gathered).await?;
    Ok(Outcome::Into {
        topic: topic.name.to_string(),
        emitted: total,
        stopped,
    })
}

fn push(topic: &Topic, event: &Emitted, rows: &mut (PackedRows, Vec<u32>)) -> Result<()> {
    let of = ("tidemill-replay-of", event.topic.as_bytes());
    let headers = event
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), &value[..]));
    rows.0.push(
        event.time,
        event.key.as_deref(),
        event.value.as_deref(),
        headers.chain([of]),
    )?;
    let count = topic.settings.partitions;
    rows.1
        .push(partition_of(event.key.as_deref(), event.partition, count));
    Ok(())
}

async fn put(live: &Parts, topic: &Topic, rows: &mut (PackedRows, Vec<u32>)) -> Result<()> {
    let (rows, partitions) = std::mem::take(rows);
    if rows.is_empty() {
        return Ok(());
    }
    let mut draft = Draft::new();
    draft.append(topic.id, &rows, &partitions)?;
    loop {
        draft = match live.log.commit(draft) {
            Ok(ticket) => return ticket.durable().await,
            Err((error, draft)) if error.kind == ErrorKind::Busy => draft,
            Err((error, _)) => return Err(error),
        };
        live.log.room().await;
    }
}
