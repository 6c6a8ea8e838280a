//! The messages of etcd's API that the store uses, as far as it uses them.
//!
//! Field numbers are those of `rpc.proto`, `kv.proto` and `auth.proto` of etcd 3.4; later versions
//! only add to them, and protobuf skips what it does not know. Writing the few messages down spares
//! everybody who builds this the protobuf compiler.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    /// The store's revision when the request was applied.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: Bytes,
    /// The lease that the key ends with; zero without one.
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum EventType {
    Put = 0,
    Delete = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum SortOrder {
    Unsorted = 0,
    Ascending = 1,
    Descending = 2,
}

/// Linearizable, because the field `serializable` is left out.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// As the keys were then; the newest without.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    /// By key, the default target.
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub(super) sort_order: i32,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// There are keys of the range behind these, over the limit.
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
    /// How many keys the range has in all.
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
}

/// What a put or a delete answers does not matter here, only that it happened.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Done {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2")]
    pub(super) response: Option<Response>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(Done),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
    Value = 3,
}

/// Equality, because the field `result` is left out.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    #[prost(oneof = "Compared", tags = "5, 6, 7")]
    pub(super) compared: Option<Compared>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Compared {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    /// Answers larger than etcd's own limit of a request come in parts.
    #[prost(bool, tag = "8")]
    pub(super) fragment: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    /// Above zero if the watch was cancelled because what it asked for is compacted.
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl_s: i64,
}

/// Answers a grant and a renewal alike.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    /// What the server decided. Zero: the lease has ended.
    #[prost(int64, tag = "3")]
    pub(super) ttl_s: i64,
}

/// Asks for a renewal or an end alike.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

/// A request that says nothing: who you are, who is with you, which alarms there are.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

/// How one member is.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(int64, tag = "3")]
    pub(super) disk_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Member {
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) client_urls: Vec<String>,
    /// It copies and does not vote.
    #[prost(bool, tag = "5")]
    pub(super) learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<Member>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum AlarmKind {
    None = 0,
    NoSpace = 1,
    Corrupt = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmMember {
    #[prost(enumeration = "AlarmKind", tag = "2")]
    pub(super) alarm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) alarms: Vec<AlarmMember>,
}

/// Not `Debug` by derive: it holds a password.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

impl std::fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticateRequest")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticateResponse")
            .finish_non_exhaustive()
    }
}

impl RangeRequest {
    /// One key and its value.
    pub(super) fn one(key: Bytes) -> RangeRequest {
        RangeRequest {
            key,
            ..RangeRequest::default()
        }
    }

    /// Every key that begins with `prefix`.
    pub(super) fn under(prefix: Bytes) -> RangeRequest {
        RangeRequest {
            range_end: after_prefix(&prefix),
            key: prefix,
            ..RangeRequest::default()
        }
    }
}

impl Compare {
    pub(super) fn absent(key: Bytes) -> Compare {
        Compare::new(key, CompareTarget::Create, Compared::CreateRevision(0))
    }

    pub(super) fn mod_revision(key: Bytes, revision: i64) -> Compare {
        Compare::new(key, CompareTarget::Mod, Compared::ModRevision(revision))
    }

    pub(super) fn value(key: Bytes, value: Bytes) -> Compare {
        Compare::new(key, CompareTarget::Value, Compared::Value(value))
    }

    fn new(key: Bytes, target: CompareTarget, compared: Compared) -> Compare {
        Compare {
            target: target.into(),
            key,
            compared: Some(compared),
        }
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(range: RangeRequest) -> RequestOp {
        RequestOp {
            request: Some(Request::Range(range)),
        }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(put: PutRequest) -> RequestOp {
        RequestOp {
            request: Some(Request::Put(put)),
        }
    }
}

impl TxnResponse {
    pub(super) fn revision(&self) -> i64 {
        revision(self.header.as_ref())
    }

    /// The first key that each range of the branch taken found.
    pub(super) fn found(self) -> impl Iterator<Item = Option<KeyValue>> {
        self.responses.into_iter().map(|op| match op.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            Some(Response::Put(_)) | None => None,
        })
    }
}

impl RangeResponse {
    pub(super) fn revision(&self) -> i64 {
        revision(self.header.as_ref())
    }
}

/// Zero where etcd says nothing, below every revision it has.
pub(super) fn revision(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// The first key after all that begin with `prefix`, which ends in a slash and so can be counted up.
fn after_prefix(prefix: &Bytes) -> Bytes {
    assert!(prefix.ends_with(b"/"), "a prefix of ours ends in a slash");
    let mut end = prefix.to_vec();
    end.pop();
    end.push(b'/' + 1);
    end.into()
}
