"""The rules that runs are held to: each has a name, says what it sees and what must hold, and is raised somewhere."""

from tests.simulation.rules.catalogue import named_by_violations, rules


def test_every_violation_is_that_of_a_rule_and_every_rule_can_be_broken() -> None:
    known, raised = rules(), named_by_violations()
    assert {name: module for name, module in raised.items() if name not in known} == {}
    assert {name: rule.module for name, rule in known.items() if name not in raised} == {}
    assert len(known) > 100


def test_a_rule_says_what_it_sees_and_what_must_hold() -> None:
    for rule in rules().values():
        assert len(rule.sees) > 20 and len(rule.holds) > 20, rule
    assert rules()["a_live_leader_stays"].sees.startswith("Rules of elections and replication")
