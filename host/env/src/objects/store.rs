//! The real storages, over the crate `object_store`.

use super::steady::{BUSY, REFUSED};
use super::{Backend, Created};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::buffered::BufWriter;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{Error, ErrorKind, Result};
use tokio::io::AsyncWriteExt;

/// Uploads above this go up in parts of this size; S3 takes 10,000 parts.
const PART_BYTES: usize = 8 << 20;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// Opens what `url` names. A request is given up after `time` (zero: 30 s), which should be well above
/// the 6 s that a server may let the loser of a contended create wait.
pub(super) fn open(
    url: &str,
    options: &[(String, String)],
    time: Duration,
) -> Result<Arc<dyn Backend>> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return open_folder(url, options);
    };
    // The first caller in the process chooses; a second one finds the same choice made.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let bucket_url = format!("{scheme}://{bucket}");
    let wrong = |error: object_store::Error| invalid(url, &error);
    macro_rules! build {
        ($builder:ty) => {{
            let mut builder = <$builder>::from_env()
                .with_url(bucket_url)
                .with_retry(once());
            let times = times(time);
            let times = times.iter().map(|(key, value)| (*key, value));
            let given = options.iter().map(|(key, value)| (key.as_str(), value));
            for (key, value) in times.chain(given) {
                let known = key.to_ascii_lowercase().parse();
                let known = known.map_err(|_| unknown_option(url, key))?;
                builder = builder.with_config(known, value);
            }
            Arc::new(builder.build().map_err(wrong)?) as Arc<dyn ObjectStore>
        }};
    }
    let store = match scheme {
        "file" => return open_folder(rest, options),
        "s3" | "s3a" => build!(AmazonS3Builder),
        "gs" => build!(GoogleCloudStorageBuilder),
        "az" | "azure" | "abfs" | "abfss" => build!(MicrosoftAzureBuilder),
        _ => {
            return Err(invalid(url, "use a folder's path, s3://, gs:// or az://"));
        }
    };
    let root = Path::parse(prefix).map_err(|error| invalid(url, &error))?;
    Ok(Arc::new(Store {
        store,
        root,
        local: None,
    }))
}

