"""Edge: what a node or a client shows, and whom it trusts: files of certificates, and of a token."""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metadata_log.errors import InvalidSettings

BEARER: Final = re.compile(r"Bearer ([!-~]{20,512})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the node's certificate (with intermediate ones), its key, and the authority that all nodes trust."""

    certificate: Path
    key: Path
    ca: Path

    def client(self) -> ssl.SSLContext:
        """Return a context for calls under this certificate.

        Raises:
            InvalidSettings: a file is missing, or is something else.
        """
        context = trusting(self.ca)
        load(context, self)
        return context


def trusting(ca: Path) -> ssl.SSLContext:
    """Return a client's context that trusts one authority.

    Raises:
        InvalidSettings: the file is missing, or is something else.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    harden(context)
    trust(context, ca)
    return context


def harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3


def load(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        # Without a password: OpenSSL would ask the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise InvalidSettings(
            f"{files.certificate}, {files.key}: no certificate with its key: {_reason(error)}"
        ) from error


def trust(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"{ca}: no certificate of an authority: {_reason(error)}") from error


def states_of(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    states = []
    for path in (files.certificate, files.key, files.ca):
        try:
            status = path.stat()
        except OSError as error:
            raise InvalidSettings(f"{path}: {error.strerror}") from error
        states.append((status.st_mtime_ns, status.st_ino))
    return tuple(states)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return getattr(error, "strerror", None) or str(error)


def bearer_from(file: Path | None) -> dict[str, str]:
    """Return the header with the token that a file holds; without a file, none.

    Raises:
        InvalidSettings: the file cannot be read, or holds something else.
    """
    if file is None:
        return {}
    try:
        header = f"Bearer {file.read_text(encoding='ascii').strip()}"
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSettings(f"{file}: holds no token") from error
    if not BEARER.fullmatch(header):
        raise InvalidSettings(f"{file}: holds no token: wanted 20 to 512 characters without spaces")
    return {"Authorization": header}
