"""Edge: `users list|set-scram|delete-scram`: the users that log in by SCRAM."""

import base64
import getpass
import secrets
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import InvalidRequest
from metadata_log.node.identity.scram import ITERATIONS_MAX, ITERATIONS_MIN, salt_of, salted
from metadata_log.records.users import MECHANISMS
from ops.command_line.changes import REFUSED, Change, change, result_columns
from ops.command_line.guard import ask_first, guarded
from ops.command_line.options import Network, Noun, argument, option, reading
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage
from ops.command_line.values import from_to

if TYPE_CHECKING:
    from ops.admin.cluster import Cluster

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
    return _alter(asked, asked.client(), [{"upsertions": [upsertion]}], done="set")


def _password(user: str, file: str | None) -> bytes:
    if file == "-":
        text = sys.stdin.read(PASSWORD_BYTES_MAX + 2)
    elif file is not None:
        try:
            with Path(file).open(encoding="utf-8") as given:
                text = given.read(PASSWORD_BYTES_MAX + 2)
        except OSError as error:
            raise InvalidRequest(f"{file}: no password can be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"{file}: no password can be read: byte {error.start} is not UTF-8"
            ) from error
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
    client = asked.client()
    mechanisms = [mechanism] if mechanism else []
    if not mechanisms:
        (item,) = client.items(f"/v1/users?{urllib.parse.urlencode({'user': user})}")
        mechanisms = [each["mechanism"] for each in item["credentials"]]
    # A request may name a user once.
    deletions = [{"user": user, "mechanism": each} for each in mechanisms]
    return _alter(asked, client, [{"deletions": [one]} for one in deletions], done="deleted")


def _alter(asked: Change, client: "Cluster", bodies: Sequence[Mapping[str, Any]], *, done: str) -> int:
    """Send requests of one change each, and show what became of each."""
    if asked.dry_run:
        return asked.foreseen("AlterUserScramCredentials", *bodies)
    results: list[dict[str, Any]] = []
    for body in bodies:
        ((changed,),) = body.values()
        results += [
            one | {"mechanism": changed["mechanism"]}
            for one in client.write("PATCH", "/v1/users", body)["users"]
        ]
    columns = result_columns(Column("user"), Column("mechanism"), done=done)
    asked.show(results, table=lambda: asked.table(columns, results, empty=""))
    return REFUSED if any(one["error"] is not None for one in results) else 0
