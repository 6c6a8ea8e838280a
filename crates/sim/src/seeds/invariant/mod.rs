//! What must always hold, one file each, told of everything that happens.
//!
//! They are I1 to I19 of `docs/proof.md`; I19 is a rule of clients that no value would show.
//! Some are not looked at here, since nothing in this simulation could
//! break them: replicas on distinct domains and placement as a pure function are exhaustively tested in
//! `clockwise-placement`, and a pool of class store has one copy; replies that go to their request and the
//! memory of a router's clients depend on bytes and sockets, which the router's own tests have.

mod answers_come_in_time;
mod deleted_stays_deleted;
mod epochs_only_rise;
mod expiry_travels;
mod no_write_lost;
mod nobody_is_needed;
mod one_actor_moves;
mod only_the_owner_answers;
mod only_what_moves_is_touched;
mod queues_are_bounded;
mod runs_are_told_apart;
mod sources_keep_until_durable;
mod stale_never_overtakes;
mod store_away_changes_nothing;
mod throttle_is_kept;
mod writes_take_effect_once;

#[cfg(test)]
mod tests;

use super::fact::Invariant;

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(epochs_only_rise::EpochsOnlyRise::default()),
        Box::new(one_actor_moves::OneActorMoves),
        Box::new(only_what_moves_is_touched::OnlyWhatMovesIsTouched),
        Box::new(sources_keep_until_durable::SourcesKeepUntilDurable),
        Box::new(only_the_owner_answers::OnlyTheOwnerAnswers),
        Box::new(runs_are_told_apart::RunsAreToldApart),
        Box::new(stale_never_overtakes::StaleNeverOvertakes::default()),
        Box::new(deleted_stays_deleted::DeletedStaysDeleted),
        Box::new(expiry_travels::ExpiryTravels),
        Box::new(no_write_lost::NoWriteLost),
        Box::new(writes_take_effect_once::WritesTakeEffectOnce::default()),
        Box::new(answers_come_in_time::AnswersComeInTime),
        Box::new(queues_are_bounded::QueuesAreBounded),
        Box::new(throttle_is_kept::ThrottleIsKept::default()),
        Box::new(store_away_changes_nothing::StoreAwayChangesNothing),
        Box::new(nobody_is_needed::NobodyIsNeeded),
    ]
}
