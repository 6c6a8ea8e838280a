//! Measures clockwise-placement beside the crates that do the same: figures only, `bench/placement` judges.
//!
//! `peers` prints one figure a line, `name<TAB>value`. Times are CPU times of this thread, each the median of
//! many short rounds in which all contestants take turns, so that what else the machine does meets all alike.
//! `peers PART` prints those of one part only: lookups, memory, builds, joins, large-rings or plans.
//! `peers lookups NAME COUNT` does so many lookups and nothing else, for callgrind to count.

mod lookups;
mod memory;
mod rounds;
mod structures;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            for part in [
                "lookups",
                "memory",
                "builds",
                "joins",
                "large-rings",
                "plans",
            ] {
                measure(part);
            }
        }
        [part] if measure(part) => {}
        ["lookups", name, count] => {
            lookups::only(name, count.parse().expect("a number of lookups"))
        }
        _ => panic!("usage: peers [PART | lookups NAME COUNT]"),
    }
}

/// Measures one part; whether there is such a part.
fn measure(part: &str) -> bool {
    match part {
        "lookups" => lookups::measure(),
        "memory" => memory::measure(),
        "builds" => structures::builds(),
        "joins" => structures::joins(),
        "large-rings" => structures::large_rings(),
        "plans" => structures::plans(),
        _ => return false,
    }
    true
}

/// Prints a figure for the script.
fn figure(name: &str, value: f64) {
    println!("{name}\t{value}");
}
