//! Who may do what: client users by generation, and the terms that lead.
//!
//! There is no other user. Each login is bound to the very user that admitted it, not to its name:
//! when a user is removed and one of the same name made later, what was admitted by the first stays out.

use std::collections::BTreeMap;

use crate::driver::{Generation, Term};

/// That a connection was admitted, and by which user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) generation: Generation,
    serial: u64,
}

/// That a term has entered; its later entry, and any higher term's, ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The term.
    pub term: Term,
    serial: u64,
}

#[derive(Debug)]
struct User {
    password: String,
    serial: u64,
}

/// Users and terms of a node.
#[derive(Debug, Default)]
pub(super) struct Access {
    users: BTreeMap<Generation, User>,
    terms: BTreeMap<Term, u64>,
    made: u64,
}

impl Access {
    pub(super) fn highest_term(&self) -> Option<Term> {
        self.terms.last_key_value().map(|(term, _)| *term)
    }

    /// Enters as a term. Lower terms, and an earlier entry of the same, are out.
    pub(super) fn enter(&mut self, term: Term) -> Pass {
        self.terms.retain(|other, _| *other > term);
        let serial = self.serial();
        self.terms.insert(term, serial);
        Pass { term, serial }
    }

    pub(super) fn is_in(&self, pass: Pass) -> bool {
        self.terms.get(&pass.term) == Some(&pass.serial)
    }

    /// Makes a client user from nothing: an earlier one of the generation is gone.
    pub(super) fn make(&mut self, generation: Generation, password: &str) {
        let serial = self.serial();
        self.users.insert(
            generation,
            User {
                password: password.to_owned(),
                serial,
            },
        );
    }

    pub(super) fn retain(&mut self, stays: impl Fn(Generation) -> bool) {
        self.users.retain(|generation, _| stays(*generation));
    }

    pub(super) fn generations(&self) -> Vec<Generation> {
        self.users.keys().copied().collect()
    }

    pub(super) fn admit(&self, user: &[u8], password: &[u8]) -> Option<Admission> {
        let name = std::str::from_utf8(user).ok()?.strip_prefix("cw-g")?;
        let generation: u64 = name.parse().ok()?;
        let found = self.users.get(&Generation(generation))?;
        let right = generation.to_string() == name && same(found.password.as_bytes(), password);
        right.then_some(Admission {
            generation: Generation(generation),
            serial: found.serial,
        })
    }

    pub(super) fn is_admitted(&self, admission: Admission) -> bool {
        self.users
            .get(&admission.generation)
            .is_some_and(|user| user.serial == admission.serial)
    }

    fn serial(&mut self) -> u64 {
        self.made += 1;
        self.made
    }
}

/// Compares without telling by the time it takes where the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .fold(0, |differences, (a, b)| differences | (a ^ b))
            == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_ends_with_the_user_that_admitted_it_and_not_with_its_name() {
        let mut access = Access::default();
        access.make(Generation(3), "secret");
        let first = access.admit(b"cw-g3", b"secret").unwrap();
        assert!(access.is_admitted(first));
        for (user, password) in [
            ("cw-g3", "Secret"),
            ("cw-g3", ""),
            ("cw-g03", "secret"),
            ("cw-g4", "secret"),
            ("default", "secret"),
        ] {
            assert!(
                access.admit(user.as_bytes(), password.as_bytes()).is_none(),
                "{user} {password}"
            );
        }
        access.make(Generation(3), "secret");
        assert!(!access.is_admitted(first));
        let second = access.admit(b"cw-g3", b"secret").unwrap();
        access.retain(|generation| generation >= Generation(4));
        assert!(!access.is_admitted(second) && access.generations().is_empty());
    }

    #[test]
    fn a_term_is_ended_by_higher_ones_and_by_itself_again() {
        let mut access = Access::default();
        let four = access.enter(Term(4));
        let five = access.enter(Term(5));
        assert!(!access.is_in(four) && access.is_in(five));
        let late = access.enter(Term(3));
        assert!(access.is_in(five) && access.is_in(late));
        let again = access.enter(Term(5));
        assert!(!access.is_in(five) && !access.is_in(late) && access.is_in(again));
    }
}
