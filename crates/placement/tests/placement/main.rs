//! The placement crate from outside, one file a subject.

mod seeded;
mod twin;

mod algorithms;
mod building;
mod changes;
mod exhaustive;
mod field_reports;
mod golden;
mod losses;
mod measures;
mod properties;
mod slots_bad_input;
mod slots_exhaustive;
mod slots_plan;
mod slots_step;
mod values;
