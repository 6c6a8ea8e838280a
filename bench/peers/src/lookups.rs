//! One lookup after the other, of keys of 16 bytes, hash included.
//!
//! Every contestant answers in the form its users get: a reference to the node, or its number where the
//! crate knows numbers only. Rings have 200 points a node.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash};
use std::hint::black_box;

use clockwise_placement::{Maglev, Member, Owners, Placement, RingSpec, Scheme, SlotsSpec};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::figure;
use crate::rounds::{Key, Lookup, time_lookups};

pub const POINTS: u32 = 200;
const ZONES: usize = 5;
const KEYS: u64 = 1 << 17;

/// What a ring of any other crate puts on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VirtualNode {
    pub node: u32,
    pub copy: u32,
}

pub type Xxh3Builder = BuildHasherDefault<Xxh3Default>;

/// Keys of sixteen bytes that live for ever. Of what length they are is not to be known before.
pub fn keys() -> &'static [Key] {
    let bytes = (0..KEYS)
        .flat_map(|n: u64| [n.to_le_bytes(), xxh3_64(&n.to_le_bytes()).to_le_bytes()].concat());
    let bytes: &'static [u8] = Vec::leak(bytes.collect());
    Vec::leak(bytes.chunks(16).collect())
}

pub fn members(count: usize) -> Vec<Member> {
    let member = |n: usize| {
        let member = Member::new(format!("node-{n}").parse().expect("a name"));
        member.with_domain(format!("zone-{}", n % ZONES).parse().expect("a path"))
    };
    (0..count).map(member).collect()
}

pub fn ring(nodes: usize, replicas: u8) -> Placement {
    let spec = RingSpec {
        points_per_weight: POINTS,
        replicas,
        ..RingSpec::new(members(nodes))
    };
    spec.build().expect("a ring")
}

pub fn by(lookup: impl Fn(Key) -> usize + 'static) -> Lookup {
    Box::new(move |keys| {
        keys.iter()
            .fold(0, |sum, &key| sum.wrapping_add(lookup(key)))
    })
}

fn address<T>(node: &T) -> usize {
    std::ptr::from_ref(node) as usize
}

fn owner_of(placement: Placement) -> Lookup {
    by(move |key| address(placement.owner(key)))
}

fn named(name: &str, nodes: usize) -> Lookup {
    match name {
        "xxh3 only" => by(|key| xxh3_64(key) as usize),
        "xxh3 % N" => {
            let divisor = black_box(nodes as u64);
            by(move |key| (xxh3_64(key) % divisor) as usize)
        }
        "ring" => owner_of(ring(nodes, 1)),
        "ring, 3 replicas" => {
            let ring = ring(nodes, 3);
            by(move |key| {
                ring.replicas_at(ring.position(key))
                    .iter()
                    .map(|node| node.get())
                    .sum()
            })
        }
        "slots" => owner_of(
            SlotsSpec::new(members(nodes))
                .plan(None)
                .expect("slots")
                .placement,
        ),
        "maglev" => {
            let size = Maglev::size_for(nodes);
            let maglev = Maglev::new(Scheme::default(), members(nodes), size).expect("a table");
            owner_of(maglev.placement().clone())
        }
        "rendezvous" => {
            let nodes = clockwise_placement::Rendezvous::new(Scheme::default(), members(nodes))
                .expect("nodes");
            by(move |key| nodes.owner_of(key).get())
        }
        "jump" => {
            let nodes =
                clockwise_placement::Jump::new(Scheme::default(), members(nodes)).expect("nodes");
            by(move |key| nodes.owner_of(key).get())
        }
        _ => peer(name, nodes),
    }
}

