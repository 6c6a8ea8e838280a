//! What is said over one connection, where a server does what none should.

use clockwise_client::resp::Protocol;
use clockwise_client::routing::{Conversation, ConversationLimits, Greeting, Login};

const LIMITS: ConversationLimits = ConversationLimits {
    reply_bytes_max: 1 << 20,
    answers_bytes_max: 1 << 20,
    reply_ms_max: 1_000,
    answer_ms_max: 1_000,
};

/// Facts that come before they were asked for, or before the question has left, are no answer to it.
#[test]
fn a_server_that_speaks_before_it_is_asked_is_refused() {
    const FACTS: &[u8] = b"%1\r\n+proto\r\n:3\r\n";
    let begin = || Conversation::<u64>::new(Greeting::Hello(Protocol::Resp3, None), LIMITS);
    let hello = begin().unsent().len();
    for sent in 0..=hello {
        let mut said = begin();
        said.mark_sent(sent);
        let (login, _) = said.log_in(FACTS);
        if sent == hello {
            assert_eq!((login, said.is_open()), (Login::Done, true));
        } else {
            let early = Login::Refused("it spoke before it was asked".to_owned());
            assert_eq!((login, said.is_open()), (early, false), "{sent} bytes sent");
        }
    }
}
