"""Pure: images as text, for comparisons."""

from metadata_log.image.metadata_image import SUBJECT_BUILDERS, MetadataImage


def lines(image: MetadataImage, *left_out: str) -> list[str]:
    """Return the lines of all subjects but those that are left out."""
    return sorted(
        line
        for builder in SUBJECT_BUILDERS
        if builder.FIELD not in left_out
        for line in builder.lines(getattr(image, builder.FIELD))
    )
