mod steady;

use super::*;
use crate::Random;
use futures::future::join_all;
use tidemill_types::ErrorKind;

fn folder() -> (tempfile::TempDir, Objects) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("made/on/demand");
    let objects = Objects::open(path.to_str().expect("utf-8"), &[]).expect("open");
    (folder, objects)
}

fn memory(seed: u64) -> (Arc<MemoryObjects>, Objects) {
    let memory = Arc::new(MemoryObjects::new(Random::seeded(seed)));
    (memory.clone(), Objects::new(memory))
}

/// What every storage must do.
async fn verbs(objects: &Objects) {
    assert_eq!(
        objects.list("a/").await.expect("list"),
        Vec::<String>::new()
    );
    assert_eq!(objects.size("a/b").await.expect("size"), None);
    assert_eq!(
        objects.get("a/b").await.expect_err("absent").code,
        "object-not-found"
    );
    assert_eq!(
        objects
            .get_range("a/b", 0..1)
            .await
            .expect_err("absent")
            .kind,
        ErrorKind::NotFound
    );
    objects.delete("a/b").await.expect("absent is fine");

    assert_eq!(
        objects
            .create("a/b", "0123456789".into())
            .await
            .expect("create"),
        Created::Ours
    );
    assert_eq!(
        objects.create("a/b", "other".into()).await.expect("create"),
        Created::Exists
    );
    assert_eq!(
        objects
            .create("a/b", "0123456789".into())
            .await
            .expect("ours"),
        Created::Ours
    );
    assert_eq!(objects.get("a/b").await.expect("get"), "0123456789");
    assert_eq!(objects.get_range("a/b", 2..5).await.expect("range"), "234");
    assert_eq!(
        objects
            .get_range("a/b", 8..12)
            .await
            .expect_err("short")
            .kind,
        ErrorKind::Corrupt
    );
    assert_eq!(objects.size("a/b").await.expect("size"), Some(10));

    let dir = tempfile::tempdir().expect("folder");
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; 20 << 20]).expect("write");
    objects
        .upload("a/p=1/x.parquet", &file)
        .await
        .expect("upload");
    std::fs::remove_file(&file).expect("the object doesn't need the file any more");
    assert_eq!(
        objects.size("a/p=1/x.parquet").await.expect("size"),
        Some(20 << 20)
    );
    assert_eq!(
        objects
            .get_range("a/p=1/x.parquet", 9..11)
            .await
            .expect("range"),
        vec![7, 7]
    );

    assert_eq!(
        objects
            .create("ab", "not below a/".into())
            .await
            .expect("create"),
        Created::Ours
    );
    let mut below = objects.list("a/").await.expect("list");
    below.sort();
    assert_eq!(below, ["a/b", "a/p=1/x.parquet"]);
    assert_eq!(objects.list("").await.expect("list").len(), 3);
    objects.delete("a/b").await.expect("delete");
    assert_eq!(objects.size("a/b").await.expect("size"), None);
}

