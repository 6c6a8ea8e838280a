//! What happens to the files of a running store, and what of it readers see.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clockwise_cluster::{DecodeError, Epoch, Record, Revision, Term};
use serde_json::json;

use super::super::suite::{at_epoch, new_pool, numbers, with};
use super::super::{CommitError, LeadError, OpenError, ReadError, Store};
use super::{FileOptions, FileStore};

const OPTIONS: FileOptions = FileOptions {
    poll_interval: Duration::from_millis(5),
};
/// For what should take one poll.
const PATIENCE: Duration = Duration::from_secs(20);

fn open(dir: &Path) -> FileStore {
    FileStore::open(dir, OPTIONS).unwrap()
}

async fn commit(store: &FileStore, epoch: u64) -> Arc<Record> {
    let current = store.read().await.unwrap();
    let (expected, next) = match &current {
        Some(current) => (current.revision(), at_epoch(current, epoch)),
        None => (Revision::new(0), at_epoch(&new_pool("main"), epoch)),
    };
    store.commit(expected, next, None).await.unwrap()
}

async fn wait_for_trouble(store: &FileStore) -> ReadError {
    let mut trouble = store.trouble();
    let seen = trouble.wait_for(Option::is_some);
    let seen = tokio::time::timeout(PATIENCE, seen)
        .await
        .expect("reported")
        .unwrap();
    seen.clone().unwrap()
}

async fn wait_for_revision(store: &FileStore, revision: u64) -> Arc<Record> {
    let mut watch = store.watch();
    let seen = watch.wait_for(|record| {
        record
            .as_ref()
            .is_some_and(|record| record.revision().get() == revision)
    });
    let seen = tokio::time::timeout(PATIENCE, seen)
        .await
        .expect("seen")
        .unwrap();
    seen.clone().unwrap()
}

fn record_path(dir: &Path) -> PathBuf {
    dir.join("record.json")
}

/// As a careful person would: the name never points to half a file.
fn put_record(dir: &Path, bytes: &[u8]) {
    let other = dir.join("from-outside");
    fs::write(&other, bytes).unwrap();
    fs::rename(other, record_path(dir)).unwrap();
}

#[tokio::test]
async fn a_second_writer_is_refused_with_the_pid_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let refused = FileStore::open(dir.path(), OPTIONS).unwrap_err();
    let locked = OpenError::Locked {
        dir: dir.path().to_owned(),
        pid: Some(std::process::id()),
    };
    assert_eq!(refused, locked);
    let said = format!("is in use by process {}", std::process::id());
    assert!(refused.to_string().ends_with(&said), "{refused}");
    drop(first);
    open(dir.path());
}

#[tokio::test]
async fn readers_in_other_processes_see_each_commit_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let reader = FileStore::open_read_only(dir.path(), OPTIONS);
    assert_eq!(reader.read().await.unwrap(), None);
    let writer = open(dir.path());
    let made = commit(&writer, 1).await;
    assert_eq!(wait_for_revision(&reader, 1).await, made);
    let next = commit(&writer, 2).await;
    assert_eq!(reader.read().await.unwrap(), Some(Arc::clone(&next)));
    assert_eq!(reader.history().await.unwrap().len(), 2);
    let refused = reader
        .commit(next.revision(), at_epoch(&next, 3), None)
        .await;
    assert_eq!(refused, Err(CommitError::ReadOnly));
    assert_eq!(
        reader.lead("rebalancer").await.unwrap_err(),
        LeadError::ReadOnly
    );
}

