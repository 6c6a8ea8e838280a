//! Each invariant is told of something that must not happen and reports it, by name and no other.

use std::sync::Arc;

use clockwise_cluster::{
    Apply, Edit, Generation, Incarnation, NewNode, NewPool, Nonce, Record, Step,
};

use super::super::executor::{MS, Micros};
use super::super::fact::{Executed, Fact, Invariant, Moved, Rest, Why};
use super::super::operator::{address_of, id_of};
use super::super::server::{Key, Value};
use super::super::truth::Truth;
use super::all;

const KEYS: usize = 100;
const WRITTEN: Value = Value {
    write: 7,
    count: 0,
    expires_at_ms: None,
};

/// Tells all invariants what happened, a second's quarter apart, and gives back who reports something.
fn reports(truth: &Truth, facts: &[Fact]) -> Vec<&'static str> {
    let mut invariants = all();
    let mut reports = Vec::new();
    for (fact, at) in facts.iter().zip(0..) {
        let now: Micros = at * 250 * MS;
        let reported = |one: &mut Box<dyn Invariant>| {
            let said = one.see(fact, truth, now);
            said.err().map(|_| one.name())
        };
        reports.extend(invariants.iter_mut().filter_map(reported));
    }
    reports
}

#[track_caller]
fn check(name: &str, truth: &Truth, good: &[Fact], bad: Fact) {
    assert_eq!(reports(truth, good), [""; 0], "nothing is wrong yet");
    let facts = [good, &[bad]].concat();
    let said = reports(truth, &facts);
    assert!(
        said.len() == 1 && said[0].starts_with(&format!("{name} ")),
        "{said:?}"
    );
}

fn nonce() -> impl FnMut() -> Nonce {
    let mut last = 0;
    move || {
        last += 1;
        Nonce::new([last; 16])
    }
}

/// Two nodes at rest.
fn pool() -> Record {
    let nodes = (0..2).map(|rank| NewNode::new(id_of(rank), address_of(rank)));
    let pool = NewPool::new("main".parse().unwrap(), nodes.collect());
    Record::create(pool, &mut nonce()).unwrap()
}

fn truth() -> Truth {
    Truth::new(Arc::new(pool()))
}

/// A third node has become the owner of what `n0` gives it, as run 1 of its data.
fn flipped() -> Record {
    let adds = Edit::Add {
        id: id_of(2),
        address: address_of(2),
        weight: NewNode::new(id_of(2), address_of(2)).weight,
        domain: NewNode::new(id_of(2), address_of(2)).domain,
    };
    let staged = pool().stage(adds).unwrap();
    let apply = Apply {
        expected: staged.epoch(),
        id: "join".parse().unwrap(),
        now_ms: 0,
        nonces: &mut || Nonce::new([77; 16]),
    };
    let mut record = staged.apply(apply).unwrap();
    let handoff = record.change().unwrap().forward(&id_of(0)).unwrap().id();
    let generation = Generation::new(9);
    let run = Incarnation {
        run_id: "r2.1".parse().unwrap(),
        replication_id: "d2.1".parse().unwrap(),
    };
    let (nonce, targets) = (Nonce::new([78; 16]), vec![run]);
    let steps = [
        Step::Copying,
        Step::Verifying,
        Step::Handover { generation, nonce },
        Step::Flip { targets },
    ];
    for step in steps {
        record = record.step(&handoff, &step, 0).unwrap();
    }
    record
}

/// A key that this node owns.
fn key_of(truth: &Truth, node: usize) -> Key {
    let mut keys = (0..KEYS).map(Key::new);
    keys.find(|key| truth.owner(*key) == node).unwrap()
}

/// A request that the owner answered as it should.
fn answered(truth: &Truth, node: usize) -> Executed {
    Executed {
        node,
        run: 1,
        key: key_of(truth, node),
        write: None,
        seen: Some(WRITTEN),
        expected: Some(WRITTEN),
        either: false,
        epoch: truth.record.epoch().get(),
    }
}

/// A copy that is removed from a node which does not own the key.
fn removed(truth: &Truth) -> Moved {
    Moved {
        term: 1,
        node: 0,
        key: key_of(truth, 2),
        before: Some(WRITTEN),
        after: None,
        why: Why::Clean,
        unsynced_at_owner: false,
    }
}

