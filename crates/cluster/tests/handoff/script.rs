//! Runs the lines of a story against a conductor, a record and servers that always answer well unless
//! the story says otherwise.

use std::collections::{BTreeMap, VecDeque};

use clockwise_cluster::{HandoffId, Record};
use std::rc::Rc;

use clockwise_cluster::copier::{CopyStop, Lane};
use clockwise_cluster::handoff::{
    Command, Conductor, Event, FenceFailure, Identities, Order, RoundReport, Server, Situation,
    WriteRefusal,
};

use crate::book::{Book, name};
use crate::facts;
use crate::words;

/// A story under way.
#[derive(Default)]
pub(crate) struct Script {
    book: Option<Book>,
    conductor: Option<Conductor>,
    handoffs: Vec<HandoffId>,
    waiting: VecDeque<Order>,
    now_ms: u64,
    shown: BTreeMap<String, String>,
    out: String,
}

/// Answers after which a story that should have ended has not.
const ANSWERS_MAX: usize = 500;

impl Script {
    /// Runs a line and returns what followed.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.out.clear();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "pool" => self.book = Some(Book::new(rest)),
            "add" | "remove" | "lose" | "points" => self.book().stage(line),
            "apply" => self.book().apply(),
            "lead" => self.lead(),
            "crash" => self.crash(),
            "record" => self.out = self.book().text(),
            "leave" => {
                let now_ms = self.now_ms;
                let orders = self.conductor().leave(now_ms);
                self.take(orders);
            }
            "abort" => {
                let now_ms = self.now_ms;
                let orders = self.conductor().abort(now_ms);
                self.take(orders);
            }
            "time" => self.pass(
                rest.strip_suffix(" ms")
                    .expect("time N ms")
                    .parse()
                    .expect("milliseconds"),
            ),
            "deposed" => self.book().leads = false,
            "restart" => self.book().restart(rest),
            "until" => self.until(rest),
            "finish" => self.until("the end"),
            "somebody" => self.somebody_rolls_back(),
            _ => {
                let (of, event) = line
                    .split_once(": ")
                    .unwrap_or_else(|| panic!("what is {line:?}"));
                self.happen(of, event);
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Whether an order is outstanding that begins with these words.
    pub(crate) fn is_waiting(&self, words: &str) -> bool {
        self.waiting
            .iter()
            .any(|order| words::order(&self.handoffs, order).starts_with(words))
    }

    pub(crate) fn record(&self) -> Rc<Record> {
        Rc::clone(
            &self
                .book
                .as_ref()
                .expect("a story begins with its pool")
                .record,
        )
    }

    fn book(&mut self) -> &mut Book {
        self.book.as_mut().expect("a story begins with its pool")
    }

    fn conductor(&mut self) -> &mut Conductor {
        self.conductor.as_mut().expect("somebody leads")
    }

    /// Makes the machines from the record, as whoever leads next does.
    fn lead(&mut self) {
        self.book().leads = true;
        self.handoffs = self.book().handoffs();
        self.waiting.clear();
        let mut conductor = Conductor::new(&self.book().record).expect("a change in flight");
        let orders = conductor.start(self.now_ms);
        self.conductor = Some(conductor);
        self.take(orders);
    }

    fn crash(&mut self) {
        self.conductor = None;
        self.waiting.clear();
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        while let Some((at_ms, index)) = self.conductor().deadline()
            && at_ms <= now_ms
        {
            self.deliver(index, Event::Timeout);
        }
    }

    fn somebody_rolls_back(&mut self) {
        let now_ms = self.now_ms + 1_001;
        let book = self.book();
        book.record = Rc::new(
            book.record
                .roll_back_stale_handover(now_ms)
                .expect("a handover"),
        );
    }

    /// Answers everything well, in the order it was asked, until an order is given; does not answer that.
    fn until(&mut self, wanted: &str) {
        for _ in 0..ANSWERS_MAX {
            if self.is_waiting(wanted) {
                return;
            }
            if let Some(order) = self.waiting.pop_front() {
                self.answer(order);
            } else if self.conductor.is_none() {
                assert_eq!(wanted, "the end", "the change ended before: {wanted}");
                return;
            } else {
                let (at_ms, _) = self
                    .conductor()
                    .deadline()
                    .unwrap_or_else(|| panic!("nothing leads to {wanted}"));
                self.pass(at_ms.saturating_sub(self.now_ms));
            }
        }
        panic!("no end in sight: {}", self.out);
    }

    fn answer(&mut self, order: Order) {
        self.now_ms += 1;
        let now_ms = self.now_ms;
        match order {
            Order::Handoff(index, command) => {
                let event = self.well(index, &command);
                self.deliver(index, event);
            }
            Order::TurnBack => {
                self.book().turn_back(now_ms);
                self.lead();
            }
            Order::End => {
                self.book().end(now_ms);
                self.conductor = None;
            }
            other => panic!("{other:?}"),
        }
    }

    fn deliver(&mut self, index: usize, event: Event) {
        let now_ms = self.now_ms;
        let orders = self.conductor().handle(index, event, now_ms);
        self.take(orders);
    }

    /// Notes orders; a cancelled command is not answered any more.
    fn take(&mut self, orders: Vec<Order>) {
        for order in orders {
            self.print(&order);
            match &order {
                Order::Handoff(
                    _,
                    Command::Untrack | Command::Stop(_) | Command::Park | Command::Finish,
                ) => {}
                Order::Deposed | Order::Held => self.conductor = None,
                Order::Handoff(index, Command::Cancel) => {
                    self.waiting
                        .retain(|other| !matches!(other, Order::Handoff(at, _) if at == index));
                    self.waiting.push_back(order);
                }
                _ => self.waiting.push_back(order),
            }
        }
    }

    /// Repeated orders of one handoff, such as the rounds while it waits for its turn, are shown once.
    fn print(&mut self, order: &Order) {
        let line = words::order(&self.handoffs, order);
        let of = line.split(": ").next().unwrap_or("").to_string();
        let again = self.shown.insert(of, line.clone()).as_ref() == Some(&line);
        if !(again && line.contains(": round")) {
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    /// The answer of servers and store when nothing goes wrong.
    fn well(&mut self, index: usize, command: &Command) -> Event {
        let id = self.handoffs[index].clone();
        if let Command::ReadRecord { after_ms }
        | Command::Round { after_ms }
        | Command::CountOld { after_ms, .. } = command
        {
            self.now_ms += after_ms;
        }
        let now_ms = self.now_ms;
        let book = self.book();
        match command {
            Command::Inspect => Event::Inspected(facts::good(book, &id)),
            Command::Open(_) => Event::Opened,
            Command::ReadRecord { .. } => Event::Record(Situation {
                leads: book.leads,
                entry: book.entry(&id),
            }),
            Command::Identify => Event::Identified(identities(book, &id)),
            Command::Sweep => Event::Swept { removed: 0 },
            Command::Track => Event::Tracking,
            Command::List => Event::Listed,
            Command::Round { .. } => Event::Round(RoundReport {
                copied: 40,
                dirty: 40,
                took_ms: 2,
                untracked_ms: 0,
            }),
            Command::Verify => Event::Verified {
                compared: 1_000,
                mismatches: 0,
            },
            Command::Prepare => {
                let generation = book.entry(&id).expect("in flight").generation.next();
                Event::Prepared {
                    generation,
                    nonce: book.nonce(),
                }
            }
            Command::Commit(_) if !book.leads => Event::Deposed,
            Command::Commit(step) => match book.commit(&id, step, now_ms) {
                Ok(epoch) => Event::Committed { epoch },
                Err(_) => Event::Conflict,
            },
            Command::CountOld { .. } => Event::OldConnections(0),
            Command::Fence(_) => Event::Fenced,
            Command::Barrier => Event::BarrierPassed,
            Command::CopyLast => Event::LastCopied { keys: 40 },
            Command::CompareLast => Event::LastCompared { different: 0 },
            Command::Durable | Command::DurableSource => Event::Durable,
            Command::Clean | Command::Purge(_) => Event::Cleaned {
                removed: 500,
                finished: true,
            },
            Command::Cancel => Event::Cancelled,
            other => panic!("{other:?} has no answer"),
        }
    }

    /// An event that the story tells: an answer to what is outstanding, or something unasked.
    fn happen(&mut self, of: &str, words: &str) {
        let index = self
            .handoffs
            .iter()
            .position(|id| name(id) == of)
            .unwrap_or_else(|| panic!("no handoff {of}"));
        let of_index = |order: &Order| matches!(order, Order::Handoff(at, _) if *at == index);
        let at = self.waiting.iter().position(of_index);
        let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
        if let Some(event) = unasked(verb, rest) {
            return self.deliver(index, event);
        }
        let order = at
            .and_then(|at| self.waiting.remove(at))
            .expect("an outstanding command");
        let Order::Handoff(_, command) = order else {
            panic!("{order:?}")
        };
        let event = self.told(index, &command, words, verb, rest);
        self.deliver(index, event);
    }

    fn told(
        &mut self,
        index: usize,
        command: &Command,
        words: &str,
        verb: &str,
        rest: &str,
    ) -> Event {
        let number = |name: &str| -> u64 {
            let value = rest
                .split(' ')
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.map_or(0, |value| value.parse().expect("a number"))
        };
        match (verb, rest) {
            ("well", "") => self.well(index, command),
            ("inspected,", but) => {
                let id = self.handoffs[index].clone();
                Event::Inspected(facts::but(
                    self.book(),
                    &id,
                    but.strip_prefix("but ").expect("but"),
                ))
            }
            ("store", "away") => Event::StoreAway,
            ("conflict", "") => Event::Conflict,
            ("not", "committed") => Event::NotCommitted,
            ("unknown,", "not committed") => Event::Unknown,
            ("unknown,", "committed") => {
                self.well(index, command);
                Event::Unknown
            }
            ("round", _) => Event::Round(RoundReport {
                copied: number("copied"),
                dirty: number("dirty"),
                took_ms: number("took"),
                untracked_ms: number("untracked"),
            }),
            ("compared", _) => Event::Verified {
                compared: number("keys"),
                mismatches: number("different"),
            },
            ("old", _) => Event::OldConnections(number("connections")),
            ("differ", _) => Event::LastCompared {
                different: number("keys"),
            },
            ("busy", "") => Event::FenceFailed(FenceFailure::Busy),
            ("refused", why) => Event::FenceFailed(FenceFailure::Refused(why.to_string())),
            ("cleaned", "a part") => Event::Cleaned {
                removed: 500,
                finished: false,
            },
            ("identified", _) => {
                let id = self.handoffs[index].clone();
                let mut found = identities(self.book(), &id);
                if rest == "with an empty source" {
                    found.source = found.source.map(|(identity, _)| (identity, 0));
                } else if rest == "with a replica for source" {
                    found.source.as_mut().expect("a source").0.primary = false;
                }
                Event::Identified(found)
            }
            ("too", "large") => Event::TooLarge {
                bytes: 1_100_000,
                limit: 1_048_576,
            },
            _ => panic!("no answer {words:?} to {command:?}"),
        }
    }
}

fn unasked(verb: &str, rest: &str) -> Option<Event> {
    let broken = |at| {
        Some(Event::Broken {
            at,
            why: "connection reset".to_string(),
        })
    };
    match (verb, rest) {
        ("broken", "source") => broken(Server::Source),
        ("broken", "target") => broken(Server::Target(Lane(0))),
        ("tracking", "lost") => Some(Event::TrackingLost),
        ("flushed", "") => Some(Event::Flushed),
        ("out", "of memory") => Some(Event::WriteRefused {
            target: Lane(0),
            why: WriteRefusal::OutOfMemory,
        }),
        ("big", key) => Some(Event::CopyStopped(CopyStop::BigKeyUnsteady {
            key: key.as_bytes().to_vec(),
            passes: 3,
        })),
        ("dirt", "outgrows") => Some(Event::CopyStopped(CopyStop::DirtOutgrowsCopying {
            waiting: 700_000,
        })),
        _ => None,
    }
}

pub(crate) fn identities(book: &Book, id: &HandoffId) -> Identities {
    let (source, targets) = book.source_and_targets(id);
    Identities {
        source: Some((book.identity(&source), 1_000)),
        targets: targets.iter().map(|target| book.identity(target)).collect(),
    }
}
