//! A store in etcd, from its configuration.

use std::sync::Arc;

use clockwise_client::credentials::{CredentialError, Password};
use clockwise_client::store::{
    EtcdIdentity, EtcdOptions, EtcdStore, EtcdTls, EtcdUser, ReadError, Registry, Store,
};
use clockwise_cluster::PoolName;

use super::super::config::EtcdConfig;
use super::pem::{read_pem, read_private_pem};
use super::{Holder, StoreError};

/// What only a store in etcd can.
#[derive(Clone, Debug)]
pub(super) struct Handle(Arc<EtcdStore>);

impl Handle {
    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0) as _
    }

    pub(super) fn registry(&self) -> Arc<dyn Registry> {
        Arc::clone(&self.0) as _
    }

    pub(super) async fn log_in_as(&self, name: &str, password: Password) -> Result<(), ReadError> {
        let name = name.to_owned();
        self.0.log_in_as(EtcdUser { name, password }).await
    }
}

pub(super) fn open(
    config: &EtcdConfig,
    pool: &PoolName,
    password: Option<&Password>,
    holder: Holder,
) -> Result<Handle, StoreError> {
    let options = EtcdOptions {
        holder: holder.name,
        contact: holder.contact,
        ..options(config, password)?
    };
    Ok(Handle(Arc::new(EtcdStore::open(pool, options)?)))
}

pub(super) fn check(config: &EtcdConfig, password: Option<&Password>) -> Result<(), StoreError> {
    Ok(options(config, password)?.check()?)
}

pub(super) fn options(
    config: &EtcdConfig,
    password: Option<&Password>,
) -> Result<EtcdOptions, StoreError> {
    let pem = |field, read: Result<Vec<u8>, CredentialError>| {
        read.map_err(|error| StoreError::Secret { field, error })
    };
    let tls = match &config.ca_file {
        None => None,
        Some(ca_file) => Some(EtcdTls {
            authorities_pem: pem("store.ca_file", read_pem(ca_file))?,
            identity: match &config.identity {
                None => None,
                Some((cert_file, key_file)) => Some(EtcdIdentity {
                    certificate_pem: pem("store.cert_file", read_pem(cert_file))?,
                    key_pem: pem("store.key_file", read_private_pem(key_file))?,
                }),
            },
        }),
    };
    let user = config.user.as_ref().zip(password);
    let user = user.map(|((name, _), password)| EtcdUser {
        name: name.clone(),
        password: password.clone(),
    });
    Ok(EtcdOptions {
        endpoints: config.endpoints.clone(),
        prefix: config.prefix.clone(),
        tls,
        user,
        lease_ttl: config.lease,
        ..EtcdOptions::default()
    })
}
