"""A contract that cannot fail is worthless: each of its tests fails for a store that breaks its rule, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpineagents.testing import StoreContract
from tests.testing.outcomes import Outcome, outcomes_of

PACKAGE = Path(__file__).with_name("broken")

# The contract of a broken store, a test that must fail for it, and a part of what the author is told.
BREAKS = [
    ("IgnoresExpected", "a_stale_writer_is_refused", "nothing was raised where StateConflictError is due"),
    ("IgnoresExpected", "a_writer_ahead_of_the_store_is_refused", "append() must compare `expected`"),
    ("IgnoresExpected", "exactly_one_of_two_writers_wins", "(let in, refused) are (2, 0)"),
    ("IgnoresExpected", "a_state_made_again_is_another_one", "header.follows"),
    ("IgnoresExpected", "only_its_id_tells_a_second_try_from_a_second_writer", "append_id='a2' is not that of"),
    ("TakesWritersAhead", "a_writer_ahead_of_the_store_is_refused", "where the new revision is due"),
    ("OverwritesNew", "a_new_state_whose_id_is_taken_is_refused", "StateExistsError is due"),
    ("ReturnsCount", "append_returns_the_new_revision", "return expected + len(events)"),
    ("ReturnsCount", "a_post_returns_its_revision", "append() returns the new revision"),
    ("MissingIsEmpty", "what_is_not_there_is_not_found", "read() of an id that the store has not"),
    ("DeletesNothing", "a_deleted_state_is_gone", "delete() must take the State away"),
    ("DeletesNothing", "a_list_says_what_info_says", "list() shows a State that was deleted"),
    ("IgnoresFollows", "a_state_made_again_is_another_one", "append() must compare header.follows"),
    ("FoldsCase", "ids_that_are_alike_are_told_apart", "State"),
    ("ForgetsAppendId", "an_append_done_twice_lands_once", "forgets append_id"),
    ("ForgetsAppendId", "an_append_that_landed_is_found_behind_others", "forgets append_id"),
    ("ForgetsAppendId", "a_lost_acknowledgement_is_settled_by_the_next_save", "forgets append_id"),
    ("ForgetsAppendId", "two_saves_of_one_state_at_once_store_it_once", "forgets append_id"),
    ("ForgetsAppendId", "a_claim_that_landed_is_found_again", "forgets append_id"),
    ("RemembersLittle", "an_append_that_landed_is_found_behind_others", "refused once another stands behind it"),
    ("TakesEqualEventsForTheSame", "only_its_id_tells_a_second_try_from_a_second_writer", "nothing was raised"),
    ("LosesTheLastEvent", "every_earlier_revision_can_be_loaded", "append() must write all Events"),
    ("LosesTheLastEvent", "the_history_comes_back", "append() must write all of them"),
    ("LosesTheLastEvent", "a_run_is_kept_and_goes_on", ""),
    ("LosesTheLastEvent", "a_run_that_died_is_carried_on", "the request that nobody answered is not closed"),
    ("OrdersByTime", "the_order_is_that_of_revisions", "sort by revision alone"),
    ("BeginsOneTooEarly", "a_part_of_the_history_can_be_read", "after < revision <= until"),
    ("BeginsOneTooEarly", "a_watcher_that_comes_back_misses_nothing", "behind revision 2 the watcher got ['two']"),
    ("LosesTheLastEvent", "a_watcher_gets_the_history_and_then_what_comes", ""),
    ("InventsHeaders", "only_what_is_there_can_be_watched", "for a State that is not there"),
    ("InventsHeaders", "a_watcher_hears_that_the_state_was_deleted", "must know nothing of a deleted State"),
    ("ClampsRevisions", "a_revision_that_is_not_there_is_not_found", "StateNotFoundError is due"),
    ("FindsTheFirstChange", "a_tail_begins_at_the_last_change_of_the_context", "(until=5) gave 3"),
    ("FindsLaterChanges", "a_tail_begins_at_the_last_change_of_the_context", "(until=2) gave 5"),
    ("ReadsOnePage", "a_long_history_comes_back", "read() must give all pages"),
    ("LosesNUL", "a_text_comes_back_as_it_was[NUL]", "came back as 'xab'"),
    ("LosesNUL", "a_state_comes_back_at_every_revision", "keep `encode(event, append_id)`"),
    ("MakesFloats", "a_value_comes_back_as_it_was[integers beyond 64 bits]", "9.223372036854776e+18"),
    ("SortsKeys", "a_value_comes_back_as_it_was[the order of keys]", "in another order"),
    ("CutsTimes", "the_history_comes_back", "its time to the microsecond"),
    ("ExistsAlways", "exists_tells_what_is_there", "exists() said True before the first save"),
    ("KeepsTheFirstHeader", "info_says_what_the_fold_says", "keep what header says with each append"),
    ("DropsSummaries", "info_is_right_after_a_post", "after a post info() says"),
    ("TouchesOnRead", "reading_changes_nothing", "load() changed the header"),
    ("ForgetsParents", "a_fork_knows_its_parent", "keep header.parent_id of the first append"),
    ("ForksTheLastHeader", "a_fork_is_what_the_state_was", "of a fork at revision 1 info() says"),
    ("ForksOnePage", "a_fork_of_all_has_the_whole_history", ""),
    ("SharesRows", "a_fork_goes_its_own_way", "copy the rows"),
    ("ForksOverOthers", "a_fork_needs_a_free_id", "must not write over a State"),
    ("ForksWhatThereIs", "a_fork_of_nothing_is_refused", "a revision that the State has not"),
    ("ForksLeases", "a_fork_of_a_state_that_runs_is_free", "StateBusyError"),
    ("ForksOrphans", "a_copy_knows_its_parent", "the parent is (None, None)"),
    ("MakesTextOfBlobs", "a_blob_comes_back", "gives back other bytes"),
    ("SharesBlobs", "a_blob_is_of_its_state", "where there is no such blob"),
    ("LeavesBlobs", "a_blob_goes_with_its_state", "must take the blobs of the State away"),
    ("ListsBlobsOfAll", "blobs_are_listed", "and [] are due"),
    ("ForksNoBlobs", "a_fork_has_the_blobs", "must copy the blobs"),
    ("ListsOldestFirst", "the_newest_comes_first", "newest first"),
    ("PagesByCount", "pages_are_complete_and_do_not_overlap", "not at a count"),
    ("IgnoresIdsInAfter", "a_page_can_begin_behind_an_id", "begins with"),
    ("FiltersAfterTheLimit", "a_list_can_be_of_one_status", "list(status='finished', limit=3) gave"),
    ("ListsLess", "a_list_says_what_info_says", "list() shows"),
    ("SwallowsNamespaces", "one_id_in_two_namespaces_is_two_states", "taken in one namespace is refused in another"),
    ("SwallowsNamespaces", "a_view_does_not_find_what_is_elsewhere", "keep a State under its whole key"),
    ("SwallowsNamespaces", "a_list_is_of_one_namespace", "keep a State under its whole key"),
    ("TrustsKeys", "a_key_of_another_namespace_is_refused", "ConfigError is due"),
    ("IsRacy", "exactly_one_of_two_writers_wins", "with no await between"),
    ("IsRacy", "one_of_many_new_states_with_one_id_is_let_in", "with no await between"),
    ("IsRacy", "two_saves_of_one_state_at_once_store_it_once", "left ['one', 'two', "),
    ("SetsTheWholeHistory", "many_writers_that_try_again_lose_nothing", "of 32: append() must compare"),
    ("SetsTheWholeHistory", "posts_at_once_are_all_kept", "eight posts at once landed at"),
    ("SetsTheWholeHistory", "posts_beside_a_running_save_are_all_kept", "there is ["),
    ("DropsTheInbox", "a_post_returns_its_revision", ""),
    ("DropsTheInbox", "a_post_into_an_open_turn_waits_for_its_end", "must be appended like any other"),
    ("DropsTheInbox", "a_decision_reaches_the_call_that_waits", "after approve() and deny()"),
    ("DropsTheInbox", "a_second_decision_is_refused", "nothing was raised where AlreadyDecidedError is due"),
    ("DropsTheInbox", "what_waits_is_listed", "once 'c1' was decided on"),
    ("DropsTheInbox", "a_request_to_cancel_reaches_the_run", "was cancelled by None"),
    ("DropsTheInbox", "a_message_that_comes_during_a_run_is_taken_in", "what was said is"),
    ("DropsTheInbox", "a_call_waits_for_an_approval", "after the approval the run answered"),
    ("FreesWithoutLease", "a_post_leaves_the_lease_alone", "header.lease=None keeps them"),
    ("FreesWithoutLease", "the_owner_goes_on", "must leave the owner as it is"),
    ("KeepsNoLeases", "a_second_run_is_refused", "StateBusyError is due"),
    ("KeepsNoLeases", "a_second_run_is_refused_before_the_model_is_asked", "a second run began"),
    ("RefusesWithoutRenew", "a_second_run_is_refused", "renew() is not overridden"),
    ("ComparesTheRevisionFirst", "a_stale_second_run_hears_that_the_state_is_busy", "the owner is named"),
    ("NeverEndsLeases", "an_expired_lease_is_taken_over", "the State is still busy"),
    ("NeverGivesUp", "a_lease_is_given_up", "a lease of 0 seconds frees the State"),
    ("RenewsNothing", "renew_holds_the_state_for_longer", "renew() must move the end of the lease"),
    ("RenewsByRenewOnly", "an_append_renews", "must move the end of the lease"),
    ("HidesOwners", "info_says_who_owns_a_state", "has lease_until) = (None, False)"),
    ("LeavesLeases", "a_renew_of_a_deleted_state_does_not_make_it_again", "holds the one made after it"),
    ("TearsAppends", "a_save_that_is_cancelled_anywhere_is_whole", "an append is one transaction"),
    ("TearsAppends", "a_reader_sees_none_or_all_of_an_append", "in one step"),
    ("RaisesWhenCancelled", "a_load_that_is_cancelled_anywhere_leaves_the_store_usable", "not CancelledError"),
    ("LeaksLocks", "a_load_that_is_cancelled_anywhere_leaves_the_store_usable", "the lock was not given back"),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """How these tests end for these stores."""
    names = [f"Test{store}::test_{rule}" for store, rule, _ in BREAKS]
    names += [f"TestForgets::test_{rule}" for store, rule, _ in BREAKS if store == "ForgetsAppendId"]
    return outcomes_of("from broken.contracts import *", tmp_path_factory.mktemp("broken"), names, package=PACKAGE)


@pytest.mark.parametrize("store, rule, words", BREAKS)
def test_a_broken_store_fails(store: str, rule: str, words: str, outcomes: dict[str, Outcome]) -> None:
    """The test of the rule that it breaks fails, and tells the author what to do."""
    outcome = outcomes[f"Test{store}::test_{rule}"]

    assert outcome.ended == "failed"
    assert words in outcome.words


def test_every_rule_can_be_broken() -> None:
    """No test of the contract passes whatever a store does."""
    broken = {f"test_{rule.partition('[')[0]}" for _, rule, _ in BREAKS}

    assert {name for name in dir(StoreContract) if name.startswith("test_")} == broken


def test_what_a_store_lacks_is_told(outcomes: dict[str, Outcome]) -> None:
    """A store that was not said to be complete is not failed for what it does not do at all."""
    told = [outcome for name, outcome in outcomes.items() if name.startswith("TestForgets::")]

    assert {outcome.ended for outcome in told} == {"skipped"}
    assert all("ForgetsAppendId forgets append_id: " in outcome.words for outcome in told)
