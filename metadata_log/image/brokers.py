"""Pure: a broker as the log has made it."""

from metadata_log.records.brokers import BrokerRegistrationChangeRecord, RegisterBrokerRecord


class BrokerImage(RegisterBrokerRecord):
    """A registration, as later records changed it."""

    __slots__ = ()

    @property
    def is_active(self) -> bool:
        """Whether it may lead and join an ISR: neither fenced nor shutting down."""
        return not (self.fenced or self.in_controlled_shutdown)

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> "BrokerImage":
        """Return this broker after `record`."""
        return self._replace(
            fenced=self.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown or bool(record.in_controlled_shutdown),
            log_dirs=self.log_dirs if record.log_dirs is None else record.log_dirs,
            cordoned_log_dirs=(
                self.cordoned_log_dirs if record.cordoned_log_dirs is None else record.cordoned_log_dirs
            ),
        )
