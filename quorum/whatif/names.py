"""Pure: uuids by name, as scripts write them: the same word is always the same uuid.

A topic's id is `NAME#n`, an ACL's `acl#n`, a delegation token's `token#n`.
Tests: tests/unit/quorum/whatif/test_kafka_scripts.py.
"""

import hashlib
from typing import Final

from metadata_log.ids import LOST, MIGRATING, UNASSIGNED, BrokerId, TopicId, Uuid, in_order, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.acls import AccessControlEntryRecord
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.registry import Record
from metadata_log.records.tokens import DelegationTokenRecord
from metadata_log.records.topics import TopicRecord

RESERVED: Final = {"MIGRATING": MIGRATING, "ZERO": MIGRATING, "UNASSIGNED": UNASSIGNED, "LOST": LOST}


class Names:
    """The names of one script; it learns them from the records that are written."""

    def __init__(self) -> None:
        self._uuids: dict[str, Uuid] = dict(RESERVED)
        self._words: dict[bytes, str] = {uuid: word for word, uuid in RESERVED.items() if word != "ZERO"}
        self._topics_made: dict[str, int] = {}
        self._acls_made = 0
        self._tokens: dict[str, str] = {}
        """Ids of delegation tokens, which are texts, by word."""
        self._token_words: dict[str, str] = {}
        self._epochs: dict[BrokerId, tuple[int, int]] = {}

    def uuid(self, word: str) -> Uuid:
        """Return the uuid that a word means."""
        known = self._uuids.get(word)
        if known is None:
            raw = bytearray(hashlib.md5(word.encode(), usedforsecurity=False).digest())
            raw[6] = (raw[6] & 0x0F) | 0x30
            raw[8] = (raw[8] & 0x3F) | 0x80
            known = Uuid(
                bytes(raw)
            )  # as Java's nameUUIDFromBytes makes it: directories are listed in order of uuid
            self._name(word, known)
        return known

    def topic_id(self, image: MetadataImage, name: str) -> TopicId:
        """Return the id of the topic of that name, or one that no topic has."""
        return image.topics.ids.get(name) or TopicId(self.uuid(f"no topic {name}"))

    def word(self, uuid: bytes) -> str:
        """Return the word for a uuid; its text if the script never named it."""
        return self._words.get(uuid) or uuid_text(uuid)

    def token_id(self, word: str) -> str | None:
        """Return the id of the delegation token that a word names; None where none does."""
        return self._tokens.get(word)

    def token_word(self, token_id: str) -> str:
        """Return the word for the id of a delegation token; the id if no record had it."""
        return self._token_words.get(token_id, token_id)

    def previous_epoch(self, broker_id: BrokerId) -> int:
        """Return the last epoch of a broker that differs from its newest; -1 if there is none."""
        return self._epochs.get(broker_id, (-1, -1))[0]

    def learn(self, record: Record) -> None:
        """Learn the names that a written record brings."""
        if isinstance(record, TopicRecord):
            number = self._topics_made[record.name] = self._topics_made.get(record.name, 0) + 1
            self._name(f"{record.name}#{number}", record.topic_id)
        elif isinstance(record, AccessControlEntryRecord):
            self._acls_made += 1
            self._name(f"acl#{self._acls_made}", record.id)
        elif isinstance(record, DelegationTokenRecord):
            if record.token_id not in self._token_words:
                word = f"token#{len(self._tokens) + 1}"
                self._tokens[word], self._token_words[record.token_id] = record.token_id, word
        elif isinstance(record, RegisterBrokerRecord):
            _, newest = self._epochs.get(record.broker_id, (-1, -1))
            if newest != record.broker_epoch:
                self._epochs[record.broker_id] = (newest, record.broker_epoch)

    def learn_all(self, image: MetadataImage) -> None:
        """Learn the names of a state that the script begins with."""
        for name, topic_id in sorted(image.topics.ids.items()):
            self.learn(TopicRecord(topic_id, name))
        for acl_id in in_order(image.acls.by_id):
            self.learn(image.acls.by_id[acl_id])
        for token in sorted(image.tokens.values()):
            self.learn(token)
        for broker in image.brokers.values():
            self.learn(RegisterBrokerRecord._make(broker))

    def _name(self, word: str, uuid: bytes) -> None:
        self._uuids[word] = Uuid(uuid)
        self._words[uuid] = word
