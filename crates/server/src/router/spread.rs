//! Requests that concern several nodes, or any one.

use clockwise_client::commands::{Command, Scatter};
use clockwise_client::resp::Request;
use clockwise_client::routing::{Effect, Millis};
use clockwise_cluster::Route;

use super::dispatch::Sending;
use super::gather::{Gather, Merge};
use super::node_link::Origin;
use super::refusal;
use super::scan::Page;
use super::worker::{Turn, Worker};

impl Worker {
    /// Keys of one node go as the request came; otherwise each node gets the part that is its own.
    pub(super) fn scatter(
        &mut self,
        turn: &Turn,
        place: usize,
        scatter: Scatter,
        command: &Command,
        request: &Request<'_>,
    ) {
        let positions = match self.key_positions(command, request) {
            Ok(positions) => positions,
            Err(text) => return self.refuse_now(place, &text),
        };
        // An odd number of arguments is the server's to complain about.
        if scatter == Scatter::Mset && request.count().is_multiple_of(2) {
            return self.refuse_now(place, &refusal::wrong_arity(&command.name));
        }
        let routes: Vec<Route> = positions
            .iter()
            .map(|at| turn.view.route(turn.view.position(request.arg(*at))))
            .collect();
        let together = routes
            .iter()
            .all(|route| !route.hold && route.node == routes[0].node);
        let Some(origin) = self.reserve(place) else {
            return;
        };
        if together {
            return self.dispatch_frame(
                turn,
                Sending::first(origin, command.effect, turn),
                routes[0],
                request.frame(),
            );
        }
        let gather = Gather::over_keys(scatter, request, &positions);
        let keys = (0..gather.key_count() as u32).collect();
        self.begin_gather(origin, gather);
        self.dispatch_keys(turn, Sending::first(origin, command.effect, turn), keys);
    }

    /// Keys that were together may be apart now.
    pub(super) fn scatter_again(
        &mut self,
        turn: &Turn,
        origin: Origin,
        scatter: Scatter,
        command: &Command,
        request: &Request<'_>,
        since: Millis,
    ) {
        match self.key_positions(command, request) {
            Ok(positions) => {
                let gather = Gather::over_keys(scatter, request, &positions);
                let keys = (0..gather.key_count() as u32).collect();
                self.begin_gather(origin, gather);
                self.dispatch_keys(
                    turn,
                    Sending {
                        origin,
                        effect: command.effect,
                        retries: 0,
                        preamble: 0,
                        since,
                    },
                    keys,
                );
            }
            Err(text) => self.fail(turn, origin, &text, false),
        }
    }

    /// From now on the request's answer is put together.
    pub(super) fn begin_gather(&mut self, origin: Origin, gather: Gather) {
        if let Some(client) = self.clients.of(origin) {
            client.replies.gather(origin.sequence, Box::new(gather));
        }
    }

    /// To any one node that is not in trouble.
    pub(super) fn any_node(&mut self, turn: &Turn, place: usize, request: &Request<'_>) {
        let Some(route) = self.any_route(turn) else {
            return self.refuse_now(place, &refusal::no_nodes());
        };
        let Some(origin) = self.reserve(place) else {
            return;
        };
        // Only what is the same everywhere goes to any node, and that changes nothing.
        self.dispatch_frame(
            turn,
            Sending::first(origin, Effect::Read, turn),
            route,
            request.frame(),
        );
    }

    /// The route to a node that owns something and is not in trouble, if there is one.
    pub(super) fn any_route(&mut self, turn: &Turn) -> Option<Route> {
        let owners = self.owners(turn);
        let healthy =
            |index: &usize| owners[*index] && self.traffic.failures(self.traffic.slot(*index)) == 0;
        let index = (0..owners.len())
            .find(healthy)
            .or_else(|| owners.iter().position(|owns| *owns))?;
        let node = turn.view.index_of(&turn.view.nodes()[index].id)?;
        Some(Route { node, hold: false })
    }

    /// To every node that owns keys.
    pub(super) fn every_node(
        &mut self,
        turn: &Turn,
        place: usize,
        merge: Merge,
        request: &Request<'_>,
    ) {
        let owners = self.owners(turn);
        let Some(origin) = self.reserve(place) else {
            return;
        };
        let mut gather = Gather::over_nodes(merge, request);
        let nodes = turn
            .view
            .nodes()
            .iter()
            .zip(owners.iter())
            .filter(|(_, owns)| **owns);
        let parts: Vec<_> = nodes
            .map(|(node, _)| gather.add_node(node.id.clone()))
            .collect();
        self.begin_gather(origin, gather);
        for part in parts {
            let origin = Origin {
                part: Some(part),
                ..origin
            };
            self.dispatch_whole(turn, Sending::first(origin, Effect::Read, turn));
        }
    }

    /// One page of the scan over all nodes.
    pub(super) fn scan(&mut self, turn: &Turn, place: usize, request: &Request<'_>) {
        let Some(page) = Page::at(request.arg(1), turn.view.epoch()) else {
            return self.refuse_now(place, "ERR invalid cursor");
        };
        let owners = self.owners(turn);
        let Some(node) = (page.node..owners.len()).find(|node| owners[*node]) else {
            return self.refuse_now(place, "ERR invalid cursor");
        };
        let Some(origin) = self.reserve(place) else {
            return;
        };
        let mut gather = Gather::over_nodes(Merge::Page(page.on_node(node)), request);
        let part = gather.add_node(turn.view.nodes()[node].id.clone());
        self.begin_gather(origin, gather);
        let origin = Origin {
            part: Some(part),
            ..origin
        };
        self.dispatch_whole(turn, Sending::first(origin, Effect::Read, turn));
    }
}
