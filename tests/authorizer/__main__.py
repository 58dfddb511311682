"""Ask Kafka's authorizer and ours the same: `python -m tests.authorizer --questions 10000 --seed 1`.

Each question (principal, host, operation, resource) is answered on random ACLs by Kafka's StandardAuthorizer and by
`quorum/decide/authorizer.py`. The answers and the rules that decide must be equal. Exit code 1: a question has two answers;
it is printed. Exit code 6: Kafka's class cannot be had here.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from metadata_log.errors import AuthorizerNotReady
from metadata_log.ids import uuid_text
from metadata_log.image.metadata_image import MetadataImage
from ops.toolchain import ToolMissing
from quorum.decide.authorizer import Question, Why, verdict_of
from tests.authorizer.worlds import World, worlds
from tests.differential import kafka
from tests.support.arguments import positive

_WORDS = {
    Why.SUPER_USER: "SuperUser",
    Why.DEFAULT_ALLOW: "DefaultAllow",
    Why.DEFAULT_DENY: "DefaultDeny",
}


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    seed = random.SystemRandom().randrange(1_000_000) if args.seed is None else args.seed
    asked = worlds(seed, args.questions)
    try:
        theirs = list(
            kafka.answers(kafka.built(), [world.to_json() for world in asked], program="Authorizer")
        )
    except ToolMissing as missing:
        print(missing, file=sys.stderr)
        return 6
    rules: Counter[str] = Counter()
    differences = 0
    for world, answers in zip(asked, theirs, strict=True):
        image = world.image()
        for question, kafkas in zip(world.questions, answers, strict=True):
            ours = answer(image, world, question)
            kind = {True: "allowed", False: "denied", None: "not ready"}[ours[0]]
            rules[
                f"{kind} by {ours[1] if ours[1] in _WORDS.values() else 'an ACL'}" if ours[1] else kind
            ] += 1
            if ours != kafkas:
                differences += 1
                print(f"seed {seed}: {question}: Kafka {kafkas}, ours {ours}; {world.to_json()}")
    print(
        f"{rules.total()} questions from seed {seed}: "
        + ", ".join(f"{count} {rule}" for rule, count in sorted(rules.items()))
    )
    print(f"{differences} differences")
    return int(differences > 0)


def answer(image: MetadataImage, world: World, question: Question) -> list[Any]:
    """Return whether something is allowed, and the id of the ACL that decides, or Kafka's word for another rule."""
    try:
        verdict = verdict_of(
            image, question, super_users=world.super_users, allow_if_none=world.allow_if_none
        )
    except AuthorizerNotReady:
        return [None, None]
    return [
        verdict.is_allowed,
        _WORDS[verdict.why] if verdict.rule is None else uuid_text(verdict.rule.id),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.authorizer", description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=positive, default=10_000)
    parser.add_argument("--seed", type=int, help="drawn and printed where it is left out")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
