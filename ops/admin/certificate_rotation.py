"""Edge: certificates of running nodes are replaced, one node at a time, and so is the authority that issued them.

How far a rotation is, the nodes say: what each shows is compared with what lies ready for it. In the authority's folder:

    rotation/controller-1.crt .key    what a node is to show; all of them move up once every node does
    next/ca.crt ca.key                the authority to come, until every node shows a certificate of it
    old/ca.crt ca.key                 the one before, until no node trusts it any more

An authority is replaced in three steps, since a client that trusts one alone refuses nodes of the other: `trust` (every node
trusts both), `certify` (every node gets a certificate of the new one), `retire` (no node trusts the old one).

Tests: tests/cluster/test_certificates.py.
"""

import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from metadata_log.errors import InvalidSettings
from metadata_log.node.disk.durable_files import renamed_os_errors, replace_file
from metadata_log.node.identity.certified_names import SCHEME
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.revocations import NONE, read_revoked
from ops.admin.cluster import Cluster
from ops.admin.exchange import Unreachable
from ops.admin.rolling import NotBack, UnsafeStep, wait_until
from ops.admin.shown_certificates import Target, is_issued_by, is_taken, served, targets, uri_of
from ops.admin.survey import judged
from ops.certificates import DAYS, REVOKED, Authority, new_key

Step: TypeAlias = Literal["trust", "certify", "retire"]
STEPS: Final[tuple[Step, ...]] = ("trust", "certify", "retire")
OF_CERTIFICATES: Final = ("CERTIFICATE", "AUTHORITY", "REVOKED")
"""What these reasons of `quorum health` say, a rotation mends."""
Install: TypeAlias = Callable[[Target, str, Path], None]
"""Brings a file to a node: its name there is one of node.crt, node.key, ca.crt and revoked.toml."""


