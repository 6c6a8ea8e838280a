//! One embedded node with a client user.

use std::net::{Ipv4Addr, SocketAddr};

use clockwise::driver::{Driver, Generation, NodeAddress, Term};
use clockwise::embedded::{EmbeddedDriver, EmbeddedNodes, EmbeddedOptions};

use crate::client::Client;

pub(crate) const USER: &str = "cw-g1";
pub(crate) const PASSWORD: &str = "open-sesame";

/// Ends with its value.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    _nodes: EmbeddedNodes,
}

impl Node {
    pub(crate) async fn start(options: EmbeddedOptions) -> Self {
        let nodes = EmbeddedNodes::new(options);
        let id = "node".parse().unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = nodes.start(&id, any).await.unwrap();
        let at = NodeAddress {
            id,
            address: address.to_string(),
        };
        let driver = EmbeddedDriver::new(nodes.clone());
        let session = driver.session(&at, Term(1)).await.unwrap();
        session
            .make_client_user(Generation(1), PASSWORD)
            .await
            .unwrap();
        Self {
            address,
            _nodes: nodes,
        }
    }

    /// A client that has logged in.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::connect(self.address);
        assert_eq!(client.ask(&["AUTH", USER, PASSWORD]), "+OK\r\n");
        client
    }
}
