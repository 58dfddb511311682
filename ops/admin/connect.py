"""Edge: how a client is connected: by addresses, files and environment, as the command line and programs name them.
Tests: tests/unit/ops/admin/test_client.py.
"""

import json
import os
import random
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.errors import InvalidSettings
from metadata_log.node.addresses import is_node_url
from metadata_log.node.clock import unix_ms
from metadata_log.node.identity.certificate_dates import Dated
from metadata_log.node.identity.credentials import TlsFiles, bearer_from, dates_of, trusting
from ops import contexts
from ops.admin.cluster import Cluster
from ops.admin.exchange import Credentials, Say, silent
from ops.given import SHOWN, TIMEOUT_S, Misuse

BOOTSTRAP_VARIABLE: Final = "METAQUORUM_BOOTSTRAP"
DEFAULT_CLUSTER_FILE: Final = Path("metaquorum-data/cluster.json")


class NoBootstrap(Misuse):
    """No controller is named, and no cluster's file is here: nothing was asked."""


def connect(
    bootstrap: str | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    insecure: bool = False,
    say: Say = silent,
    takes_stale: bool = False,
    context: str | None = None,
    **files: str | Path | None,
) -> Cluster:
    """Return a client of the cluster at `bootstrap` (URL,URL...), else of METAQUORUM_BOOTSTRAP, else of the cluster here.

    Where neither names one, `context` does, else METAQUORUM_CONTEXT, else the context in use (`ops/contexts.py`), before the
    cluster here. What a context says that a client shows is shown where no argument and no variable says otherwise.

    `files` are `ca`, `cert`, `key` and `token_file` of SHOWN; each else comes from its variable. `timeout_s` bounds each
    request with its repetitions. `insecure` sends the token to http:// addresses, too. With `takes_stale` a controller that
    follows answers reads while none leads, and `say` gets how old that is. Nothing is sent yet.

    Raises:
        Misuse: an address is no URL, or a file lacks the one that belongs to it.
        NoBootstrap: no controller is named, and this directory holds no cluster.
        InvalidSettings: a file is missing, or is something else.
    """
    assert files.keys() <= set(SHOWN), f"files are {', '.join(SHOWN)}"
    place = named(bootstrap, context, files, insecure=insecure)
    return Cluster(
        place.urls,
        timeout_s=timeout_s,
        rng=random.SystemRandom(),
        credentials=credentials_from(
            place.files, place.urls, is_named=place.is_named, insecure=place.insecure, say=say
        ),
        cure="" if place.is_named else _CURE,
        say=say,
        takes_stale=takes_stale,
    )


class Named(NamedTuple):
    """A cluster as arguments, environment and contexts name it; not `is_named`: by the file of the cluster here."""

    urls: tuple[str, ...]
    files: Mapping[str, str | Path | None]
    is_named: bool
    insecure: bool

    def files_to_show(self) -> dict[str, Path]:
        """Return the files that a client shows, for a reader that is no `Cluster`; it gets a token under the same rule."""
        given = given_files(self.files)
        if not given and not self.is_named:
            given = paired(_files_of_cluster_file(DEFAULT_CLUSTER_FILE))
        if not self.is_named and "ca" not in given_files(self.files):
            given.pop("token_file", None)
        return given


def named(
    bootstrap: str | None, context: str | None, files: Mapping[str, str | Path | None], *, insecure: bool
) -> Named:
    """Return which cluster is asked, and what is shown there; raises as `connect`."""
    if bootstrap and context:
        raise Misuse("--bootstrap and --context each name a cluster: leave one out")
    if context or not (bootstrap or os.environ.get(BOOTSTRAP_VARIABLE)):
        found = contexts.chosen(context)
        if found is not None:
            bootstrap = ",".join(found[1].bootstrap)
            insecure = insecure or found[1].insecure
            files = {**found[1].files, **given_files(files)}
    is_named = bool(bootstrap or os.environ.get(BOOTSTRAP_VARIABLE))
    return Named(bootstrap_from(bootstrap), files, is_named, insecure)


_CURE: Final = (
    f"; {DEFAULT_CLUSTER_FILE} names these controllers: start them (metaquorum up), or name others "
    f"(--bootstrap URL,... or {BOOTSTRAP_VARIABLE})"
)


def given_files(files: Mapping[str, str | Path | None]) -> dict[str, Path]:
    """Return the files of SHOWN that are named, by argument or variable.

    Raises:
        Misuse: there is a certificate without its key, or a key without its certificate.
    """
    named = {name: files.get(name) or os.environ.get(f"METAQUORUM_{name.upper()}") for name in SHOWN}
    return paired({name: Path(file) for name, file in named.items() if file})