/// Nothing is open, and nothing is anywhere.
fn rest() -> Rest {
    Rest {
        held: vec![Vec::new(); 5],
        leftovers: vec![false; 5],
        open: 0,
        unfinished: None,
        now_ms: 0,
    }
}

#[test]
fn i1_reports_a_write_that_is_gone() {
    let truth = truth();
    let good = answered(&truth, 0);
    let older = Value {
        write: 6,
        ..WRITTEN
    };
    for seen in [None, Some(older)] {
        let bad = Executed { seen, ..good };
        check("I1", &truth, &[Fact::Executed(good)], Fact::Executed(bad));
    }
}

#[test]
fn i1_reports_a_key_that_is_not_at_its_owner_at_rest() {
    let mut truth = truth();
    let key = key_of(&truth, 1);
    truth.set(key, Some(WRITTEN));
    let mut good = rest();
    good.held[1].push((key, WRITTEN));
    check("I1", &truth, &[Fact::Rest(good)], Fact::Rest(rest()));
}

#[test]
fn i2_reports_an_answer_of_a_node_that_does_not_own_the_key() {
    let truth = truth();
    let good = answered(&truth, 0);
    let bad = Executed { node: 1, ..good };
    check("I2", &truth, &[], Fact::Executed(bad));
}

/// Whoever answers under an older epoch than another node did does not own the key either, now or then.
#[test]
fn i3_reports_an_older_epoch_at_another_node() {
    let truth = truth();
    let good = answered(&truth, 0);
    let newer = Executed {
        epoch: good.epoch + 1,
        ..good
    };
    let bad = Executed { node: 1, ..good };
    let said = reports(&truth, &[Fact::Executed(newer), Fact::Executed(bad)]);
    assert!(said.iter().any(|name| name.starts_with("I3 ")), "{said:?}");
}

#[test]
fn i4_reports_a_request_that_takes_too_long_and_one_that_never_ends() {
    let ended = |took| Fact::Ended { client: 0, took };
    check("I4", &truth(), &[ended(7_999 * MS)], ended(8_001 * MS));
    let open = Rest { open: 1, ..rest() };
    check("I4", &truth(), &[Fact::Rest(rest())], Fact::Rest(open));
}

#[test]
fn i5_reports_another_expiry() {
    let truth = truth();
    let good = answered(&truth, 0);
    let seen = Some(Value {
        expires_at_ms: Some(1),
        ..WRITTEN
    });
    let bad = Executed { seen, ..good };
    check("I5", &truth, &[Fact::Executed(good)], Fact::Executed(bad));
}

#[test]
fn i6_reports_a_deleted_key_that_is_back() {
    let truth = truth();
    let good = Executed {
        seen: None,
        expected: None,
        ..answered(&truth, 0)
    };
    let bad = Executed {
        seen: Some(WRITTEN),
        ..good
    };
    check("I6", &truth, &[Fact::Executed(good)], Fact::Executed(bad));
    let mut back = rest();
    back.held[0].push((good.key, WRITTEN));
    check("I6", &truth, &[Fact::Rest(rest())], Fact::Rest(back));
}

#[test]
fn i7_reports_a_change_that_does_not_end_and_a_copy_that_stays() {
    let mut truth = truth();
    let stuck = Rest {
        unfinished: Some("n1 cannot be reached".to_owned()),
        ..rest()
    };
    check("I7", &truth, &[Fact::Rest(rest())], Fact::Rest(stuck));
    let key = key_of(&truth, 1);
    truth.set(key, Some(WRITTEN));
    let mut good = rest();
    good.held[1].push((key, WRITTEN));
    let mut bad = good.clone();
    bad.held[0].push((key, WRITTEN));
    let mut allowed = bad.clone();
    allowed.leftovers[0] = true;
    check(
        "I7",
        &truth,
        &[Fact::Rest(good), Fact::Rest(allowed)],
        Fact::Rest(bad),
    );
}

#[test]
fn i8_reports_a_change_of_a_key_that_does_not_move() {
    let truth = truth();
    let bad = Moved {
        key: key_of(&truth, 1),
        ..removed(&Truth::new(Arc::new(flipped())))
    };
    let nothing = Moved {
        after: bad.before,
        ..bad
    };
    check("I8", &truth, &[Fact::Moved(nothing)], Fact::Moved(bad));
}

