//! What routers, and clients as far as it concerns them, do with each command, whatever the server says of it, and why it refuses some.
//!
//! A command is forwarded when its keys say which node it belongs to and nothing else speaks
//! against it. What has no key, reaches beyond its keys, or keeps a connection for itself cannot be
//! forwarded over connections that all clients share. Each refusal names its reason; the connection stays.

/// What to do with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To the node that owns all its keys.
    Forward,
    /// Likewise; with the option `BLOCK` as [`Block`](Self::Block).
    ForwardUnlessBlocking,
    /// Likewise, over a connection of the client's own, since it waits there.
    Block(TimeoutAt),
    /// Likewise: what it begins belongs to one connection.
    Watch,
    /// A script or function, where the pool allows them.
    Script(Script),
    /// Split over the owners of its keys; the replies are put together.
    Scatter(Scatter),
    /// To any one node: the answer is the same everywhere.
    AnyNode,
    /// To every node that owns keys; the numbers are added up.
    SumOverNodes,
    /// Through all nodes, one after the other.
    Scan,
    /// Answered here.
    Local(Local),
    /// Not done.
    Refuse(Reason),
    /// Forwarded or refused by its subcommand.
    Container,
}

/// Which argument of a blocking command says for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutAt {
    /// The last, in seconds.
    End,
    /// The first, in seconds.
    Start,
    /// The one behind `BLOCK`, in milliseconds.
    Block,
}

/// Commands over several keys that mean the same done per node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scatter {
    /// Values in the order of the keys.
    Mget,
    /// Keys and values; all acknowledged.
    Mset,
    /// Keys; the counts are added up.
    Count,
}

/// What scripts and functions are run and managed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// To the node that owns all its keys.
    Keyed,
    /// To every node that owns keys; they all reply the same.
    Load,
    /// Not done even where scripts are allowed.
    Manage,
}

/// Commands answered without a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// `PING [message]`
    Ping,
    /// `ECHO message`
    Echo,
    /// `HELLO [version [AUTH user password] [SETNAME name]]`
    Hello,
    /// `AUTH [user] password`
    Auth,
    /// `SELECT 0`
    Select,
    /// `QUIT`
    Quit,
    /// `RESET`
    Reset,
    /// `CLIENT ID`
    ClientId,
    /// `CLIENT GETNAME`
    ClientGetName,
    /// `CLIENT SETNAME name`
    ClientSetName,
    /// `CLIENT SETINFO attribute value`
    ClientSetInfo,
    /// `CLIENT TRACKING OFF` and the like: what is off may be switched off.
    ClientSwitch,
    /// `CLIENT INFO`, and `CLIENT LIST` of this one client.
    ClientInfo,
    /// `CONFIG GET …`
    ConfigGet,
    /// `INFO`
    Info,
    /// `TIME`
    Time,
    /// `CLUSTER …`, as a server answers that has none.
    Cluster,
    /// `MULTI`
    Multi,
    /// `EXEC`
    Exec,
    /// `DISCARD`
    Discard,
    /// `UNWATCH`
    Unwatch,
    /// `CLOCKWISE ROUTE key`, `CLOCKWISE EPOCH`
    Clockwise,
    /// The first words of an HTTP request: a browser was made to send it. Nothing behind them is
    /// looked at.
    Http,
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It would hold a connection that others need.
    Blocking,
    /// The nodes do not know them.
    NoTransactions,
    /// Its effect would reach all who share a connection.
    SharedConnection,
    /// Messages are not routed by key.
    PubSub,
    /// It lists or ranges over keys, and hashing keeps no order.
    WholeKeySpace,
    /// It removes everything, on one node or on all.
    Flush,
    /// It works on databases other than 0.
    Databases,
    /// It administers a server.
    Admin,
    /// The pool does not allow scripts.
    Scripts,
    /// Scripts must name their keys.
    KeylessScript,
    /// It manages the scripts of one server.
    ScriptsOfOne,
    /// It has no key that says which node.
    Keyless,
    /// The server does not say where its keys are.
    KeysUnknown,
    /// It waits for replicas of one server.
    Replicas,
    /// It cannot be part of a transaction.
    NotInTransaction,
}

