"""Edge: `users list|set-scram|delete-scram`: the users that log in by SCRAM."""

import base64
import getpass
import secrets
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import InvalidRequest
from metadata_log.node.identity.scram import ITERATIONS_MAX, ITERATIONS_MIN, salt_of, salted
from metadata_log.records.users import MECHANISMS
from ops.changes import REFUSED, Change, change, result_columns
from ops.guard import ask_first, guarded
from ops.options import Network, Noun, argument, option, reading
from ops.render import Column
from ops.talk import fail_usage
from ops.values import from_to

PASSWORD_BYTES_MAX: Final = 1_024
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


def _credentials(credentials: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{each['mechanism']} ({each['iterations']} iterations)" for each in credentials)


USERS: Final = (Column("user"), Column("credentials", show=_credentials))
NOUN: Final = Noun()


@NOUN.verb(
    "list", "List users that can log in by SCRAM; no secret is shown.", "users list", "users list alice"
)
@argument("user", "NAME", required=False)
@reading
def run_list(asked: Network, *, user: str | None) -> int:
    query = {} if user is None else {"user": user}
    items = asked.client().items(f"/v1/users?{urllib.parse.urlencode(query)}")
    asked.show_items(items, USERS, empty="no users with SCRAM credentials")
    return 0


@NOUN.verb(
    "set-scram",
    "Give a user a password, in place of any before. It is asked for, or read from a file; it is hashed here, and no node "
    "gets to know it.",
    "users set-scram alice",
    "users set-scram alice --mechanism SCRAM-SHA-512 --password-file alice.password",
)
@argument("user", "NAME")
@option("--mechanism", choices=list(_NUMBERS), default=MECHANISMS[1], help=f"default: {MECHANISMS[1]}")
@option(
    "--iterations",
    read=from_to(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_MIN,
    metavar="N",
    help=f"from {ITERATIONS_MIN}, the default, to {ITERATIONS_MAX}",
)
@option(
    "--password-file", metavar="FILE", help="its content without the last line break; -: the standard input"
)
@change
def run_set(asked: Change, *, user: str, mechanism: str, iterations: int, password_file: str | None) -> int:
    salt = salt_of(secrets.randbits(256))
    hashed = salted(_NUMBERS[mechanism], _password(user, password_file), salt, iterations)
    upsertion = {
        "user": user,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": base64.b64encode(salt).decode(),
        "salted_password": base64.b64encode(hashed).decode(),
    }
    return _alter(asked, {"upsertions": [upsertion]}, done="set")


def _password(user: str, file: str | None) -> bytes:
    if file == "-":
        text = sys.stdin.read(PASSWORD_BYTES_MAX + 2)
    elif file is not None:
        try:
            with Path(file).open(encoding="utf-8") as given:
                text = given.read(PASSWORD_BYTES_MAX + 2)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{file}: no password can be read: {error}") from error
    elif not sys.stdin.isatty():
        fail_usage(
            "no terminal to ask for a password: name --password-file FILE, or - for the standard input"
        )
    else:
        text = getpass.getpass(f"password of {user}: ")
        if getpass.getpass("once more: ") != text:
            raise InvalidRequest("the two passwords differ: nothing was changed")
    password = text.removesuffix("\n").removesuffix("\r").encode()
    if not 0 < len(password) <= PASSWORD_BYTES_MAX:
        raise InvalidRequest(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes, not {len(password)}")
    return password


@NOUN.verb(
    "delete-scram",
    "Take a user's credentials away: of one mechanism, or all. A connection that used one may do nothing more.",
    "users delete-scram alice",
)
@argument("user", "NAME")
@option("--mechanism", choices=list(_NUMBERS))
@change
@guarded
def run_delete(asked: Change, *, user: str, mechanism: str | None, yes: bool) -> int:
    what = f"credentials of {user} are deleted, which no log gives back"
    if not asked.dry_run and not ask_first(what, lambda: (), yes=yes):
        return REFUSED
    if mechanism is not None:
        return _alter(asked, {"deletions": [{"user": user, "mechanism": mechanism}]}, done="deleted")
    (item,) = asked.client().items(f"/v1/users?{urllib.parse.urlencode({'user': user})}")
    code = 0
    for each in item["credentials"]:
        # A request may name a user once.
        deletion = {"user": user, "mechanism": each["mechanism"]}
        code = _alter(asked, {"deletions": [deletion]}, done=f"{each['mechanism']} deleted") or code
    return code


def _alter(asked: Change, body: Mapping[str, Any], *, done: str) -> int:
    if asked.dry_run:
        return asked.foreseen("AlterUserScramCredentials", body)
    written = asked.client().write("PATCH", "/v1/users", body)["users"]
    columns = result_columns(Column("user"), done=done)
    asked.show(written, table=lambda: asked.table(columns, written, empty=""))
    return 0 if all(each["error"] is None for each in written) else 3
