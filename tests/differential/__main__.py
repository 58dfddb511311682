"""Compare decisions with Kafka's controller: `python -m tests.differential --scripts 300 --seed 1 [--results FILE]`.

Each script has 200 random operations, and a seed of its own: the first one that of the run, each further one the next. Both
controllers answer it, and every error, answer and record is compared, up to the first difference: behind it they are in
different states. A difference is sorted into the listed reasons (`tests/differential/reasons.py`). Exit code 1: one has none
of them; it is printed with the seed of its script. Exit code 6: Kafka's controller cannot be had here.

What was found is kept in FILE, so a run that was ended goes on, as long as the code is the same.
"""

import argparse
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ops.toolchain import ToolMissing
from tests.differential import kafka
from tests.differential.comparison import Difference, difference
from tests.differential.reasons import REASONS, reason_of
from tests.differential.scripts.generator import script
from tests.support.arguments import positive

_ROOT: Final = Path(__file__).resolve().parents[2]
_ROOMS: Final = ("metadata_log", "quorum", "tests/differential", "tests/support")
_AT_ONCE: Final = 25
"""Scripts that one process of Kafka's answers: its start costs as much as some ten of them."""


class Verdict(NamedTuple):
    seed: int
    reason: str | None = None
    """Of the difference; None: there is none, or none that is listed."""
    unlisted: str | None = None


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    seed = random.SystemRandom().randrange(1_000_000) if args.seed is None else args.seed
    has_eligible = {None: None, "on": True, "off": False}[args.eligible_leader_replicas]
    try:
        controller = kafka.built()
        verdicts = _known(args.results, has_eligible)
        seeds = range(seed, seed + args.scripts)
        open_ = [each for each in seeds if each not in verdicts]
        print(f"{args.scripts} scripts from seed {seed} on, {len(open_)} of them to be run", flush=True)
        chunks = [open_[at : at + _AT_ONCE] for at in range(0, len(open_), _AT_ONCE)]
        compare = partial(compared, controller, has_eligible)
        with ProcessPoolExecutor(args.jobs) as pool:
            for some in pool.map(compare, chunks):
                verdicts |= {verdict.seed: verdict for verdict in some}
                _keep(args.results, some)
                for verdict in some:
                    if verdict.unlisted is not None:
                        print(verdict.unlisted, flush=True)
    except ToolMissing as missing:
        print(missing, file=sys.stderr)
        return 6
    found = [verdicts[each] for each in seeds]
    print(summary(found))
    return any(verdict.unlisted is not None for verdict in found)


def compared(controller: Path, has_eligible: bool | None, seeds: Sequence[int]) -> list[Verdict]:
    """Run the scripts of these seeds on both sides.

    Raises:
        ToolMissing: Kafka's controller ended before its last answer.
    """
    scripts = [script(seed, has_eligible=has_eligible) for seed in seeds]
    answers = kafka.answers(controller, _separated(scripts))
    verdicts = []
    for seed, lines in zip(seeds, scripts, strict=True):
        verdicts.append(_verdict(seed, difference(lines, list(islice(answers, len(lines))))))
        next(answers, None)  # that of Reset
    return verdicts


def _separated(scripts: Sequence[Sequence[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    for number, lines in enumerate(scripts):
        if number:
            yield {"op": "Reset"}
        yield from lines


def _verdict(seed: int, found: Difference | None) -> Verdict:
    if found is None:
        return Verdict(seed)
    reason = reason_of(found)
    return Verdict(seed, unlisted=shown(seed, found)) if reason is None else Verdict(seed, reason.name)


def shown(seed: int, found: Difference) -> str:
    """Return a difference as a text: its line, and what of the answers is not the same."""
    lines = [f"unlisted: seed {seed}, line {found.number}: {json.dumps(found.line)}", *found.faults]
    for name in sorted({*found.kafka, *found.ours}):
        kafkas, ours = (
            [json.dumps(each, sort_keys=True) for each in _items(answer.get(name))]
            for answer in (found.kafka, found.ours)
        )
        lines += [f"  {name}, Kafka alone: {each}" for each in kafkas if each not in ours]
        lines += [f"  {name}, ours alone:  {each}" for each in ours if each not in kafkas]
        if kafkas != ours and sorted(kafkas) == sorted(ours):
            lines.append(f"  {name}: in another order, or in other batches")
    return "\n".join(lines)


def _items(value: Any) -> list[Any]:
    """Return the records of batches, the items of a list, or the value itself."""
    if not isinstance(value, list):
        return [value]
    return [item for each in value for item in (each if isinstance(each, list) else [each])]


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the totals for each reason."""
    times = Counter(verdict.reason for verdict in verdicts)
    unlisted = [verdict.seed for verdict in verdicts if verdict.unlisted is not None]
    rows = [f"{times[None] - len(unlisted):6} the same to the end"]
    rows += [f"{times[reason.name]:6} {reason.name}: {reason.text}" for reason in REASONS]
    rows.append(
        f"{len(unlisted):6} unlisted" + (f": seeds {', '.join(map(str, unlisted))}" if unlisted else "")
    )
    return "\n".join(rows)


# --- what was found before


def _known(path: Path | None, has_eligible: bool | None) -> dict[int, Verdict]:
    """Return what the file holds; begin it where it is missing, or of other code or another choice."""
    if path is None:
        return {}
    head = json.dumps({"code": _fingerprint(), "has_eligible": has_eligible})
    lines = path.read_text().splitlines() if path.exists() else []
    if lines[:1] != [head]:
        path.write_text(head + "\n")
        return {}
    return {verdict.seed: verdict for line in lines[1:] for verdict in [Verdict(*json.loads(line))]}


def _keep(path: Path | None, verdicts: Sequence[Verdict]) -> None:
    if path is not None:
        with path.open("a") as out:
            out.writelines(json.dumps(verdict) + "\n" for verdict in verdicts)


def _fingerprint() -> str:
    sources = sorted(file for room in _ROOMS for file in (_ROOT / room).rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", type=positive, default=300)
    parser.add_argument(
        "--seed", type=int, help="of the first script; drawn and printed where it is left out"
    )
    parser.add_argument(
        "--eligible-leader-replicas",
        choices=("on", "off"),
        help="in all scripts; left out, they are on in half of them",
    )
    parser.add_argument(
        "--jobs", type=positive, default=1, help="processes, each with one of Kafka's beside it"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="go on with what it holds")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
