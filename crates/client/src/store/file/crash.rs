//! A disk that loses what was not synced, and a crash after each of the operations on it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clockwise_cluster::{Record, Revision};

use super::super::suite::{at_epoch, new_pool, numbers};
use super::super::{CommitError, LeadError};
use super::disk::{Disk, DiskFile, Stamp};
use super::files::RecordFiles;
use super::{Access, Shared};

/// A file system in memory that remembers what has reached the disk.
#[derive(Debug, Clone, Default)]
struct ModelDisk {
    state: Arc<Mutex<Model>>,
}

#[derive(Debug, Clone, Default)]
struct Model {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    names_durable: BTreeMap<PathBuf, usize>,
    /// Changes of names that no sync of their directory has made durable.
    unsynced: BTreeMap<PathBuf, Vec<NameChange>>,
    operations: usize,
    failure: Option<Failure>,
}

#[derive(Debug, Clone, Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Created(PathBuf, usize),
    Renamed(PathBuf, PathBuf),
    Removed(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The process dies at this operation: nothing works after it.
    CrashAt(usize),
    /// This operation fails, as with a bad sector or a full disk, and later ones work.
    ErrorAt(usize),
}

impl Model {
    fn step(&mut self) -> io::Result<()> {
        let at = self.operations;
        self.operations += 1;
        let fails = match self.failure {
            None => false,
            Some(Failure::CrashAt(crash)) => at >= crash,
            Some(Failure::ErrorAt(error)) => at == error,
        };
        if fails {
            Err(io::Error::other(format!("planted at operation {at}")))
        } else {
            Ok(())
        }
    }

    fn change_name(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        let path = match &change {
            NameChange::Created(path, _) | NameChange::Removed(path) => path,
            NameChange::Renamed(_, to) => to,
        };
        let dir = path.parent().unwrap().to_owned();
        self.unsynced.entry(dir).or_default().push(change);
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Created(path, file) => {
            names.insert(path.clone(), *file);
        }
        NameChange::Renamed(from, to) => {
            let file = names.remove(from).unwrap();
            names.insert(to.clone(), file);
        }
        NameChange::Removed(path) => {
            names.remove(path);
        }
    }
}

impl ModelDisk {
    fn fail(&self, failure: Failure) {
        let mut model = self.state.lock().unwrap();
        model.operations = 0;
        model.failure = Some(failure);
    }

    /// Long enough after the last operation that the system has written everything.
    fn settle(&self) {
        let mut model = self.state.lock().unwrap();
        model.names_durable = model.names.clone();
        model.unsynced.clear();
        for content in &mut model.files {
            content.durable = content.live.clone();
        }
    }

    fn heal(&self) {
        self.state.lock().unwrap().failure = None;
    }

    fn copy(&self) -> ModelDisk {
        ModelDisk {
            state: Arc::new(Mutex::new(self.state.lock().unwrap().clone())),
        }
    }

    /// Every disk that a machine may find after a power cut now: of the changes to each directory
    /// any first ones may have happened, and of each unsynced content none, half or all of it.
    fn after_power_cut(&self) -> Vec<ModelDisk> {
        let model = self.state.lock().unwrap().clone();
        let mut names_found = vec![model.names_durable.clone()];
        for changes in model.unsynced.values() {
            let all = names_found.clone();
            for count in 1..=changes.len() {
                names_found.extend(all.iter().cloned().map(|mut names| {
                    changes[..count]
                        .iter()
                        .for_each(|change| apply(&mut names, change));
                    names
                }));
            }
        }
        let mut contents_found = vec![Vec::new()];
        for content in &model.files {
            let mut versions = vec![content.durable.clone()];
            if content.live != content.durable {
                versions.push(content.live[..content.live.len() / 2].to_vec());
                versions.push(content.live.clone());
            }
            contents_found = contents_found
                .iter()
                .flat_map(|before| {
                    versions.iter().map(|version| {
                        let mut files: Vec<Content> = before.clone();
                        files.push(Content {
                            live: version.clone(),
                            durable: version.clone(),
                        });
                        files
                    })
                })
                .collect();
        }
        let mut disks = Vec::new();
        for names in &names_found {
            for files in &contents_found {
                disks.push(ModelDisk {
                    state: Arc::new(Mutex::new(Model {
                        files: files.clone(),
                        names: names.clone(),
                        names_durable: names.clone(),
                        ..Model::default()
                    })),
                });
            }
        }
        disks
    }

    /// What the same process, or the next one without a power cut, finds.
    fn after_kill(&self) -> ModelDisk {
        let disk = self.copy();
        disk.heal();
        disk
    }
}

