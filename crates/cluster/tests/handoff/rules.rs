//! The rules that each lose a write, resurrect a key or make two owners when broken alone. Those about
//! the order of commands are held in every order by `every_order`; here each has its name and its case.

use clockwise_cluster::handoff::{Admission, Closed, Identity, admission};
use clockwise_cluster::{Generation, Incarnation, Record};

use crate::book::{Book, identity_of};
use crate::script::Script;

/// Runs the lines of a story and returns the orders that follow the last one.
fn after(lines: &str) -> (Script, Vec<String>) {
    let mut script = Script::default();
    let mut last = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        last = script.run(line);
    }
    let orders = last.lines().map(str::to_string).collect();
    (script, orders)
}

const JOIN: &str = "pool a b\n add d\n apply\n lead\n";

fn join(lines: &str) -> (Script, Vec<String>) {
    after(&format!("{JOIN}{lines}"))
}

fn admitted(record: &Record, node: &str, run: &str) -> Admission {
    admission(record, &node.parse().unwrap(), &identity_of(run))
}

fn clients_of(generation: u64, admission: &Admission) -> bool {
    matches!(admission, Admission::Clients { generation: g, .. } if *g == Generation::new(generation))
}

#[test]
fn the_next_handover_fences_every_generation_below_its_own_also_after_a_rollback() {
    let (script, _) = join("until a: fence\n a: busy\n a: well\n until a: fence");
    assert!(
        script.is_waiting("a: fence below 3"),
        "2 was never removed, 1 neither"
    );
}

#[test]
fn a_deposed_leader_touches_no_server_although_its_sessions_are_open() {
    let (_, orders) = join("until a: read the record\n deposed\n a: well\n b: well\n a: well");
    assert_eq!(orders, ["deposed"]);
}

#[test]
fn after_a_broken_connection_every_task_ends_before_anything_is_opened_again() {
    let (script, orders) = join("until a: list\n a: broken target");
    assert_eq!(orders, ["a: cancel"]);
    assert!(!script.is_waiting("a: open"));
}

#[test]
fn the_fence_comes_after_the_commit_and_the_barrier_after_the_fences_reply() {
    let (mut script, orders) = join("until a: commit handover");
    assert!(!orders.iter().any(|order| order.contains("fence")));
    assert_eq!(
        script.run("a: well"),
        "a: count connections below 2 after 2 ms\n"
    );
    assert_eq!(script.run("a: well"), "a: fence below 2\n");
    assert_eq!(script.run("a: well"), "a: barrier\n");
}

#[test]
fn a_handoff_that_begins_again_gives_its_turn_to_hand_over_to_another() {
    let (_, orders) =
        join("until a: prepare\n until b: round after 20\n a: broken source\n a: well\n b: well");
    assert_eq!(orders, ["b: prepare client users"]);
}

#[test]
fn a_store_that_cannot_be_written_is_waited_for_however_long_that_takes() {
    let (mut script, _) = join("until a: commit verifying");
    for _ in 0..100 {
        assert_eq!(
            script.run("a: not committed"),
            "a: read the record after 100 ms\n"
        );
        assert_eq!(script.run("a: well"), "a: commit verifying\n");
    }
    script.run("finish");
    assert!(script.record().change().is_none());
}

#[test]
fn nothing_flips_late_where_the_store_could_not_be_written_in_time() {
    let (mut script, _) = join("until a: commit flip\n a: not committed\n time 500 ms");
    assert_eq!(script.run("a: well"), "a: commit rollback\n");
}

#[test]
fn an_error_instead_of_a_fence_rolls_back() {
    let (_, orders) = join("until a: fence\n a: refused -ERR unknown user");
    assert_eq!(orders, ["a: commit rollback"]);
}

#[test]
fn the_flip_names_the_run_of_the_target_that_was_checked() {
    let (script, _) = join("until a: commit flip\n restart d\n a: well");
    let record = script.record();
    let flip = &record.change().unwrap().handoffs[0].flip;
    assert_eq!(flip[0].incarnation, identity_of("d1").incarnation);
}

#[test]
fn a_restarted_target_lets_nobody_in_while_its_source_is_uncleaned() {
    let (mut script, _) = join("until a: wait until durable");
    assert!(clients_of(1, &admitted(&script.record(), "d", "d1")));
    let closed = Admission::Nobody(Closed::ChangedSinceFlip {
        source: "a".parse().unwrap(),
        expected: identity_of("d1").incarnation,
    });
    assert_eq!(admitted(&script.record(), "d", "d2"), closed);
    script.run("until a: clean");
    assert_eq!(admitted(&script.record(), "d", "d2"), closed);
    script.run("finish");
    assert!(
        clients_of(1, &admitted(&script.record(), "d", "d2")),
        "an ordinary restart from here on"
    );
}

