"""Pure: the whole of a made-up subject, added to a copy of the production code: new files, and edits of files there are.

The subject is users' budgets: a record, its image, a decision, HTTP, a noun of the command line and a Parquet table. `new/`
holds its files, named as in the rooms. `EDITS` are the lines that the registries need.
"""

from pathlib import Path
from typing import Final

from tests.support.scratch_copy import Addition, Edit

REGISTRIES_MAX: Final = 3
"""A new subject may edit this many files, whatever number of files of its own it has."""
EDITS: Final = (
    Edit("metadata_log/records/registry.py", "producer_ids,", "    budgets,"),
    Edit(
        "metadata_log/records/registry.py",
        "producer_ids,",
        "    budgets,",
        after="SUBJECTS: Final[tuple[ModuleType, ...]] = (",
    ),
    Edit("metadata_log/records/registry.py", "| producer_ids.Record", "    | budgets.Record"),
    Edit(
        "metadata_log/image/metadata_image.py",
        "from metadata_log.image.quorum import Claimant, QuorumBuilder, QuorumImage",
        "from metadata_log.image.budgets import BudgetsBuilder, BudgetsImage",
    ),
    Edit(
        "metadata_log/image/metadata_image.py",
        "next_producer_id: ProducerIdsImage = None",
        "    budgets: BudgetsImage = field(default_factory=immutables.Map)",
    ),
    Edit(
        "metadata_log/image/metadata_image.py",
        "features: frozenset[str] = frozenset()",
        "    budgets: frozenset[str] = frozenset()",
    ),
    Edit("metadata_log/image/metadata_image.py", "ProducerIdsBuilder,", "    BudgetsBuilder,"),
    Edit(
        "metadata_log/image/metadata_image.py",
        "(ProducerIdsBuilder.FIELD, ProducerIdsBuilder.records),",
        "    (BudgetsBuilder.FIELD, BudgetsBuilder.records),",
    ),
    Edit(
        "ops/cli.py",
        '"configs": ("configs", "Settings of topics, brokers and the cluster."),',
        '    "budgets": ("budgets", "What users may produce."),',
    ),
)
SUBJECT: Final = Addition(Path(__file__).resolve().parent / "new", EDITS)