fn peer(name: &str, nodes: usize) -> Lookup {
    let count = u32::try_from(nodes).expect("few nodes");
    match name {
        "hashring" => {
            let mut ring = hashring::HashRing::<VirtualNode>::new();
            ring.batch_add(virtual_nodes(nodes));
            by(move |key| address(ring.get(&key).expect("a node")))
        }
        "hashring with xxh3" => {
            let mut ring = hashring::HashRing::with_hasher(Xxh3Builder::default());
            ring.batch_add(virtual_nodes(nodes));
            by(move |key| address(ring.get(&key).expect("a node")))
        }
        "pingora-ketama" => {
            let bucket = |n: u32| pingora_ketama::Bucket::new(socket(n), 1);
            let buckets: Vec<_> = (0..count).map(bucket).collect();
            let version = pingora_ketama::Version::V2 {
                point_multiple: POINTS,
            };
            let ring = pingora_ketama::Continuum::new_with_version(&buckets, version);
            by(move |key| usize::from(ring.node(key).expect("a node").port()))
        }
        "consistent_hash" => {
            let node = |n: u32| consistent_hash::Node::new(n).quantity(POINTS as usize);
            let ring = consistent_hash::StaticHashRing::new(
                consistent_hash::DefaultHash,
                (0..count).map(node),
            );
            let ring: &'static _ = Box::leak(Box::new(ring));
            by(move |key| address(ring.calc_candidates(&key).next().expect("a node")))
        }
        "hash-rings" => {
            let names: &'static [u32] = Vec::leak((0..count).collect());
            let mut ring = hash_rings::consistent::Ring::with_hasher(BuildHasherDefault::<
                DefaultHasher,
            >::default());
            names
                .iter()
                .for_each(|name| ring.insert_node(name, POINTS as usize));
            by(move |key| address(ring.get_node(&key)))
        }
        "anchorhash" => {
            let capacity = u16::try_from(nodes + nodes / 10).expect("few nodes");
            let nodes = anchorhash::Builder::default()
                .with_resources(0..count)
                .build::<Key>(capacity);
            by(move |key| address(nodes.get_resource(key).expect("a node")))
        }
        "jumphash" => {
            let jump = jumphash::JumpHasher::new_with_keys(1, 2);
            by(move |key| jump.slot(&key, count) as usize)
        }
        "fliphash" => {
            let last = black_box(u64::from(count) - 1);
            by(move |key| fliphash::fliphash_64(xxh3_64(key), ..=last) as usize)
        }
        "maglev-hash" => {
            let table = maglev_hash::MaglevTable::new((0..count).collect::<Vec<u32>>());
            by(move |key| address(table.get(&key).expect("a node")))
        }
        "rendezvous_hash" => {
            let mut nodes = rendezvous_hash::RendezvousNodes::default();
            let names = (0..count).map(|n| format!("node-{n}"));
            nodes.extend(names.map(rendezvous_hash::IdNode::new));
            by(move |key| address(nodes.calc_candidates(&key).next().expect("a node")))
        }
        "hrw-hash" => {
            let nodes = hrw_hash::HrwNodes::new(0..count);
            by(move |key| address(nodes.sorted(&key).next().expect("a node")))
        }
        other => panic!("nobody is called {other}"),
    }
}

pub fn virtual_nodes(nodes: usize) -> Vec<VirtualNode> {
    let count = u32::try_from(nodes).expect("few nodes");
    let copies = |node| (0..POINTS).map(move |copy| VirtualNode { node, copy });
    (0..count).flat_map(copies).collect()
}

fn socket(n: u32) -> std::net::SocketAddr {
    let [_, b, c, d] = n.to_be_bytes();
    ([10, b, c, d], 6379).into()
}

/// The time of a lookup by every contestant, on its own figure at 10, 100 and 1,000 nodes.
pub fn measure() {
    let ours = [
        "xxh3 only",
        "xxh3 % N",
        "ring",
        "ring, 3 replicas",
        "slots",
        "maglev",
        "rendezvous",
        "jump",
    ];
    let all = [
        "hashring",
        "hashring with xxh3",
        "pingora-ketama",
        "consistent_hash",
        "hash-rings",
        "anchorhash",
        "jumphash",
        "fliphash",
        "maglev-hash",
        "rendezvous_hash",
        "hrw-hash",
    ];
    let keys = keys();
    for nodes in [10, 100, 1000] {
        let names = ours
            .iter()
            .chain(&all)
            .map(|&name| (name.to_owned(), named(name, nodes)));
        let lookups: Vec<(String, Lookup)> = names.collect();
        for ((name, _), ns) in lookups.iter().zip(time_lookups(keys, &lookups)) {
            figure(&format!("lookup {nodes} {name}"), ns);
        }
    }
}

/// So many lookups at 100 nodes, of as many keys at most as there are.
pub fn only(name: &str, count: usize) {
    black_box(named(name, 100)(&keys()[..count]));
}