#[tokio::test]
async fn a_damaged_record_is_reported_and_the_last_good_one_stays() {
    let is_malformed = |error: &DecodeError| matches!(error, DecodeError::Malformed { .. });
    let is_torn = |error: &DecodeError| matches!(error, DecodeError::Torn { .. });
    let is_too_large = |error: &DecodeError| matches!(error, DecodeError::TooLarge(_));
    let from_the_future = DecodeError::FromTheFuture { found: 2, known: 1 };
    let whole = new_pool("main").encode().unwrap();
    check_damage("empty", b"", |error| *error == DecodeError::Empty).await;
    check_damage("blank", b"\n\n", |error| *error == DecodeError::Empty).await;
    check_damage("garbage", b"\x00\xffgarbage", is_malformed).await;
    check_damage("foreign", b"{}", |error| *error == DecodeError::NoFormat).await;
    check_damage("future", b"{\"format\":2}", |error| {
        *error == from_the_future
    })
    .await;
    check_damage("huge", &[b' '; (1 << 20) + 1], is_too_large).await;
    check_damage("torn", &whole[..whole.len() / 2], is_torn).await;
}

async fn check_damage(damage: &str, bytes: &[u8], expected: impl Fn(&DecodeError) -> bool) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    commit(&store, 1).await;
    let last_good = commit(&store, 2).await;
    put_record(dir.path(), bytes);

    let reported = wait_for_trouble(&store).await;
    let ReadError::Unreadable {
        place,
        error,
        newest_good,
    } = &reported
    else {
        panic!("{damage}: {reported}");
    };
    assert!(expected(error), "{damage}: {error:?}");
    assert_eq!(*place, record_path(dir.path()).display().to_string());
    let copy = dir.path().join("history/0000000000000002.json");
    assert_eq!(*newest_good, Some(copy.display().to_string()), "{damage}");
    assert_eq!(
        *store.watch().borrow(),
        Some(Arc::clone(&last_good)),
        "{damage}"
    );
    assert_eq!(store.read().await, Err(reported.clone()), "{damage}");
    let refused = store
        .commit(last_good.revision(), at_epoch(&last_good, 3), None)
        .await;
    assert_eq!(refused, Err(CommitError::Read(reported)), "{damage}");

    fs::copy(copy, dir.path().join("copy")).unwrap();
    fs::rename(dir.path().join("copy"), record_path(dir.path())).unwrap();
    assert_eq!(
        store.read().await,
        Ok(Some(last_good)),
        "{damage}: repaired"
    );
    assert_eq!(*store.trouble().borrow(), None, "{damage}: repaired");
    commit(&store, 3).await;
}

#[tokio::test]
async fn a_store_that_starts_on_a_damaged_record_says_so_and_where_a_good_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    commit(&store, 1).await;
    commit(&store, 2).await;
    drop(store);
    fs::write(record_path(dir.path()), "{\"format\":1,").unwrap();
    fs::write(dir.path().join("history/0000000000000002.json"), "").unwrap();
    let store = open(dir.path());
    let error = store.read().await.unwrap_err().to_string();
    assert!(
        error.contains("record.json holds no usable record: record is torn"),
        "{error}"
    );
    assert!(
        error.contains("history/0000000000000001.json: ")
            && error.contains("put it back with `cp "),
        "{error}"
    );
    let history = store.history().await.unwrap();
    assert_eq!(history[1].epoch, Epoch::new(2));
    assert_eq!(history[1].record, Err(DecodeError::Empty));
}

#[tokio::test]
async fn a_record_that_vanishes_is_not_a_pool_that_never_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let made = commit(&store, 1).await;
    fs::remove_file(record_path(dir.path())).unwrap();
    assert!(matches!(
        wait_for_trouble(&store).await,
        ReadError::Gone { .. }
    ));
    assert_eq!(*store.watch().borrow(), Some(made));
    drop(store);
    let store = open(dir.path());
    let again = store
        .commit(Revision::new(0), new_pool("main"), None)
        .await
        .unwrap_err();
    let CommitError::Read(ReadError::Gone {
        newest_good: Some(copy),
        ..
    }) = again
    else {
        panic!("{again}");
    };
    assert!(copy.ends_with("history/0000000000000001.json"), "{copy}");
}

