//! What there is of stores in etcd where this program was built without them: the sentence that says so.

use std::sync::Arc;

use clockwise_client::credentials::Password;
use clockwise_client::store::{ReadError, Registry, Store};
use clockwise_cluster::PoolName;

use super::super::config::EtcdConfig;
use super::{Holder, StoreError};

/// There is none.
#[derive(Clone, Debug)]
pub(super) enum Handle {}

impl Handle {
    pub(super) fn store(&self) -> Arc<dyn Store> {
        match *self {}
    }

    pub(super) fn registry(&self) -> Arc<dyn Registry> {
        match *self {}
    }

    pub(super) async fn log_in_as(
        &self,
        _name: &str,
        _password: Password,
    ) -> Result<(), ReadError> {
        match *self {}
    }
}

pub(super) fn open(
    _config: &EtcdConfig,
    _pool: &PoolName,
    _password: Option<&Password>,
    _holder: Holder,
) -> Result<Handle, StoreError> {
    Err(StoreError::NoEtcd)
}

pub(super) fn check(_config: &EtcdConfig, _password: Option<&Password>) -> Result<(), StoreError> {
    Err(StoreError::NoEtcd)
}
