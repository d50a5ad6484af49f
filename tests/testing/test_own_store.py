"""The store of the page on stores of one's own keeps the contract, as far as it goes, and is told what it lacks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from alpineagents import Store
from alpineagents.testing import StoreContract
from tests.testing.outcomes import ASYNCIO_ONLY, Outcome, outcomes_of

PAGE = Path(__file__).parents[2] / "docs" / "own-store.md"
NO_LIST = "DictStore does not override list(): it cannot show which States it holds"
NO_LIST_OF_A_NAMESPACE = "DictStore does not override list(): it cannot show which States a namespace holds"
NO_INFO = "DictStore does not override info(): it cannot say which State another was forked from"
NO_BLOBS = "DictStore does not override write_blob(): of a result that is too long for the model, the rest is lost"
NO_TAIL = "DictStore does not override last_context_change(): load(id, tail=True) reads the whole history"
NO_LEASES = "DictStore keeps no leases: two runs of one State both begin"

LACKS = {
    "a_tail_begins_at_the_last_change_of_the_context": NO_TAIL,
    "a_fork_knows_its_parent": NO_INFO,
    "a_copy_knows_its_parent": NO_INFO,
    "a_blob_comes_back": NO_BLOBS,
    "a_blob_is_of_its_state": NO_BLOBS,
    "a_blob_goes_with_its_state": NO_BLOBS,
    "blobs_are_listed": NO_BLOBS,
    "a_fork_has_the_blobs": NO_BLOBS,
    "a_fork_of_a_state_that_runs_is_free": NO_LEASES,
    "the_newest_comes_first": NO_LIST,
    "pages_are_complete_and_do_not_overlap": NO_LIST,
    "a_page_can_begin_behind_an_id": NO_LIST,
    "a_list_can_be_of_one_status": NO_LIST,
    "a_list_says_what_info_says": NO_LIST,
    "a_list_is_of_one_namespace": NO_LIST_OF_A_NAMESPACE,
    "what_waits_is_listed": NO_LIST,
    "a_post_leaves_the_lease_alone": NO_LEASES,
    "a_second_run_is_refused": NO_LEASES,
    "a_second_run_is_refused_before_the_model_is_asked": NO_LEASES,
    "a_stale_second_run_hears_that_the_state_is_busy": NO_LEASES,
    "the_owner_goes_on": NO_LEASES,
    "an_expired_lease_is_taken_over": NO_LEASES,
    "a_lease_is_given_up": NO_LEASES,
    "renew_holds_the_state_for_longer": NO_LEASES,
    "an_append_renews": NO_LEASES,
    "info_says_who_owns_a_state": NO_LEASES,
    "a_claim_that_landed_is_found_again": NO_LEASES,
    "a_renew_of_a_deleted_state_does_not_make_it_again": NO_LEASES,
}
"""What is skipped for a store with the three methods, and the reason."""

NO_NAMESPACES = """
class WithoutNamespaces(DictStore):
    def scoped(self, namespace):
        from alpineagents import StoreFeatureError
        raise StoreFeatureError("WithoutNamespaces", "scoped")

class TestWithoutNamespaces(TestDictStore):
    @pytest.fixture
    async def store(self):
        async with WithoutNamespaces() as store:
            yield store

class TestComplete(TestDictStore):
    complete = True

class TestWithoutStore(StoreContract):
    pass
"""


def blocks() -> list[str]:
    """Return the blocks of the page that are Python, but for the one that runs an Agent."""
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [block for block in found if "await agent.run" not in block and "anyio_backend" not in block]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """How the tests of the page end on asyncio and on trio, in a project without any settings."""
    return outcomes_of("\n\n".join(blocks()), tmp_path_factory.mktemp("own"))


@pytest.mark.parametrize("event_loop", ["asyncio", "trio"])
def test_the_store_of_the_page_keeps_the_contract(event_loop: str, outcomes: dict[str, Outcome]) -> None:
    """But for exactly what the page says, and what only asyncio has."""
    mine = {name: outcome for name, outcome in outcomes.items() if event_loop in name}
    skipped = {
        re.sub(r"^TestDictStore::test_|\[.*\]$", "", name): outcome.words
        for name, outcome in mine.items()
        if outcome.ended == "skipped"
    }
    only_asyncio = {name for name in skipped if "cancelled_anywhere" in name} if event_loop == "trio" else set()

    assert {outcome.ended for outcome in mine.values()} == {"passed", "skipped"}
    assert len({name.partition("[")[0] for name in mine}) == sum(
        name.startswith("test_") for name in dir(StoreContract)
    )
    assert set(skipped) == set(LACKS) | only_asyncio
    for rule, reason in LACKS.items():
        assert reason in skipped[rule]


def test_what_the_page_shows_is_short() -> None:
    """A backend takes less than 80 lines, and its contract five."""
    store, contract = blocks()

    assert len(store.splitlines()) < 80
    assert len(contract.partition("class ")[2].splitlines()) == 5


def test_a_store_may_have_no_namespaces(tmp_path: Path) -> None:
    """If it says so, it is told what that means; a store that was said to be complete fails for what it lacks."""
    names = [
        "TestWithoutNamespaces::test_one_id_in_two_namespaces_is_two_states",
        "TestComplete::test_the_newest_comes_first",
        "TestComplete::test_a_second_run_is_refused",
        "TestWithoutStore::test_a_stale_writer_is_refused",
    ]

    found = outcomes_of("\n\n".join([*blocks(), NO_NAMESPACES]), tmp_path, names, conftest=ASYNCIO_ONLY)

    ends = [found[name] for name in names]
    assert [end.ended for end in ends] == ["skipped", "failed", "failed", "error"]
    assert "WithoutNamespaces has no namespaces" in ends[0].words
    assert "TestComplete says complete = True" in ends[1].words
    assert "TestWithoutStore has no store to test" in ends[3].words


def test_the_page_names_what_is_optional() -> None:
    """The methods that the contract may find lacking are in its table."""
    page = PAGE.read_text(encoding="utf-8")

    for method in ("info", "list", "renew", "last_context_change", "aclose"):
        assert hasattr(Store, method)
        assert f"`{method}`" in page