/// Requests are repeated above, with one measure for all storages, and not here.
fn once() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// The times of one request, as options of every kind of storage.
fn times(time: Duration) -> [(&'static str, String); 2] {
    let time = match time.is_zero() {
        true => Duration::from_secs(30),
        false => time,
    };
    let shown = |time: Duration| format!("{}ms", time.as_millis());
    [
        ("timeout", shown(time)),
        ("connect_timeout", shown(CONNECT.min(time))),
    ]
}

fn open_folder(folder: &str, options: &[(String, String)]) -> Result<Arc<dyn Backend>> {
    if let Some((key, _)) = options.first() {
        return Err(unknown_option(folder, key));
    }
    if folder.is_empty() {
        return Err(invalid(folder, "the path is empty"));
    }
    std::fs::create_dir_all(folder).map_err(|error| invalid(folder, &error))?;
    let local =
        LocalFileSystem::new_with_prefix(folder).map_err(|error| invalid(folder, &error))?;
    let local = Arc::new(local.with_fsync(true));
    Ok(Arc::new(Store {
        store: local.clone(),
        root: Path::ROOT,
        local: Some(local),
    }))
}

fn invalid(url: &str, reason: impl std::fmt::Display) -> Error {
    Error::invalid(
        "invalid-storage",
        format!("{url:?} can't be opened as object storage: {reason}"),
    )
}

fn unknown_option(url: &str, key: &str) -> Error {
    invalid(url, format!("it has no option {key:?}"))
}

struct Store {
    store: Arc<dyn ObjectStore>,
    root: Path,
    local: Option<Arc<LocalFileSystem>>,
}

impl Store {
    fn path(&self, path: &str) -> Result<Path> {
        let path = Path::parse(path).map_err(|error| {
            Error::invalid(
                "invalid-path",
                format!("{path:?} is no object's path: {error}"),
            )
        })?;
        Ok(if self.root.is_root() {
            path
        } else {
            self.root.parts().chain(path.parts()).collect()
        })
    }

    /// A second name for the same file costs nothing, where the file system can do it.
    async fn link(&self, path: &Path, file: &std::path::Path) -> bool {
        let Some(to) = self
            .local
            .as_ref()
            .and_then(|local| local.path_to_filesystem(path).ok())
        else {
            return false;
        };
        let from = file.to_owned();
        tokio::task::spawn_blocking(move || link_durably(&from, &to))
            .await
            .is_ok_and(|linked| linked.is_ok())
    }

    async fn upload_parts(&self, path: Path, file: &std::path::Path) -> Result<()> {
        let shown = file.display();
        let mut from = tokio::fs::File::open(file).await.map_err(|error| {
            Error::internal(format!("can't open {shown} to upload it: {error}"))
        })?;
        let mut to = BufWriter::with_capacity(self.store.clone(), path.clone(), PART_BYTES);
        if let Err(error) = tokio::io::copy(&mut from, &mut to).await {
            // Without effect for small files; unfinished parts would cost money.
            let _ = to.abort().await;
            return Err(failed(path.as_ref(), &error));
        }
        // Once it is to be finished it can't be aborted any more.
        let finished = to.shutdown().await;
        finished.map_err(|error| failed(path.as_ref(), &error))
    }
}

/// Makes `to` another name of the file `from`, with its content and its folders safely on the disk.
fn link_durably(from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
    let folder = to.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut fresh: Vec<_> = folder.ancestors().take_while(|f| !f.exists()).collect();
    std::fs::create_dir_all(folder)?;
    std::fs::File::open(from)?.sync_all()?;
    std::fs::hard_link(from, to)?;
    // A new folder is an entry of the one above it.
    fresh.insert(0, folder);
    fresh.extend(fresh.last().and_then(|f| f.parent()));
    fresh.dedup();
    fresh
        .into_iter()
        .try_for_each(|folder| std::fs::File::open(folder)?.sync_all())
}

#[async_trait::async_trait]
impl Backend for Store {
    async fn get(&self, path: &str) -> Result<Bytes> {
        let answer = match self.store.get(&self.path(path)?).await {
            Ok(answer) => answer.bytes().await,
            Err(error) => Err(error),
        };
        answer.map_err(|error| explain(path, &error))
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let wanted = range.end.saturating_sub(range.start);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.store.get_range(&self.path(path)?, range.clone()).await;
        let bytes = bytes.map_err(|error| explain(path, &error))?;
        if bytes.len() as u64 != wanted {
            return Err(super::too_short(path, &range));
        }
        Ok(bytes)
    }

    async fn size(&self, path: &str) -> Result<Option<u64>> {
        match self.store.head(&self.path(path)?).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(explain(path, &error)),
        }
    }

    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        let location = self.path(path)?;
        let if_absent = PutOptions::from(PutMode::Create);
        match self.store.put_opts(&location, body.into(), if_absent).await {
            Ok(_) => Ok(Created::Ours),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(Created::Exists),
            Err(error) => Err(explain(path, &error)),
        }
    }

    async fn upload(&self, path: &str, file: &std::path::Path) -> Result<()> {
        let to = self.path(path)?;
        if self.link(&to, file).await {
            return Ok(());
        }
        self.upload_parts(to, file)
            .await
            .map_err(|error| error.at(format!("uploading {path:?}")))
    }

    fn keeps_files(&self) -> bool {
        self.local.is_some()
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let folder = self.path(prefix)?;
        let from = (!folder.is_root()).then_some(&folder);
        let cut = self.root.as_ref().len() + usize::from(!self.root.is_root());
        self.store
            .list(from)
            .map_ok(|meta| {
                meta.location
                    .as_ref()
                    .get(cut..)
                    .unwrap_or_default()
                    .to_owned()
            })
            .try_collect()
            .await
            .map_err(|error| explain(prefix, &error))
    }

    async fn delete(&self, path: &str) -> Result<()> {
        match self.store.delete(&self.path(path)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(explain(path, &error)),
        }
    }
}

/// Our error for one of the storage's.
fn explain(path: &str, error: &object_store::Error) -> Error {
    match error {
        object_store::Error::NotFound { .. } => super::absent(path),
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => Error::unavailable(
            REFUSED,
            format!(
                "the object storage refuses us {path:?}; check credentials and rights: {error}"
            ),
        ),
        object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } => {
            Error::new(
                ErrorKind::Invalid,
                "storage-not-conditional",
                format!("the object storage can't do what is needed for {path:?}: {error}"),
            )
        }
        error => failed(path, error),
    }
}

fn failed(path: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    if crate::files::is_out_of_space(error) {
        return Error::new(
            ErrorKind::StorageFull,
            "storage-full",
            format!("no space left for the object {path:?}; make room"),
        );
    }
    let code = match status_of(error) {
        Some(429 | 503) => BUSY,
        Some(408) => FAILED,
        Some(400..=499) => REFUSED,
        _ => FAILED,
    };
    Error::unavailable(code, format!("object storage failed at {path:?}: {error}"))
}

const FAILED: &str = "storage-failed";

/// The HTTP status that an error comes from; `object_store` tells it only in words.
fn status_of(error: &(dyn std::error::Error + 'static)) -> Option<u16> {
    let mut cause = Some(error);
    while let Some(one) = cause {
        let text = one.to_string();
        if let Some((_, behind)) = text.split_once("non-2xx status code: ") {
            return behind.get(..3)?.parse().ok();
        }
        cause = one.source();
    }
    None
}