#[test]
fn i11_reports_a_client_that_goes_back_and_a_view_that_nobody_published() {
    let (old, new) = (pool(), flipped());
    let mut truth = Truth::new(Arc::new(old.clone()));
    truth.committed(Arc::new(new.clone()));
    let adopted = |record: &Record| {
        let epoch = record.epoch().get();
        Fact::Adopted {
            client: 0,
            epoch,
            fingerprint: truth.published[&epoch],
        }
    };
    let good = [adopted(&old), adopted(&new)];
    check("I11", &truth, &good, adopted(&old));
    let unheard = Fact::Adopted {
        client: 0,
        epoch: new.epoch().get(),
        fingerprint: 0,
    };
    check("I11", &truth, &good, unheard);
}

#[test]
fn i11_reports_an_epoch_that_decreases() {
    let (old, new) = (Arc::new(pool()), Arc::new(flipped()));
    let truth = Truth::new(Arc::clone(&new));
    let committed = |before: &Arc<Record>, after: &Arc<Record>| Fact::Committed {
        before: Arc::clone(before),
        after: Arc::clone(after),
        term: None,
        leading: None,
    };
    check(
        "I11",
        &truth,
        &[committed(&old, &new)],
        committed(&new, &old),
    );
}

#[test]
fn i12_reports_a_change_at_the_owner_another_leaders_commit_and_a_leader_cut_off() {
    let truth = Truth::new(Arc::new(flipped()));
    let good = removed(&truth);
    let bad = Moved { node: 2, ..good };
    check("I12", &truth, &[Fact::Moved(good)], Fact::Moved(bad));
    let committed = |leading| Fact::Committed {
        before: Arc::clone(&truth.record),
        after: Arc::clone(&truth.record),
        term: Some(1),
        leading: Some(leading),
    };
    check("I12", &truth, &[committed(1)], committed(2));
    let entered = |term, highest_before, highest_after| Fact::Entered {
        term,
        node: 0,
        highest_before,
        highest_after,
    };
    let good = [
        entered(1, None, Some(1)),
        entered(2, Some(1), Some(2)),
        entered(1, Some(2), Some(2)),
        entered(2, Some(2), Some(2)),
    ];
    check("I12", &truth, &good, entered(1, Some(2), Some(1)));
}

#[test]
fn i13_reports_an_answer_of_another_run_than_the_one_that_became_the_owner() {
    let truth = Truth::new(Arc::new(flipped()));
    let good = answered(&truth, 2);
    let bad = Executed { run: 2, ..good };
    check("I13", &truth, &[Fact::Executed(good)], Fact::Executed(bad));
}

#[test]
fn i14_reports_a_copy_that_goes_before_the_owners_is_durable() {
    let truth = Truth::new(Arc::new(flipped()));
    let good = removed(&truth);
    let bad = Moved {
        unsynced_at_owner: true,
        ..good
    };
    check("I14", &truth, &[Fact::Moved(good)], Fact::Moved(bad));
}

#[test]
fn i16_reports_a_commit_to_a_store_that_is_away() {
    let asked = |committed| Fact::StoreAway {
        process: 0,
        committed,
    };
    check("I16", &truth(), &[asked(false)], asked(true));
}

#[test]
fn i17_reports_more_keys_in_a_second_than_the_limit() {
    let read = |keys| Fact::Read {
        process: 0,
        keys,
        limit: Some(100),
    };
    // A quarter of a second lies between two of them: the first has left the window of the fifth.
    let good = [25, 25, 25, 25, 25].map(read);
    check("I17", &truth(), &good, read(26));
}

#[test]
fn i18_reports_a_queue_that_is_longer_than_it_may_be() {
    let queued = |held| Fact::Queued {
        client: 0,
        held,
        held_max: 10,
    };
    check("I18", &truth(), &[queued(10)], queued(11));
}

#[test]
fn i19_reports_a_write_that_is_executed_again_and_no_read() {
    let truth = truth();
    let read = answered(&truth, 0);
    let write = |number| {
        Fact::Executed(Executed {
            write: Some(number),
            ..read
        })
    };
    let good = [
        Fact::Executed(read),
        Fact::Executed(read),
        write(1),
        write(2),
    ];
    check("I19", &truth, &good, write(1));
}
