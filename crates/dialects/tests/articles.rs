//! Every integer that the articles publish, met exactly.

use clockwise_dialects::article::{article_md5, article_sha256};
use clockwise_placement::{
    Interval, KeyMeasure, Member, Modulo, Owners, Placement, Point, Position, RingSpec, Scheme,
    diff, measure_keys,
};
use serde_json::Value;

/// The published case of this id.
fn case(id: &str) -> Value {
    let file: Value = serde_json::from_str(include_str!("data/articles.json")).expect("sound JSON");
    let cases = file["cases"].as_array().expect("a list of cases");
    cases
        .iter()
        .find(|case| case["id"] == id)
        .cloned()
        .expect("a case of this id")
}

fn number(case: &Value, field: &str) -> u64 {
    case[field].as_u64().expect("an integer")
}

fn members(ids: impl IntoIterator<Item = String>) -> Vec<Member> {
    ids.into_iter()
        .map(|id| Member::new(id.parse().expect("a short name")))
        .collect()
}

fn ring(scheme: Scheme, points: u64, ids: impl IntoIterator<Item = String>) -> Placement {
    let points_per_weight = u32::try_from(points).expect("a number of points");
    let spec = RingSpec {
        scheme,
        points_per_weight,
        ..RingSpec::new(members(ids))
    };
    spec.build().expect("a sound ring")
}

fn caches(nodes: u64) -> impl Iterator<Item = String> {
    (0..nodes).map(|node| format!("cache-{node}"))
}

fn users() -> impl Iterator<Item = String> {
    (0..200_000).map(|user| format!("user:{user}"))
}

#[test]
fn a_join_at_ten_nodes_moves_18005_keys_where_modulo_moves_181488() {
    let (join, modulo) = (case("ring-join"), case("modulo"));
    let at = |nodes| {
        ring(
            article_md5(),
            number(&join, "points_per_node"),
            caches(nodes),
        )
    };
    let (before, after) = (at(number(&modulo, "from")), at(number(&modulo, "to")));
    let moves = measure_keys(&before, Some(&after), users())
        .moves
        .expect("a change");
    assert_eq!(moves.moved, number(&join, "moved"));
    assert_eq!(moves.needless, number(&join, "needless"));
    assert_eq!(moves.modulo_moved, number(&modulo, "moved"));

    let at = |nodes| Modulo::new(article_md5(), members(caches(nodes))).expect("sound nodes");
    let moves = measure_keys(&at(10), Some(&at(11)), users())
        .moves
        .expect("a change");
    assert_eq!(moves.moved, number(&modulo, "moved"));
    assert!(
        moves.needless > 0,
        "modulo moves keys between nodes that stay"
    );
}

#[test]
fn one_ten_and_two_hundred_points_load_ten_nodes_as_published() {
    for id in ["balance-1", "balance-10", "balance-200"] {
        let case = case(id);
        let ring = ring(article_md5(), number(&case, "points_per_node"), caches(10));
        let measure = measure_keys(&ring, None, users());
        let keys = || measure.nodes.iter().map(|node| node.keys);
        assert_eq!(keys().max(), Some(number(&case, "most_loaded_keys")));
        assert_eq!(keys().min(), Some(number(&case, "least_loaded_keys")));
        let printed = format!(
            "{:.2}x / {:.2}x",
            measure.max_over_mean, measure.min_over_mean
        );
        assert_eq!(case["printed"], printed);
    }
}

// 3rd-Eden/node-hashring#23: one library drops the default port from a server's label, another one does not.
#[test]
fn a_label_is_the_name_as_it_stands_also_with_a_port_in_it() {
    for name in ["cache", "cache-11211", "cache.11211", "11211"] {
        let id = name.parse().expect("a short name");
        let md5 = article_md5();
        assert_eq!(
            md5.point(&id, 7),
            md5.position(format!("{name}#7").as_bytes())
        );
        let sha256 = article_sha256();
        assert_eq!(
            sha256.point(&id, 7),
            sha256.position(format!("node:{name}:7").as_bytes())
        );
    }
}

