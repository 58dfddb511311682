"""Pure: seeded bugs of the broker's side: its session, its replicas, its reports, and forwarding."""

from functools import partial
from typing import Any, Final

from tests.simulation.mutants.mutant import Directed, Mutant, Seeds, always

_FORWARDING_TESTS: Final = "tests/unit/broker_agent/test_forwarding.py"
_HOST_TESTS: Final = "tests/unit/broker_agent/test_dataless_host.py"
_REPLICAS_TESTS: Final = "tests/unit/broker_agent/test_replicas.py"
_REPORTS_TESTS: Final = "tests/unit/broker_agent/test_reports.py"
_AGENT_HOST_TESTS: Final = "tests/unit/broker_agent/test_agent_host.py"


def _starts_with_any_image(_original: Any) -> Any:
    return lambda replicas, _image, _epoch: replicas.phase.value == "CATCHING_UP"


def _forgets_what_the_host_knew(start: Any) -> Any:
    def mutant(replicas: Any, image: Any, held: Any, *, known_offset: int = 0) -> None:
        start(replicas, image, held)
        replicas.strays_withheld = replicas._are_strays_told = False

    return mutant


def _follows_on_a_replaced_image(on_delta: Any) -> Any:
    def mutant(replicas: Any, before: Any, after: Any, delta: Any) -> Any:
        return [] if delta is None else on_delta(replicas, before, after, delta)

    return mutant


def _deletes_last(on_delta: Any) -> Any:
    def mutant(replicas: Any, before: Any, after: Any, delta: Any) -> Any:
        told = on_delta(replicas, before, after, delta)
        return sorted(told, key=lambda one: type(one).__name__ == "Delete")

    return mutant


def _tells_of_elections_alone(on_delta: Any) -> Any:
    def mutant(replicas: Any, before: Any, after: Any, delta: Any) -> Any:
        def is_election(one: Any) -> bool:
            was = before.topics.partition(one[:2])
            return was is None or was.leader_epoch != one.partition.leader_epoch

        told = on_delta(replicas, before, after, delta)
        return [one for one in told if type(one).__name__ != "Lead" or is_election(one)]

    return mutant


def _wants_no_fence(_original: Any) -> Any:
    def mutant(agent: Any, session: Any) -> None:
        session.want_fence = agent._want_fence

    return mutant


def _retries_every_error(isr_reports: Any) -> Any:
    return partial(isr_reports, final_errors=frozenset())


def _counts_from_now(_original: Any) -> Any:
    def on_fetched(session: Any, _now_ms: int, call: Any, _answer: Any) -> None:
        # An answer arrives as late as one may: at the end of the patience it was given.
        session._answered_sent_ms = call.sent_ms + call.silence_max_ms
        session._succeeded()

    return on_fetched


def _serves_what_it_knew(original: Any) -> Any:
    def on_fetched(session: Any, now_ms: int, call: Any, answer: Any) -> None:
        original(session, now_ms, call, answer)
        session._serves_from = 0

    return on_fetched


MUTANTS: Final = (
    Mutant(
        "deletes-the-data",
        "a broker deletes the data of topics that can be restored",
        "metadata_log.image.topics:TopicsImage.known",
        lambda _original: lambda topics, topic_id: topics.by_id.get(topic_id),
        Directed(f"{_REPLICAS_TESTS}::test_a_topic_that_is_deleted_for_a_time_keeps_its_data"),
    ),
    Mutant(
        "rejoins-no-isr",
        "a broker that returns joins no ISR",
        "broker_agent.dataless_host:DatalessHost._wanted",
        always(None),
        Seeds("swarm", 10),
    ),
    Mutant(
        "reports-once",
        "an ISR that a controller refused for now is not reported again",
        "broker_agent.reports:Reports._again",
        always(None),
        Directed(f"{_HOST_TESTS}::test_what_is_refused_for_now_is_reported_again"),
    ),
    Mutant(
        "reports-for-ever",
        "an ISR that a controller refused for good is reported again and again",
        "broker_agent.reports:isr_reports",
        _retries_every_error,
        Directed(f"{_REPORTS_TESTS}::test_any_other_error_is_handed_back_once"),
    ),
    Mutant(
        "strays-of-an-old-image",
        "a host's replicas are compared with an image that may be old",
        "broker_agent.replicas:LocalReplicas.may_start",
        _starts_with_any_image,
        Directed(
            f"{_REPLICAS_TESTS}::test_nothing_is_said_before_the_image_has_caught_up_with_the_registration"
        ),
    ),
    Mutant(
        "strays-of-a-lost-history",
        "an image older than the one a host knew calls replicas strays",
        "broker_agent.replicas:LocalReplicas.start",
        _forgets_what_the_host_knew,
        Directed(f"{_REPLICAS_TESTS}::test_an_image_older_than_what_the_host_knew_calls_nothing_a_stray"),
    ),
    Mutant(
        "follows-a-replaced-image",
        "a host is told of batches on an image that was replaced and has not caught up",
        "broker_agent.replicas:LocalReplicas.on_delta",
        _follows_on_a_replaced_image,
        Directed(f"{_REPLICAS_TESTS}::test_a_replaced_image_deletes_nothing_until_it_has_caught_up"),
    ),
    Mutant(
        "starts-before-it-deletes",
        "a topic of the same name is started before the deleted one is gone",
        "broker_agent.replicas:LocalReplicas.on_delta",
        _deletes_last,
        Directed(
            f"{_REPLICAS_TESTS}::"
            "test_a_deleted_topic_takes_its_replicas_along_before_one_of_its_name_is_started"
        ),
    ),
    Mutant(
        "tells-of-elections-alone",
        "a leader is not told of an ISR that changed without an election",
        "broker_agent.replicas:LocalReplicas.on_delta",
        _tells_of_elections_alone,
        Directed(
            f"{_REPLICAS_TESTS}::test_a_leader_learns_of_each_partition_epoch_and_a_follower_of_its_leader"
        ),
    ),
    Mutant(
        "unfenced-without-its-replicas",
        "a broker asks to be unfenced before its host knows its replicas",
        "broker_agent.agent:BrokerAgent._set_wishes",
        _wants_no_fence,
        Directed(
            f"{_AGENT_HOST_TESTS}::test_a_host_is_told_of_all_its_replicas_before_the_broker_may_be_unfenced"
        ),
    ),
    Mutant(
        "forwards-twice",
        "a broker sends a write without a request id again after its connection broke",
        "broker_agent.forwarding:_is_repeatable",
        always(value=True),
        Directed(f"{_FORWARDING_TESTS}::test_a_write_without_an_id_is_sent_once"),
    ),
    Mutant(
        "forwards-not-written",
        "a broker passes on that nothing was written, though it sent the write twice",
        "broker_agent.forwarding:_says_not_written",
        always(value=False),
        Directed(f"{_FORWARDING_TESTS}::test_once_a_write_may_be_done_no_answer_says_that_it_is_not"),
    ),
    Mutant(
        "session-from-arrival",
        "a broker counts its session from an answer's arrival",
        "broker_agent.session:Session.on_fetched",
        _counts_from_now,
        Directed("tests/unit/broker_agent/test_session.py"),
    ),
    Mutant(
        "serves-what-it-knew",
        "a broker whose session had ended serves before it has read what was written meanwhile, its own fencing too",
        "broker_agent.session:Session.on_fetched",
        _serves_what_it_knew,
        Directed("tests/unit/broker_agent/test_session.py"),
    ),
)