impl Reason {
    /// For people; completes "'name' is not available through clockwise: …".
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Blocking => {
                "it would block a connection that other clients share; poll, or connect to the node"
            }
            Self::NoTransactions => "the nodes of this pool know no transactions",
            Self::SharedConnection => "it would change a connection that other clients share",
            Self::PubSub => {
                "messages are not placed by key; subscribe and publish on a server of their own"
            }
            Self::WholeKeySpace => {
                "hashing keeps no order of keys; use SCAN, which goes over all nodes"
            }
            Self::Flush => {
                "it would empty whole nodes; delete keys, or flush each node by its administrator"
            }
            Self::Databases => "only database 0 exists",
            Self::Admin => "it administers one server; connect to the node as its administrator",
            Self::Scripts => "this pool does not allow scripts",
            Self::KeylessScript => "a script must declare the keys it uses, at least one",
            Self::ScriptsOfOne => {
                "it manages the scripts of one server; of these commands only SCRIPT LOAD goes to all"
            }
            Self::Keyless => "it has no key that says which node it belongs to",
            Self::KeysUnknown => "the server does not describe where its keys are",
            Self::Replicas => "it waits for the replicas of one server",
            Self::NotInTransaction => {
                "it concerns the connection or several nodes, and a transaction is one node's"
            }
        }
    }
}

/// What a server says of a command.
pub(super) struct Facts<'a> {
    pub(super) name: &'a str,
    pub(super) flags: &'a [String],
    pub(super) categories: &'a [String],
    pub(super) keyed: bool,
}

/// Commands that need no node's table, with the arguments they take as servers count them (the name
/// included; negative: at least so many): answered here, or refused for a reason of their own. A
/// subcommand follows its command.
pub(super) const WITHOUT_NODES: &[(&str, i64, Action)] = &[
    ("ping", -1, Action::Local(Local::Ping)),
    ("echo", 2, Action::Local(Local::Echo)),
    ("hello", -1, Action::Local(Local::Hello)),
    ("auth", -2, Action::Local(Local::Auth)),
    ("select", 2, Action::Local(Local::Select)),
    ("quit", -1, Action::Local(Local::Quit)),
    ("reset", 1, Action::Local(Local::Reset)),
    ("client", -2, Action::Container),
    ("client|id", 2, Action::Local(Local::ClientId)),
    ("client|getname", 2, Action::Local(Local::ClientGetName)),
    ("client|setname", 3, Action::Local(Local::ClientSetName)),
    ("client|setinfo", 4, Action::Local(Local::ClientSetInfo)),
    ("client|info", 2, Action::Local(Local::ClientInfo)),
    ("client|list", -2, Action::Local(Local::ClientInfo)),
    ("client|reply", 3, Action::Local(Local::ClientSwitch)),
    ("client|tracking", -3, Action::Local(Local::ClientSwitch)),
    (
        "client|trackinginfo",
        2,
        Action::Refuse(Reason::SharedConnection),
    ),
    (
        "client|caching",
        3,
        Action::Refuse(Reason::SharedConnection),
    ),
    (
        "client|getredir",
        2,
        Action::Refuse(Reason::SharedConnection),
    ),
    ("client|no-touch", 3, Action::Local(Local::ClientSwitch)),
    ("client|no-evict", 3, Action::Local(Local::ClientSwitch)),
    (
        "client|unblock",
        -3,
        Action::Refuse(Reason::SharedConnection),
    ),
    ("config", -2, Action::Container),
    ("config|get", -3, Action::Local(Local::ConfigGet)),
    ("info", -1, Action::Local(Local::Info)),
    ("time", 1, Action::Local(Local::Time)),
    ("cluster", -2, Action::Local(Local::Cluster)),
    ("readonly", 1, Action::Local(Local::Cluster)),
    ("readwrite", 1, Action::Local(Local::Cluster)),
    ("asking", 1, Action::Local(Local::Cluster)),
    ("clockwise", -2, Action::Local(Local::Clockwise)),
    ("post", -1, Action::Local(Local::Http)),
    ("host:", -1, Action::Local(Local::Http)),
    ("multi", 1, Action::Local(Local::Multi)),
    ("exec", 1, Action::Local(Local::Exec)),
    ("discard", 1, Action::Local(Local::Discard)),
    ("pubsub", -2, Action::Refuse(Reason::PubSub)),
    ("watch", -2, Action::Watch),
    ("unwatch", 1, Action::Local(Local::Unwatch)),
    ("keys", 2, Action::Refuse(Reason::WholeKeySpace)),
    ("randomkey", 1, Action::Refuse(Reason::WholeKeySpace)),
    ("flushall", -1, Action::Refuse(Reason::Flush)),
    ("flushdb", -1, Action::Refuse(Reason::Flush)),
    ("swapdb", 3, Action::Refuse(Reason::Databases)),
    ("move", 3, Action::Refuse(Reason::Databases)),
    ("wait", 3, Action::Refuse(Reason::Replicas)),
    ("waitaof", 4, Action::Refuse(Reason::Replicas)),
    ("monitor", 1, Action::Refuse(Reason::Admin)),
    ("debug", -2, Action::Refuse(Reason::Admin)),
    ("migrate", -6, Action::Refuse(Reason::Admin)),
    ("restore", -4, Action::Refuse(Reason::Admin)),
    ("restore-asking", -4, Action::Refuse(Reason::Admin)),
];

