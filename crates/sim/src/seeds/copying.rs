//! What a handoff's task does to keys: sweeping, listing, copying, comparing, cleaning.

use clockwise_cluster::View;
use clockwise_cluster::copier::{Batch, Found, Lane, Next, Rate, Throttle};
use clockwise_cluster::handoff::{Event, Server as At};

use super::Sim;
use super::desk::{Desk, Done, Failure};
use super::executor::{MS, Trips};
use super::fact::{Fact, Moved, Why};
use super::server::{Hand, Key, Server, Value};
use super::truth::Truth;

/// Keys of one step of a listing.
const SCAN_COUNT: usize = 8;

impl Desk {
    pub(super) async fn sweep(&self) -> Done {
        for lane in self.lanes() {
            let at = At::Target(lane);
            let mut cursor = 0;
            loop {
                let from = cursor;
                let (next, keys) = self
                    .ask(at, move |_, server| server.scan(from, SCAN_COUNT))
                    .await?;
                let strays: Vec<Key> = keys
                    .into_iter()
                    .filter(|key| self.lane_of(*key) == Some(lane))
                    .collect();
                if !strays.is_empty() {
                    self.remove(at, strays, Why::Sweep).await?;
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(Event::Swept { removed: 0 })
    }

    pub(super) async fn list(&self) -> Done {
        let mut cursor = 0;
        loop {
            let from = cursor;
            let (next, keys) = self
                .ask(At::Source, move |_, server| server.scan(from, SCAN_COUNT))
                .await?;
            for key in keys {
                if let Some(lane) = self.lane_of(key) {
                    self.books.borrow_mut().copier.listed(lane, key);
                }
            }
            self.copy(true, None).await?;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        Ok(Event::Listed)
    }

    /// Copies what waits, some batches at a time, until all of it has landed.
    pub(super) async fn copy(&self, throttled: bool, until_ms: Option<u64>) -> Result<(), Failure> {
        let mut trips: Trips<Result<Batch<Key>, Failure>> = Trips::new();
        loop {
            let now_ms = self.mandate.now_ms(&self.sim);
            let over = until_ms.is_some_and(|until_ms| now_ms >= until_ms);
            while trips.len() < self.sim.settings.window && !over {
                let next = {
                    let copier = &mut self.books.borrow_mut().copier;
                    match throttled {
                        true => copier.next(&mut self.mandate.throttle.borrow_mut(), now_ms),
                        false => copier.next(&mut Throttle::new(Rate::default(), now_ms), now_ms),
                    }
                };
                match next {
                    Next::Batch(batch) => {
                        if throttled {
                            let limit = self.mandate.throttle.borrow().rate().keys_per_second;
                            let process = usize::try_from(self.mandate.term).unwrap_or(0);
                            let keys = batch.keys.len() as u64;
                            self.sim.note(&Fact::Read {
                                process,
                                keys,
                                limit,
                            });
                        }
                        trips.push(self.clone().copy_batch(batch));
                    }
                    Next::At(at_ms) if trips.len() == 0 => {
                        let wait_ms = at_ms.saturating_sub(now_ms).clamp(1, 100);
                        self.sim.sleep(wait_ms * MS).await;
                        break;
                    }
                    _ => break,
                }
            }
            if trips.len() == 0 {
                let landed = self.books.borrow().copier.is_landed();
                match landed || over {
                    true => return Ok(()),
                    false => {
                        self.sim.sleep(100).await;
                        continue;
                    }
                }
            }
            let batch = trips.next().await?;
            self.books.borrow_mut().copier.landed(batch);
        }
    }

    /// Reads the keys of a batch at the source and writes them at their target.
    async fn copy_batch(self, mut batch: Batch<Key>) -> Result<Batch<Key>, Failure> {
        let (keys, now) = (batch.keys.clone(), self.sim.clone());
        let reads = self
            .ask(At::Source, move |_, server| {
                let read = |key: &Key| server.get(*key, now.now_ms());
                keys.iter().map(read).collect::<Vec<Option<Value>>>()
            })
            .await?;
        let found: Vec<Found> = reads
            .iter()
            .map(|read| match read {
                Some(value) => Found::Value {
                    bytes: 100,
                    untracked: value.count % 7 == 6,
                },
                None => Found::Gone,
            })
            .collect();
        let at = At::Target(batch.lane);
        let items: Vec<(Key, Option<Value>)> = batch.keys.iter().copied().zip(reads).collect();
        self.write(at, items.clone()).await?;
        let at_once = self.books.borrow().at_once;
        if at_once {
            let keys: Vec<Key> = batch.keys.clone();
            for key in self.different(batch.lane, keys).await? {
                self.books.borrow_mut().copier.suspect(batch.lane, key);
            }
        }
        let books = &mut self.books.borrow_mut();
        let throttle = &mut self.mandate.throttle.borrow_mut();
        books.copier.read(&mut batch, &found, throttle);
        Ok(batch)
    }

    async fn write(&self, at: At, items: Vec<(Key, Option<Value>)>) -> Result<(), Failure> {
        let term = self.mandate.term;
        self.ask(at, move |sim, server| {
            for (key, value) in items {
                change(sim, server, key, value, Why::Copy, term);
            }
        })
        .await
    }

    async fn remove(&self, at: At, keys: Vec<Key>, why: Why) -> Result<(), Failure> {
        let term = self.mandate.term;
        self.ask(at, move |sim, server| {
            for key in keys {
                change(sim, server, key, None, why, term);
            }
        })
        .await
    }

    /// Which of the keys differ between both ends; expiries within the skew of two clocks do not count.
    async fn different(&self, lane: Lane, keys: Vec<Key>) -> Result<Vec<Key>, Failure> {
        let ask = |keys: Vec<Key>| {
            move |sim: &Sim, server: &mut Server| {
                let now_ms = sim.now_ms();
                keys.into_iter()
                    .map(|key| server.get(key, now_ms))
                    .collect::<Vec<_>>()
            }
        };
        let here = self.ask(At::Source, ask(keys.clone())).await?;
        let there = self.ask(At::Target(lane), ask(keys.clone())).await?;
        let now_ms = self.sim.now_ms();
        let expires = |value: Option<Value>| Truth::may_have_expired(value, now_ms);
        let pairs = keys.into_iter().zip(here.into_iter().zip(there));
        let differ = |(here, there): &(Option<Value>, Option<Value>)| {
            here != there && !expires(*here) && !expires(*there)
        };
        Ok(pairs
            .filter(|(_, pair)| differ(pair))
            .map(|(key, _)| key)
            .collect())
    }

    pub(super) async fn verify(&self) -> Done {
        let mut compared = 0;
        let mut servers = vec![At::Source];
        servers.extend(self.lanes().map(At::Target));
        for at in servers {
            let mut cursor = 0;
            loop {
                let from = cursor;
                let (next, keys) = self
                    .ask(at, move |_, server| server.scan(from, SCAN_COUNT))
                    .await?;
                for lane in self.lanes() {
                    let will = |key: &Key| self.books.borrow().copier.will_be_copied(lane, key);
                    let of_lane = |key: &Key| self.lane_of(*key) == Some(lane) && !will(key);
                    let keys: Vec<Key> = keys.iter().copied().filter(of_lane).collect();
                    if keys.is_empty() {
                        continue;
                    }
                    compared += keys.len() as u64;
                    for key in self.different(lane, keys).await? {
                        self.books.borrow_mut().copier.suspect(lane, key);
                    }
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        self.barrier().await?;
        let mismatches = self.second_look().await?;
        self.books.borrow_mut().at_once = true;
        Ok(Event::Verified {
            compared,
            mismatches,
        })
    }

    pub(super) async fn second_look(&self) -> Result<u64, Failure> {
        for lane in self.lanes() {
            let suspects: Vec<Key> = {
                let books = self.books.borrow();
                let of_lane = books.copier.suspects().filter(|(of, _)| *of == lane);
                of_lane.map(|(_, key)| *key).collect()
            };
            if suspects.is_empty() {
                continue;
            }
            let different = self.different(lane, suspects.clone()).await?;
            for key in suspects.iter().filter(|key| !different.contains(key)) {
                self.books.borrow_mut().copier.acquit(key);
            }
        }
        Ok(self.books.borrow_mut().copier.settle_suspects())
    }

    /// Removes a slice of what a node does not own in the current epoch.
    pub(super) async fn clean(&self, at: At, why: Why) -> Done {
        let from = self.books.borrow().cursor;
        let (next, keys) = self
            .ask(at, move |_, server| server.scan(from, SCAN_COUNT))
            .await?;
        let record = self.mandate.record().ok_or(Failure(at))?;
        let Ok(view) = View::from_record(&record) else {
            return Err(Failure(at));
        };
        let node = self.node(at).clone();
        let foreign =
            |key: &Key| view.node(view.route(view.position(key.as_ref())).node).id != node;
        let foreign: Vec<Key> = keys.into_iter().filter(foreign).collect();
        let removed = foreign.len() as u64;
        if removed > 0 {
            self.remove(at, foreign, why).await?;
        }
        self.books.borrow_mut().cursor = next;
        Ok(Event::Cleaned {
            removed,
            finished: next == 0,
        })
    }
}

/// A change for a move, as it takes effect.
fn change(sim: &Sim, server: &mut Server, key: Key, value: Option<Value>, why: Why, term: u64) {
    let now_ms = sim.now_ms();
    let before = server.values.get(&key).copied();
    server.put(key, value, Hand::Mover, now_ms);
    let after = server.values.get(&key).copied();
    sim.moved(Moved {
        term,
        node: server.node,
        key,
        before,
        after,
        why,
        unsynced_at_owner: false,
    });
}
