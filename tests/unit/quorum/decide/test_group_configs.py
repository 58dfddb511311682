"""Values of settings of groups and of clients' metrics, beyond those in the golden script of Kafka's."""

import pytest

from metadata_log.errors import InvalidConfig, InvalidRequest
from quorum.decide.group_configs import check_client_metrics, check_group_configs


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("P1D", True),
        ("PT36H", True),
        ("P2DT3H4M5.678S", True),
        ("-PT-5M", True),
        ("PT-5M+6H", False),
        ("PT6H-5M", True),
        ("-P1D", False),
        ("P1DT", False),
        ("PT1.S", True),
        ("PT.5S", False),
        ("1D", False),
        ("P\u0661D", False),
        ("P" + "9" * 40 + "D", False),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str, *, is_good: bool) -> None:
    settings = {"share.auto.offset.reset": f"by_duration:{text}"}
    if is_good:
        check_group_configs("g", settings)
    else:
        with pytest.raises(InvalidConfig, match="by_duration:PnDTnHnMn"):
            check_group_configs("g", settings)


@pytest.mark.parametrize(
    "pattern", ["client_id=" + "(" * 2_000, "client_id=a**", "=a", "client_ids=a", "client_id=[b-a]"]
)
def test_patterns_that_are_none_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfig):
        check_client_metrics("s", {"match": pattern})


def test_what_java_leaves_out_behind_the_last_sign_is_no_part_of_a_pattern() -> None:
    check_client_metrics("s", {"match": "client_id=a=="})


def test_names_are_needed() -> None:
    with pytest.raises(InvalidRequest):
        check_group_configs("", {})
    with pytest.raises(InvalidRequest):
        check_client_metrics("", {})
