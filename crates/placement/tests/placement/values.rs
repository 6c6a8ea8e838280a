//! Names, weights, domains, positions and hashes: what is read, what is refused, what never changes.

use clockwise_placement::{
    Domain, DomainError, Fingerprint, HexError, Interval, KeyHash, Member, NameFault, NodeId,
    NodeIdError, Position, RingSpec, Scheme, Weight, WeightError,
};

#[test]
fn a_weight_is_a_decimal_with_at_most_two_places() {
    for (text, hundredths) in [
        ("1", 100),
        ("0.5", 50),
        ("0.05", 5),
        ("12.34", 1234),
        ("0", 0),
        ("42949672.95", u32::MAX),
    ] {
        assert_eq!(text.parse(), Ok(Weight::from_hundredths(hundredths)));
        assert_eq!(Weight::from_hundredths(hundredths).to_string(), text);
    }
    assert_eq!("1.50".parse(), Ok(Weight::from_hundredths(150)));
}

// data-accelerator/dart#13: NaN slipped past `w <= 0`, and ranks then depended on the order of input.
#[test]
fn a_weight_is_never_nan_infinite_negative_or_without_digits() {
    for text in [
        "NaN", "nan", "inf", "-inf", "infinity", "-0", "-1", "+1", "1e3", "1e-308", "", ".", "1.",
        ".5", " 1", "１",
    ] {
        assert_eq!(
            text.parse::<Weight>(),
            Err(WeightError::NotDecimal),
            "{text:?}"
        );
    }
    assert_eq!("1.005".parse::<Weight>(), Err(WeightError::TooFine));
    for text in ["42949672.96", "4294967296", "100000000000000000000"] {
        assert_eq!(
            text.parse::<Weight>(),
            Err(WeightError::TooLarge),
            "{text:?}"
        );
    }
}

#[test]
fn a_node_id_is_a_plain_name_of_at_most_64_bytes() {
    for text in ["a", "cache-0", "10.0.0.1", "A_b.C-9", &"x".repeat(64)] {
        assert_eq!(
            text.parse::<NodeId>().map(|id| id.to_string()),
            Ok(text.to_owned())
        );
    }
    let refused = |text: &str| text.parse::<NodeId>().expect_err("no name").fault;
    assert_eq!(refused(""), NameFault::Empty);
    assert_eq!(refused(&"x".repeat(65)), NameFault::TooLong { bytes: 65 });
    // iqiyi/dpvs#593: two IPv6 addresses became one node; an address is no name here.
    assert_eq!(
        refused("[2001:db8::1]:6379"),
        NameFault::Character { found: '[' }
    );
    assert_eq!(refused("naïve"), NameFault::Character { found: 'ï' });
    assert_eq!(refused("a b"), NameFault::Character { found: ' ' });
    assert_eq!(refused("a\n"), NameFault::Character { found: '\n' });
    let error = NodeIdError {
        fault: NameFault::Empty,
    };
    assert_eq!(error.to_string(), "node id is empty");
}

#[test]
fn a_domain_has_none_to_four_levels() {
    for (text, depth) in [
        ("", 0),
        ("eu", 1),
        ("eu/1a", 2),
        ("eu/1a/r7", 3),
        ("eu/1a/r7/h-3", 4),
    ] {
        let domain: Domain = text.parse().expect("a path");
        assert_eq!((domain.depth(), domain.to_string().as_str()), (depth, text));
    }
    let refused = |text: &str| text.parse::<Domain>().expect_err("no path");
    assert_eq!(refused("a/b/c/d/e"), DomainError::TooDeep { depth: 5 });
    for (text, level) in [("/", 0), ("a/", 1), ("/a", 0), ("a//b", 1)] {
        assert_eq!(
            refused(text),
            DomainError::Component {
                level,
                fault: NameFault::Empty
            }
        );
    }
}

