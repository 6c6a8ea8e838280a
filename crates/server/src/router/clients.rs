//! The clients of one worker, by place.

use super::client::Client;
use super::node_link::Origin;
use super::own_link::OwnLink;

/// Places are used again; whoever keeps one for later keeps the client's serial number with it.
#[derive(Debug, Default)]
pub(super) struct Clients {
    places: Vec<Option<Box<Client>>>,
    free: Vec<usize>,
}

impl Clients {
    /// The place the next client gets.
    pub(super) fn next_place(&self) -> usize {
        self.free.last().copied().unwrap_or(self.places.len())
    }

    pub(super) fn insert(&mut self, client: Client) {
        let client = Some(Box::new(client));
        match self.free.pop() {
            Some(place) => self.places[place] = client,
            None => self.places.push(client),
        }
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Client> {
        let client = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(*client)
    }

    pub(super) fn get(&mut self, place: usize) -> Option<&mut Client> {
        self.places.get_mut(place)?.as_deref_mut()
    }

    /// The connection of its own that a client has, or is about to have.
    pub(super) fn own(&mut self, place: usize) -> Option<&mut OwnLink> {
        self.get(place)?.own.as_deref_mut()
    }

    /// The client of a request, if it is still there.
    pub(super) fn of(&mut self, origin: Origin) -> Option<&mut Client> {
        self.get(origin.client)
            .filter(|client| client.serial == origin.serial)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All places that are taken.
    pub(super) fn taken(&self) -> Vec<usize> {
        (0..self.places.len())
            .filter(|place| self.places[*place].is_some())
            .collect()
    }
}