class Rotated(NamedTuple):
    """A node, and what it shows or trusts by now."""

    role: str
    id: int
    what: str
    serial: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How certificates are replaced."""

    client: Cluster
    authority: Authority
    cluster_id: str
    install: Install
    show: TlsFiles | None
    """What is shown to Raft ports, which take no stranger."""
    patience_s: float
    """For each wait."""
    accepted: frozenset[str]
    """The reasons of a health that is not green which do not matter."""
    days: int = DAYS

    @property
    def _folder(self) -> Path:
        return self.authority.folder

    def targets(self) -> list[Target]:
        """Return the nodes whose files are ours to replace, and say which are not.

        Raises:
            UnsafeStep: one does not answer, or shows what this authority, or the next or the one before, did not issue.
        """
        found = targets(self.client)
        for each in found:
            if each.url is None:
                self.client.say(f"{each.name} is left alone: the key store of a broker of Kafka is its own")
        ours = [one for one in found if one.url is not None]
        issuers = self._issuers()
        for each in ours:
            for name, shown in self._shown(each).items():
                self._check_is_of(each, name, shown, issuers)
        return ours

    def _issuers(self) -> list[x509.Certificate]:
        files = [self.authority.ca, *(self._folder / name / "ca.crt" for name in ("next", "old"))]
        return [
            one
            for file in files
            if file.exists()
            for one in x509.load_pem_x509_certificates(file.read_bytes())
        ]

    def _check_is_of(
        self, target: Target, listener: str, shown: x509.Certificate, issuers: list[x509.Certificate]
    ) -> None:
        wanted = f"{SCHEME}://{self.cluster_id}/{target.role}/{target.id}"
        if uri_of(shown) != wanted:
            raise UnsafeStep(
                f"{target.name} shows on {listener} a certificate of {uri_of(shown)}, not {wanted}"
            )
        if not any(is_issued_by(shown, each) for each in issuers):
            raise UnsafeStep(
                f"{target.name} shows on {listener} a certificate that {self.authority.ca} did not issue: a new one of this "
                "authority would be refused by the others; name the folder of the cluster's own (--authority)"
            )

    def _shown(self, target: Target) -> dict[str, x509.Certificate]:
        try:
            return {one.name: served(one.address, self.show) for one in target.listeners}
        except Unreachable as error:
            raise UnsafeStep(
                f"{target.name} does not answer, so whether it took its new files could not be seen: {error.message}"
            ) from error

    # --- the nodes' certificates

    def rotate_nodes(self) -> Iterator[Rotated]:
        """Give each node a new certificate of the authority, and yield it once it shows it everywhere.

        Raises:
            UnsafeStep: the next node cannot be given one without harm; nothing was done to it.
            NotBack: one did not take it in time, or its links did not come back.
        """
        yield from self._certify_all(self.authority, keeps_its_own=False)
        self._move_up()

    def _certify_all(self, issuer: Authority, *, keeps_its_own: bool) -> Iterator[Rotated]:
        """Give each node a new certificate; `keeps_its_own`: one that shows the issuer's already has it."""
        found = self.targets()
        of_no_use = {one for one in found if self._is_of_no_use(one)}
        # The others refuse such a node already: a new certificate does it no harm, and may mend what is not green.
        for target in sorted(found, key=lambda one: one not in of_no_use):
            shown = self._shown(target)
            if keeps_its_own and all(is_issued_by(one, issuer.certificate) for one in shown.values()):
                yield Rotated(target.role, target.id, "shows its new certificate", None)
                continue
            files = self.lying_ready(target, issuer)
            wanted = x509.load_pem_x509_certificate(files.certificate.read_bytes())
            if self._shows(target, wanted) is not None:
                if target not in of_no_use:
                    self._wait(self._why_not_green, UnsafeStep, f"{target.name} is given no certificate")
                self.client.say(
                    f"{target.name}: a new certificate, until {wanted.not_valid_after_utc:%Y-%m-%d}"
                )
                # The key first: until its certificate is there, too, the node keeps what it has.
                self.install(target, "node.key", files.key)
                self.install(target, "node.crt", files.certificate)
                self._wait(
                    lambda one=target, new=wanted: self._shows(one, new),  # type: ignore[misc]  # a lambda's defaults
                    NotBack,
                    f"{target.name} was given its certificate",
                )
                of_no_use.discard(target)
                if not of_no_use:
                    self._wait(self._why_not_green, NotBack, f"{target.name} shows its certificate")
            yield Rotated(target.role, target.id, "shows its new certificate", f"{wanted.serial_number:x}")

    def _is_of_no_use(self, target: Target) -> bool:
        """Answer whether a node shows a certificate that has ended, or that the list in the authority's folder revokes."""
        return any(map(self._counts_no_longer, self._shown(target).values()))

    def _counts_no_longer(self, one: x509.Certificate) -> bool:
        listed = self._folder / REVOKED
        revoked = read_revoked(listed) if listed.exists() else NONE
        has_ended = one.not_valid_after_utc < dt.datetime.now(dt.UTC)
        return has_ended or revoked.has(one.public_bytes(serialization.Encoding.DER))

    def lying_ready(self, target: Target, issuer: Authority) -> TlsFiles:
        """Return the files that lie ready for a node; they are made where there are none of this issuer."""
        folder = self._folder / "rotation"
        files = TlsFiles(folder / f"{target.stem}.crt", folder / f"{target.stem}.key", issuer.ca)
        if files.certificate.exists():
            made = x509.load_pem_x509_certificate(files.certificate.read_bytes())
            if is_issued_by(made, issuer.certificate) and not self._counts_no_longer(made):
                return files
        with renamed_os_errors(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        public, key = new_key()
        shown = self._shown(target)["http"]
        replace_file(files.key, key)
        replace_file(files.certificate, issuer.renewed(shown, public, days=self.days))  # last: now both are
        return files

    def _shows(self, target: Target, wanted: x509.Certificate) -> str | None:
        """Return on which listeners a node shows another certificate; None: on none."""
        try:
            shown = {one.name: served(one.address, self.show) for one in target.listeners}
        except Unreachable as error:
            return error.message
        late = [name for name, found in shown.items() if found != wanted]
        return f"it shows another certificate on {', '.join(late)}" if late else None

    def _move_up(self) -> None:
        """Let what the nodes show lie in the authority's folder, as what it issued last."""
        folder = self._folder / "rotation"
        with renamed_os_errors(folder):
            for file in sorted(folder.glob("*.key")) + sorted(folder.glob("*.crt")):
                file.replace(self._folder / file.name)
            if folder.exists():
                folder.rmdir()

    # --- the authority

    def due(self) -> Step:
        """Return which step of the rotation of the authority comes next, or goes on."""
        following = self._folder / "next"
        if (following / "ca.crt").exists():
            probe = self._probe(Authority(following, cluster_id=self.cluster_id))
            takes = [is_taken(one.url, probe) for one in targets(self.client) if one.url is not None]
            return "certify" if all(takes) else "trust"
        return "retire" if (self._folder / "old" / "ca.crt").exists() else "trust"

    def rotate_authority(self, step: Step) -> Iterator[Rotated]:
        """Do one step, and yield each node once it has done it; raises as `rotate_nodes`."""
        match step:
            case "trust":
                return self._trust()
            case "certify":
                return self._certify()
            case "retire":
                return self._retire()

    def _trust(self) -> Iterator[Rotated]:
        """Let every node trust the authority to come, too."""
        found = self.targets()
        if not (self._folder / "next" / "ca.crt").exists():
            shutil.rmtree(self._folder / "next", ignore_errors=True)
        following = Authority(self._folder / "next", cluster_id=self.cluster_id)
        self._trust_in(self.authority.certificate, following.certificate)
        probe = self._probe(following)
        for target in found:
            yield from self._give_authorities(target, lambda one: self._why_refused(one, probe))

    def _certify(self) -> Iterator[Rotated]:
        """Give every node a certificate of the authority to come, and let it be the one of this folder."""
        following = Authority(self._folder / "next", cluster_id=self.cluster_id)
        yield from self._certify_all(following, keeps_its_own=True)
        for file, user in self._users():
            # Of the same key: a client that starts meanwhile finds both files in one piece.
            replace_file(file, following.renewed(user, user.public_key(), days=self.days))
        self._move_up()
        old, former = self._folder / "old", self.authority.certificate
        if former != following.certificate:  # else an interrupted step did all but the last line
            with renamed_os_errors(old):
                shutil.rmtree(old, ignore_errors=True)
                old.mkdir(mode=0o700)
            replace_file(old / "ca.key", (self._folder / "ca.key").read_bytes())
            replace_file(old / "ca.crt", former.public_bytes(serialization.Encoding.PEM))
            self._trust_in(following.certificate, former)
            replace_file(self._folder / "ca.key", (self._folder / "next" / "ca.key").read_bytes())
        _remove(self._folder / "next")

    def _retire(self) -> Iterator[Rotated]:
        """Let no node trust the authority of before."""
        found = self.targets()
        for target in found:
            for name, shown in self._shown(target).items():
                if not is_issued_by(shown, self.authority.certificate):
                    raise UnsafeStep(
                        f"{target.name} still shows on {name} a certificate of the old authority"
                    )
        of_users = self._users()
        if self.show is not None:
            own = x509.load_pem_x509_certificate(self.show.certificate.read_bytes())
            of_users.append((self.show.certificate, own))
        for file, user in of_users:
            if not is_issued_by(user, self.authority.certificate):
                raise UnsafeStep(f"{file} is of the old authority: its owner would be refused")
        probe = self._probe(Authority(self._folder / "old", cluster_id=self.cluster_id))
        self._trust_in(self.authority.certificate)
        for target in found:
            yield from self._give_authorities(target, lambda one: self._why_taken(one, probe))
        _remove(self._folder / "old")

    def _give_authorities(self, target: Target, why_not: Callable[[Target], str | None]) -> Iterator[Rotated]:
        if why_not(target) is not None:
            self._wait(self._why_not_green, UnsafeStep, f"{target.name} is given no authorities")
            self.client.say(f"{target.name}: the authorities that count from now on")
            self.install(target, "ca.crt", self.authority.ca)
            self._wait(lambda: why_not(target), NotBack, f"{target.name} was given the authorities")
            self._wait(self._why_not_green, NotBack, f"{target.name} took the authorities")
        yield Rotated(target.role, target.id, "trusts what it should", None)

    def _trust_in(self, *certificates: x509.Certificate) -> None:
        pems = [one.public_bytes(serialization.Encoding.PEM) for one in certificates]
        replace_file(self.authority.ca, b"".join(pems))

    def _users(self) -> list[tuple[Path, x509.Certificate]]:
        """Return the certificates of users in the authority's folder."""
        found = [
            (file, x509.load_pem_x509_certificate(file.read_bytes()))
            for file in sorted(self._folder.glob("*.crt"))
        ]
        users = f"{SCHEME}://{self.cluster_id}/user/"
        return [(file, one) for file, one in found if (uri_of(one) or "").startswith(users)]

    def _probe(self, authority: Authority) -> TlsFiles:
        """Return a certificate that a node takes only if it trusts an authority; it gives no rights."""
        return authority.certify("user", "authority.probe")

    def _why_refused(self, target: Target, probe: TlsFiles) -> str | None:
        return None if is_taken(target.url or "", probe) else "it does not trust the new authority yet"

    def _why_taken(self, target: Target, probe: TlsFiles) -> str | None:
        return "it still trusts the old authority" if is_taken(target.url or "", probe) else None

    # --- waits

    def _why_not_green(self) -> str | None:
        left = [
            one
            for one in judged(self.client)["reasons"]
            if one["code"] not in self.accepted and not one["code"].startswith(OF_CERTIFICATES)
        ]
        return "; ".join(f"{one['code']}: {one['detail']}" for one in left) or None

    def _wait(self, why_not: Callable[[], str | None], late: type[UnsafeStep | NotBack], what: str) -> None:
        wait_until(self.client, why_not, late, what, patience_s=self.patience_s)


def _remove(folder: Path) -> None:
    """Remove an authority's folder; without its certificate the rest counts as nothing."""
    with renamed_os_errors(folder):
        (folder / "ca.crt").unlink(missing_ok=True)
        shutil.rmtree(folder)


def authority_in(folder: Path, *, cluster_id: str) -> Authority:
    """Return the authority of a folder, which must be there.

    Raises:
        InvalidSettings: there is none, or its key is not its own.
    """
    for name in ("ca.crt", "ca.key"):
        if not (folder / name).exists():
            raise InvalidSettings(
                f"{folder} has no {name}: name the folder of the cluster's authority (--authority). Where it is kept "
                "elsewhere, let it issue the files, and put them in place: nodes read them within 5 s"
            )
    return Authority(folder, cluster_id=cluster_id)
