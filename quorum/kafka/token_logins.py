"""Edge: the credentials of delegation tokens by which clients log in, made in a thread.

The password of a token is its HMAC, so its credential takes some milliseconds of PBKDF2. A client has no identity yet when
it asks for one: how many are made, or wait for that, is bounded, and for each address, too. All logins that wait for the
credential of one token share it. Tests: tests/unit/quorum/kafka/test_token_logins.py.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final, TypeAlias

from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.limits import LOGINS_OF_ADDRESS_MAX
from metadata_log.node.identity.scram import Credential
from metadata_log.node.threads import Threads
from quorum.controller.token_hmacs import TokenHmacs

Key: TypeAlias = tuple[str, int]
"""The id of a token, and a mechanism."""


@dataclass(slots=True, eq=False)
class _Making:
    """A credential that is made, or waits for that; `address` is that of the client that was first to need it."""

    address: str | None
    outcome: asyncio.Future[Credential]
    waiting: dict[int, Callable[[Credential], None]] = field(default_factory=dict)


class TokenLogins:
    """The logins that wait for the credential of a token."""

    def __init__(self, tokens: TokenHmacs, threads: Threads) -> None:
        self._tokens, self._threads = tokens, threads
        self._makings: dict[Key, _Making] = {}
        self._of_address: Counter[str | None] = Counter()
        self._numbers: Final = count()

    def wait_for(
        self, token_id: str, mechanism: int, *, address: str | None, done: Callable[[Credential], None]
    ) -> Callable[[], None]:
        """Have a credential made, and hand it to `done`; return what gives that up.

        The addresses for which few are made come first. A credential that is not begun once all its logins have given it up
        is not made.

        Raises:
            ThrottlingQuotaExceeded: too many are made or wait, of all clients or of this address.
        """
        key = token_id, mechanism
        making = self._makings.get(key) or self._begun(key, address)
        number = next(self._numbers)
        making.waiting[number] = done
        return partial(self._give_up, key, making, number)

    def _begun(self, key: Key, address: str | None) -> _Making:
        of_address = self._of_address[address]
        if of_address >= LOGINS_OF_ADDRESS_MAX:
            raise ThrottlingQuotaExceeded(
                f"{of_address} logins by delegation tokens from {address} are under way: log in again shortly"
            )
        work = self._threads.begin(self._tokens.made_credential, *key, order=of_address)
        making = self._makings[key] = _Making(address, asyncio.wrap_future(work))
        self._of_address[address] += 1
        making.outcome.add_done_callback(partial(self._made, key, making))
        return making

    def _give_up(self, key: Key, making: _Making, number: int) -> None:
        making.waiting.pop(number, None)
        if not making.waiting and self._makings.get(key) is making:
            del self._makings[key]
            making.outcome.cancel()

    def _made(self, key: Key, making: _Making, outcome: asyncio.Future[Credential]) -> None:
        self._of_address[making.address] -= 1
        if not self._of_address[making.address]:
            del self._of_address[making.address]
        # All its logins may be gone since it was made, and another credential of this token be under way.
        if outcome.cancelled() or self._makings.get(key) is not making:
            return
        del self._makings[key]
        credential = outcome.result()
        self._tokens.keep(*key, credential)
        for done in making.waiting.values():
            done(credential)