#[test]
fn positions_and_fingerprints_are_hexadecimal() {
    assert_eq!(Position::MAX.to_string(), "ffffffffffffffff");
    assert_eq!("00000000000000FF".parse(), Ok(Position(255)));
    assert_eq!(
        "4c13c8298ee32669".parse(),
        Ok(Fingerprint(0x4c13_c829_8ee3_2669))
    );
    for text in ["", "+1", "-1", "g", "00000000000000000", "0x1", " 1"] {
        assert_eq!(text.parse::<Position>(), Err(HexError), "{text:?}");
    }
}

#[test]
fn an_interval_is_after_one_position_through_another_and_never_empty() {
    let interval = |after, through| Interval {
        after: Position(after),
        through: Position(through),
    };
    let held = |interval: Interval, positions: &[u64]| {
        let holds = |&position: &u64| interval.contains(Position(position));
        positions.iter().copied().filter(holds).collect::<Vec<_>>()
    };
    let edges = [0, 19, 20, 21, 49, 50, 51, u64::MAX];
    assert_eq!(held(interval(20, 50), &edges), [21, 49, 50]);
    assert_eq!(held(interval(50, 20), &edges), [0, 19, 20, 51, u64::MAX]);
    assert_eq!(held(interval(u64::MAX, 0), &edges), [0]);
    assert_eq!(held(interval(7, 7), &edges), edges);
    let lengths = [
        interval(20, 50),
        interval(50, 20),
        interval(u64::MAX, 0),
        interval(7, 7),
    ];
    assert_eq!(
        lengths.map(|interval| interval.len()),
        [30, (1 << 64) - 30, 1, 1 << 64]
    );
    assert_eq!(interval(0, 1 << 63).share(), 0.5);
    assert_eq!(
        interval(20, 50).to_string(),
        "(0000000000000014, 0000000000000032]"
    );
}

#[test]
fn keys_are_hashed_as_the_published_functions_hash_them() {
    let xxh3 = Scheme::v1(KeyHash::Xxh3 { seed: 0 });
    assert_eq!(xxh3.position(b"").to_string(), "2d06800538d394c2");
    // The SipHash-1-3 of the reference implementation's key 00..0f, of no bytes and of 00..07.
    let key = core::array::from_fn(|at| at as u8);
    let sip = Scheme::v1(KeyHash::SipHash13 { key });
    assert_eq!(
        sip.position(b"").0.to_le_bytes(),
        [0xdc, 0xc4, 0x0f, 0x05, 0x58, 0x01, 0xac, 0xab]
    );
    let bytes = [0, 1, 2, 3, 4, 5, 6, 7];
    assert_eq!(
        sip.position(&bytes).0.to_le_bytes(),
        [0x8e, 0x9a, 0x29, 0x8d, 0x11, 0x95, 0x90, 0x36]
    );
}

#[test]
fn a_secret_hash_key_is_not_printed() {
    let scheme = Scheme::v1(KeyHash::SipHash13 { key: [0xAB; 16] });
    let ring = RingSpec {
        scheme: scheme.clone(),
        ..RingSpec::new(members(["a"]))
    };
    for text in [
        format!("{scheme:?}"),
        format!("{ring:?}"),
        format!("{:?}", ring.clone().build()),
    ] {
        assert!(
            !text.contains("171") && !text.to_lowercase().contains("ab, "),
            "{text}"
        );
    }
}

// Labels that join a name and a number collide: node 1 with point 12, and node 11 with point 2.
#[test]
fn points_of_nodes_whose_names_and_numbers_concatenate_alike_differ() {
    let scheme = Scheme::default();
    let id = |name: &str| name.parse::<NodeId>().expect("a short name");
    let mut points: Vec<Position> = Vec::new();
    for name in ["1", "11", "111", "1-1", "a", "a0", "a00"] {
        points.extend((0..2000).map(|copy| scheme.point(&id(name), copy)));
    }
    let count = points.len();
    points.sort_unstable();
    points.dedup();
    assert_eq!(points.len(), count);
}

fn members<const N: usize>(ids: [&str; N]) -> [Member; N] {
    ids.map(|id| Member::new(id.parse().expect("a short name")))
}