#[test]
fn replaced_data_under_the_same_run_is_another_incarnation() {
    let (script, _) = join("until a: wait until durable");
    let run = identity_of("d1").incarnation.run_id;
    let replaced = Incarnation {
        run_id: run,
        replication_id: "other".parse().unwrap(),
    };
    let identity = Identity {
        incarnation: replaced,
        primary: true,
    };
    let admitted = admission(&script.record(), &"d".parse().unwrap(), &identity);
    assert!(matches!(
        admitted,
        Admission::Nobody(Closed::ChangedSinceFlip { .. })
    ));
}

#[test]
fn a_target_that_gives_back_is_trusted_again_once_the_old_copies_are_swept() {
    let (script, _) = join("until a: wait until durable\n abort\n until d': commit copying");
    assert!(matches!(
        admitted(&script.record(), "d", "d2"),
        Admission::Nobody(_)
    ));
    let (script, _) = join("until a: wait until durable\n abort\n until d': sweep");
    assert!(clients_of(1, &admitted(&script.record(), "d", "d2")));
}

#[test]
fn a_node_lets_in_the_generation_of_the_record_and_no_replica_or_stranger_does() {
    let (script, _) = join("until a: fence");
    let record = script.record();
    assert!(clients_of(2, &admitted(&record, "a", "a1")));
    assert!(
        clients_of(1, &admitted(&record, "b", "b7")),
        "an ordinary restart"
    );
    let replica = Identity {
        primary: false,
        ..identity_of("a1")
    };
    assert_eq!(
        admission(&record, &"a".parse().unwrap(), &replica),
        Admission::Nobody(Closed::NotPrimary)
    );
    assert_eq!(
        admitted(&record, "z", "z1"),
        Admission::Nobody(Closed::NotInPool)
    );
}

#[test]
fn a_lost_node_lets_nobody_in_should_it_come_back() {
    let mut book = Book::new("a b");
    book.stage("lose a");
    book.apply();
    assert_eq!(
        admitted(&book.record, "a", "a1"),
        Admission::Nobody(Closed::Lost)
    );
}

#[test]
fn before_a_node_becomes_a_target_its_cleaning_has_stopped_and_its_last_slice_is_answered() {
    let (mut script, orders) = join("until a: clean\n abort");
    assert!(orders.contains(&"a: cancel".to_string()));
    assert!(
        !script.is_waiting("commit that the change goes back"),
        "the slice is still out"
    );
    script.run("until commit that");
    assert!(!script.is_waiting("a: clean"));
}

#[test]
fn copies_of_an_aborted_change_are_purged_after_what_flipped_has_come_back() {
    let (script, _) = join("until a: clean\n abort\n until d': commit flip");
    assert!(!script.is_waiting("b: purge") && !script.is_waiting("b: open"));
}

#[test]
fn a_crash_before_the_handover_sweeps_and_copies_again() {
    let (_, orders) = join("until a: commit handover\n crash\n lead\n until a: list");
    let of_a: Vec<&str> = orders
        .iter()
        .filter_map(|order| order.strip_prefix("a: "))
        .collect();
    let expected = [
        "read the record",
        "commit copying",
        "identify",
        "sweep the targets",
        "track",
        "list and copy",
    ];
    assert!(of_a.ends_with(&expected), "{of_a:?}");
}

#[test]
fn a_crash_in_the_handover_is_rolled_back_by_whoever_leads_next_before_anything_else() {
    let (_, orders) = join("until a: barrier\n crash\n lead");
    assert_eq!(orders, ["a: commit rollback", "b: open sessions at all"]);
}

#[test]
fn a_lost_source_flips_without_a_copy_once_old_copies_of_it_are_swept() {
    let (_, orders) = after("pool a b c\n lose a\n apply\n lead\n until a: commit flip");
    assert!(
        !orders.iter().any(|order| order.contains("list and copy")),
        "{orders:?}"
    );
    assert!(orders.contains(&"a: sweep the targets".to_string()));
}

#[test]
fn a_handover_that_cannot_even_be_begun_is_not_tried_for_ever() {
    // Each time a whole copy lies before it.
    let tries = "until a: prepare\n a: broken target\n a: well\n".repeat(8);
    let (script, orders) = after(&format!("pool a\n add d\n apply\n lead\n {tries}"));
    let stop = "a: stop: 8 handovers failed, the last one because a connection broke";
    assert_eq!(orders.last().map(String::as_str), Some(stop));
    assert!(!script.is_waiting("a: "));
}

#[test]
fn a_large_value_that_stays_dirty_stops_the_change_with_its_name() {
    let (_, orders) = join("until a: list\n a: big user:42\n a: well");
    assert_eq!(
        orders,
        ["a: stop: the large value user:42 was written during each of 3 passes over it"]
    );
}