/// What becomes of a command of which a server says this.
pub(super) fn action(facts: &Facts<'_>) -> Action {
    let flag = |wanted: &str| facts.flags.iter().any(|flag| flag == wanted);
    let category = |wanted: &str| facts.categories.iter().any(|category| category == wanted);
    match facts.name {
        "mget" => return Action::Scatter(Scatter::Mget),
        "mset" => return Action::Scatter(Scatter::Mset),
        "del" | "unlink" | "exists" | "touch" => return Action::Scatter(Scatter::Count),
        "scan" => return Action::Scan,
        "dbsize" => return Action::SumOverNodes,
        "command" => return Action::AnyNode,
        "object" | "memory" | "xgroup" | "xinfo" | "script" | "function" => {
            return Action::Container;
        }
        "script|load" => return Action::Script(Script::Load),
        // Blocking only with an option of theirs, which is looked for in the request.
        "xread" | "xreadgroup" => return Action::ForwardUnlessBlocking,
        "blpop" | "brpop" | "brpoplpush" | "blmove" | "bzpopmin" | "bzpopmax" if facts.keyed => {
            return Action::Block(TimeoutAt::End);
        }
        "blmpop" | "bzmpop" if facts.keyed => return Action::Block(TimeoutAt::Start),
        // Servers count them as dangerous for their cost; what reads further keys is refused.
        "sort" | "sort_ro" => return Action::Forward,
        _ => {}
    }
    if flag("pubsub") || category("@pubsub") {
        return Action::Refuse(Reason::PubSub);
    }
    if flag("blocking") || category("@blocking") {
        return Action::Refuse(Reason::Blocking);
    }
    if flag("admin") || category("@admin") || category("@dangerous") {
        return Action::Refuse(Reason::Admin);
    }
    match (category("@scripting"), facts.keyed) {
        (true, true) => Action::Script(Script::Keyed),
        (true, false) => Action::Script(Script::Manage),
        (false, true) => Action::Forward,
        (false, false) if facts.name.ends_with("|help") => Action::AnyNode,
        (false, false) => Action::Refuse(Reason::Keyless),
    }
}
