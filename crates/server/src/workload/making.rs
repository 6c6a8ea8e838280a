//! Makes the keys before the load begins, so that each has a known first state.

use clockwise_client::resp::Value;

use super::connection::{Broken, Connection, Target};
use super::ledger::{Ledger, Times};
use super::op::{ExpiryCommand, Op, Settled};
use super::options::StartError;

/// Bounded by what a server buffers for a client without complaint.
const KEYS_PER_BATCH: usize = 256;

/// Writes every key once, and returns how the server tells expiries.
pub(super) async fn make_keys(
    ledger: &Ledger,
    target: &Target,
) -> Result<ExpiryCommand, StartError> {
    let connect = |why| StartError::Connect {
        addr: target.addr.clone(),
        why,
    };
    let mut connection = Connection::open(target).await.map_err(connect)?;
    let keys: Vec<usize> = (0..ledger.len()).collect();
    for batch in keys.chunks(KEYS_PER_BATCH) {
        make_batch(batch, ledger, &mut connection)
            .await
            .map_err(|failed| match failed {
                Failed::Broken(why) => connect(why),
                Failed::Refused(why) => StartError::Refused {
                    addr: target.addr.clone(),
                    command: "SET",
                    why,
                },
            })?;
    }
    let probe = ["PEXPIRETIME", &ledger.name(0)];
    Ok(match connection.call(&probe).await.map_err(connect)? {
        Value::Integer(_) => ExpiryCommand::PexpireTime,
        _ => ExpiryCommand::Pttl,
    })
}

enum Failed {
    Broken(Broken),
    Refused(String),
}

impl From<Broken> for Failed {
    fn from(broken: Broken) -> Self {
        Failed::Broken(broken)
    }
}

async fn make_batch(
    batch: &[usize],
    ledger: &Ledger,
    connection: &mut Connection,
) -> Result<(), Failed> {
    let sent_ms = ledger.clock.now_ms();
    let mut ops = Vec::with_capacity(batch.len());
    for key in batch {
        let op = Op::Write(ledger.begin_making(*key));
        connection.queue(|out| op.encode(ledger, ExpiryCommand::Pttl, out));
        ops.push(op);
    }
    let answers = connection.replies(ops.len()).await?;
    let times = Times {
        sent_ms,
        answered_ms: ledger.clock.now_ms(),
    };
    for (op, answer) in ops.into_iter().zip(answers) {
        let line = format!("{answer:?}");
        let settled = op.answered(answer, ledger, ExpiryCommand::Pttl, times)?;
        if let Settled::Refused(_) = settled {
            return Err(Failed::Refused(line));
        }
    }
    Ok(())
}
