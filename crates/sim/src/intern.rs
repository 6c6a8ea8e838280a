//! Numbers in place of values: equal values get the same one, so that states stay small.

use std::collections::HashMap;
use std::rc::Rc;

/// Values, each kept once.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    ids: HashMap<String, u16>,
    items: Vec<Rc<T>>,
}

impl<T> Interner<T> {
    pub(crate) fn new() -> Self {
        Self {
            ids: HashMap::new(),
            items: Vec::new(),
        }
    }

    /// The number of a value that is told from others by `key`.
    pub(crate) fn id(&mut self, key: String, item: T) -> u16 {
        let next = u16::try_from(self.items.len()).expect("a small world has few distinct values");
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.items.push(Rc::new(item));
        }
        id
    }

    pub(crate) fn get(&self, id: u16) -> Rc<T> {
        Rc::clone(&self.items[usize::from(id)])
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}
