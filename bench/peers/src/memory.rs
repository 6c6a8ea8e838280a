//! Bytes that a ring holds, everything included, and allocations that a lookup makes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use clockwise_placement::Placement;

use crate::figure;
use crate::lookups::{POINTS, keys, ring};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MADE: AtomicUsize = AtomicUsize::new(0);

/// Counts for one thread: a peer that allocates must not pay for an atomic addition.
fn add(counter: &AtomicUsize, amount: usize) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(&HELD, layout.size());
        add(&MADE, 1);
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(&HELD, layout.size().wrapping_neg());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub fn measure() {
    for replicas in [1, 3] {
        let before = HELD.load(Relaxed);
        let ring = ring(1000, replicas);
        let held = HELD.load(Relaxed) - before;
        figure(
            &format!("bytes a point, {replicas} replicas"),
            held as f64 / (1000 * POINTS) as f64,
        );
        figure(
            &format!("allocations, {replicas} replicas"),
            allocations(&ring) as f64,
        );
    }
}

/// Allocations over every kind of lookup of many keys.
fn allocations(ring: &Placement) -> usize {
    let keys = keys();
    let mut owners = vec![ring.owner_at(ring.position(b"")); 64];
    let mut positions = Vec::with_capacity(owners.len());
    let before = MADE.load(Relaxed);
    for chunk in keys.chunks_exact(owners.len()) {
        positions.clear();
        for key in chunk {
            let position = ring.position(key);
            positions.push(position);
            black_box(ring.owner(key));
            black_box(ring.replicas(key).count());
            black_box(ring.replicas_at(position));
            black_box(ring.interval_at(position));
            black_box(ring.shortfall_at(position));
            black_box(ring.preference(position).nth(5));
        }
        ring.owners_at(&positions, &mut owners);
        black_box(&owners);
    }
    MADE.load(Relaxed) - before
}