#[test]
fn three_points_own_the_intervals_of_the_article() {
    let case = case("intervals");
    let at = |node: &str| case["points"][node].as_u64().expect("a position");
    let with = |points: &[(&str, u64)]| {
        let ids = points.iter().map(|(node, _)| (*node).to_owned());
        let points = points.iter().enumerate();
        let points = points.map(|(member, &(_, at))| Point {
            position: Position(at),
            member,
        });
        Placement::from_points(Scheme::default(), members(ids), 1, points).expect("a sound ring")
    };
    let (a, b, c) = (("A", at("A")), ("B", at("B")), ("C", at("C")));
    let d = ("D", case["join"]["D"].as_u64().expect("a position"));
    let simple = with(&[a, b, c]);
    let positions = case["positions"].as_array().expect("positions").iter();
    for (position, owner) in positions.zip(case["owners"].as_array().expect("owners")) {
        let position = Position(position.as_u64().expect("a position"));
        assert_eq!(simple.node(simple.owner_at(position)).id.as_str(), owner);
    }
    check_only_change(&simple, &with(&[a, b, c, d]), (20, 35), ("B", "D"));
    check_only_change(&simple, &with(&[a, c]), (20, 50), ("B", "C"));
}

fn check_only_change(
    old: &Placement,
    new: &Placement,
    interval: (u64, u64),
    from_to: (&str, &str),
) {
    let (after, through) = (Position(interval.0), Position(interval.1));
    let diff = diff(old, new).expect("one scheme");
    let changes: Vec<_> = diff.lists().collect();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].interval, Interval { after, through });
    let names = (
        &old.node(changes[0].old[0]).id,
        &new.node(changes[0].new[0]).id,
    );
    assert_eq!((names.0.as_str(), names.1.as_str()), from_to);
}

/// The ring of `join-E` with other nodes, measured against itself.
fn lettered(nodes: &str) -> Placement {
    ring(
        article_sha256(),
        number(&case("join-E"), "copies"),
        nodes.chars().map(String::from),
    )
}

fn measure(before: &dyn Owners, after: &dyn Owners) -> KeyMeasure {
    measure_keys(
        before,
        Some(after),
        (0..20_000).map(|key| format!("key:{key}")),
    )
}

#[test]
fn a_fifth_node_takes_4023_keys_and_all_of_them_go_to_it() {
    let (before, after) = (lettered("ABCD"), lettered("ABCDE"));
    let moves = measure(&before, &after).moves.expect("a change");
    assert_eq!(
        (moves.moved, moves.needless),
        (number(&case("join-E"), "moved"), 0)
    );
    let at_e = measure_keys(&after, None, (0..20_000).map(|key| format!("key:{key}")));
    let at_e = at_e
        .nodes
        .iter()
        .find(|node| node.id.as_str() == "E")
        .expect("E is a node");
    assert_eq!(at_e.keys, moves.moved);
}

#[test]
fn a_leaving_node_gives_away_its_4895_keys_and_nothing_else_moves() {
    let (before, after) = (lettered("ABCD"), lettered("ACD"));
    let measure = measure(&before, &after);
    let moves = measure.moves.expect("a change");
    assert_eq!(
        (moves.moved, moves.needless),
        (number(&case("leave-B"), "moved"), 0)
    );
    assert_eq!(measure.nodes[1].keys, moves.moved, "all that B had");
}

#[test]
fn modulo_of_all_256_bits_moves_16013_keys_from_four_nodes_to_five() {
    let moves = measure(&lettered("ABCD"), &lettered("ABCDE"))
        .moves
        .expect("a change");
    assert_eq!(moves.modulo_moved, number(&case("modulo-4-to-5"), "moved"));
}

#[test]
fn a_hot_key_lives_on_one_node_whatever_the_ring() {
    let case = case("hot-key");
    let key = case["key"].as_str().expect("a key");
    assert_eq!(
        lettered("ABCD").owner(key.as_bytes()).as_str(),
        case["owner"]
    );
}