#[tokio::test]
async fn an_older_record_put_back_is_refused_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let old = commit(&store, 4).await;
    let backup = fs::read(record_path(dir.path())).unwrap();
    let current = commit(&store, 5).await;
    put_record(dir.path(), &backup);
    let went_back = ReadError::WentBack {
        epoch_found: old.epoch(),
        revision_found: old.revision(),
        epoch: current.epoch(),
        revision: current.revision(),
    };
    assert_eq!(wait_for_trouble(&store).await, went_back);
    assert_eq!(*store.watch().borrow(), Some(Arc::clone(&current)));
    let refused = store
        .commit(current.revision(), at_epoch(&current, 6), None)
        .await;
    assert_eq!(refused, Err(CommitError::Read(went_back)));
}

#[tokio::test]
async fn a_lower_epoch_under_a_higher_revision_is_refused_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let current = commit(&store, 5).await;
    let lower = at_epoch(&with(&current, "revision", json!(9)), 4);
    put_record(dir.path(), &lower.encode().unwrap());
    assert!(matches!(
        wait_for_trouble(&store).await,
        ReadError::WentBack { .. }
    ));
    assert_eq!(*store.watch().borrow(), Some(current));
}

#[tokio::test]
async fn an_edit_counts_only_with_a_higher_revision() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let current = commit(&store, 1).await;
    let edited = with(&current, "note", json!("by hand"));
    put_record(dir.path(), &edited.encode().unwrap());
    let revision = current.revision();
    assert_eq!(
        wait_for_trouble(&store).await,
        ReadError::EditedInPlace { revision }
    );
    let newer = at_epoch(&with(&edited, "revision", json!(2)), 2);
    put_record(dir.path(), &newer.encode().unwrap());
    assert_eq!(*wait_for_revision(&store, 2).await, newer);
    assert_eq!(store.read().await, Ok(Some(Arc::new(newer))));
    assert_eq!(numbers(&*commit(&store, 3).await), (3, 3));
}

#[tokio::test]
async fn terms_grow_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    for expected in 1..=3 {
        let store = open(dir.path());
        let leadership = store.lead("rebalancer").await.unwrap();
        assert_eq!(leadership.term().get(), expected);
        drop(store);
        assert!(leadership.is_lost(), "its store is gone");
    }
    let store = open(dir.path());
    let former = clockwise_cluster::Term::new(3);
    assert!(!store.leads(former).await.unwrap());
}

#[tokio::test]
async fn a_term_that_the_nodes_know_is_gone_above_and_a_lower_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(store.last_term().await, Ok(Term::new(0)));
    for (known, next) in [(7, 8), (3, 9), (9, 10)] {
        store.restore_term(Term::new(known)).await.unwrap();
        let leadership = store.lead("rebalancer").await.unwrap();
        assert_eq!(leadership.term().get(), next, "above {known}");
    }
    drop(store);
    assert_eq!(open(dir.path()).last_term().await, Ok(Term::new(10)));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named_and_the_next_commit_may_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let record = commit(&store, 1).await;
    // What no privilege writes to.
    let in_the_way = dir.path().join("record.json.tmp");
    fs::create_dir(&in_the_way).unwrap();
    let next = at_epoch(&record, 2);
    let refused = store.commit(record.revision(), next, None).await;
    let Err(CommitError::Unreachable { why }) = refused else {
        panic!("{refused:?}")
    };
    let place = record_path(dir.path()).display().to_string();
    assert!(
        why.starts_with(&place) && why.contains("(os error "),
        "{why}"
    );
    fs::remove_dir(in_the_way).unwrap();
    commit(&store, 2).await;
}

