use super::*;

/// At 1,000 ms, with clocks at most 50 ms apart.
const NOW: Flight = Flight {
    sent_ms: 1_000,
    answered_ms: 1_010,
    tolerance_ms: 50,
};

fn value(content: u64) -> State {
    expiring(content, None)
}

fn expiring(content: u64, expires_at_ms: Option<u64>) -> State {
    State::Present {
        content,
        expires_at_ms,
    }
}

/// A key after these writes.
fn register(writes: &[(State, Outcome)]) -> Register {
    let mut register = Register::new();
    for (state, outcome) in writes {
        register.send(*state);
        if *outcome != Outcome::InFlight {
            register.settle(*outcome).unwrap();
        }
    }
    register
}

fn read(register: &mut Register, seen: Option<u64>) -> Result<(), Anomaly> {
    let reading = register.begin_reading();
    match seen {
        Some(content) => register.saw_content(reading, content, NOW),
        None => register.saw_nothing(reading, NOW),
    }
}

use Outcome::{Acknowledged, InFlight, NotExecuted, Unknown};

#[test]
fn a_read_sees_what_was_acknowledged_or_is_under_way() {
    let absent = State::Absent;
    // After these writes, a read that sees this (None: nothing) is judged so.
    type Case<'a> = (&'a [(State, Outcome)], Option<u64>, Result<(), Anomaly>);
    let cases: &[Case] = &[
        (&[], None, Ok(())),
        (&[], Some(1), Err(Anomaly::NeverSent)),
        (&[(value(1), Acknowledged)], Some(1), Ok(())),
        (&[(value(1), Acknowledged)], None, Err(Anomaly::Missing)),
        (&[(value(1), InFlight)], Some(1), Ok(())),
        (&[(value(1), InFlight)], None, Ok(())),
        (
            &[(value(1), Acknowledged), (value(2), InFlight)],
            Some(1),
            Ok(()),
        ),
        (
            &[(value(1), Acknowledged), (value(2), InFlight)],
            Some(2),
            Ok(()),
        ),
        (
            &[(value(1), Acknowledged), (value(2), InFlight)],
            None,
            Err(Anomaly::Missing),
        ),
        (
            &[(value(1), Acknowledged), (value(2), Unknown)],
            Some(1),
            Ok(()),
        ),
        (
            &[(value(1), Acknowledged), (value(2), Unknown)],
            Some(2),
            Ok(()),
        ),
        (
            &[(value(1), Acknowledged), (value(2), NotExecuted)],
            Some(1),
            Ok(()),
        ),
        (
            &[(value(1), Acknowledged), (value(2), NotExecuted)],
            Some(2),
            Err(Anomaly::Refused),
        ),
        (
            &[(value(1), Acknowledged), (value(2), Acknowledged)],
            Some(1),
            Err(Anomaly::Behind),
        ),
        (
            &[(value(1), Unknown), (value(2), Acknowledged)],
            Some(1),
            Err(Anomaly::Behind),
        ),
        (
            &[(value(1), Acknowledged), (absent, Acknowledged)],
            None,
            Ok(()),
        ),
        (
            &[(value(1), Acknowledged), (absent, Acknowledged)],
            Some(1),
            Err(Anomaly::Resurrected),
        ),
        (
            &[(value(1), Acknowledged), (absent, Unknown)],
            Some(1),
            Ok(()),
        ),
        (&[(value(1), Acknowledged), (absent, Unknown)], None, Ok(())),
        (
            &[(value(1), Acknowledged), (absent, NotExecuted)],
            None,
            Err(Anomaly::Refused),
        ),
        (
            &[
                (value(1), Acknowledged),
                (absent, Acknowledged),
                (value(3), Acknowledged),
            ],
            Some(1),
            Err(Anomaly::Resurrected),
        ),
        (
            &[
                (value(1), Acknowledged),
                (value(2), Acknowledged),
                (value(3), InFlight),
            ],
            Some(1),
            Err(Anomaly::Behind),
        ),
    ];
    for (writes, seen, expected) in cases {
        assert_eq!(
            read(&mut register(writes), *seen),
            *expected,
            "{writes:?} {seen:?}"
        );
    }
}

#[test]
fn a_read_under_way_may_see_what_it_overlaps() {
    let mut key = register(&[(value(1), Acknowledged)]);
    let readings: Vec<Reading> = (0..3).map(|_| key.begin_reading()).collect();
    key.send(value(2));
    key.settle(Acknowledged).unwrap();
    key.send(value(3));
    // Sent before version 2, answered after version 3 was sent: all three are possible, but a
    // reader that answers later than another never sees an older one it could not overlap.
    for (reading, content) in readings.into_iter().zip([3, 1, 2]) {
        key.saw_content(reading, content, NOW).unwrap();
    }
    assert_eq!(read(&mut key, Some(2)), Err(Anomaly::Behind));
    assert_eq!(read(&mut key, Some(3)), Ok(()));
}

#[test]
fn what_was_seen_new_never_looks_old_again() {
    let mut key = register(&[(value(1), Acknowledged), (value(2), Unknown)]);
    assert_eq!(read(&mut key, Some(1)), Ok(()));
    assert_eq!(read(&mut key, Some(2)), Ok(()));
    assert_eq!(read(&mut key, Some(1)), Err(Anomaly::Behind));
    let mut key = register(&[(value(1), Acknowledged), (State::Absent, Unknown)]);
    assert_eq!(read(&mut key, None), Ok(()));
    assert_eq!(read(&mut key, Some(1)), Err(Anomaly::Resurrected));
}