def paired(files: dict[str, Path]) -> dict[str, Path]:
    """Return the files; raises Misuse for a certificate without its key, or a key without its certificate."""
    if ("cert" in files) != ("key" in files):
        raise Misuse("--cert and --key belong together")
    return files


def credentials_from(
    files: Mapping[str, str | Path | None],
    bootstrap: Sequence[str],
    *,
    is_named: bool,
    insecure: bool,
    say: Say,
) -> Credentials:
    """Return what the files, else the environment, else the local cluster's file say that a client shows.

    Where the addresses come from that file (not `is_named`), which may be another person's, a token goes there only if an
    argument or the environment names the authority that proves them.

    Raises:
        Misuse, InvalidSettings: as `connect`.
    """
    given = given_files(files)
    is_proven = "ca" in given
    if not given and not is_named:
        given = paired(_files_of_cluster_file(DEFAULT_CLUSTER_FILE))
    ca, cert, key = (given.get(name) for name in ("ca", "cert", "key"))
    tls: ssl.SSLContext | None = None
    dates: tuple[Dated, ...] = ()
    if ca is not None:
        tls = TlsFiles(cert, key, ca).client() if cert is not None and key is not None else trusting(ca)
        dates = dates_of(cert, ca)
        say_ends(dates, say)
    elif cert is not None:
        raise Misuse("--cert needs --ca, the authority that the nodes' certificates come from")
    bearer = bearer_from(given.get("token_file"))
    token = bearer["Authorization"].removeprefix("Bearer ") if bearer else os.environ.get("METAQUORUM_TOKEN")
    if token is not None and not is_proven and not is_named:
        what = "the token" if bearer else "METAQUORUM_TOKEN"
        cure = f"name them (--bootstrap, {BOOTSTRAP_VARIABLE})"
        why = f"{what} is not sent to the addresses of {DEFAULT_CLUSTER_FILE}: {cure}"
        if files.get("token_file"):
            raise Misuse(f"{why}, or the authority that proves them (--ca)")
        say(why)
        token = None
    return Credentials(tls, token, dates, frozenset(bootstrap), insecure)


def say_ends(dates: Sequence[Dated], say: Say) -> None:
    """Say which of the client's own files ends within a month."""
    for each in dates:
        condition = each.condition(unix_ms() / 1000)
        if condition is not None:
            say(f"{condition[0]}: {condition[1]}")


def bootstrap_from(option: str | None) -> tuple[str, ...]:
    """Return the controllers to ask, by argument, environment, or ./metaquorum-data/cluster.json.

    Raises:
        Misuse: the argument or the variable is no list of URLs.
        NoBootstrap: neither names any, and this directory holds no cluster.
    """
    given = option or os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        named = (url.strip().removesuffix("/") for url in given.split(",") if url.strip())
        urls = tuple(dict.fromkeys(named))
        if not urls or not all(is_node_url(url) for url in urls):
            how = "--bootstrap" if option else BOOTSTRAP_VARIABLE
            raise Misuse(f"{how} {given!r}: wanted http://HOST:PORT[,http://HOST:PORT...]")
        return urls
    return bootstrap_of_cluster_file(DEFAULT_CLUSTER_FILE)


def bootstrap_of_cluster_file(path: Path) -> tuple[str, ...]:
    """Return the controllers that a cluster.json names.

    Raises:
        NoBootstrap: the file does not exist, or is not one of ours.
    """
    how = f"name controllers (--bootstrap URL,... or {BOOTSTRAP_VARIABLE}) or start some (metaquorum up)"
    try:
        cluster = json.loads(path.read_bytes())
    except OSError as error:
        raise NoBootstrap(f"{path}: {error.strerror}; {how}") from error
    except ValueError as error:
        raise NoBootstrap(f"{path} is not JSON; {how}") from error
    match cluster:
        case {"bootstrap": [*urls]} if urls and all(isinstance(u, str) and is_node_url(u) for u in urls):
            return tuple(urls)
    raise NoBootstrap(f"{path} names no controllers; {how}")


def _files_of_cluster_file(path: Path) -> dict[str, Path]:
    """Return the files of the admin of a local cluster that has TLS, by the names of the flags.

    Raises:
        InvalidSettings: one lies outside of the cluster's directory.
    """
    try:
        found = json.loads(path.read_bytes()).get("admin") or {}
    except (OSError, ValueError, AttributeError):
        return {}
    files = {name: path.parent / value for name, value in found.items() if name in SHOWN}
    for file in files.values():
        # Another person's file must not choose which key of this user's is shown.
        if not file.resolve().is_relative_to(path.parent.resolve()):
            raise InvalidSettings(f"{path}: names {file}, which lies outside of its directory")
    return files