#[tokio::test]
async fn a_term_that_is_not_known_is_not_guessed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    commit(&store, 1).await;
    store.lead("rebalancer").await.unwrap();
    drop(store);
    let place = dir.path().join("term.json");
    for damage in [
        "",
        "7",
        "{}",
        "{\"format\":2,\"term\":7}",
        "{\"format\":1,\"term\":-7}",
        // One more could not be stored.
        "{\"format\":1,\"term\":9007199254740991}",
    ] {
        fs::write(&place, damage).unwrap();
        let refused = open(dir.path()).lead("rebalancer").await.unwrap_err();
        assert!(
            matches!(refused, LeadError::TermUnknown { .. }),
            "{damage}: {refused}"
        );
    }
    fs::remove_file(&place).unwrap();
    let refused = open(dir.path()).lead("rebalancer").await.unwrap_err();
    assert!(refused.to_string().contains("it is gone"), "{refused}");
    fs::write(&place, "{\"format\":1,\"term\":7}").unwrap();
    let leadership = open(dir.path()).lead("rebalancer").await.unwrap();
    assert_eq!(leadership.term().get(), 8);
}

#[tokio::test]
async fn only_the_owner_can_read_what_is_stored() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("made/on/the/way");
    let store = open(&dir);
    commit(&store, 1).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for name in [
        "record.json",
        "history/0000000000000001.json",
        "term.json",
        "lock",
    ] {
        assert_eq!(mode(&dir.join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_writer_whose_lock_file_was_removed_writes_and_leads_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let record = commit(&first, 1).await;
    let led = first.lead("first").await.unwrap().term();
    fs::remove_file(dir.path().join("lock")).unwrap();
    assert!(!first.leads(led).await.unwrap());
    let refused = first.lead("first").await.unwrap_err();
    assert!(refused.to_string().contains("lock file"), "{refused}");
    let again = first.commit(record.revision(), (*record).clone(), None);
    let refused = again.await.unwrap_err();
    assert!(refused.to_string().contains("lock file"), "{refused}");

    let second = open(dir.path());
    assert!(second.lead("second").await.unwrap().term() > led);
    let next = second.commit(record.revision(), (*record).clone(), None);
    next.await.unwrap();
    assert!(!first.leads(led).await.unwrap());
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = FileStore::open(file.join("dir"), OPTIONS).unwrap_err();
    assert!(error.to_string().contains("file/dir"), "{error}");
}

/// Names the directory in which this test binary, started again, is to commit until it is killed.
const KILLED_WRITER_DIR: &str = "CLOCKWISE_TEST_KILLED_WRITER_DIR";

#[tokio::test]
async fn a_writer_that_is_killed_leaves_what_it_acknowledged_and_its_lock_free() {
    if let Some(dir) = std::env::var_os(KILLED_WRITER_DIR) {
        return write_until_killed(&PathBuf::from(dir)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let this_test = std::thread::current().name().unwrap().to_owned();
    let mut acknowledged = 0;
    for round in 0..12 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &this_test, "--nocapture"])
            .env(KILLED_WRITER_DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let commits = lines
            .map_while(Result::ok)
            .filter_map(|line| line.split_once("committed ")?.1.parse::<u64>().ok());
        // Killed while the next commits are under way, at another step each time.
        let mut commits = commits.skip(round);
        acknowledged = commits.next().expect("the writer commits");
        writer.kill().unwrap();
        writer.wait().unwrap();
        // What stood in the pipe was acknowledged too.
        acknowledged = commits.last().unwrap_or(acknowledged);

        let store = open(dir.path());
        let record = store.read().await.unwrap().unwrap();
        let (revision, epoch) = numbers(&record);
        assert!((acknowledged..=acknowledged + 1).contains(&revision));
        let history = store.history().await.unwrap();
        assert!(history.iter().all(|copy| copy.record.is_ok()));
        assert_eq!(history.last().unwrap().epoch.get(), epoch);
        let leftovers = fs::read_dir(dir.path()).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_str().unwrap().ends_with(".tmp")
        });
        assert_eq!(leftovers.count(), 0);
    }
    assert!(acknowledged > 60);
}

async fn write_until_killed(dir: &Path) {
    let store = open(dir);
    loop {
        let current = store.read().await.unwrap();
        let epoch = current.map_or(1, |record| record.epoch().get() + 1);
        println!("committed {}", commit(&store, epoch).await.revision());
    }
}