#[test]
fn a_refused_write_that_was_seen_in_flight_is_found() {
    let mut key = register(&[(value(1), Acknowledged), (value(2), InFlight)]);
    assert_eq!(read(&mut key, Some(2)), Ok(()));
    assert_eq!(key.settle(NotExecuted), Err(Anomaly::Refused));
}

#[test]
fn a_value_goes_at_its_expiry_give_or_take_the_tolerance() {
    // A read sent at 1,000 and answered at 1,010: (expiry, may be seen, may be missing).
    let cases = [
        (900, false, true),
        (949, false, true),
        (950, true, true),
        (1_000, true, true),
        (1_060, true, true),
        (1_061, true, false),
        (9_000, true, false),
    ];
    for (at_ms, may_be_seen, may_be_missing) in cases {
        let mut key = register(&[(expiring(1, Some(at_ms)), Acknowledged)]);
        let seen = if may_be_seen {
            Ok(())
        } else {
            Err(Anomaly::WrongTtl)
        };
        assert_eq!(read(&mut key, Some(1)), seen, "expiry {at_ms}");
        let missing = if may_be_missing {
            Ok(())
        } else {
            Err(Anomaly::Missing)
        };
        assert_eq!(read(&mut key, None), missing, "expiry {at_ms}");
    }
}

#[test]
fn an_expiry_is_that_of_a_version_that_may_be_seen() {
    use ExpirySeen::{AtMs, Never, NoKey};
    type Case<'a> = (&'a [(State, Outcome)], ExpirySeen, Result<(), Anomaly>);
    let at_9000 = expiring(1, Some(9_000));
    let cases: &[Case] = &[
        (&[(value(1), Acknowledged)], Never, Ok(())),
        (
            &[(value(1), Acknowledged)],
            AtMs(9_000),
            Err(Anomaly::WrongTtl),
        ),
        (&[(value(1), Acknowledged)], NoKey, Err(Anomaly::Missing)),
        (&[(at_9000, Acknowledged)], AtMs(9_000), Ok(())),
        (&[(at_9000, Acknowledged)], AtMs(8_950), Ok(())),
        (
            &[(at_9000, Acknowledged)],
            AtMs(9_051),
            Err(Anomaly::WrongTtl),
        ),
        (&[(at_9000, Acknowledged)], Never, Err(Anomaly::WrongTtl)),
        (
            &[(value(1), Acknowledged), (at_9000, Unknown)],
            Never,
            Ok(()),
        ),
        (
            &[(value(1), Acknowledged), (at_9000, Unknown)],
            AtMs(9_000),
            Ok(()),
        ),
        (
            &[(value(1), Acknowledged), (at_9000, NotExecuted)],
            AtMs(9_000),
            Err(Anomaly::Refused),
        ),
        (&[(State::Absent, Acknowledged)], NoKey, Ok(())),
        (
            &[(State::Absent, Acknowledged)],
            AtMs(9_000),
            Err(Anomaly::Resurrected),
        ),
        (
            &[(State::Absent, Acknowledged)],
            Never,
            Err(Anomaly::Resurrected),
        ),
    ];
    for (writes, seen, expected) in cases {
        let mut key = register(writes);
        let reading = key.begin_reading();
        assert_eq!(
            key.saw_expiry(reading, *seen, NOW),
            *expected,
            "{writes:?} {seen:?}"
        );
    }
}

#[test]
fn setting_an_expiry_keeps_the_value() {
    let touched = expiring(1, Some(9_000));
    let mut key = register(&[(value(1), Acknowledged), (touched, Acknowledged)]);
    assert_eq!(read(&mut key, Some(1)), Ok(()));
    assert_eq!(read(&mut key, Some(2)), Err(Anomaly::Behind));
    let reading = key.begin_reading();
    let seen = ExpirySeen::Never;
    assert_eq!(key.saw_expiry(reading, seen, NOW), Err(Anomaly::WrongTtl));
}

#[test]
fn the_answer_of_a_delete_says_what_was_there() {
    let check = |writes: &[(State, Outcome)], existed| {
        let mut key = register(writes);
        key.send(State::Absent);
        key.check_existed(existed, NOW)
    };
    let gone = expiring(1, Some(900));
    assert_eq!(check(&[(value(1), Acknowledged)], true), Ok(()));
    assert_eq!(
        check(&[(value(1), Acknowledged)], false),
        Err(Anomaly::Missing)
    );
    assert_eq!(
        check(&[(State::Absent, Acknowledged)], true),
        Err(Anomaly::Resurrected)
    );
    assert_eq!(check(&[(State::Absent, Acknowledged)], false), Ok(()));
    assert_eq!(check(&[(gone, Acknowledged)], false), Ok(()));
    assert_eq!(check(&[(gone, Acknowledged)], true), Err(Anomaly::WrongTtl));
    let unsure = [(value(1), Acknowledged), (State::Absent, Unknown)];
    assert_eq!(check(&unsure, true).and(check(&unsure, false)), Ok(()));
}

#[test]
fn only_versions_that_can_be_seen_are_kept() {
    let mut key = Register::new();
    let early = key.begin_reading();
    for number in 1..=100 {
        key.send(value(number));
        key.settle(Acknowledged).unwrap();
    }
    assert_eq!(key.versions.len(), 101);
    key.abandon(early);
    assert_eq!(key.versions.len(), 1);
    assert_eq!((key.next_number(), key.certain()), (101, Some(value(100))));
}
