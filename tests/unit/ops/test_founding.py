"""Pure: the options of `storage format`, in Kafka's words (B77, B85)."""

import base64
import random

import pytest

from metadata_log.node.identity.scram import keys_of, salted
from ops.founding import credential, feature_level

RNG = random.Random(1)


def test_a_level_of_a_feature_is_read() -> None:
    assert feature_level("group.version=1") == ("group.version", 1)
    assert feature_level(" kraft.version=0") == ("kraft.version", 0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("group.version", "equals sign not found"),
        ("group.version=x", "unable to parse x as a short"),
        ("group.version=", "unable to parse  as a short"),
        ("group.version=40000", "unable to parse 40000 as a short"),
        ("group.version=-1", "unable to parse -1 as a short"),
    ],
)
def test_what_is_no_level_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        feature_level(text)


@pytest.mark.parametrize(("mechanism", "number"), [("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 2)])
def test_a_password_becomes_the_keys_that_prove_it(mechanism: str, number: int) -> None:
    made = credential(f'{mechanism}=[name=alice,password="alice-secret",iterations=8192]', RNG)
    assert (made.name, made.mechanism, made.iterations) == ("alice", number, 8192)
    keys = keys_of(number, salted(number, b"alice-secret", made.salt, 8192))
    assert (made.stored_key, made.server_key) == keys
    assert made.mask_key is not None and len(made.mask_key) == 16


def test_a_salted_password_is_taken_as_it_is() -> None:
    """The example of Kafka's own help, with keys that its ScramFormatter makes of it."""
    made = credential('SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]', RNG)
    assert made.salt == base64.b64decode("N3E=")
    assert (made.stored_key, made.server_key) == keys_of(2, base64.b64decode("YCE="))
    assert credential("SCRAM-SHA-256=[name=a,password=b]", RNG).iterations == 4096


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign in the SCRAM argument"),
        ("SCRAM-SHA-1=[name=a,password=b]", "The add-scram mechanism SCRAM-SHA-1 is not supported"),
        ("SCRAM-SHA-256=name=a,password=b]", "to start with"),
        ("SCRAM-SHA-256=[name=a,password=b", "to end with"),
        ("SCRAM-SHA-256=[name]", "No equals sign found in a SCRAM component"),
        ("SCRAM-SHA-256=[password=b]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YCE=]", "You must supply 'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,salt=?,password=b]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,salt=N3E=,saltedpassword=?]", "Failed to decode given saltedPassword"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=x]", "Failed to parse iterations count: x"),
        (
            "SCRAM-SHA-256=[name=a,password=b,iterations=1]",
            "must be >= 4096 for add-scram using SCRAM_SHA_256",
        ),
        ("SCRAM-SHA-512=[name=a,password=b,iterations=16385]", "<= 16384 for add-scram using SCRAM_SHA_512"),
        ("SCRAM-SHA-256=[name=a,password=b,y=2,x=1]", "Unknown SCRAM configurations: x, y"),
    ],
)
def test_what_is_no_credential_is_refused_in_kafkas_words(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        credential(text, RNG)
    assert "password=b" not in str(refused.value)