impl Disk for ModelDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut model = self.state.lock().unwrap();
        model.step()?;
        let file = model.files.len();
        model.files.push(Content::default());
        model.change_name(NameChange::Created(path.to_owned(), file));
        Ok(Box::new(ModelFile {
            disk: self.clone(),
            file,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut model = self.state.lock().unwrap();
        model.step()?;
        model.change_name(NameChange::Renamed(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut model = self.state.lock().unwrap();
        model.step()?;
        if let Some(file) = model.names.get(path).copied() {
            let content = &mut model.files[file];
            content.durable = content.live.clone();
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut model = self.state.lock().unwrap();
        model.step()?;
        for change in model.unsynced.remove(dir).unwrap_or_default() {
            apply(&mut model.names_durable, &change);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut model = self.state.lock().unwrap();
        model.step()?;
        model.change_name(NameChange::Removed(path.to_owned()));
        Ok(())
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        self.state.lock().unwrap().step()
    }

    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let model = self.state.lock().unwrap();
        let content = model.names.get(path).map(|file| &model.files[*file].live);
        Ok(content.map(|bytes| bytes[..bytes.len().min(bytes_max)].to_vec()))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let model = self.state.lock().unwrap();
        let here = model.names.keys().filter(|path| path.parent() == Some(dir));
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        Ok(here.map(name).collect())
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let model = self.state.lock().unwrap();
        Ok(model.names.get(path).map(|file| Stamp {
            inode: u64::try_from(*file).unwrap(),
            bytes: 0,
            modified_ns: (0, 0),
            changed_ns: (0, 0),
        }))
    }
}

struct ModelFile {
    disk: ModelDisk,
    file: usize,
}

impl DiskFile for ModelFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut model = self.disk.state.lock().unwrap();
        let step = model.step();
        let written = if step.is_ok() {
            bytes.len()
        } else {
            bytes.len() / 2
        };
        model.files[self.file]
            .live
            .extend_from_slice(&bytes[..written]);
        step
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut model = self.disk.state.lock().unwrap();
        model.step()?;
        let content = &mut model.files[self.file];
        content.durable = content.live.clone();
        Ok(())
    }
}

/// More operations than a commit or a term takes.
const OPERATIONS_MAX: usize = 40;

fn open(disk: &ModelDisk) -> Shared {
    let files = RecordFiles::new(PathBuf::from("/dir"), Box::new(disk.clone()));
    files
        .prepare()
        .expect("a crash leaves a directory that can be opened");
    Shared::new(files, Access::Write)
}

fn stored(shared: &Shared) -> Option<Record> {
    let read = shared.refresh(&mut shared.state());
    let record = read.expect("a crash never leaves an unusable record");
    record.map(|record| (*record).clone())
}

/// A disk with a record of 17 epochs, so that the next commit also prunes the history.
fn disk_with_record() -> ModelDisk {
    let disk = ModelDisk::default();
    let shared = open(&disk);
    let mut next = new_pool("main");
    for epoch in 1..=17 {
        let expected = next.revision();
        next = at_epoch(&next, epoch);
        next = (*shared.commit(expected, next, None).unwrap()).clone();
    }
    shared.lead("rebalancer").unwrap();
    disk.settle();
    disk
}

#[test]
fn after_a_crash_anywhere_in_a_commit_the_old_or_the_new_record_is_there() {
    let before = disk_with_record();
    let old = stored(&open(&before.after_kill())).unwrap();
    let new = at_epoch(&old, 18);
    let (mut disks, mut came_back, mut went_on) = (0, 0, 0);
    for crash in 0..OPERATIONS_MAX {
        let disk = before.copy();
        let shared = open(&disk);
        disk.fail(Failure::CrashAt(crash));
        let result = shared.commit(old.revision(), new.clone(), None);
        let mut found = disk.after_power_cut();
        found.push(disk.after_kill());
        for disk in found {
            disks += 1;
            let shared = open(&disk);
            let record = stored(&shared).unwrap();
            match numbers(&record) {
                (17, 17) => came_back += 1,
                (18, 18) => went_on += 1,
                other => panic!("crash at {crash}: neither old nor new but {other:?}"),
            }
            if result.is_ok() {
                assert_eq!(
                    numbers(&record),
                    (18, 18),
                    "crash at {crash}: acknowledged, lost"
                );
            }
            let history = shared.files.history().unwrap();
            assert!(
                history.iter().all(|copy| copy.record.is_ok()),
                "crash at {crash}"
            );
            assert_eq!(
                history.last().unwrap().epoch,
                record.epoch(),
                "crash at {crash}"
            );
            let next = at_epoch(&record, 20);
            shared
                .commit(record.revision(), next, None)
                .expect("goes on");
        }
    }
    assert!(
        disks > 100 && came_back > 10 && went_on > 10,
        "{disks} {came_back} {went_on}"
    );
}

#[test]
fn what_the_next_process_has_read_survives_a_power_cut() {
    let before = disk_with_record();
    let old = stored(&open(&before.after_kill())).unwrap();
    for crash in 0..OPERATIONS_MAX {
        let disk = before.copy();
        let shared = open(&disk);
        disk.fail(Failure::CrashAt(crash));
        let _unheard = shared.commit(old.revision(), at_epoch(&old, 18), None);
        let disk = disk.after_kill();
        let read = stored(&open(&disk)).unwrap();
        for disk in disk.after_power_cut() {
            let found = stored(&open(&disk)).unwrap();
            assert_eq!(numbers(&found), numbers(&read), "crash at {crash}");
        }
    }
}

#[test]
fn after_a_crash_while_a_pool_is_made_it_exists_whole_or_not_at_all() {
    for crash in 0..OPERATIONS_MAX {
        let disk = ModelDisk::default();
        disk.fail(Failure::CrashAt(crash));
        let files = RecordFiles::new(PathBuf::from("/dir"), Box::new(disk.clone()));
        let made = files.prepare().is_ok() && {
            let shared = Shared::new(files, Access::Write);
            shared
                .commit(Revision::new(0), new_pool("main"), None)
                .is_ok()
        };
        for disk in disk.after_power_cut() {
            let shared = open(&disk);
            let record = stored(&shared);
            assert!(
                !made || record.is_some(),
                "crash at {crash}: acknowledged, lost"
            );
            shared.lead("rebalancer").expect("the first term can begin");
        }
    }
}

#[test]
fn the_history_is_durable_after_the_next_look() {
    let disk = disk_with_record();
    let shared = open(&disk);
    let mut record = stored(&shared).unwrap();
    for epoch in 18..=20 {
        let expected = record.revision();
        let next = at_epoch(&record, epoch);
        record = (*shared.commit(expected, next, None).unwrap()).clone();
    }
    shared.look();
    for disk in disk.after_power_cut() {
        let history = open(&disk).files.history().unwrap();
        assert!(history.iter().all(|copy| copy.record.is_ok()));
        let epochs = history.iter().map(|copy| copy.epoch.get());
        assert!(epochs.eq(5..=20));
    }
}

#[test]
fn a_term_that_began_never_begins_again_after_a_crash() {
    let before = disk_with_record();
    for crash in 0..OPERATIONS_MAX {
        let disk = before.copy();
        let shared = open(&disk);
        disk.fail(Failure::CrashAt(crash));
        let begun = shared
            .lead("rebalancer")
            .map(|leadership| leadership.term().get());
        for disk in disk.after_power_cut() {
            let term = open(&disk).lead("rebalancer").unwrap().term().get();
            let highest = begun.as_ref().copied().unwrap_or(1);
            assert!(term > highest, "crash at {crash}: {term} after {highest}");
        }
    }
}

#[test]
fn an_error_anywhere_in_a_commit_leaves_a_store_that_knows_what_it_has() {
    let before = disk_with_record();
    let old = stored(&open(&before.after_kill())).unwrap();
    let mut unknown = 0;
    for operation in 0..OPERATIONS_MAX {
        let disk = before.copy();
        let shared = open(&disk);
        disk.fail(Failure::ErrorAt(operation));
        let result = shared.commit(old.revision(), at_epoch(&old, 18), None);
        disk.heal();
        let read = stored(&shared).unwrap();
        match result {
            Ok(_) => assert_eq!(numbers(&read), (18, 18)),
            Err(CommitError::Unreachable { .. }) => assert_eq!(numbers(&read), (17, 17)),
            Err(CommitError::Unknown { .. }) => unknown += 1,
            Err(other) => panic!("error at {operation}: {other}"),
        }
        for disk in disk.after_power_cut() {
            let found = stored(&open(&disk)).unwrap();
            assert_eq!(
                numbers(&found),
                numbers(&read),
                "error at {operation}: was read, lost"
            );
        }
        let next = at_epoch(&read, 19);
        shared.commit(read.revision(), next, None).expect("goes on");
    }
    assert_eq!(
        unknown, 1,
        "only the sync of the directory leaves a commit unknown"
    );
}

#[test]
fn an_error_while_a_term_begins_burns_it() {
    let before = disk_with_record();
    for operation in 0..OPERATIONS_MAX {
        let disk = before.copy();
        let shared = open(&disk);
        disk.fail(Failure::ErrorAt(operation));
        let first = shared.lead("rebalancer");
        assert!(
            matches!(&first, Ok(_) | Err(LeadError::Unreachable { .. })),
            "{first:?}"
        );
        disk.heal();
        let second = shared.lead("rebalancer").unwrap().term().get();
        assert_eq!(second, 3, "error at {operation}");
    }
}
