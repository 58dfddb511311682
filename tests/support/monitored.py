"""Edge: what Prometheus would alert of, from what real nodes answer: scrapes are given to promtool as series."""

import json
import re
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ops.local.layout import Member
from ops.toolchain import promtool_binary

MONITORING: Final = Path(__file__).resolve().parents[2] / "ops/monitoring"
ALERTS: Final = re.findall(r"alert: (\w+)", (MONITORING / "alerts.yml").read_text(encoding="utf-8"))
STEP_S: Final = 15
BEFORE: Final = 8
"""Steps with the scrape of a cluster that is well, before that of one with a fault."""
AFTER: Final = 28
"""Steps for which a fault lasts: longer than any alert waits."""
_COUNTED: Final = re.compile(r'alertname=\\"(\w+)\\"[^\n]*\n[^\n]*\n *got: \{\} (\S+)')
_SAMPLE: Final = re.compile(r"(\w+)(\{.*\})? (\S+)")
Scrape = Mapping[str, float]
"""Values by series, each with job and instance."""


class Target(NamedTuple):
    job: str
    instance: str
    url: str


def targets(members: Iterable[Member]) -> list[Target]:
    return [Target(f"metaquorum_{each.role}", f"n{each.id}", each.http) for each in members]


def scraped(where: Sequence[Target], tls: ssl.SSLContext | None = None) -> Scrape:
    """Return what all targets say now; of one that does not answer, that it is down."""
    found: dict[str, float] = {}
    for job, instance, url in where:
        own = f'job="{job}", instance="{instance}"'
        try:
            with urllib.request.urlopen(f"{url}/metrics", timeout=20, context=tls) as answer:
                text = answer.read().decode()
        except OSError:
            found[f"up{{{own}}}"] = 0
            continue
        found[f"up{{{own}}}"] = 1
        for line in text.splitlines():
            matched = _SAMPLE.fullmatch(line)
            if matched is None:
                assert line.startswith("#"), line
                continue
            name, labels, value = matched.groups()
            more = "" if labels is None else f", {labels[1:-1]}"
            found[f"{name}{{{own}{more}}}"] = float(value)
    return found


def firing(directory: Path, well: Scrape, faulty: Scrape | None = None) -> set[str]:
    """Return the alerts that fire at any time where all was well for two minutes, and is `faulty` for seven from then on.

    promtool evaluates the rules as they are, at the present time.
    """
    series = []
    for name in sorted({*well, *(faulty or well)}):
        values = [_repeated(well.get(name), BEFORE), _repeated((faulty or well).get(name), AFTER)]
        series.append({"series": name, "values": " ".join(values)})
    end_s = STEP_S * (BEFORE + AFTER)
    fires = {
        name: f'count(count_over_time(ALERTS{{alertname="{name}", alertstate="firing"}}[1h])) or vector(0)'
        for name in ALERTS
    }
    test = {
        "rule_files": [str(MONITORING / "alerts.yml")],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [
            {
                "interval": f"{STEP_S}s",
                "start_timestamp": int(time.time()) - end_s,
                "input_series": series,
                # Each fails and says what it got: -1 is no count.
                "promql_expr_test": [
                    {
                        "expr": expression,
                        "eval_time": f"{end_s}s",
                        "exp_samples": [{"labels": "{}", "value": -1}],
                    }
                    for expression in fires.values()
                ],
            }
        ],
    }
    file = directory / "series.json"
    file.write_text(json.dumps(test))
    ran = subprocess.run(
        [promtool_binary(), "test", "rules", file], capture_output=True, text=True, check=False, timeout=300
    )
    said = ran.stdout + ran.stderr
    got = dict(_COUNTED.findall(said))
    assert got.keys() == set(ALERTS), said
    return {name for name, count in got.items() if count != "0E+00"}


def _repeated(value: float | None, times: int) -> str:
    return f"_x{times - 1}" if value is None else f"{value!r}x{times - 1}"
