//! The nodes of a pool that is being made, from words of the command line or from a file.

use std::path::Path;

use clockwise_cluster::NewNode;
use serde::Deserialize;

use super::super::exit::{Exit, Failure};
use super::read;

/// `ID=HOST:PORT[,weight=W][,domain=PATH]`.
#[derive(Clone, Debug)]
pub(super) struct NodeWord(pub(super) NewNode);

impl std::str::FromStr for NodeWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let (id, address) = first
            .split_once('=')
            .ok_or_else(|| format!("{first:?} is no node; write ID=HOST:PORT"))?;
        let mut node = NewNode::new(
            id.parse().map_err(|error| format!("{id:?}: {error}"))?,
            address
                .parse()
                .map_err(|error| format!("{address:?}: {error}"))?,
        );
        for part in parts {
            match part.split_once('=') {
                Some(("weight", weight)) => {
                    node.weight = weight
                        .parse()
                        .map_err(|error| format!("weight {weight:?}: {error}"))?;
                }
                Some(("domain", domain)) => {
                    node.domain = domain
                        .parse()
                        .map_err(|error| format!("domain {domain:?}: {error}"))?;
                }
                _ => return Err(format!("{part:?} is neither weight=W nor domain=PATH")),
            }
        }
        Ok(Self(node))
    }
}

/// A file of nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodesFile {
    nodes: Vec<NodeText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    id: String,
    address: String,
    weight: Option<serde_json::Value>,
    #[serde(default)]
    domain: String,
}

impl NodeText {
    fn node(&self) -> Result<NewNode, String> {
        let id = &self.id;
        let part =
            |what: &str, error: &dyn std::fmt::Display| format!("node {id:?}: {what}: {error}");
        let mut node = NewNode::new(
            id.parse().map_err(|error| part("id", &error))?,
            self.address
                .parse()
                .map_err(|error| part("address", &error))?,
        );
        let weight = match &self.weight {
            None => None,
            Some(serde_json::Value::String(text)) => Some(text.clone()),
            Some(number) => Some(number.to_string()),
        };
        if let Some(weight) = weight {
            node.weight = weight.parse().map_err(|error| part("weight", &error))?;
        }
        node.domain = self
            .domain
            .parse()
            .map_err(|error| part("domain", &error))?;
        Ok(node)
    }
}

/// The nodes of a file: TOML by its name, else JSON.
pub(super) fn nodes_of(file: &Path) -> Result<Vec<NewNode>, Failure> {
    let fault = |why: String| Failure::new(Exit::Usage, format!("{}: {why}", file.display()));
    let bytes = read(file)?;
    let text = String::from_utf8(bytes).map_err(|_| fault("is no text".to_owned()))?;
    let toml = file
        .extension()
        .is_some_and(|extension| extension == "toml");
    let parsed: NodesFile = match toml {
        true => toml::from_str(&text).map_err(|error| fault(error.to_string()))?,
        false => serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?,
    };
    let nodes = parsed.nodes.iter().map(NodeText::node);
    nodes.collect::<Result<_, _>>().map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_a_word_and_a_wrong_one_says_what_is_wrong() {
        let word: NodeWord = "a=10.0.0.1:6379,weight=2,domain=eu/1".parse().unwrap();
        assert_eq!(word.0.id.as_str(), "a");
        assert_eq!(word.0.weight.hundredths(), 200);
        assert_eq!(word.0.domain.to_string(), "eu/1");
        for (wrong, said) in [
            ("a", "write ID=HOST:PORT"),
            ("a=b", "\"b\""),
            ("=h:1", "\"\""),
            ("a=h:1,weight=x", "weight \"x\""),
            ("a=h:1,w=2", "neither"),
        ] {
            let why = wrong.parse::<NodeWord>().unwrap_err();
            assert!(why.contains(said), "{wrong}: {why}");
        }
    }
}
