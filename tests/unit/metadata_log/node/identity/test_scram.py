"""Edge: login by SCRAM: RFC 7677's example, whoever proves nothing, and unknown users that look like known ones (B85)."""

import base64
import hashlib
import hmac
from collections.abc import Mapping

import pytest

from metadata_log.errors import AuthenticationFailed
from metadata_log.node.identity.scram import (
    HASHES,
    ITERATIONS_MIN,
    MESSAGE_BYTES_MAX,
    Asked,
    Credential,
    ServerExchange,
    keys_of,
    salt_of,
    salted,
)

DECOY_KEY = b"of this process"
SALT = salt_of(2**129 + 12345)


def credential(
    mechanism: int, password: str, salt: bytes = SALT, iterations: int = ITERATIONS_MIN
) -> Credential:
    return Credential(
        salt, iterations, keys_of(mechanism, salted(mechanism, password.encode(), salt, iterations))
    )


class Login:
    """One login at a server that knows some users."""

    def __init__(self, exchange: ServerExchange, users: Mapping[str, Credential]) -> None:
        self.exchange, self.users = exchange, users
        self.final = exchange.final

    def first(self, message: bytes) -> bytes:
        asked = self.exchange.first(message)
        return self.exchange.challenge(None if asked.is_token else self.users.get(asked.name))


def exchange(mechanism: int = 1, users: Mapping[str, Credential] | None = None, nonce: str = "SRV") -> Login:
    known = {"ann": credential(mechanism, "pencil")} if users is None else users
    return Login(ServerExchange(mechanism, nonce=nonce, decoy_key=DECOY_KEY), known)


def final_message(
    mechanism: int, bare: str, challenge: bytes, password: str, header: str = "n,,"
) -> tuple[bytes, bytes]:
    """Return the final message of a client, and the server's proof that it wants."""
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    without_proof = f"c={base64.b64encode(header.encode()).decode()},r={fields['r']}"
    signed = f"{bare},{challenge.decode()},{without_proof}".encode()
    name = HASHES[mechanism]
    hashed = salted(mechanism, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(hashed, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server = hmac.digest(hmac.digest(hashed, b"Server Key", name), signed, name)
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode(), b"v=" + base64.b64encode(server)


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    users = {"user": credential(1, "pencil", salt)}
    login = exchange(1, users, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    challenge = login.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert (
        challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    proof = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    answer = login.final(b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0," + proof)
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", [1, 2])
@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=ann,"])
def test_a_user_that_knows_its_password_logs_in(mechanism: int, header: str) -> None:
    login = exchange(mechanism)
    bare = "n=ann,r=cli,x=extension"
    challenge = login.first(f"{header}{bare}".encode())
    message, wanted = final_message(mechanism, bare, challenge, "pencil", header)
    assert login.final(message) == wanted
    assert login.exchange.asked == Asked("ann", is_token=False)


def test_names_with_commas_and_equals_signs_are_escaped() -> None:
    login = exchange(users={"a,b=c": credential(1, "pencil")})
    bare = "n=a=2Cb=3Dc,r=cli"
    message, wanted = final_message(1, bare, login.first(f"n,,{bare}".encode()), "pencil")
    assert login.final(message) == wanted


@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_a_wrong_password_and_an_unknown_user_fail_alike(user: str) -> None:
    login = exchange()
    bare = f"n={user},r=cli"
    challenge = login.first(f"n,,{bare}".encode())
    message, _ = final_message(1, bare, challenge, "chalk")
    with pytest.raises(AuthenticationFailed, match="no such credential, or the password is not its own"):
        login.final(message)


def test_a_stranger_cannot_tell_an_unknown_user_by_its_challenge() -> None:
    """It is the same at each attempt, and differs from user to user and from mechanism to mechanism."""
    challenges = {
        (mechanism, user): {exchange(mechanism).first(f"n,,n={user},r=cli".encode()) for _ in range(3)}
        for mechanism in (1, 2)
        for user in ("nobody", "no-one", "ann")
    }
    assert {len(each) for each in challenges.values()} == {1}
    salts = {
        next(iter(each)).decode().split(",")[1] for (_, user), each in challenges.items() if user != "ann"
    }
    assert len(salts) == 4
    known = next(iter(challenges[1, "ann"]))
    for each in challenges.values():
        ((nonce, salt, iterations),) = [next(iter(each)).split(b",")]
        assert (nonce, iterations) == (b"r=cliSRV", b"i=4096")
        assert abs(len(base64.b64decode(salt[2:])) - len(base64.b64decode(known.split(b",")[1][2:]))) <= 1
        assert base64.b64decode(salt[2:]).isalnum()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=ann",
        b"n,,r=cli,n=ann",
        b"p=tls-unique,,n=ann,r=cli",
        b"n,a=bob,n=ann,r=cli",
        b"n,,n=a=n,r=cli",
        b"n,,m=ext,n=ann,r=cli",
        b"n,,n=ann,r=c\x00li",
        b"n,,n=\xff,r=cli",
        b"n,,n=ann,r=" + b"c" * MESSAGE_BYTES_MAX,
    ],
)
def test_another_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        exchange().first(message)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"c=biws", b"c=eSws"),
        (b"r=cliSRV", b"r=cliSRVx"),
        (b",p=", b",q="),
        (b"p=", b"p=AAAA"),
        (b"biws", b"%%%%"),
    ],
)
def test_another_final_message_is_refused(old: bytes, new: bytes) -> None:
    login = exchange()
    message, _ = final_message(1, "n=ann,r=cli", login.first(b"n,,n=ann,r=cli"), "pencil")
    with pytest.raises(AuthenticationFailed):
        login.final(message.replace(old, new, 1))


def test_a_proof_of_another_exchange_proves_nothing() -> None:
    before = exchange(nonce="BEFORE")
    message, _ = final_message(1, "n=ann,r=cli", before.first(b"n,,n=ann,r=cli"), "pencil")
    login = exchange(nonce="LATER")
    login.first(b"n,,n=ann,r=cli")
    with pytest.raises(AuthenticationFailed):
        login.final(message)
    with pytest.raises(AuthenticationFailed):
        login.final(message.replace(b"BEFORE", b"LATER"))


def test_who_shows_a_token_says_so() -> None:
    login = exchange()
    login.first(b"n,,n=ann,r=cli,tokenauth=true")
    assert login.exchange.asked == Asked("ann", is_token=True)