async fn one_winner(objects: &Objects) {
    for round in 0..10 {
        let path = format!("race/{round}");
        let tasks = (0..16).map(|writer: u32| {
            let (objects, path) = (objects.clone(), path.clone());
            tokio::spawn(async move { objects.create(&path, writer.to_string().into()).await })
        });
        let answers = join_all(tasks).await;
        let winners: Vec<_> = answers
            .into_iter()
            .map(|answer| answer.expect("task").expect("create"))
            .enumerate()
            .filter(|(_, created)| *created == Created::Ours)
            .collect();
        assert_eq!(winners.len(), 1);
        assert_eq!(
            objects.get(&path).await.expect("get"),
            winners[0].0.to_string()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_folder_keeps_the_contract() {
    let (_folder, objects) = folder();
    verbs(&objects).await;
    one_winner(&objects).await;
    objects.probe("nonce").await.expect("probe");
    assert_eq!(
        objects.list("probe/").await.expect("list"),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn files_become_objects_by_link_or_copy() {
    let (folder, objects) = folder();
    let near = folder.path().join("near");
    std::fs::write(&near, "linked").expect("write");
    objects
        .upload("deep/down/near", &near)
        .await
        .expect("upload");
    assert_eq!(objects.get("deep/down/near").await.expect("get"), "linked");
    // Again under the same name, as after a lost answer: the link exists, so it is copied over.
    std::fs::write(folder.path().join("again"), "copied").expect("write");
    objects
        .upload("deep/down/near", &folder.path().join("again"))
        .await
        .expect("upload");
    assert_eq!(objects.get("deep/down/near").await.expect("get"), "copied");
    assert_eq!(
        objects
            .upload("x", &folder.path().join("none"))
            .await
            .expect_err("no file")
            .kind,
        ErrorKind::Internal
    );
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    let (_, objects) = memory(1);
    verbs(&objects).await;
    one_winner(&objects).await;
    objects.probe("nonce").await.expect("probe");
}

#[tokio::test]
async fn one_winner_also_when_answers_get_lost() {
    let (mut unknown, mut resolved) = (0, 0);
    for seed in 0..200 {
        let (memory, objects) = memory(seed);
        memory.set_faults(Faults {
            lost_answers: 30,
            errors: 20,
            slow: 50,
            ..Faults::default()
        });
        let answers =
            join_all((0..4).map(|writer| objects.create("slot", writer.to_string().into()))).await;
        memory.set_faults(Faults::default());
        let stored = objects.get("slot").await.ok();
        for (writer, answer) in answers.iter().enumerate() {
            let ours = stored
                .as_ref()
                .is_some_and(|body| *body == writer.to_string());
            match answer {
                Ok(Created::Ours) => assert!(ours, "seed {seed}: {writer} believes to have won"),
                Ok(Created::Exists) => assert!(!ours, "seed {seed}: {writer} won and doesn't know"),
                Err(error) => assert_eq!(error.kind, ErrorKind::Unavailable),
            }
            unknown += usize::from(answer.is_err());
            resolved += usize::from(answer.is_ok());
        }
    }
    assert!(unknown > 0, "no fault outlasted the attempts");
    assert!(
        resolved > 600,
        "faults are resolved by reading back: {resolved}"
    );
}

#[tokio::test]
async fn the_same_seed_gives_the_same_faults() {
    let run = async |seed| {
        let (memory, objects) = memory(seed);
        memory.set_faults(Faults {
            lost_answers: 20,
            errors: 20,
            slow: 20,
            ..Faults::default()
        });
        let mut seen = Vec::new();
        for i in 0..50 {
            seen.push(
                objects
                    .create(&format!("{}", i % 20), i.to_string().into())
                    .await
                    .ok(),
            );
            seen.push(objects.get("3").await.ok().map(|_| Created::Ours));
        }
        (seen, memory.paths())
    };
    assert_eq!(run(5).await, run(5).await);
    assert_ne!(run(5).await, run(6).await);
}

#[tokio::test]
async fn the_probe_refuses_storage_without_conditions() {
    let memory = MemoryObjects::new(Random::seeded(1)).ignoring_conditions();
    let error = Objects::new(Arc::new(memory))
        .probe("nonce")
        .await
        .expect_err("refused");
    assert_eq!(error.code, "storage-not-conditional");
}

/// Looks whether the name is free, lets others run, then writes.
struct ChecksThenWrites(Objects);

#[async_trait::async_trait]
impl Backend for ChecksThenWrites {
    async fn get(&self, path: &str) -> Result<Bytes> {
        self.0.get(path).await
    }
    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.0.get_range(path, range).await
    }
    async fn size(&self, path: &str) -> Result<Option<u64>> {
        self.0.size(path).await
    }
    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        if self.0.size(path).await?.is_some() {
            return Ok(Created::Exists);
        }
        tokio::task::yield_now().await;
        self.0.delete(path).await?;
        self.0.create(path, body).await
    }
    async fn upload(&self, path: &str, file: &std::path::Path) -> Result<()> {
        self.0.upload(path, file).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.0.list(prefix).await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.0.delete(path).await
    }
}

#[tokio::test]
async fn the_probe_refuses_storage_that_checks_and_then_writes() {
    let (_, inner) = memory(1);
    let objects = Objects::new(Arc::new(ChecksThenWrites(inner)));
    let error = objects.probe("nonce").await.expect_err("refused");
    assert_eq!(error.code, "storage-not-conditional");
    assert!(error.detail.contains("of 16"), "{error}");
}

#[tokio::test]
async fn addresses_that_make_no_sense_are_refused() {
    let option = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
    let file = tempfile::NamedTempFile::new().expect("file");
    for (url, options, says) in [
        ("", vec![], "empty"),
        ("ftp://host/x", vec![], "use a folder's path"),
        ("s3://bucket", option("aws_endpiont", "x"), "aws_endpiont"),
        ("/tmp", option("aws_region", "x"), "aws_region"),
        ("s3://bucket/a//b", option("aws_region", "x"), "a//b"),
        (file.path().to_str().expect("utf-8"), vec![], "File exists"),
    ] {
        let error = Objects::open(url, &options).err().expect(url);
        assert_eq!(error.code, "invalid-storage", "{url}");
        assert!(error.detail.contains(says), "{url}: {error}");
    }
}

#[tokio::test]
async fn clouds_open_without_a_request() {
    for (url, key, value) in [
        (
            "s3://bucket/some/prefix",
            "aws_endpoint",
            "http://127.0.0.1:1",
        ),
        ("az://container", "azure_storage_account_name", "account"),
    ] {
        Objects::open(url, &[(key.to_owned(), value.to_owned())]).expect(url);
    }
}

/// An upload that can't be finished is an error like others, however long the file.
#[tokio::test]
async fn an_upload_that_fails_is_told() {
    let (folder, objects) = folder();
    let root = folder.path().join("made/on/demand");
    std::fs::write(root.join("topics"), "a file where a folder should be").expect("written");
    for bytes in [1, 20 << 20] {
        let file = folder.path().join("file");
        std::fs::write(&file, vec![7; bytes]).expect("written");
        let error = objects.upload("topics/t/x", &file).await;
        let error = error.expect_err("can't be");
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    }
}
